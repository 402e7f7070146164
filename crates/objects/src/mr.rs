//! Memory regions and memory windows: one table, one key space.

use userdma_mem::Region;
use userdma_verbs::{AccessFlags, DeviceAttr, LKey, MwType, ObjectError, Qpn, RKey, RegMrError, Sge};

use crate::access::{Grant, Who, check};
use crate::key::{Slot, Slots};
use crate::{AccessFault, PdId, RemoteAccess};

/// The keys of a region: equal numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MrKeys {
    /// For local work requests.
    pub lkey: LKey,
    /// For the peer; valid only with remote rights.
    pub rkey: RKey,
}

/// What a slot of the table holds.
#[derive(Debug)]
pub(crate) enum Entry {
    Free,
    Mr(Mr),
    Mw(Mw),
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) grant: Grant,
    region: Region,
    /// Windows that are bound to it.
    pub(crate) windows: u32,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) pd: PdId,
    pub(crate) mw_type: MwType,
    pub(crate) binding: Option<Binding>,
}

/// What a bound window opens.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) grant: Grant,
    /// The slot of its region, which cannot end as long as the window is bound.
    pub(crate) mr: u32,
    /// Where the window starts in the region, bytes.
    pub(crate) start: u64,
}

impl Entry {
    /// A window that is not bound.
    pub(crate) fn window(pd: PdId, mw_type: MwType) -> Self {
        Self::Mw(Mw { pd, mw_type, binding: None })
    }
}

/// The regions and windows of a device.
///
/// It grows with their number and keeps what it has grown to. Whoever owns it sees to it that a change excludes
/// every access: a [`RemoteAccess`] borrows the table.
#[derive(Debug)]
pub struct MrTable {
    pub(crate) slots: Slots,
    mr_count: u32,
    pub(crate) mw_count: u32,
    /// Windows that are bound.
    pub(crate) bound: u32,
}

impl MrTable {
    /// An empty table; `seed` makes its keys hard to hit by chance.
    pub fn new(seed: u64) -> Self {
        Self { slots: Slots::new(seed), mr_count: 0, mw_count: 0, bound: 0 }
    }

    /// Registers `region` for `pd`. Addresses in work requests count from `iova` (normally the region's address;
    /// 0 with `ZERO_BASED`). Proves that the memory is accessible as the rights need.
    ///
    /// `HUGETLB` and rights from the range that the verbs set apart as optional (bits 20 to 29, `RELAXED_ORDERING`
    /// among them) are accepted and ignored.
    ///
    /// # Errors
    /// `Range` for no bytes, for more than the device's longest region, or if addresses would pass 2^64; `Access` for
    /// rights that do not go together or are not supported; `NotAccessible`; `TooMany`. Nothing has been registered.
    pub fn register(
        &mut self,
        pd: PdId,
        region: Region,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MrKeys, RegMrError> {
        if self.mr_count >= DeviceAttr::LIMITS.max_mr {
            return Err(TOO_MANY);
        }
        let grant = check_region(pd, &region, iova, access)?;
        let key = self.slots.insert(Entry::Mr(Mr { grant, region, windows: 0 })).ok_or(TOO_MANY)?;
        self.mr_count += 1;
        Ok(MrKeys { lkey: LKey::new(key), rkey: RKey::new(key) })
    }

    /// Gives the keys of a region to other memory, with other rights or in another domain, in one step; the domain that it was
    /// in. Not while windows are bound to it, since they open a part of what it was.
    ///
    /// # Errors
    /// The outer: `NoObject` if the key names no region, `Busy`. The inner: as [`register`](Self::register). Nothing has changed.
    pub fn reregister(
        &mut self,
        lkey: LKey,
        pd: PdId,
        region: Region,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Result<PdId, RegMrError>, ObjectError> {
        let (_, mr) = self.unbound_mr(lkey)?;
        let grant = match check_region(pd, &region, iova, access) {
            Ok(grant) => grant,
            Err(error) => return Ok(Err(error)),
        };
        let before = mr.grant.pd;
        *mr = Mr { grant, region, windows: 0 };
        Ok(Ok(before))
    }

    /// Ends a region; afterwards its keys are refused. `Busy` while windows are bound to it.
    ///
    /// # Errors
    /// `NoObject` if the key names no region, `Busy`; nothing has changed.
    pub fn deregister(&mut self, lkey: LKey) -> Result<(PdId, Region), ObjectError> {
        let (index, _) = self.unbound_mr(lkey)?;
        let Entry::Mr(mr) = self.slots.remove(index) else {
            return Err(ObjectError::NoObject(REGION));
        };
        self.mr_count -= 1;
        Ok((mr.grant.pd, mr.region))
    }

    /// The region with this key, to which no window is bound, and its slot.
    fn unbound_mr(&mut self, lkey: LKey) -> Result<(u32, &mut Mr), ObjectError> {
        let Some((index, Slot { entry: Entry::Mr(mr), .. })) = self.slots.get_mut(lkey.get()) else {
            return Err(ObjectError::NoObject(REGION));
        };
        if mr.windows > 0 {
            return Err(ObjectError::Busy { object: REGION, users: mr.windows });
        }
        Ok((index, mr))
    }

    /// Opens `len` bytes at `addr` behind `rkey` for the peer of `qpn` with `rights` (one or more of the remote
    /// rights). Zero bytes need no key.
    ///
    /// # Errors
    /// Why access is refused. That no bytes need no key is as rxe has it (`rxe_resp.c check_rkey()`).
    #[inline]
    pub fn open_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: RKey,
        addr: u64,
        len: u64,
        rights: AccessFlags,
    ) -> Result<RemoteAccess<'_>, AccessFault> {
        if len == 0 {
            return Ok(RemoteAccess::EMPTY);
        }
        if rights.is_empty() {
            debug_assert!(false, "a peer always needs a right");
            return Err(AccessFault::Rights);
        }
        let who = Who { pd, qpn: Some(qpn) };
        match self.slots.get(rkey.get()) {
            Some(Entry::Mr(mr)) => mr.open(who, addr, len, rights),
            Some(Entry::Mw(Mw { binding: Some(binding), .. })) => {
                let offset = binding.start + check(&binding.grant, who, addr, len, rights)?;
                match self.slots.at(binding.mr) {
                    Entry::Mr(mr) => Ok(RemoteAccess { region: Some(&mr.region), offset, len }),
                    Entry::Mw(_) | Entry::Free => Err(AccessFault::Key),
                }
            }
            Some(Entry::Mw(Mw { binding: None, .. }) | Entry::Free) | None => Err(AccessFault::Key),
        }
    }

