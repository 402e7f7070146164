//! Queue pairs of unreliable datagrams.

use std::net::IpAddr;

use userdma_verbs::{PostError, QKey, QpAttr, QpAttrMask, QpState, Qpn, SendFlags, SendOp};

use super::{Data, Inline, Inner, Sgl};
use crate::{Error, UdDest};

/// A queue pair of unreliable datagrams: each message is one packet, for whom the post says; nobody learns whether it has
/// arrived.
///
/// It is made by [`QpBuilder::build_ud`](crate::QpBuilder::build_ud), ready to send and receive. Dropping it destroys it, as
/// [`Qp`](crate::Qp). Threads share it by reference.
///
/// A send that fails, since its memory was not right, takes its send queue to SQE: what is posted is flushed, receiving goes on,
/// and [`UdQp::resume`] makes it send again.
///
/// ```
/// # use userdma::{AccessFlags, Ah, AhAttr, Device, Inline, QKey, SendFlags, UdDest};
/// # let device = Device::open("127.0.21.40")?;
/// # let there = Device::open("127.0.21.41")?;
/// let key = QKey::new(0x1234);
/// let pd = device.alloc_pd()?;
/// let cq = device.create_cq(16)?;
/// let qp = pd.create_qp(&cq, &cq).build_ud(key)?;
/// # let (their_pd, their_cq) = (there.alloc_pd()?, there.create_cq(16)?);
/// # let their_qp = their_pd.create_qp(&their_cq, &their_cq).build_ud(key)?;
/// # let their_mr = their_pd.alloc(64, AccessFlags::LOCAL_WRITE)?;
/// // The peer posts a receive: 40 bytes more than the message.
/// their_qp.post_recv(1, &their_mr.slice(..))?;
/// // Who sends needs the peer's GID, number and key.
/// let ah = pd.create_ah(&AhAttr::to(their_qp.gid()))?;
/// let to = UdDest { ah: &ah, qpn: their_qp.qpn(), qkey: key };
/// qp.post_send(2, Inline(b"hello"), &to, SendFlags::SIGNALED)?;
/// cq.wait_for(1, None)?[0].check()?; // it has left
/// let wc = their_cq.wait_for(1, None)?[0].check()?;
/// assert_eq!((wc.src_qp, wc.byte_len), (qp.qpn(), 40 + 5));
/// assert_eq!(their_mr.to_vec(Ah::GRH_LEN..45)?, b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct UdQp {
    inner: Box<Inner>,
    qkey: QKey,
}

/// Its device, number and state.
impl std::fmt::Debug for UdQp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdQp({} {} {:?})", self.inner.host().name(), self.qpn(), self.state())
    }
}

impl UdQp {
    pub(super) fn start(inner: Box<Inner>, qkey: QKey) -> Result<Self, Error> {
        use QpAttrMask as M;
        let attr = QpAttr { port_num: 1, qkey, sq_psn: inner.psn, ..QpAttr::default() };
        for (qp_state, mask) in [
            (QpState::Init, M::PKEY_INDEX | M::PORT | M::QKEY),
            (QpState::Rtr, M::empty()),
            (QpState::Rts, M::SQ_PSN),
        ] {
            inner.modify(&QpAttr { qp_state, ..attr }, mask | M::STATE)?;
        }
        Ok(Self { inner, qkey })
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qp.qpn()
    }

    /// The key that datagrams to it must have.
    pub fn qkey(&self) -> QKey {
        self.qkey
    }

    /// The GID that it can be reached at.
    pub fn gid(&self) -> userdma_verbs::Gid {
        self.inner.gid
    }

