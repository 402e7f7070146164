//! Memory windows: a queue pair opens a part of a region to its peer, and either side may close it again.
//!
//! A window of type 2 is allocated without a range. A bind by work request gives it one, together with rights and a new key,
//! whose low byte the consumer chooses; from then on only the peer of the queue pair that bound it may use it (type
//! 2B: the window belongs to a queue pair, not to its domain). An invalidate, by a local work request or by the
//! peer's SEND with invalidate, takes the range away, and the window may be bound again. The rules are those of
//! the kernel's `rxe_mw.c rxe_check_bind_mw()`; where this is stricter, it says so.
//!
//! A window of type 1 belongs to its domain: any queue pair of that may use it. A bind replaces the one before, one of no bytes
//! ends it, and nobody invalidates it.

use userdma_verbs::{AccessFlags, BindMw, BindMwError, DeviceAttr, MwType, ObjectError, Qpn, RKey};

use crate::access::Grant;
use crate::key::LOW_BYTE;
use crate::mr::{Binding, Entry, Mr, Mw, OPTIONAL};
use crate::{AccessFault, MrTable, PdId};

impl MrTable {
    /// A new type 2 window, unbound.
    ///
    /// # Errors
    /// `TooMany`.
    pub fn alloc_mw(&mut self, pd: PdId) -> Result<RKey, BindMwError> {
        self.alloc_mw_of_type(pd, MwType::Type2)
    }

    /// A new window of either type, unbound.
    ///
    /// # Errors
    /// `TooMany`.
    pub fn alloc_mw_of_type(&mut self, pd: PdId, mw_type: MwType) -> Result<RKey, BindMwError> {
        const MAX: u32 = DeviceAttr::LIMITS.max_mw;
        if self.mw_count >= MAX {
            return Err(BindMwError::TooMany { max: MAX });
        }
        let key = self.slots.insert(Entry::window(pd, mw_type)).ok_or(BindMwError::TooMany { max: MAX })?;
        self.mw_count += 1;
        Ok(RKey::new(key))
    }

    /// Ends a window, bound or not, named by its current key.
    ///
    /// # Errors
    /// `NoObject` if the key is not that of a window.
    pub fn dealloc_mw(&mut self, rkey: RKey) -> Result<PdId, ObjectError> {
        let (index, mw) = self.window(rkey).ok_or(ObjectError::NoObject("memory window"))?;
        let (pd, binding) = (mw.pd, mw.binding.take());
        self.release(binding);
        self.slots.remove(index);
        self.mw_count -= 1;
        Ok(pd)
    }

    /// Binds a window for the QP `qpn` of domain `pd`.
    ///
    /// A `ZERO_BASED` window counts addresses from its own start; the range of the bind still counts as the region
    /// does. The region must not be zero based itself, as in `rxe_check_bind_mw()`.
    ///
    /// # Errors
    /// `Key` if `bind.mw` is not the current key of a window, `bind.rkey` differs from it in more than the low byte,
    /// or `bind.mr` names no region; `Domain` if one of them belongs to another domain; `Rights` if a window of type 2 is
    /// bound already, the region lacks `MW_BIND`, is zero based, or lacks `LOCAL_WRITE` for a window that writes;
    /// `Bounds` if the range is empty, for a window of type 2, or not inside the region. Nothing has changed.
    pub fn bind_mw(&mut self, pd: PdId, qpn: Qpn, bind: &BindMw) -> Result<(), AccessFault> {
        if (bind.mw.get() ^ bind.rkey.get()) & !LOW_BYTE != 0 {
            return Err(AccessFault::Key);
        }
        let (_, mw) = self.window(bind.mw).ok_or(AccessFault::Key)?;
        let (mw_pd, mw_type, is_bound) = (mw.pd, mw.mw_type, mw.binding.is_some());
        if mw_type == MwType::Type1 && bind.length == 0 {
            return if mw_pd == pd { self.rebind(bind, None) } else { Err(AccessFault::Domain) };
        }
        let Some(Entry::Mr(region)) = self.slots.get(bind.mr.get()) else {
            return Err(AccessFault::Key);
        };
        if mw_pd != pd || region.grant.pd != pd {
            return Err(AccessFault::Domain);
        }
        let owner = match mw_type {
            MwType::Type1 => None,
            MwType::Type2 if is_bound => return Err(AccessFault::Rights),
            MwType::Type2 => Some(qpn),
        };
        let binding = self.binding(owner, bind, &region.grant)?;
        self.rebind(bind, Some(binding))
    }