    /// Opens an element of a local scatter/gather list, for writing if `write`. Reading needs no right.
    ///
    /// # Errors
    /// Why access is refused; the key of a window is none for local use. An element of no bytes needs no key.
    #[inline]
    pub fn open_local(&self, pd: PdId, sge: &Sge, write: bool) -> Result<RemoteAccess<'_>, AccessFault> {
        if sge.length == 0 {
            return Ok(RemoteAccess::EMPTY);
        }
        let rights = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() };
        let who = Who { pd, qpn: None };
        match self.slots.get(sge.lkey.get()) {
            Some(Entry::Mr(mr)) => mr.open(who, sge.addr, u64::from(sge.length), rights),
            Some(Entry::Mw(_) | Entry::Free) | None => Err(AccessFault::Key),
        }
    }

    /// Regions that are registered.
    pub fn mr_count(&self) -> u32 {
        self.mr_count
    }

    /// Windows that exist, bound or not.
    pub fn mw_count(&self) -> u32 {
        self.mw_count
    }

    /// Bytes of memory that the table takes, the registered memory not counted.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.slots.memory_bytes()
    }
}

impl Mr {
    #[inline]
    fn open(
        &self,
        who: Who,
        addr: u64,
        len: u64,
        rights: AccessFlags,
    ) -> Result<RemoteAccess<'_>, AccessFault> {
        let offset = check(&self.grant, who, addr, len, rights)?;
        Ok(RemoteAccess { region: Some(&self.region), offset, len })
    }
}

/// What a region grants, if memory, rights and addresses are possible.
fn check_region(pd: PdId, region: &Region, iova: u64, access: AccessFlags) -> Result<Grant, RegMrError> {
    check_region_access(access)?;
    let base = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { iova };
    check_range(region.addr(), region.len())?;
    check_range(base, region.len())?;
    let write = access.is_writing();
    region.probe(write).map_err(|addr| RegMrError::NotAccessible { addr, write })?;
    Ok(Grant { pd, qpn: None, base, len: region.len(), access })
}

fn check_region_access(access: AccessFlags) -> Result<(), RegMrError> {
    let needs_local_write = access.intersects(AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_ATOMIC));
    let unsupported = access.bits() & !(SUPPORTED.bits() | OPTIONAL);
    if unsupported != 0 || (needs_local_write && !access.contains(AccessFlags::LOCAL_WRITE)) {
        return Err(RegMrError::Access { access });
    }
    Ok(())
}

/// Refuses no bytes, too many, and ranges whose last address would pass 2^64.
fn check_range(addr: u64, length: u64) -> Result<(), RegMrError> {
    let is_possible = length <= DeviceAttr::LIMITS.max_mr_size
        && length.checked_sub(1).is_some_and(|to_last| addr.checked_add(to_last).is_some());
    if is_possible { Ok(()) } else { Err(RegMrError::Range { addr, length }) }
}

const REGION: &str = "memory region";
const TOO_MANY: RegMrError = RegMrError::TooMany { max: DeviceAttr::LIMITS.max_mr };

/// Rights of a region that mean something here. Not `ON_DEMAND` (pages are made present at registration) and not
/// the flush rights (there is no RDMA FLUSH).
const SUPPORTED: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::MW_BIND)
    .union(AccessFlags::ZERO_BASED)
    .union(AccessFlags::HUGETLB);

/// Rights that a device may ignore, known or not. As the kernel's `ib_user_ioctl_verbs.h
/// IB_UVERBS_ACCESS_OPTIONAL_RANGE`.
pub(crate) const OPTIONAL: u32 = ((1 << 30) - 1) & !((1 << 20) - 1);

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
