//! Memory of our own, made for registration: page aligned, zeroed, never borrowed.

use std::io;
use std::mem::ManuallyDrop;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::raw::{Raw, page_size};
use crate::{MemError, fault};

/// An allocation that is reached by copies only, so that devices and peers may change it at any time.
#[derive(Debug)]
pub struct Buffer {
    raw: Raw,
    memory: Memory,
}

/// Where a buffer's bytes came from, and so how they are given back.
#[derive(Debug)]
enum Memory {
    /// No bytes.
    None,
    /// A mapping of ours.
    Mapping,
    /// The allocation of a `Vec` of this capacity.
    Vec { capacity: usize },
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
            let raw = unsafe { Raw::new(page_size(), 0) };
            return Ok(Self { raw, memory: Memory::None });
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
        Ok(Self { raw: unsafe { Raw::new(base.expose_provenance(), len) }, memory: Memory::Mapping })
    }

    /// The bytes of a `Vec`, in place. [`Buffer::into_vec`] gives them back.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        fault::install_once();
        let mut bytes = ManuallyDrop::new(bytes);
        // SAFETY: the `Vec` is consumed, so nobody else can reach its allocation, and no reference to it is made
        // until `into_vec` or `drop` take it back.
        let raw = unsafe { Raw::new(bytes.as_mut_ptr().expose_provenance(), bytes.len()) };
        Self { raw, memory: Memory::Vec { capacity: bytes.capacity() } }
    }

    /// The contents as a `Vec`: the same allocation, with its capacity, if it came from one; else a copy.
    pub fn into_vec(self) -> Vec<u8> {
        match self.memory {
            Memory::None => Vec::new(),
            Memory::Mapping => {
                let mut bytes = vec![0; self.len()];
                // Fails only if the program took pages of ours away by their address: they are zeros then.
                let _ = self.read(0, &mut bytes);
                bytes
            }
            // SAFETY: `self` is consumed and not dropped, so the allocation has one owner again; the parts are
            // those that `from_vec` took apart. Regions hold the buffer by `Arc`: none is left.
            Memory::Vec { capacity } => unsafe { ManuallyDrop::new(self).vec(capacity) },
        }
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

    /// The `Vec` that the buffer was made of.
    ///
    /// # Safety
    /// The buffer came from a `Vec` of this capacity, and this is called once.
    unsafe fn vec(&self, capacity: usize) -> Vec<u8> {
        let base = std::ptr::with_exposed_provenance_mut(self.raw.addr());
        // SAFETY: the caller's promise.
        unsafe { Vec::from_raw_parts(base, self.raw.len(), capacity) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.memory {
            Memory::None => {}
            Memory::Mapping => {
                let base = std::ptr::with_exposed_provenance_mut(self.raw.addr());
                // SAFETY: the mapping is ours, and regions that cover it hold the buffer by `Arc`: none is left.
                let unmapped = unsafe { munmap(base, self.raw.len()) };
                debug_assert!(unmapped.is_ok(), "munmap of a buffer: {unmapped:?}");
            }
            // SAFETY: the capacity is the one that `from_vec` noted, and a buffer is dropped once.
            Memory::Vec { capacity } => drop(unsafe { self.vec(capacity) }),
        }
    }
}

/// From this length on a mapping can hold a huge page.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests;
