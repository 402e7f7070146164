//! Parts of memory regions: ours, and those of peers.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use userdma_verbs::{RKey, Sge};

use super::Inner;
use crate::{Error, Pd};

/// A range of an [`Mr`](crate::Mr), which stays registered as long as the slice exists.
#[derive(Clone)]
pub struct MrSlice {
    mr: Arc<Inner>,
    range: SliceRange,
}

/// Memory of a peer: what one-sided operations name. Made by [`Mr::remote`](crate::Mr::remote) there, sent here by
/// [`exchange`](crate::exchange) or in a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemoteMr {
    /// First address.
    pub addr: u64,
    /// The key.
    pub rkey: RKey,
    /// Bytes.
    pub len: u64,
}

/// Start and end of a range of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SliceRange {
    /// First byte.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

/// Where the slice lies; not what lies there.
impl fmt::Debug for MrSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SliceRange { start, end } = self.range;
        write!(f, "MrSlice({start}..{end} of {:?})", self.mr.keys.lkey)
    }
}

impl MrSlice {
    pub(super) fn new(mr: &Arc<Inner>, range: SliceRange) -> Self {
        Self { mr: Arc::clone(mr), range }
    }

    pub(crate) fn mr(&self) -> &Arc<Inner> {
        &self.mr
    }

    pub(crate) fn pd(&self) -> &Pd {
        self.mr.pd()
    }

    pub(crate) fn addr(&self) -> u64 {
        self.mr.addr.wrapping_add(self.range.start as u64)
    }

    /// The element of a list; `None` if the slice is longer than an element can be.
    pub(crate) fn sge(&self) -> Option<Sge> {
        let length = u32::try_from(self.len()).ok()?;
        Some(Sge { addr: self.addr(), length, lkey: self.mr.keys.lkey })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it starts in its region.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// A range of the slice.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let SliceRange { start, end } = SliceRange::of(&range, self.len());
        let offset = self.range.start;
        Self { mr: Arc::clone(&self.mr), range: SliceRange { start: offset + start, end: offset + end } }
    }

    /// Copies from `offset` of the slice into `out`.
    ///
    /// # Errors
    /// The range is not inside the slice, or the memory has vanished. `out` holds any mixture then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let offset = self.check(offset, out.len())?;
        Ok(self.mr.region.read(offset, out)?)
    }

    /// Copies `data` to `offset` of the slice.
    ///
    /// # Errors
    /// The range is not inside the slice, or the memory has vanished or is read-only. Any part may be written then.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let offset = self.check(offset, data.len())?;
        Ok(self.mr.region.write(offset, data)?)
    }

    /// What a peer needs to reach it.
    pub fn remote(&self) -> RemoteMr {
        RemoteMr { addr: self.addr(), rkey: self.mr.keys.rkey, len: self.len() as u64 }
    }

    /// The offset in the region of `len` bytes at `offset` of the slice.
    fn check(&self, offset: usize, len: usize) -> Result<u64, Error> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if !inside {
            let (offset, len, region_len) = (offset as u64, len as u64, self.len() as u64);
            return Err(userdma_mem::MemError::OutOfBounds { offset, len, region_len }.into());
        }
        Ok((self.range.start + offset) as u64)
    }
}

impl From<&MrSlice> for MrSlice {
    fn from(slice: &MrSlice) -> Self {
        slice.clone()
    }
}

impl RemoteMr {
    /// No memory. Operations of no bytes need none: a WRITE of nothing asks whether the peer is there. A side that offers no
    /// memory sends it in an [`exchange`](crate::exchange).
    pub const NONE: Self = Self { addr: 0, rkey: RKey::new(0), len: 0 };

    /// The part of it from `offset` on, `len` bytes long. Nothing is checked: the peer does that. Where an operation begins is
    /// taken from it; how many bytes move, the local list says.
    #[must_use]
    pub fn slice(&self, offset: u64, len: u64) -> Self {
        Self { addr: self.addr.wrapping_add(offset), rkey: self.rkey, len }
    }

    /// The part from `offset` on.
    #[must_use]
    pub fn at(&self, offset: u64) -> Self {
        self.slice(offset, self.len.saturating_sub(offset))
    }
}

impl SliceRange {
    /// The range, if it lies within `len` bytes.
    pub fn within(range: &impl RangeBounds<usize>, len: usize) -> Option<Self> {
        let start = match range.start_bound() {
            Bound::Included(&s) => s,
            Bound::Excluded(&s) => s.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&e) => e.checked_add(1)?,
            Bound::Excluded(&e) => e,
            Bound::Unbounded => len,
        };
        (start <= end && end <= len).then_some(Self { start, end })
    }

    /// The range within `len` bytes.
    ///
    /// # Panics
    /// If it is not inside.
    #[track_caller]
    pub(crate) fn of(range: &impl RangeBounds<usize>, len: usize) -> Self {
        let bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        Self::within(range, len).unwrap_or_else(|| panic!("range {bounds:?} is not inside {len} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_slices() {
        let within =
            |range: (Bound<usize>, Bound<usize>)| SliceRange::within(&range, 10).map(|r| (r.start, r.end));
        assert_eq!(within((Bound::Unbounded, Bound::Unbounded)), Some((0, 10)));
        assert_eq!(within((Bound::Included(3), Bound::Included(9))), Some((3, 10)));
        assert_eq!(within((Bound::Included(10), Bound::Unbounded)), Some((10, 10)));
        assert_eq!(within((Bound::Included(3), Bound::Excluded(11))), None);
        assert_eq!(within((Bound::Included(5), Bound::Excluded(4))), None);
        assert_eq!(within((Bound::Unbounded, Bound::Included(usize::MAX))), None);
    }
}
