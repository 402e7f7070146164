//! The routines for other processors: the kernel copies, and says EFAULT where memory is missing.
//!
//! Copies are `process_vm_readv` and `process_vm_writev` on the process itself: fault-tolerant, at the price of a
//! system call each (about half a microsecond). The kernel has no such call for 64-bit atomics: `fetch_add`,
//! `compare_swap`, `load` and `store` prove the word first and then use a plain atomic, so memory that vanishes
//! between the two still ends the process. A processor that matters deserves routines like those of x86-64.
//!
//! **Order.** The last word is stored by a call of its own with a release fence before it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Faulted;

/// No instruction of this process belongs to a routine: the kernel handles the faults.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn recovery(_instruction: usize) -> Option<usize> {
    None
}

/// Copies `len` bytes in no promised order. After a fault the destination holds any mixture.
///
/// # Safety
/// The destination's bytes may be changed at any time and the source's may be read: no Rust reference forbids it.
/// Neither need be mapped.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    let mut copied = 0;
    while copied < len {
        let local = libc::iovec { iov_base: dst.wrapping_add(copied).cast(), iov_len: len - copied };
        let remote =
            libc::iovec { iov_base: src.wrapping_add(copied).cast_mut().cast(), iov_len: len - copied };
        // SAFETY: both vectors describe the caller's ranges; the kernel checks that they are mapped.
        let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => copied += count,
            Ok(_) | Err(_) => return Err(Faulted),
        }
    }
    Ok(())
}

/// Copies `len` bytes; whoever sees one of the last 8 sees all that lie before those 8.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn copy_last_word_last(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    let body = len.saturating_sub(8);
    // SAFETY: the caller's promise, for the two parts of the ranges.
    unsafe {
        copy(dst, src, body)?;
        fence(Ordering::Release);
        copy(dst.wrapping_add(body), src.wrapping_add(body), len - body)
    }
}

/// As [`copy`], and returns the CRC-32 that `crc`, the one of everything before the bytes, comes to with them.
///
/// # Safety
/// As [`copy`]; the destination is the caller's alone, and mapped.
pub(crate) unsafe fn copy_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> Result<u32, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { super::copy_then_crc(copy, dst, src, len, crc) }
}

/// Loads 8 bytes, aligned to 8, with acquire order.
///
/// # Safety
/// As the source of [`copy`].
pub(crate) unsafe fn load(addr: *const u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { touch_read(addr.cast()) }?;
    // SAFETY: aligned by contract and readable a moment ago; the module's text names the gap.
    Ok(unsafe { AtomicU64::from_ptr(addr.cast_mut()) }.load(Ordering::Acquire))
}

/// Stores 8 bytes, aligned to 8, with release order.
///
/// # Safety
/// As the destination of [`copy`].
pub(crate) unsafe fn store(addr: *mut u64, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { writable_word(addr) }?.store(value, Ordering::Release);
    Ok(())
}

/// Adds (wrapping) to 8 bytes, aligned to 8, in sequentially consistent order; returns the value before.
///
/// # Safety
/// As the destination of [`copy`].
pub(crate) unsafe fn fetch_add(addr: *mut u64, add: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    Ok(unsafe { writable_word(addr) }?.fetch_add(add, Ordering::SeqCst))
}

/// Stores `swap` into 8 bytes, aligned to 8, if they equal `compare`, in sequentially consistent order; returns
/// the value before.
///
/// # Safety
/// As the destination of [`copy`].
pub(crate) unsafe fn compare_swap(addr: *mut u64, compare: u64, swap: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    let word = unsafe { writable_word(addr) }?;
    match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(before) | Err(before) => Ok(before),
    }
}

/// Proves that the byte can be read.
///
/// # Safety
/// As the source of [`copy`].
pub(crate) unsafe fn touch_read(addr: *const u8) -> Result<(), Faulted> {
    let mut byte = 0_u8;
    // SAFETY: the destination is a local; the source is the caller's promise.
    unsafe { copy(&raw mut byte, addr, 1) }
}

/// Proves that the byte can be read and written, by an atomic operation that changes nothing.
///
/// The operation is the one that FUTEX_WAKE_OP does on its second word: here "or 0", in the aligned 4 bytes around
/// the address, which lie in the same page.
///
/// # Safety
/// As the destination of [`copy`].
pub(crate) unsafe fn touch_write(addr: *mut u8) -> Result<(), Faulted> {
    const NO_WAKE: libc::c_long = 0;
    // The operation sits in the top four bits; its operand, the comparison and its operand are all 0.
    const OR_ZERO: libc::c_long = (libc::FUTEX_OP_OR as libc::c_long) << 28;
    let word = addr.map_addr(|a| a & !3);
    let first = std::sync::atomic::AtomicU32::new(0);
    // SAFETY: the kernel reads no memory at the first word and checks the second one's access itself.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            first.as_ptr(),
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            NO_WAKE,
            NO_WAKE,
            word,
            OR_ZERO,
        )
    };
    if woken < 0 { Err(Faulted) } else { Ok(()) }
}

/// The word as an atomic, after proof that it can be written.
///
/// # Safety
/// As the destination of [`copy`]; the address is aligned to 8.
unsafe fn writable_word<'a>(addr: *mut u64) -> Result<&'a AtomicU64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { touch_write(addr.cast()) }?;
    // SAFETY: aligned by contract and writable a moment ago; the module's text names the gap.
    Ok(unsafe { AtomicU64::from_ptr(addr) })
}
