//! The access check: whether a key, an address range and a right go together. Used by everybody who touches
//! registered memory.

use userdma_mem::{MemError, Region};
use userdma_verbs::{AccessFlags, Qpn};

use crate::PdId;

/// Why access was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AccessFault {
    /// The key names nothing, or something that is gone.
    #[error("the key names no region or window")]
    Key,
    /// The region belongs to another protection domain, or the window to another queue pair.
    #[error("the region belongs to another protection domain or queue pair")]
    Domain,
    /// The range is not inside the region.
    #[error("the range is not inside the region")]
    Bounds,
    /// The region lacks the right.
    #[error("the region does not grant the right")]
    Rights,
}

/// What a region or a bound window lets whom do, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// The protection domain that it belongs to.
    pub(crate) pd: PdId,
    /// The only queue pair that may use it; `None` for regions.
    pub(crate) qpn: Option<Qpn>,
    /// The address of its first byte, as requests count.
    pub(crate) base: u64,
    /// Bytes. `base + len` does not pass 2^64.
    pub(crate) len: u64,
    /// What may be done.
    pub(crate) access: AccessFlags,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The queue pair's domain.
    pub(crate) pd: PdId,
    /// The queue pair; `None` for local work requests, which never go through windows.
    pub(crate) qpn: Option<Qpn>,
}

/// The one access check: `len` bytes at `addr` with all of `rights`; how far into the grant they start.
///
/// The order is that of rxe (`rxe_mr.c lookup_mr()`, then `mr_check_range()`): whose it is, the rights, the range.
#[inline]
pub(crate) fn check(
    grant: &Grant,
    who: Who,
    addr: u64,
    len: u64,
    rights: AccessFlags,
) -> Result<u64, AccessFault> {
    if grant.pd != who.pd || (grant.qpn.is_some() && grant.qpn != who.qpn) {
        return Err(AccessFault::Domain);
    }
    if !grant.access.contains(rights) {
        return Err(AccessFault::Rights);
    }
    match addr.checked_sub(grant.base) {
        Some(offset) if offset <= grant.len && len <= grant.len - offset => Ok(offset),
        Some(_) | None => Err(AccessFault::Bounds),
    }
}

/// A range of registered memory that a check has opened.
#[derive(Debug)]
pub struct RemoteAccess<'a> {
    /// `None` only if `len` is 0: no bytes need no region.
    pub(crate) region: Option<&'a Region>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl<'a> RemoteAccess<'a> {
    /// The range of no bytes.
    pub(crate) const EMPTY: Self = Self { region: None, offset: 0, len: 0 };

    /// Bytes of the range.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from `at` bytes into the range.
    ///
    /// # Errors
    /// `OutOfBounds` if the bytes are not all in the range (nothing was copied); `Fault` if the memory vanished.
    #[inline]
    pub fn read(&self, at: u64, dst: &mut [u8]) -> Result<(), MemError> {
        match self.piece(at, dst.len() as u64)? {
            Some((region, offset)) => region.read(offset, dst),
            None => Ok(()),
        }
    }

    /// As [`read`](Self::read). If there is a `crc`, it goes on over the bytes ([`Region::read_crc`]).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn read_crc(&self, at: u64, dst: &mut [u8], crc: Option<&mut u32>) -> Result<(), MemError> {
        match (self.piece(at, dst.len() as u64)?, crc) {
            (Some((region, offset)), Some(crc)) => region.read_crc(offset, dst, crc),
            (Some((region, offset)), None) => region.read(offset, dst),
            (None, _) => Ok(()),
        }
    }

    /// Copies to `at` bytes into the range.
    ///
    /// # Errors
    /// `OutOfBounds` if the bytes are not all in the range (nothing was copied); `Fault` if the memory vanished.
    #[inline]
    pub fn write(&self, at: u64, src: &[u8]) -> Result<(), MemError> {
        match self.piece(at, src.len() as u64)? {
            Some((region, offset)) => region.write(offset, src),
            None => Ok(()),
        }
    }

    /// Atomic on the 8 bytes at the start of the range; the value before.
    ///
    /// # Errors
    /// `OutOfBounds` if the range is shorter than 8 bytes or not aligned to 8; `Fault` if the memory vanished.
    pub fn fetch_add(&self, add: u64) -> Result<u64, MemError> {
        match self.piece(0, ATOMIC_BYTES)? {
            Some((region, offset)) => region.fetch_add(offset, add),
            None => Err(self.out_of_bounds(0, ATOMIC_BYTES)),
        }
    }

    /// Atomic on the 8 bytes at the start of the range; the value before.
    ///
    /// # Errors
    /// As [`fetch_add`](Self::fetch_add).
    pub fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, MemError> {
        match self.piece(0, ATOMIC_BYTES)? {
            Some((region, offset)) => region.compare_swap(offset, compare, swap),
            None => Err(self.out_of_bounds(0, ATOMIC_BYTES)),
        }
    }

    /// Where `len` bytes at `at` lie in the region; `None` if there is nothing to touch.
    fn piece(&self, at: u64, len: u64) -> Result<Option<(&'a Region, u64)>, MemError> {
        if at > self.len || len > self.len - at {
            return Err(self.out_of_bounds(at, len));
        }
        // The sum cannot pass 2^64: the check that opened the range found `offset + self.len` in the region.
        Ok(self.region.map(|region| (region, self.offset + at)))
    }

    fn out_of_bounds(&self, offset: u64, len: u64) -> MemError {
        MemError::OutOfBounds { offset, len, region_len: self.len }
    }
}

