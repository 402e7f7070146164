//! Registered memory: a range of the process's address space that is only copied from and to.

use std::sync::Arc;

use crate::Buffer;

/// Why memory could not be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MemError {
    /// The range is not inside the region.
    #[error("{len} bytes at offset {offset:#x} are not inside the region of {region_len} bytes")]
    OutOfBounds {
        /// First byte, from the region's start.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The region's length.
        region_len: u64,
    },
    /// The program unmapped or protected the memory after registering it.
    #[error("memory is no longer accessible")]
    Fault,
}

/// A range of memory that a device may read and write while the region exists.
#[derive(Clone, Debug)]
pub struct Region {
    base: usize,
    len: usize,
    /// Keeps memory that we own alive as long as anybody may reach it.
    owner: Option<Arc<Buffer>>,
}

impl Region {
    /// The region of `len` bytes at `base`, which need not be mapped: access to memory that is not there is an
    /// error, not a crash.
    ///
    /// # Safety
    /// Until the last clone is gone, bytes of the range may be read and changed at any time. No Rust
    /// reference to them may be live meanwhile, and they must not become part of another allocation that is.
    pub unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        Self { base: base.expose_provenance(), len, owner: None }
    }

    /// The region that covers a buffer of ours, and keeps it alive.
    pub fn from_buffer(buffer: &Arc<Buffer>) -> Self {
        Self { base: buffer.addr(), len: buffer.len(), owner: Some(Arc::clone(buffer)) }
    }

    /// First address.
    pub fn addr(&self) -> u64 {
        self.base as u64
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buffer of ours that it covers, if it does.
    pub fn owner(&self) -> Option<&Arc<Buffer>> {
        self.owner.as_ref()
    }

    /// Proves that each page can be read, and written if `write`; on failure, the first address that cannot.
    /// Contents stay as they are, even if others write meanwhile. Pages become present.
    pub fn probe(&self, write: bool) -> Result<(), u64> {
        let _ = write;
        todo!()
    }

    /// Copies bytes from the region at `offset` into `dst`. After an error `dst` holds any mixture.
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), MemError> {
        let _ = (offset, dst);
        todo!()
    }

    /// Copies `src` into the region at `offset`; the last 8 bytes are stored last. After an error any part may be written.
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<(), MemError> {
        let _ = (offset, src);
        todo!()
    }

    /// Atomically adds `add` (wrapping, host order) to the 8 bytes at `offset`; returns the value before.
    /// The address must be aligned to 8 (else `OutOfBounds`).
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemError> {
        let _ = (offset, add);
        todo!()
    }

    /// Atomically stores `swap` into the 8 bytes at `offset` if they equal `compare`; returns the value before.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemError> {
        let _ = (offset, compare, swap);
        todo!()
    }

    /// Atomically loads the 8 bytes at `offset`, aligned to 8.
    pub fn load(&self, offset: u64) -> Result<u64, MemError> {
        let _ = offset;
        todo!()
    }

    /// Atomically stores 8 bytes at `offset`, aligned to 8.
    pub fn store(&self, offset: u64, value: u64) -> Result<(), MemError> {
        let _ = (offset, value);
        todo!()
    }
}
