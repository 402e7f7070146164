//! Memory of our own, made for registration: page aligned, zeroed, never borrowed.

use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::raw::{Raw, page_size};
use crate::{MemError, fault};

/// A mapping that is reached by copies only, so that devices and peers may change it at any time. One of no bytes
/// maps nothing.
#[derive(Debug)]
pub struct Buffer {
    raw: Raw,
}

impl Buffer {
    /// `len` zero bytes on a page boundary (anonymous memory; huge pages are asked for from 2 MiB on).
    ///
    /// # Errors
    /// What `mmap` says: `ENOMEM` if there is no room for `len` bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        fault::install()?;
        if len == 0 {
            // SAFETY: no bytes, nothing to promise.
            return Ok(Self { raw: unsafe { Raw::new(page_size(), 0) } });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        if len >= HUGE_PAGE {
            // Huge pages are a wish: a kernel without them gives small ones.
            // SAFETY: the mapping is ours, and the advice does not change its contents.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        }
        // SAFETY: nobody else knows the mapping and no reference into it is ever made.
        Ok(Self { raw: unsafe { Raw::new(base.expose_provenance(), len) } })
    }

    /// First address.
    pub fn addr(&self) -> usize {
        self.raw.addr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes at `offset` into `dst`. After an error `dst` holds any mixture.
    ///
    /// # Errors
    /// `OutOfBounds` if a byte is outside the buffer, `Fault` if the program took the memory away by its address.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), MemError> {
        self.raw.read(offset, dst)
    }

    /// Copies `src` to `offset`; the last 8 bytes are stored last.
    ///
    /// # Errors
    /// As [`Buffer::read`]; any part may be written.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<(), MemError> {
        self.raw.write(offset, src)
    }

    /// The range, for a region that keeps this buffer alive.
    pub(crate) fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let base = std::ptr::with_exposed_provenance_mut(self.raw.addr());
        // SAFETY: the mapping is ours, and regions that cover it hold the buffer by `Arc`: none is left.
        let unmapped = unsafe { munmap(base, self.raw.len()) };
        debug_assert!(unmapped.is_ok(), "munmap of a buffer: {unmapped:?}");
    }
}

/// From this length on a mapping can hold a huge page.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests;
