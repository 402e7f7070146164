//! The access check: whether a key, an address range and a right go together. Used by everybody who touches
//! registered memory.

use userdma_mem::{MemError, Region};

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

/// A range of registered memory that a check has opened.
#[derive(Debug)]
pub struct RemoteAccess<'a> {
    pub(crate) region: &'a Region,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl RemoteAccess<'_> {
    /// Bytes of the range.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from `at` bytes into the range.
    pub fn read(&self, at: u64, dst: &mut [u8]) -> Result<(), MemError> {
        let _ = (at, dst);
        todo!()
    }

    /// Copies to `at` bytes into the range.
    pub fn write(&self, at: u64, src: &[u8]) -> Result<(), MemError> {
        let _ = (at, src);
        todo!()
    }

    /// Atomic on the 8 bytes at the start of the range; the value before.
    pub fn fetch_add(&self, add: u64) -> Result<u64, MemError> {
        self.region.fetch_add(self.offset, add)
    }

    /// Atomic on the 8 bytes at the start of the range; the value before.
    pub fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, MemError> {
        self.region.compare_swap(self.offset, compare, swap)
    }
}
