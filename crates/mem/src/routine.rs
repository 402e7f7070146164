//! The copy and atomic routines that every access to application memory goes through.
//!
//! Application memory can vanish at any instant: the program unmaps it, protects it, or truncates the file behind
//! it. The routines answer that with [`Faulted`] instead of letting the process die. They work on bare addresses
//! and never form a reference, so it is no undefined behaviour if others change the bytes meanwhile: the compiler
//! does not see these accesses.
//!
//! On x86-64 they are machine code of known extent (`x86_64.rs`), which the signal handler in `fault.rs` leads out
//! of a fault. Elsewhere the kernel copies (`portable.rs`): correct and slow. Tests run both.
//!
//! `copy_crc` also computes the CRC-32 of what it copies: in one pass where the processor can (`fold.rs`), elsewhere by
//! `crc32fast` over the copy.

/// Memory that an access needed was not there, or did not allow it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Faulted;

/// The CRC-32 of Ethernet that `crc`, the one of everything before `bytes`, comes to with them; 0 before the first. From 256
/// bytes on by wide vectors if the processor has them, else by `crc32fast`.
#[inline]
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = fold::crc(crc, bytes) {
        return crc;
    }
    library_crc32(crc, bytes)
}

/// The same by `crc32fast` alone.
#[inline]
fn library_crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// Copies by `copy`, then computes the CRC of what arrived.
///
/// # Safety
/// As [`copy_crc`].
unsafe fn copy_then_crc(
    copy: unsafe fn(*mut u8, *const u8, usize) -> Result<(), Faulted>,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    crc: u32,
) -> Result<u32, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { copy(dst, src, len) }?;
    // SAFETY: the caller's alone and mapped, by contract; it was filled just now.
    Ok(crc32(crc, unsafe { std::slice::from_raw_parts(dst, len) }))
}

#[cfg(target_arch = "x86_64")]
mod fold;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::*;

#[cfg(test)]
mod tests;
