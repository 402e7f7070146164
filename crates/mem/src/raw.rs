//! A range of addresses and the checked ways into it.

use crate::MemError;
use crate::routine::{self, Faulted};

/// `len` bytes from `base`, reached by copies and atomics only. Whoever makes one promises what
/// [`crate::Region::from_raw`] asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    base: usize,
    len: usize,
}

impl Raw {
    /// The range, mapped or not.
    ///
    /// # Safety
    /// While a copy of the value is in use, bytes of the range may be read and changed at any time: no Rust
    /// reference to them is live. The base's provenance is exposed.
    pub(crate) unsafe fn new(base: usize, len: usize) -> Self {
        Self { base, len }
    }

    pub(crate) fn addr(&self) -> usize {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes at `offset` into `dst`.
    #[inline]
    pub(crate) fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), MemError> {
        let at = self.locate(offset, dst.len())?;
        // SAFETY: the source lies inside the range, which may be read by the promise of `new`; `dst` is ours alone.
        let copied = unsafe { routine::copy(dst.as_mut_ptr(), at, dst.len()) };
        Ok(copied?)
    }

    /// As `read`, and goes on with the CRC-32 in `crc`.
    #[inline]
    pub(crate) fn read_crc(&self, offset: u64, dst: &mut [u8], crc: &mut u32) -> Result<(), MemError> {
        let at = self.locate(offset, dst.len())?;
        // SAFETY: the source lies inside the range, which may be read by the promise of `new`; `dst` is ours alone.
        *crc = unsafe { routine::copy_crc(dst.as_mut_ptr(), at, dst.len(), *crc) }?;
        Ok(())
    }

    /// Copies `src` to `offset`, the last 8 bytes last.
    #[inline]
    pub(crate) fn write(&self, offset: u64, src: &[u8]) -> Result<(), MemError> {
        let at = self.locate(offset, src.len())?;
        // SAFETY: the destination lies inside the range, which may be changed by the promise of `new`.
        let copied = unsafe { routine::copy_last_word_last(at, src.as_ptr(), src.len()) };
        Ok(copied?)
    }

    #[inline]
    pub(crate) fn load(&self, offset: u64) -> Result<u64, MemError> {
        let word = self.locate_word(offset)?;
        // SAFETY: aligned, inside the range, which may be read by the promise of `new`.
        let loaded = unsafe { routine::load(word) };
        Ok(loaded?)
    }

    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u64) -> Result<(), MemError> {
        let word = self.locate_word(offset)?;
        // SAFETY: aligned, inside the range, which may be changed by the promise of `new`.
        let stored = unsafe { routine::store(word, value) };
        Ok(stored?)
    }

    #[inline]
    pub(crate) fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemError> {
        let word = self.locate_word(offset)?;
        // SAFETY: aligned, inside the range, which may be changed by the promise of `new`.
        let added = unsafe { routine::fetch_add(word, add) };
        Ok(added?)
    }

    #[inline]
    pub(crate) fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemError> {
        let word = self.locate_word(offset)?;
        // SAFETY: aligned, inside the range, which may be changed by the promise of `new`.
        let swapped = unsafe { routine::compare_swap(word, compare, swap) };
        Ok(swapped?)
    }

    /// Proves each page; the first address that cannot be read (and written if `write`) otherwise.
    pub(crate) fn probe(&self, write: bool) -> Result<(), usize> {
        let page = page_size();
        // A range that wraps round the end of the address space meets the kernel's half first, and fails there.
        let end = self.base.saturating_add(self.len);
        let mut at = self.base;
        while at < end {
            let byte = std::ptr::with_exposed_provenance_mut::<u8>(at);
            // SAFETY: the byte lies inside the range, which may be changed by the promise of `new`; nothing does.
            let touched =
                unsafe { if write { routine::touch_write(byte) } else { routine::touch_read(byte) } };
            touched.map_err(|Faulted| at)?;
            let Some(next) = (at & !(page - 1)).checked_add(page) else { break };
            at = next;
        }
        Ok(())
    }

    /// The first address of `len` bytes at `offset`, proved to lie inside.
    #[inline]
    fn locate(&self, offset: u64, len: usize) -> Result<*mut u8, MemError> {
        // Widening casts: an address has 64 bits at most.
        let outside = MemError::OutOfBounds { offset, len: len as u64, region_len: self.len as u64 };
        let start = usize::try_from(offset).map_err(|_| outside)?;
        let end = start.checked_add(len).ok_or(outside)?;
        if end > self.len {
            return Err(outside);
        }
        // A region may claim more than the address space has; nothing is mapped beyond its end.
        if self.base.checked_add(end).is_none() {
            return Err(MemError::Fault);
        }
        Ok(std::ptr::with_exposed_provenance_mut(self.base + start))
    }

    /// As `locate` for the 8 bytes of an atomic operation, which must be aligned.
    #[inline]
    fn locate_word(&self, offset: u64) -> Result<*mut u64, MemError> {
        let word = self.locate(offset, 8)?.cast::<u64>();
        if !word.is_aligned() {
            return Err(MemError::OutOfBounds { offset, len: 8, region_len: self.len as u64 });
        }
        Ok(word)
    }
}

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: a plain query.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Every kernel knows its page size; 4 KiB divides all of them.
    usize::try_from(size).unwrap_or(4096)
}

impl From<Faulted> for MemError {
    fn from(Faulted: Faulted) -> Self {
        Self::Fault
    }
}
