//! Registered memory: a range of the process's address space that is only copied from and to.

use std::sync::Arc;

use crate::raw::Raw;
use crate::{Buffer, fault};

/// Why memory could not be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MemError {
    /// The range is not inside the region, or an atomic's address is not aligned to 8.
    #[error("{len} bytes at offset {offset:#x} {}", misplaced(*.offset, *.len, *.region_len))]
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

/// What is wrong with a range that was refused: if it is inside, then its address.
fn misplaced(offset: u64, len: u64, region_len: u64) -> String {
    if offset.checked_add(len).is_some_and(|end| end <= region_len) {
        "are not aligned to 8".to_owned()
    } else {
        format!("are not inside the region of {region_len} bytes")
    }
}

/// A range of memory that a device may read and write while the region exists.
///
/// Every access is a copy or an atomic that reports missing memory as [`MemError::Fault`]. Accesses of several
/// threads may overlap: each byte is then one of those written, in no promised mixture, except for aligned 8-byte
/// words that are reached by the atomics.
#[derive(Clone, Debug)]
pub struct Region {
    raw: Raw,
    /// Keeps memory that we own alive as long as anybody may reach it.
    _owner: Option<Arc<Buffer>>,
}

impl Region {
    /// The region of `len` bytes at `base`, which need not be mapped: access to memory that is not there is an
    /// error, not a crash.
    ///
    /// # Safety
    /// Until the last clone is gone, bytes of the range may be read and changed at any time. No Rust
    /// reference to them may be live meanwhile, and they must not become part of another allocation that is.
    pub unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        fault::install_once();
        // SAFETY: the caller's promise.
        Self { raw: unsafe { Raw::new(base.expose_provenance(), len) }, _owner: None }
    }

    /// The region that covers a buffer of ours, and keeps it alive.
    pub fn from_buffer(buffer: &Arc<Buffer>) -> Self {
        Self { raw: buffer.raw(), _owner: Some(Arc::clone(buffer)) }
    }

    /// `len` bytes of the region from `offset` on, as a region; `None` if they are not all inside.
    pub fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        if end > self.raw.len() {
            return None;
        }
        // SAFETY: the range lies inside this region, whose maker's promise covers it; an owner is kept as here.
        let raw = unsafe { Raw::new(self.raw.addr() + offset, len) };
        Some(Self { raw, _owner: self._owner.clone() })
    }

    /// First address.
    pub fn addr(&self) -> u64 {
        self.raw.addr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.raw.len() as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.raw.len() == 0
    }

    /// Proves that each page can be read, and written if `write`; on failure, the first address that cannot.
    /// Contents stay as they are, even if others write meanwhile. Pages become present.
    ///
    /// Puts the fault handler back in front if the program replaced it (see [`crate::install_fault_handler`]). The
    /// proof is of the moment: memory may vanish afterwards, and accesses then end in [`MemError::Fault`].
    pub fn probe(&self, write: bool) -> Result<(), u64> {
        fault::install().map_err(|_| self.addr())?;
        self.raw.probe(write).map_err(|bad| bad as u64)
    }

    /// Copies bytes from the region at `offset` into `dst`. After an error `dst` holds any mixture.
    ///
    /// # Errors
    /// `OutOfBounds` if a byte is outside the region (zero bytes at its end are inside), `Fault` if one vanished.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), MemError> {
        self.raw.read(offset, dst)
    }

    /// As [`Region::read`], and goes on with the CRC-32 (Ethernet's) in `crc`: that of everything before the bytes becomes
    /// that of everything up to their end. The CRC is that of the bytes in `dst`, even if others write to the region
    /// meanwhile. One pass where the processor can; after an error `crc` is as it was.
    ///
    /// # Errors
    /// As [`Region::read`].
    #[inline]
    pub fn read_crc(&self, offset: u64, dst: &mut [u8], crc: &mut u32) -> Result<(), MemError> {
        self.raw.read_crc(offset, dst, crc)
    }

    /// Copies `src` into the region at `offset`; the last 8 bytes are stored last. After an error any part may be written.
    ///
    /// Each of the last 8 bytes is stored exactly once, from 8 bytes on by one store (which others see whole if its
    /// address is aligned). A thread that polls the last byte or word therefore finds all before it when it changes.
    ///
    /// # Errors
    /// As [`Region::read`].
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<(), MemError> {
        self.raw.write(offset, src)
    }

    /// Atomically adds `add` (wrapping, host order) to the 8 bytes at `offset`; returns the value before.
    /// The address must be aligned to 8 (else `OutOfBounds`). Sequentially consistent.
    ///
    /// # Errors
    /// As [`Region::read`]; the memory is then unchanged.
    #[inline]
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemError> {
        self.raw.fetch_add(offset, add)
    }

    /// Atomically stores `swap` into the 8 bytes at `offset` if they equal `compare`; returns the value before.
    /// The address must be aligned to 8 (else `OutOfBounds`). Sequentially consistent.
    ///
    /// # Errors
    /// As [`Region::read`]; the memory is then unchanged.
    #[inline]
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemError> {
        self.raw.compare_swap(offset, compare, swap)
    }

    /// Atomically loads the 8 bytes at `offset`, aligned to 8. Acquire: what was written before a store or a
    /// [`Region::write`] that this load sees is seen after it.
    ///
    /// # Errors
    /// As [`Region::read`].
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, MemError> {
        self.raw.load(offset)
    }

    /// Atomically stores 8 bytes at `offset`, aligned to 8. Release: who sees it sees all that was written before.
    ///
    /// # Errors
    /// As [`Region::read`]; the memory is then unchanged.
    #[inline]
    pub fn store(&self, offset: u64, value: u64) -> Result<(), MemError> {
        self.raw.store(offset, value)
    }
}
