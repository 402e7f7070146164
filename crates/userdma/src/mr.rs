//! Memory regions.

mod slice;

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use userdma_host::VecMr;
use userdma_mem::{Buffer, Region};
use userdma_objects::MrKeys;
use userdma_verbs::{AccessFlags, LKey, ObjectError, RKey};

use crate::{Error, Pd};

pub use slice::{MrSlice, RemoteMr, SliceRange};

/// Registered memory. It is never borrowed: devices and peers may change it at any time.
///
/// Dropping it ends the registration as soon as no slice of it and no posted operation is left.
pub struct Mr {
    inner: Arc<Inner>,
}

/// The registration: counted by the region itself, its slices, posted operations, bound windows.
#[derive(Debug)]
pub(crate) struct Inner {
    pd: Pd,
    keys: MrKeys,
    region: Region,
    /// The address of the first byte for work requests and peers.
    addr: u64,
    access: AccessFlags,
    memory: Memory,
}

/// Who ends the registration.
#[derive(Debug)]
enum Memory {
    /// The inner itself: memory of the device's making, or raw.
    Registered,
    /// The vector's own registration.
    Vec(VecMr),
    /// Nobody: it has ended.
    Ended,
}

/// A region that could not be taken apart, and why.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct DeregisterError {
    /// The region, as it was.
    pub mr: Mr,
    /// Why.
    pub reason: Error,
}

/// Where it is, its keys and rights; none of its memory.
impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len())
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .field("access", &self.access())
            .finish()
    }
}

impl Mr {
    pub(crate) fn alloc(pd: &Pd, len: usize, access: AccessFlags) -> Result<Self, Error> {
        let buffer = Arc::new(Buffer::new(len).map_err(|source| Error::Alloc { len, source })?);
        Self::of_region(pd, Region::from_buffer(&buffer), access)
    }

    pub(crate) fn register(pd: &Pd, vec: Vec<u8>, access: AccessFlags) -> Result<Self, Error> {
        let memory = VecMr::register(pd.host(), pd.id(), vec, access)?.map_err(|(_, error)| error)?;
        let (keys, region) = (memory.keys(), memory.region().clone());
        Ok(Self::new(pd, keys, region, access, Memory::Vec(memory)))
    }

