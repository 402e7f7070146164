//! Queue pairs whose operations are futures.

use std::marker::PhantomData;
use std::sync::Arc;

use userdma_host::Host;
use userdma_verbs::{
    AccessFlags, AtomicOp, QpAttr, QpAttrMask, QpCap, QpState, Qpn, RKey, RemoteAddr, SendOp,
};

use super::bind::BindRequest;
use super::cq::Handle;
use super::payload::{Payload, Slices};
use super::qp_state::QpShared;
use super::receives::Receives;
use super::request::{AtomicRequest, Request, WorkRequest};
use crate::qp::{Init, Rts};
use crate::{Endpoint, Error, MrSlice, Mw, Qp, RemoteMr, RtrAttr, RtsAttr};

/// A queue pair whose operations are futures. `S` is how far its set-up has come: `Init` or [`Rts`].
///
/// Futures do not borrow it, so they may move to other tasks; tasks share it by reference or in an `Arc`. Dropping it
/// destroys it: operations that have not ended resolve to [`WrError::Destroyed`](crate::WrError::Destroyed).
///
/// The peer is not told of that, and a peer that goes is noticed only by operations that it must answer, **not by receives**:
/// the [`guide`](crate::guide) says how to notice, and how to close without losing anything. Once an operation has failed
/// the queue pair is in the error state; a new one is the way out.
#[derive(Debug)]
pub struct AsyncQp<S = Rts> {
    owner: Owner,
    cap: QpCap,
    endpoint: Endpoint,
    state: PhantomData<fn() -> S>,
}

/// Destroys the queue pair when it is dropped.
#[derive(Debug)]
struct Owner(Arc<QpShared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

impl AsyncQp<Init> {
    pub(super) fn create(handle: &Arc<Handle>, qp: Qp<Init>) -> Result<Self, Error> {
        let (cap, endpoint) = (qp.cap(), qp.endpoint());
        let places = cap.max_send_wr.saturating_add(cap.max_recv_wr);
        handle.core().reserve(places)?;
        let shared = Arc::new(QpShared::new(handle, qp.into_unchecked(), places));
        handle.core().add(&shared);
        Ok(Self { owner: Owner(shared), cap, endpoint, state: PhantomData })
    }

    /// INIT to RTS with the default attributes. Both sides do it. Messages that arrive before the peer is there are
    /// resent until it is, after an ACK timeout (67 ms): to save that, exchange a word over the stream that brought the
    /// endpoints before the first message. It does not wait for the peer, and does not notice if there is none.
    ///
    /// # Errors
    /// The reason; the queue pair is destroyed.
    pub fn connect(self, peer: &Endpoint) -> Result<AsyncQp<Rts>, Error> {
        self.connect_with(peer, &RtrAttr::default(), &RtsAttr::default())
    }

    /// INIT to RTS.
    ///
    /// # Errors
    /// The reason; the queue pair is destroyed.
    pub fn connect_with(self, peer: &Endpoint, rtr: &RtrAttr, rts: &RtsAttr) -> Result<AsyncQp<Rts>, Error> {
        self.owner.0.with_qp(|qp| qp.connect_shared(peer, rtr, rts)).unwrap_or(Ok(()))?;
        Ok(self.into_connected())
    }

    /// Sets attributes, for somebody who takes it to RTS.
    pub(crate) fn modify_init(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
        self.owner.0.with_qp(|qp| qp.modify(attr, mask)).unwrap_or(Ok(()))
    }

    /// The same, which somebody has taken to RTS.
    pub(crate) fn into_connected(self) -> AsyncQp<Rts> {
        let Self { owner, cap, endpoint, .. } = self;
        AsyncQp { owner, cap, endpoint, state: PhantomData }
    }
}

impl<S> AsyncQp<S> {
    /// Its device.
    pub(crate) fn host(&self) -> &Host {
        self.owner.0.host()
    }

    /// Its operations, for streams.
    pub(super) fn shared(&self) -> &Arc<QpShared> {
        &self.owner.0
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.owner.0.qpn()
    }

    /// Its sizes. More operations than that may be under way: they wait for a place.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// What the peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The state that it is in now.
    pub fn state(&self) -> QpState {
        // It exists as long as this does.
        self.owner.0.with_qp(Qp::state).unwrap_or(QpState::Reset)
    }

    /// Its attributes. Asks the device, which answers at once.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn query(&self) -> Result<QpAttr, Error> {
        // It exists as long as this does.
        self.owner.0.with_qp(Qp::query).unwrap_or_else(|| Ok(QpAttr::default()))
    }

    /// Takes it to the error state: what is under way is flushed, and so is what is posted from now on.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn modify_to_err(&self) -> Result<(), Error> {
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        self.owner.0.with_qp(|qp| qp.modify(&attr, QpAttrMask::STATE)).unwrap_or(Ok(()))
    }

    /// A receive: the next message that no receive before it takes lands in `slices`, whose region needs `LOCAL_WRITE`. The
    /// completion tells the length; a message that is longer than `slices` is an error on both sides and ends the connection.
    ///
    /// Post receives before the peer may send, so before [`AsyncQp::connect`]. Where waiting may be given up, as in
    /// `select!`, or for a stream of messages, [`AsyncQp::receives`] is the better choice.
    pub fn recv(&self, slices: impl Into<Slices>) -> WorkRequest {
        WorkRequest::new(&self.owner.0, Request::Recv(slices.into()))
    }

    /// Receives into all of `buffers`, one message each, which are handed over now, and again when a message has been looked
    /// at. As many messages may be under way as there are buffers.
    pub fn receives(&self, buffers: impl IntoIterator<Item = MrSlice>) -> Receives {
        Receives::new(&self.owner.0, buffers)
    }
}

