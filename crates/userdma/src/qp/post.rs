//! Posting work requests.

use userdma_verbs::{AccessFlags, RKey, SendFlags};

use super::{Data, Qp, Rts, Sgl, Unchecked};
use crate::{Error, Mr, MrSlice, Mw, RemoteMr};

/// A queue pair that may send.
pub trait Posts: sealed::Sealed {}
impl Posts for Rts {}
impl Posts for Unchecked {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rts {}
    impl Sealed for super::Unchecked {}
}

impl<S> Qp<S> {
    /// Posts a receive: the next message lands in `list`.
    pub fn post_recv<'a>(&self, wr_id: u64, list: impl Into<Sgl<'a>>) -> Result<(), Error> {
        let _ = (wr_id, list.into());
        todo!()
    }
}

/// Every operation holds its memory until its completion, or that of a later one, has been polled. `wr_id` comes back
/// in the completion.
impl<S: Posts> Qp<S> {
    /// SEND.
    pub fn post_send<'a>(&self, wr_id: u64, data: impl Into<Data<'a>>, flags: SendFlags) -> Result<(), Error> {
        let _ = (wr_id, data.into(), flags);
        todo!()
    }

    /// SEND with immediate data.
    pub fn post_send_with_imm<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        imm: u32,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, data.into(), imm, flags);
        todo!()
    }

    /// SEND that invalidates a memory window of the peer.
    pub fn post_send_with_inv<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        rkey: RKey,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, data.into(), rkey, flags);
        todo!()
    }

    /// RDMA WRITE to the start of `remote`.
    pub fn post_write<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        remote: RemoteMr,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, data.into(), remote, flags);
        todo!()
    }

    /// RDMA WRITE with immediate data, which consumes a receive at the peer.
    pub fn post_write_with_imm<'a>(
        &self,
        wr_id: u64,
        data: impl Into<Data<'a>>,
        remote: RemoteMr,
        imm: u32,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, data.into(), remote, imm, flags);
        todo!()
    }

    /// RDMA READ from the start of `remote` into `list`, as many bytes as `list` holds.
    pub fn post_read<'a>(
        &self,
        wr_id: u64,
        list: impl Into<Sgl<'a>>,
        remote: RemoteMr,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, list.into(), remote, flags);
        todo!()
    }

    /// COMPARE_SWAP on the 8 bytes at `remote`; the value before lands in `result` (8 bytes), in host order.
    pub fn post_compare_swap(
        &self,
        wr_id: u64,
        result: &MrSlice,
        remote: RemoteMr,
        compare: u64,
        swap: u64,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, result, remote, compare, swap, flags);
        todo!()
    }

    /// FETCH_ADD on the 8 bytes at `remote`; the value before lands in `result` (8 bytes), in host order.
    pub fn post_fetch_add(
        &self,
        wr_id: u64,
        result: &MrSlice,
        remote: RemoteMr,
        add: u64,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let _ = (wr_id, result, remote, add, flags);
        todo!()
    }

    /// Invalidates a memory window of this side.
    pub fn post_local_inv(&self, wr_id: u64, rkey: RKey, flags: SendFlags) -> Result<(), Error> {
        let _ = (wr_id, rkey, flags);
        todo!()
    }

    /// Binds a memory window to a part of a region (which needs `MW_BIND`) with the peer's rights `access`; what to
    /// tell the peer, valid once the bind has completed.
    pub fn post_bind_mw(
        &self,
        wr_id: u64,
        mw: &Mw,
        part: &MrSlice,
        access: AccessFlags,
        flags: SendFlags,
    ) -> Result<RemoteMr, Error> {
        let _ = (wr_id, mw, part, access, flags, std::marker::PhantomData::<Mr>);
        todo!()
    }
}