    /// Registers `len` bytes of this process's memory at `addr`, which need not be owned by Rust. The memory may
    /// vanish (be unmapped) while it is registered: work requests that need it then end in errors.
    ///
    /// # Errors
    /// [`Error::RegMr`] if the memory is not there or lacks the rights.
    ///
    /// # Safety
    /// Until the region, its slices and every operation posted with it are gone, bytes of the range may be read and,
    /// with writing rights, changed at any time, by this process's device and by peers. No Rust reference to them may
    /// be live meanwhile (except shared ones, if the rights allow reading only), and the memory must not become
    /// part of another allocation.
    #[allow(unsafe_code)]
    pub unsafe fn register_raw(
        pd: &Pd,
        addr: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<Self, Error> {
        // SAFETY: the caller promises what the region demands for as long as clones of this region exist: in the device's
        // table and here, both until the registration ends.
        let region = unsafe { Region::from_raw(addr, len) };
        Self::of_region(pd, region, access)
    }

    fn of_region(pd: &Pd, region: Region, access: AccessFlags) -> Result<Self, Error> {
        let keys = pd.host().reg_mr(pd.id(), region.clone(), iova(&region, access), access)??;
        Ok(Self::new(pd, keys, region, access, Memory::Registered))
    }

    fn new(pd: &Pd, keys: MrKeys, region: Region, access: AccessFlags, memory: Memory) -> Self {
        let addr = iova(&region, access);
        Self { inner: Arc::new(Inner { pd: pd.clone(), keys, region, addr, access, memory }) }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address that work requests and peers use for its first byte.
    pub fn addr(&self) -> u64 {
        self.inner.addr
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> LKey {
        self.inner.keys.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> RKey {
        self.inner.keys.rkey
    }

    /// The rights.
    pub fn access(&self) -> AccessFlags {
        self.inner.access
    }

    /// What a peer needs to reach it.
    pub fn remote(&self) -> RemoteMr {
        self.slice(..).remote()
    }

    /// A range of it, for work requests.
    ///
    /// # Panics
    /// If the range is not inside the region, as slices do.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> MrSlice {
        MrSlice::new(&self.inner, SliceRange::of(&range, self.len()))
    }

    /// Copies from `offset` into `out`.
    ///
    /// # Errors
    /// The range is not inside the region, or the memory has vanished. `out` holds any mixture then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        Ok(self.inner.region.read(offset as u64, out)?)
    }

    /// Copies a range into a new vector.
    ///
    /// # Errors
    /// The memory has vanished.
    ///
    /// # Panics
    /// If the range is not inside the region, as slices do.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, Error> {
        let SliceRange { start, end } = SliceRange::of(&range, self.len());
        let mut vec = vec![0; end - start];
        self.read(start, &mut vec)?;
        Ok(vec)
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// The range is not inside the region, or the memory has vanished or is read-only. Any part may be written then.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        Ok(self.inner.region.write(offset as u64, data)?)
    }

    /// Atomically loads the 8 bytes at `offset`, in host order; their address must be a multiple of 8.
    ///
    /// # Errors
    /// They are not inside the region or not aligned, or the memory has vanished.
    pub fn load(&self, offset: usize) -> Result<u64, Error> {
        Ok(self.inner.region.load(offset as u64)?)
    }

    /// Atomically stores 8 bytes at `offset`, as [`Mr::load`].
    ///
    /// # Errors
    /// As [`Mr::load`].
    pub fn store(&self, offset: usize, value: u64) -> Result<(), Error> {
        Ok(self.inner.region.store(offset as u64, value)?)
    }

    /// Atomically adds to the 8 bytes at `offset`, wrapping; the value before. Atomic with peers' atomics.
    ///
    /// # Errors
    /// As [`Mr::load`].
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Error> {
        Ok(self.inner.region.fetch_add(offset as u64, add)?)
    }

    /// Atomically stores `swap` at `offset` if the 8 bytes there equal `compare`; the value before.
    ///
    /// # Errors
    /// As [`Mr::load`].
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Error> {
        Ok(self.inner.region.compare_swap(offset as u64, compare, swap)?)
    }

    /// Ends the registration now.
    ///
    /// # Errors
    /// [`DeregisterError`] holds the region, unchanged, while slices, posted operations or windows use it.
    pub fn deregister(self) -> Result<(), DeregisterError> {
        self.into_inner().map(drop)
    }

    /// Ends the registration and gives back the vector that was registered; memory from [`Pd::alloc`] or
    /// [`Mr::register_raw`] is copied into a new one.
    ///
    /// # Errors
    /// As [`Mr::deregister`]; or the memory has vanished.
    pub fn into_vec(self) -> Result<Vec<u8>, DeregisterError> {
        if !matches!(self.inner.memory, Memory::Vec(_)) {
            return match self.to_vec(..) {
                Ok(copy) => self.deregister().map(|()| copy),
                Err(reason) => Err(DeregisterError { mr: self, reason }),
            };
        }
        let mut inner = self.into_inner()?;
        match std::mem::replace(&mut inner.memory, Memory::Ended) {
            Memory::Vec(memory) => memory.deregister().map_err(|(memory, reason)| {
                inner.memory = Memory::Vec(memory);
                DeregisterError { mr: Self { inner: Arc::new(inner) }, reason: reason.into() }
            }),
            // It was a vector above, and nobody else has it.
            Memory::Registered | Memory::Ended => Ok(Vec::new()),
        }
    }

    fn into_inner(self) -> Result<Inner, DeregisterError> {
        Arc::try_unwrap(self.inner).map_err(|inner| {
            let users = u32::try_from(Arc::strong_count(&inner) - 1).unwrap_or(u32::MAX);
            let reason = ObjectError::Busy { object: "memory region", users };
            DeregisterError { mr: Self { inner }, reason: reason.into() }
        })
    }
}

impl Inner {
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    fn len(&self) -> usize {
        // It lies in this process's memory.
        usize::try_from(self.region.len()).unwrap_or(usize::MAX)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match self.memory {
            Memory::Registered => {
                let lkey = self.keys.lkey;
                // Windows that are bound to it hold it, so it is not busy; a device that is not usable has no peers.
                let _ = self.pd.host().control(move |shard, _| shard.dereg_mr(lkey).map(drop));
            }
            Memory::Vec(_) | Memory::Ended => {}
        }
    }
}

/// The address of the first byte for work requests and peers.
fn iova(region: &Region, access: AccessFlags) -> u64 {
    if access.contains(AccessFlags::ZERO_BASED) { 0 } else { region.addr() }
}