/// Operations. Each future owns the memory that it is given; nothing happens before it is polled. See [`WorkRequest`].
impl AsyncQp<Rts> {
    fn request(&self, op: SendOp, payload: impl Into<Payload>) -> WorkRequest {
        WorkRequest::new(&self.owner.0, Request::send(op, payload.into()))
    }

    /// SEND: a message for the oldest receive of the peer. Resolves when the bytes lie there. If there is no receive, it is
    /// sent again until there is one; if it is longer than the receive, both sides get an error and the connection ends.
    pub fn send(&self, payload: impl Into<Payload>) -> WorkRequest {
        self.request(SendOp::Send, payload)
    }

    /// SEND with immediate data, 32 bits that the peer's completion carries.
    pub fn send_with_imm(&self, payload: impl Into<Payload>, imm: u32) -> WorkRequest {
        self.request(SendOp::SendWithImm(imm), payload)
    }

    /// SEND that invalidates a memory window of the peer.
    pub fn send_with_inv(&self, payload: impl Into<Payload>, rkey: RKey) -> WorkRequest {
        self.request(SendOp::SendWithInv(rkey), payload)
    }

    /// RDMA WRITE to the start of `remote`. Its length is not looked at: the peer checks the range. Resolves when the bytes lie
    /// in the peer's memory; its program is not told. A message that is sent behind it arrives behind it.
    pub fn write(&self, payload: impl Into<Payload>, remote: RemoteMr) -> WorkRequest {
        self.request(SendOp::Write(address(remote)), payload)
    }

    /// RDMA WRITE with immediate data, which consumes a receive at the peer.
    pub fn write_with_imm(&self, payload: impl Into<Payload>, remote: RemoteMr, imm: u32) -> WorkRequest {
        self.request(SendOp::WriteWithImm(address(remote), imm), payload)
    }

    /// RDMA READ from the start of `remote` into `slices`, as many bytes as they hold. Their region needs `LOCAL_WRITE`.
    pub fn read(&self, slices: impl Into<Slices>, remote: RemoteMr) -> WorkRequest {
        self.request(SendOp::Read(address(remote)), slices.into())
    }

    /// COMPARE_SWAP on the 8 bytes at `remote`, whose address must be a multiple of 8; resolves to the value before, which
    /// lands in `result` (8 bytes) on its way.
    pub fn compare_swap(
        &self,
        result: impl Into<MrSlice>,
        remote: RemoteMr,
        compare: u64,
        swap: u64,
    ) -> AtomicRequest {
        let op = SendOp::Atomic(address(remote), AtomicOp::CompareSwap { compare, swap });
        AtomicRequest::new(&self.owner.0, op, result.into())
    }

    /// FETCH_ADD on the 8 bytes at `remote`, whose address must be a multiple of 8; resolves to the value before, which
    /// lands in `result` (8 bytes) on its way.
    pub fn fetch_add(&self, result: impl Into<MrSlice>, remote: RemoteMr, add: u64) -> AtomicRequest {
        let op = SendOp::Atomic(address(remote), AtomicOp::FetchAdd { add });
        AtomicRequest::new(&self.owner.0, op, result.into())
    }

    /// Binds a memory window to `part` of a region (which needs `MW_BIND`) with the peer's rights `access`; resolves to what
    /// to tell the peer.
    pub fn bind_mw(&self, mw: &Mw, part: impl Into<MrSlice>, access: AccessFlags) -> BindRequest {
        BindRequest::new(&self.owner.0, mw, part.into(), access)
    }

    /// Invalidates a memory window of this side: no peer gets in by its key from then on.
    pub fn local_inv(&self, rkey: RKey) -> WorkRequest {
        self.request(SendOp::LocalInv(rkey), ())
    }
}

fn address(remote: RemoteMr) -> RemoteAddr {
    RemoteAddr { addr: remote.addr, rkey: remote.rkey }
}