/// Bytes that an atomic works on.
const ATOMIC_BYTES: u64 = 8;

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    const RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

    fn grant(qpn: Option<u32>) -> Grant {
        Grant {
            pd: PdId(1),
            qpn: qpn.map(Qpn::new),
            base: 0x1000,
            len: 0x100,
            access: RW.union(AccessFlags::LOCAL_WRITE),
        }
    }

    fn who(pd: u32, qpn: u32) -> Who {
        Who { pd: PdId(pd), qpn: Some(Qpn::new(qpn)) }
    }

    #[test]
    fn a_range_must_lie_inside() {
        let at = |addr, len| check(&grant(None), who(1, 5), addr, len, RW);
        for (addr, len, offset) in [(0x1000, 0x100, 0), (0x1000, 0, 0), (0x10ff, 1, 0xff), (0x1100, 0, 0x100)]
        {
            assert_eq!(at(addr, len), Ok(offset), "{len} bytes at {addr:#x}");
        }
        for (addr, len) in [
            (0xfff, 1),
            (0xfff, 0),
            (0, 0x100),
            (0x1000, 0x101),
            (0x10ff, 2),
            (0x1100, 1),
            (0x1101, 0),
            (0x1001, u64::MAX),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(at(addr, len), Err(AccessFault::Bounds), "{len} bytes at {addr:#x}");
        }
    }

    #[test]
    fn every_right_asked_for_must_be_there() {
        let with = |rights| check(&grant(None), who(1, 5), 0x1000, 1, rights);
        assert_eq!(with(AccessFlags::empty()), Ok(0));
        assert_eq!(with(AccessFlags::REMOTE_READ), Ok(0));
        assert_eq!(with(RW), Ok(0));
        assert_eq!(with(AccessFlags::REMOTE_ATOMIC), Err(AccessFault::Rights));
        assert_eq!(with(RW.union(AccessFlags::REMOTE_ATOMIC)), Err(AccessFault::Rights));
    }

    #[test]
    fn regions_ask_for_the_domain_and_windows_for_the_queue_pair_too() {
        let by = |qpn, who| check(&grant(qpn), who, 0x1000, 1, RW);
        assert_eq!(by(None, who(1, 5)), Ok(0));
        assert_eq!(by(None, who(2, 5)), Err(AccessFault::Domain));
        assert_eq!(by(Some(5), who(1, 5)), Ok(0));
        assert_eq!(by(Some(5), who(1, 6)), Err(AccessFault::Domain));
        assert_eq!(by(Some(5), who(2, 5)), Err(AccessFault::Domain));
        assert_eq!(by(Some(5), Who { pd: PdId(1), qpn: None }), Err(AccessFault::Domain));
    }

    #[test]
    fn the_owner_is_judged_before_the_rights_and_the_rights_before_the_range() {
        let atomic = AccessFlags::REMOTE_ATOMIC;
        assert_eq!(check(&grant(None), who(2, 5), 0, 1, atomic), Err(AccessFault::Domain));
        assert_eq!(check(&grant(None), who(1, 5), 0, 1, atomic), Err(AccessFault::Rights));
    }

    #[test]
    fn a_grant_may_end_at_the_end_of_the_address_space() {
        let top = Grant { base: u64::MAX - 0xff, ..grant(None) };
        assert_eq!(check(&top, who(1, 5), u64::MAX, 1, RW), Ok(0xff));
        assert_eq!(check(&top, who(1, 5), u64::MAX, 2, RW), Err(AccessFault::Bounds));
    }

    #[test]
    fn an_empty_range_takes_no_bytes() {
        let none = RemoteAccess::EMPTY;
        assert!(none.is_empty());
        assert_eq!(none.read(0, &mut []), Ok(()));
        assert_eq!(none.write(0, &[]), Ok(()));
        let refused = |at, len| MemError::OutOfBounds { offset: at, len, region_len: 0 };
        assert_eq!(none.read(0, &mut [0]), Err(refused(0, 1)));
        assert_eq!(none.write(1, &[]), Err(refused(1, 0)));
        assert_eq!(none.fetch_add(1), Err(refused(0, 8)));
        assert_eq!(none.compare_swap(0, 1), Err(refused(0, 8)));
    }
}
