//! Posting work requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use userdma_objects::UdAddr;
use userdma_verbs::{
    AccessFlags, AtomicOp, BindMw, PostError, RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr,
};

use super::data::sge;
use super::{Data, Inline, Inner, Qp, Rts, Sgl, Unchecked};
use crate::ledger::{Entries, Held};
use crate::{Error, MrSlice, Mw, RemoteMr, mw};

/// A queue pair that may send: [`Rts`], or one whose state the program keeps account of.
pub trait Posts: sealed::Sealed {}
impl Posts for Rts {}
impl Posts for Unchecked {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rts {}
    impl Sealed for super::Unchecked {}
}

impl<S> Qp<S> {
    /// Posts a receive: the next message that no receive before it takes lands in `list`, whose regions need `LOCAL_WRITE`. A
    /// longer message is an error on both sides. Post receives before the peer may send.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted. With a shared receive queue, receives are posted to that.
    pub fn post_recv<'a>(&self, wr_id: u64, list: impl Into<Sgl<'a>>) -> Result<(), Error> {
        self.inner.post_recv(wr_id, list.into())
    }
}

/// Every operation holds its memory until its completion, or that of a later one on the same queue, has been polled.
/// `wr_id` comes back in the completion. An operation that is refused was not posted; what goes wrong later is in its
/// completion.
impl<S: Posts> Qp<S> {
    /// SEND: a message for the oldest receive of the peer. It completes when the bytes lie there. If there is no receive, it
    /// is sent again until there is one.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_send<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::Send, data.into(), flags)
    }

    /// Any operation.
    pub(crate) fn post_op(
        &self,
        wr_id: u64,
        op: SendOp,
        data: Data<'_>,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, op, data, flags)
    }

    /// SEND with immediate data.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_send_with_imm<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        imm: u32,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::SendWithImm(imm), data.into(), flags)
    }

    /// SEND that invalidates a memory window of the peer.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_send_with_inv<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        rkey: RKey,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::SendWithInv(rkey), data.into(), flags)
    }

    /// RDMA WRITE to the start of `remote`. Its length is not looked at: the peer checks the range. It completes when the bytes
    /// lie in the peer's memory; its program is not told. A message that is posted behind it arrives behind it.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_write<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        remote: RemoteMr,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::Write(address(remote)), data.into(), flags)
    }

    /// RDMA WRITE with immediate data, which consumes a receive at the peer.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_write_with_imm<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        remote: RemoteMr,
        imm: u32,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::WriteWithImm(address(remote), imm), data.into(), flags)
    }

    /// RDMA READ from the start of `remote` into `list`, as many bytes as `list` holds. Its regions need `LOCAL_WRITE`.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_read<'a>(
        &self,
        wr_id: u64,
        list: impl Into<Sgl<'a>>,
        remote: RemoteMr,
        flags: SendFlags,
    ) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::Read(address(remote)), Data::Sgl(list.into()), flags)
    }

    /// COMPARE_SWAP on the 8 bytes at `remote`, whose address must be a multiple of 8; the value before lands in `result`
    /// (8 bytes), in host order.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_compare_swap(
        &self,
        wr_id: u64,
        result: &MrSlice,
        remote: RemoteMr,
        compare: u64,
        swap: u64,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let op = SendOp::Atomic(address(remote), AtomicOp::CompareSwap { compare, swap });
        self.inner.post(wr_id, op, result.into(), flags)
    }

    /// FETCH_ADD on the 8 bytes at `remote`, whose address must be a multiple of 8; the value before lands in `result`
    /// (8 bytes), in host order.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_fetch_add(
        &self,
        wr_id: u64,
        result: &MrSlice,
        remote: RemoteMr,
        add: u64,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let op = SendOp::Atomic(address(remote), AtomicOp::FetchAdd { add });
        self.inner.post(wr_id, op, result.into(), flags)
    }

    /// Invalidates a memory window of this side.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_local_inv(&self, wr_id: u64, rkey: RKey, flags: SendFlags) -> Result<(), Error> {
        self.inner.post(wr_id, SendOp::LocalInv(rkey), ().into(), flags)
    }

    /// Binds a memory window to a part of a region (which needs `MW_BIND`) with the peer's rights `access`; what to
    /// tell the peer, valid once the bind has completed.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted.
    pub fn post_bind_mw(
        &self,
        wr_id: u64,
        mw: &Mw,
        part: &MrSlice,
        access: AccessFlags,
        flags: SendFlags,
    ) -> Result<RemoteMr, Error> {
        self.inner.post_bind_mw(wr_id, mw.inner(), part, access, flags)
    }

    /// A bind, of a window that its future holds.
    pub(crate) fn post_bind(
        &self,
        wr_id: u64,
        mw: &Arc<mw::Inner>,
        part: &MrSlice,
        access: AccessFlags,
        flags: SendFlags,
    ) -> Result<RemoteMr, Error> {
        self.inner.post_bind_mw(wr_id, mw, part, access, flags)
    }
}

