//! Memory regions and memory windows: one table, one key space.

use userdma_mem::Region;
use userdma_verbs::{AccessFlags, BindMw, BindMwError, LKey, ObjectError, Qpn, RKey, RegMrError, Sge};

use crate::{AccessFault, PdId, RemoteAccess};

/// The keys of a region: equal numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MrKeys {
    /// For local work requests.
    pub lkey: LKey,
    /// For the peer; valid only with remote rights.
    pub rkey: RKey,
}

/// The regions and windows of a device.
#[derive(Debug)]
pub struct MrTable {}

impl MrTable {
    /// An empty table; `seed` makes its keys hard to hit by chance.
    pub fn new(seed: u64) -> Self {
        let _ = seed;
        todo!()
    }

    /// Registers `region` for `pd`. Addresses in work requests count from `iova` (normally the region's address;
    /// 0 with `ZERO_BASED`). Proves that the memory is accessible as the rights need.
    pub fn register(&mut self, pd: PdId, region: Region, iova: u64, access: AccessFlags) -> Result<MrKeys, RegMrError> {
        let _ = (pd, region, iova, access);
        todo!()
    }

    /// Ends a region; afterwards its keys are refused. `Busy` while windows are bound to it.
    pub fn deregister(&mut self, lkey: LKey) -> Result<(PdId, Region), ObjectError> {
        let _ = lkey;
        todo!()
    }

    /// A new type 2 window, unbound.
    pub fn alloc_mw(&mut self, pd: PdId) -> Result<RKey, BindMwError> {
        let _ = pd;
        todo!()
    }

    /// Ends a window, bound or not, named by its current key.
    pub fn dealloc_mw(&mut self, rkey: RKey) -> Result<PdId, ObjectError> {
        let _ = rkey;
        todo!()
    }

    /// Binds a type 2 window for the QP `qpn` of domain `pd`.
    pub fn bind_mw(&mut self, pd: PdId, qpn: Qpn, bind: &BindMw) -> Result<(), AccessFault> {
        let _ = (pd, qpn, bind);
        todo!()
    }

    /// Invalidates a bound type 2 window, for the local QP or for its peer. The key of a plain region is refused.
    pub fn invalidate(&mut self, pd: PdId, qpn: Qpn, rkey: RKey) -> Result<(), AccessFault> {
        let _ = (pd, qpn, rkey);
        todo!()
    }

    /// Unbinds every window that belongs to a QP (it was destroyed or reset).
    pub fn unbind_all(&mut self, qpn: Qpn) {
        let _ = qpn;
        todo!()
    }

    /// Opens `len` bytes at `addr` behind `rkey` for the peer of `qpn` with `rights` (one or more of the remote
    /// rights). Zero bytes need no key.
    pub fn open_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: RKey,
        addr: u64,
        len: u64,
        rights: AccessFlags,
    ) -> Result<RemoteAccess<'_>, AccessFault> {
        let _ = (pd, qpn, rkey, addr, len, rights);
        todo!()
    }

    /// Opens an element of a local scatter/gather list, for writing if `write`.
    pub fn open_local(&self, pd: PdId, sge: &Sge, write: bool) -> Result<RemoteAccess<'_>, AccessFault> {
        let _ = (pd, sge, write);
        todo!()
    }
}