    /// The state that it is in now: RTS, SQE after a send that failed, or ERR.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// Posts a receive. The first 40 bytes of `list` ([`Ah::GRH_LEN`](crate::Ah::GRH_LEN)) tell where the datagram came from, the
    /// payload follows; `byte_len` of the completion counts both, its `src_qp` is the sender's. A datagram without a receive, or
    /// longer than it, is dropped.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_recv<'a>(&self, wr_id: u64, list: impl Into<Sgl<'a>>) -> Result<(), Error> {
        self.inner.post_recv(wr_id, list.into())
    }

    /// Sends one datagram. It completes when it has left.
    ///
    /// # Errors
    /// [`Error::Post`], also if it is longer than [`Ah::max_len`](crate::Ah::max_len); [`Error::OtherDevice`]. Nothing was posted.
    pub fn post_send<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        to: &UdDest<'_>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.post(wr_id, SendOp::Send, data.into(), to, flags)
    }

    /// The same with immediate data.
    ///
    /// # Errors
    /// As [`UdQp::post_send`].
    pub fn post_send_with_imm<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        imm: u32,
        to: &UdDest<'_>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.post(wr_id, SendOp::SendWithImm(imm), data.into(), to, flags)
    }

    /// From now on the queue pair gets what is sent to a group (multicast: 224.0.0.0/4 or ff00::/8) and [`Qpn::MULTICAST`] with
    /// its key, also from its own device and from itself. A receive for each, as for any datagram; the first 40 bytes have the
    /// group as the destination. Twice is once.
    ///
    /// With the device's first queue pair in the group its interfaces join it, by IGMP or MLD, which the kernel does, and with the last
    /// they leave. To send to a group needs no more than an address handle to it.
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use userdma::{AccessFlags, Ah, AhAttr, Device, Inline, QKey, Qpn, SendFlags, UdDest};
    /// # let device = Device::open("127.73.21.40")?;
    /// # let there = Device::open("127.73.21.41")?;
    /// # let (key, pd, cq) = (QKey::new(0x1234), device.alloc_pd()?, device.create_cq(16)?);
    /// # let qp = pd.create_qp(&cq, &cq).build_ud(key)?;
    /// # let (their_pd, their_cq) = (there.alloc_pd()?, there.create_cq(16)?);
    /// # let their_qp = their_pd.create_qp(&their_cq, &their_cq).build_ud(key)?;
    /// # let their_mr = their_pd.alloc(64, AccessFlags::LOCAL_WRITE)?;
    /// let group: IpAddr = "239.73.21.40".parse()?;
    /// // Any number of processes and hosts:
    /// their_qp.post_recv(1, &their_mr.slice(..))?;
    /// their_qp.attach_multicast(group)?;
    /// // One who sends:
    /// let ah = pd.create_ah(&AhAttr::to(group.into()))?;
    /// let to = UdDest { ah: &ah, qpn: Qpn::MULTICAST, qkey: key };
    /// qp.post_send(2, Inline(b"hello"), &to, SendFlags::SIGNALED)?;
    /// their_cq.wait_for(1, None)?[0].check()?;
    /// assert_eq!(their_mr.to_vec(Ah::GRH_LEN..45)?, b"hello");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Attach`]: it is no group's address, there are too many, or the system has no descriptor left. Nothing has changed.
    pub fn attach_multicast(&self, group: IpAddr) -> Result<(), Error> {
        Ok(self.inner.host().attach_multicast(self.qpn(), group.into())??)
    }

    /// Ends what [`UdQp::attach_multicast`] began. What has come to a group that nobody is in any more is dropped; what the queue
    /// pair has received stays. A queue pair that is dropped leaves its groups.
    ///
    /// # Errors
    /// [`Error::Object`]: it is not in the group.
    pub fn detach_multicast(&self, group: IpAddr) -> Result<(), Error> {
        Ok(self.inner.host().detach_multicast(self.qpn(), group.into())??)
    }

    /// SQE to RTS: it sends again. What was posted meanwhile was flushed.
    ///
    /// # Errors
    /// [`Error::ModifyQp`] in ERR.
    pub fn resume(&self) -> Result<(), Error> {
        let attr = QpAttr { qp_state: QpState::Rts, ..QpAttr::default() };
        self.inner.modify(&attr, QpAttrMask::STATE)
    }

    fn post(
        &self,
        wr_id: u64,
        op: SendOp,
        data: Data<'_>,
        to: &UdDest<'_>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        if !to.ah.pd().host().is_same(self.inner.host()) {
            return Err(Error::OtherDevice("address handle"));
        }
        let (len, max) = (len(&data), to.ah.max_len());
        if len > u64::from(max) {
            return Err(PostError::DatagramTooLong { len, max }.into());
        }
        self.inner.post_to(wr_id, op, data, flags, Some(&to.addr()))
    }
}

fn len(data: &Data<'_>) -> u64 {
    match data {
        Data::Sgl(Sgl(list)) => list.iter().map(|slice| slice.len() as u64).sum(),
        Data::Inline(Inline(bytes)) => bytes.len() as u64,
    }
}
