//! Protection domains: which queue pairs may touch which memory.

use std::fmt;
use std::sync::Arc;

use userdma_host::Host;
use userdma_objects::PdId;
use userdma_verbs::{AccessFlags, AhAttr};

use crate::asynch::Watch;
use crate::{Ah, Cq, Device, Error, Mr, Mw, QpBuilder, Srq};

/// A protection domain. Clones are the same domain; it ends when they and everything in it are gone.
#[derive(Clone)]
pub struct Pd {
    inner: Arc<Inner>,
}

struct Inner {
    host: Host,
    watch: Arc<Watch>,
    id: PdId,
}

/// Its device and number.
impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({} {})", self.host().name(), self.id().0)
    }
}

impl Pd {
    pub(crate) fn alloc_on(device: &Device) -> Result<Self, Error> {
        let id = device.host.control(|shard, _| shard.alloc_pd())?.ok_or(Error::NoPd)?;
        Ok(Self {
            inner: Arc::new(Inner { host: device.host.clone(), watch: Arc::clone(&device.watch), id }),
        })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Who asks the peers of the device's streams.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.inner.watch
    }

    /// Whether neither a clone nor anything in it is left.
    #[cfg(test)]
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }

    /// Registers `len` bytes of new memory, all zero, on page boundaries.
    ///
    /// Memory that is only sent from needs no rights, `AccessFlags::empty()`; what is received or read into needs
    /// `LOCAL_WRITE`; what peers may do needs the remote rights: the [`guide`](crate::guide) has a table.
    ///
    /// # Errors
    /// [`Error::RegMr`] if the rights do not go together, [`Error::Alloc`] if there is no memory.
    ///
    /// ```
    /// # use userdma::{AccessFlags, Device};
    /// # let pd = Device::open("127.0.21.3")?.alloc_pd()?;
    /// let mr = pd.alloc(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
    /// mr.write(100, b"for peers to read")?;
    /// assert_eq!(mr.to_vec(104..109)?, b"peers"[..]);
    /// # Ok::<_, userdma::Error>(())
    /// ```
    pub fn alloc(&self, len: usize, access: AccessFlags) -> Result<Mr, Error> {
        Mr::alloc(self, len, access)
    }

    /// Registers a vector's memory: [`Mr::into_vec`] gives it back. Rights as for [`Pd::alloc`].
    ///
    /// # Errors
    /// [`Error::RegMr`] if the rights do not go together. The vector is lost then.
    ///
    /// ```
    /// # use userdma::{AccessFlags, Device};
    /// # let pd = Device::open("127.0.21.4")?.alloc_pd()?;
    /// let mr = pd.register(vec![7; 100], AccessFlags::LOCAL_WRITE)?;
    /// mr.write(0, b"new")?;
    /// let vec = mr.into_vec()?;
    /// assert_eq!((&vec[..4], vec.len()), (&b"new\x07"[..], 100));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(&self, vec: Vec<u8>, access: AccessFlags) -> Result<Mr, Error> {
        Mr::register(self, vec, access)
    }

    /// A new type 2 memory window, to be bound by [`Qp::post_bind_mw`](crate::Qp::post_bind_mw).
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_mw(&self) -> Result<Mw, Error> {
        Mw::alloc(self)
    }

    /// A shared receive queue of `max_wr` receives with lists of up to `max_sge` elements, for queue pairs of this domain or others:
    /// [`QpBuilder::srq`].
    ///
    /// # Errors
    /// [`Error::CreateSrq`] says which size is not possible.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<Srq, Error> {
        Srq::create(self, max_wr, max_sge)
    }

    /// An address handle: the way to where datagrams go.
    ///
    /// # Errors
    /// [`Error::CreateAh`] says which attribute is wrong.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<Ah, Error> {
        Ah::create(self, attr)
    }

    /// The way back to where a datagram came from, as the first 40 bytes of its receive tell.
    ///
    /// # Errors
    /// [`Error::NoSource`] if they are not what stands before a datagram to this device.
    pub fn create_ah_back(&self, header: &[u8; Ah::GRH_LEN]) -> Result<Ah, Error> {
        Ah::create_back(self, header)
    }

    /// A queue pair to be made, with its completion queues.
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq) -> QpBuilder {
        QpBuilder::new(self, send_cq, recv_cq)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let id = self.id;
        // Everything in it holds it, so it is not busy; and a device that is not usable needs no tidying.
        let _ = self.host.control(move |shard, _| shard.dealloc_pd(id));
    }
}