    /// What a bind to a region opens for `qpn`, or for the whole domain, if it is right.
    fn binding(&self, qpn: Option<Qpn>, bind: &BindMw, region: &Grant) -> Result<Binding, AccessFault> {
        check_window_access(bind.access, region.access)?;
        let start = check_window_range(bind, region)?;
        let base = if bind.access.contains(AccessFlags::ZERO_BASED) { 0 } else { bind.addr };
        let grant = Grant { pd: region.pd, qpn, base, len: bind.length, access: bind.access };
        Ok(Binding { grant, mr: self.slots.index(bind.mr.get()), start })
    }

    /// Gives a window its new key and binding.
    fn rebind(&mut self, bind: &BindMw, binding: Option<Binding>) -> Result<(), AccessFault> {
        if let Some(Binding { mr, .. }) = binding {
            self.bound += 1;
            if let Entry::Mr(region) = self.slots.at_mut(mr) {
                region.windows += 1;
            }
        }
        let Some((_, slot)) = self.slots.get_mut(bind.mw.get()) else {
            return Err(AccessFault::Key);
        };
        slot.key = bind.rkey.get();
        let before = match &mut slot.entry {
            Entry::Mw(mw) => std::mem::replace(&mut mw.binding, binding),
            Entry::Mr(_) | Entry::Free => None,
        };
        self.release(before);
        Ok(())
    }

    /// Invalidates a bound type 2 window, for the local QP or for its peer. The key of a plain region is refused.
    ///
    /// rxe lets any QP invalidate any window; here only the QP that bound it, or that QP's peer, may.
    ///
    /// # Errors
    /// `Key` if the key is not the current one of a bound window, `Domain` if another domain or QP bound it. Nothing
    /// has changed.
    pub fn invalidate(&mut self, pd: PdId, qpn: Qpn, rkey: RKey) -> Result<(), AccessFault> {
        let (_, mw) = self.window(rkey).ok_or(AccessFault::Key)?;
        let binding = mw.binding.take_if(|binding| binding.grant.pd == pd && binding.grant.qpn == Some(qpn));
        match (&binding, &mw.binding) {
            (Some(_), _) => {
                self.release(binding);
                Ok(())
            }
            (None, Some(_)) => Err(AccessFault::Domain),
            (None, None) => Err(AccessFault::Key),
        }
    }

    /// Unbinds every window that belongs to a QP (it was destroyed or reset). Walks the table, unless no window is
    /// bound at all.
    pub fn unbind_all(&mut self, qpn: Qpn) {
        for index in 0..self.slots.len() {
            if self.bound == 0 {
                return;
            }
            if let Entry::Mw(mw) = self.slots.at_mut(index) {
                let binding = mw.binding.take_if(|binding| binding.grant.qpn == Some(qpn));
                self.release(binding);
            }
        }
    }

    /// The window with this key, and its slot.
    fn window(&mut self, rkey: RKey) -> Option<(u32, &mut Mw)> {
        match self.slots.get_mut(rkey.get()) {
            Some((index, slot)) => match &mut slot.entry {
                Entry::Mw(mw) => Some((index, mw)),
                Entry::Mr(_) | Entry::Free => None,
            },
            None => None,
        }
    }

    /// Counts a binding that was taken from its window off the books.
    fn release(&mut self, binding: Option<Binding>) {
        let Some(binding) = binding else { return };
        self.bound -= 1;
        if let Entry::Mr(Mr { windows, .. }) = self.slots.at_mut(binding.mr) {
            *windows -= 1;
        }
    }
}

/// Whether a window with rights `window` may be bound to a region with rights `region`.
fn check_window_access(window: AccessFlags, region: AccessFlags) -> Result<(), AccessFault> {
    let unsupported = window.bits() & !(SUPPORTED.bits() | OPTIONAL);
    let writes = window.intersects(AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_ATOMIC));
    let is_refused = unsupported != 0
        || region.contains(AccessFlags::ZERO_BASED)
        || !region.contains(AccessFlags::MW_BIND)
        || (writes && !region.contains(AccessFlags::LOCAL_WRITE));
    if is_refused { Err(AccessFault::Rights) } else { Ok(()) }
}

/// Where the range of a bind starts in the region. rxe does not look at the address of a `ZERO_BASED` window until
/// it is used; here the range must be inside in any case.
fn check_window_range(bind: &BindMw, region: &Grant) -> Result<u64, AccessFault> {
    match bind.addr.checked_sub(region.base) {
        Some(start) if bind.length > 0 && start <= region.len && bind.length <= region.len - start => {
            Ok(start)
        }
        Some(_) | None => Err(AccessFault::Bounds),
    }
}

/// Rights that a window may have.
const SUPPORTED: AccessFlags = AccessFlags::REMOTE_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::ZERO_BASED);

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
