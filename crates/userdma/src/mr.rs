//! Memory regions.

use std::ops::{Bound, RangeBounds};

use userdma_verbs::{AccessFlags, LKey, RKey};

use crate::{Error, Pd};

/// Registered memory. It is never borrowed: devices and peers may change it at any time.
///
/// Dropping it ends the registration as soon as no slice of it and no posted operation is left.
#[derive(Debug)]
pub struct Mr {}

/// A range of an [`Mr`], which stays registered as long as the slice exists.
#[derive(Clone, Debug)]
pub struct MrSlice {}

/// Memory of a peer: what one-sided operations name. Made by [`Mr::remote`] there, sent here by
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

/// A region that could not be taken apart, and why.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct DeregisterError {
    /// The region, as it was.
    pub mr: Mr,
    /// Why.
    pub reason: Error,
}

impl Mr {
    /// Registers `len` bytes of this process's memory at `addr`, which need not be owned by Rust. The memory may
    /// vanish (be unmapped) while it is registered: work requests that need it then end in errors.
    ///
    /// # Safety
    /// Until the region, its slices and every operation posted with it are gone, bytes of the range may be read and,
    /// with writing rights, changed at any time, by this process's device and by peers. No Rust reference to them may
    /// be live meanwhile (except shared ones, if the rights allow reading only), and the memory must not become
    /// part of another allocation.
    #[allow(unsafe_code)]
    pub unsafe fn register_raw(pd: &Pd, addr: *mut u8, len: usize, access: AccessFlags) -> Result<Self, Error> {
        let _ = (pd, addr, len, access);
        todo!()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The address that work requests and peers use for its first byte.
    pub fn addr(&self) -> u64 {
        todo!()
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> LKey {
        todo!()
    }

    /// The key for peers.
    pub fn rkey(&self) -> RKey {
        todo!()
    }

    /// The rights.
    pub fn access(&self) -> AccessFlags {
        todo!()
    }

    /// What a peer needs to reach it.
    pub fn remote(&self) -> RemoteMr {
        todo!()
    }

    /// A range of it, for work requests.
    ///
    /// # Panics
    /// If the range is not inside the region, as slices do.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> MrSlice {
        let _ = range;
        todo!()
    }

    /// Copies from `offset` into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let _ = (offset, out);
        todo!()
    }

    /// Copies `len` bytes from `offset` into a new vector.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, Error> {
        let _ = range;
        todo!()
    }

    /// Copies `data` to `offset`.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let _ = (offset, data);
        todo!()
    }

    /// Atomically loads the 8 bytes at `offset` (a multiple of 8 from an aligned start), in host order.
    pub fn load(&self, offset: usize) -> Result<u64, Error> {
        let _ = offset;
        todo!()
    }

    /// Atomically stores 8 bytes at `offset`.
    pub fn store(&self, offset: usize, value: u64) -> Result<(), Error> {
        let _ = (offset, value);
        todo!()
    }

    /// Atomically adds to the 8 bytes at `offset`, wrapping; the value before. Atomic with peers' atomics.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Error> {
        let _ = (offset, add);
        todo!()
    }

    /// Atomically stores `swap` at `offset` if the 8 bytes there equal `compare`; the value before.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Error> {
        let _ = (offset, compare, swap);
        todo!()
    }

    /// Ends the registration now.
    ///
    /// # Errors
    /// [`DeregisterError`] holds the region, unchanged, while slices, posted operations or windows use it.
    pub fn deregister(self) -> Result<(), DeregisterError> {
        todo!()
    }

    /// Ends the registration and gives back the vector that was registered; memory from [`Pd::alloc`] or
    /// [`Mr::register_raw`] is copied into a new one.
    ///
    /// # Errors
    /// As [`Mr::deregister`].
    pub fn into_vec(self) -> Result<Vec<u8>, DeregisterError> {
        todo!()
    }
}

impl MrSlice {
    /// Bytes.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Where it starts in its region.
    pub fn offset(&self) -> usize {
        todo!()
    }

    /// A range of the slice.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let _ = range;
        todo!()
    }

    /// Copies from `offset` of the slice into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let _ = (offset, out);
        todo!()
    }

    /// Copies `data` to `offset` of the slice.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let _ = (offset, data);
        todo!()
    }

    /// What a peer needs to reach it.
    pub fn remote(&self) -> RemoteMr {
        todo!()
    }
}

impl RemoteMr {
    /// The part of it from `offset` on, `len` bytes long. Nothing is checked: the peer does that.
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

/// Start and end of a range within `len` bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SliceRange {
    /// First byte.
    pub start: usize,
    /// One past the last.
    pub end: usize,
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
}