impl Inner {
    pub(super) fn post_recv(&self, wr_id: u64, list: Sgl<'_>) -> Result<(), Error> {
        if self.srq.is_some() {
            return Err(PostError::SharedRecvQueue.into());
        }
        self.host().check()?;
        list.with_sges(self.host(), self.qp.cap().max_recv_sge, |sgl| {
            let mut recvs = self.recvs.lock();
            check_room(&recvs)?;
            self.qp.post_recv(&RecvWr { wr_id: recvs.next_id(), sgl })?;
            recvs.push(wr_id, list.0.iter().map(|slice| Held::mr(slice.mr())));
            Ok(())
        })?;
        self.host().doorbell_recv(&self.qp);
        Ok(())
    }

    fn post(&self, wr_id: u64, op: SendOp, data: Data<'_>, flags: SendFlags) -> Result<(), Error> {
        self.post_to(wr_id, op, data, flags, None)
    }

    /// Posts a send, to `addr` if it is a datagram.
    #[inline]
    pub(super) fn post_to(
        &self,
        wr_id: u64,
        op: SendOp,
        data: Data<'_>,
        flags: SendFlags,
        addr: Option<&UdAddr>,
    ) -> Result<(), Error> {
        let wr = SendWr { wr_id, op, flags: flags.difference(SendFlags::INLINE), sgl: &[], inline: &[] };
        match data {
            Data::Sgl(list) => {
                let held = list.0.iter().map(|slice| Held::mr(slice.mr()));
                self.post_send(wr, list, addr, held)
            }
            Data::Inline(Inline(bytes)) => {
                let flags = flags | SendFlags::INLINE;
                self.post_send(SendWr { flags, inline: bytes, ..wr }, Sgl(&[]), addr, std::iter::empty())
            }
        }
    }

    /// Posts `wr`, whose `sgl` is `list` as the device wants it.
    fn post_send(
        &self,
        wr: SendWr<'_>,
        list: Sgl<'_>,
        addr: Option<&UdAddr>,
        held: impl Iterator<Item = Held>,
    ) -> Result<(), Error> {
        self.host().check()?;
        list.with_sges(self.host(), self.qp.cap().max_send_sge, |sgl| {
            let mut sends = self.sends.lock();
            check_room(&sends)?;
            let posted = SendWr { wr_id: sends.next_id(), sgl, ..wr };
            match addr {
                None => self.qp.post_send(&posted),
                Some(addr) => self.qp.post_datagram(&posted, addr),
            }?;
            // Its completion may be in the queue by now; whoever polls it waits for this lock.
            sends.push(wr.wr_id, held);
            Ok(())
        })?;
        if self.batches.load(Ordering::Acquire) == 0 {
            self.host().doorbell_send(&self.qp);
        } else {
            self.host().mark_send(&self.qp);
        }
        Ok(())
    }

    fn post_bind_mw(
        &self,
        wr_id: u64,
        mw: &Arc<mw::Inner>,
        part: &MrSlice,
        access: AccessFlags,
        flags: SendFlags,
    ) -> Result<RemoteMr, Error> {
        if !mw.pd().host().is_same(self.host()) {
            return Err(Error::OtherDevice("memory window"));
        }
        let part_sge = sge(self.host(), part)?;
        let mut state = mw.lock();
        let rkey = state.rkey.with_variant(state.rkey.get().to_le_bytes()[0].wrapping_add(1));
        let length = part.len() as u64;
        let bind = BindMw { mw: state.rkey, rkey, mr: part_sge.lkey, addr: part.addr(), length, access };
        // What it was bound to before stays until this bind has been executed.
        let held = [Some(Held::mr(part.mr())), Some(Held::mw(mw)), state.bound.as_ref().map(Held::mr)];
        let flags = flags.difference(SendFlags::INLINE);
        let wr = SendWr { wr_id, op: SendOp::BindMw(bind), flags, sgl: &[], inline: &[] };
        self.post_send(wr, Sgl(&[]), None, held.into_iter().flatten())?;
        state.rkey = rkey;
        state.bound = Some(part.mr().clone());
        let addr = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { part.addr() };
        Ok(RemoteMr { addr, rkey, len: length })
    }
}

fn check_room(entries: &Entries) -> Result<(), PostError> {
    if entries.is_full() { Err(PostError::QueueFull { max: entries.max() }) } else { Ok(()) }
}

fn address(remote: RemoteMr) -> RemoteAddr {
    RemoteAddr { addr: remote.addr, rkey: remote.rkey }
}
