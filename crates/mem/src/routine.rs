//! The copy and atomic routines that every access to application memory goes through.
//!
//! Application memory can vanish at any instant: the program unmaps it, protects it, or truncates the file behind
//! it. The routines answer that with [`Faulted`] instead of letting the process die. They work on bare addresses
//! and never form a reference, so it is no undefined behaviour if others change the bytes meanwhile: the compiler
//! does not see these accesses.
//!
//! On x86-64 they are machine code of known extent (`x86_64.rs`), which the signal handler in `fault.rs` leads out
//! of a fault. Elsewhere the kernel copies (`portable.rs`): correct and slow. Tests run both.

/// Memory that an access needed was not there, or did not allow it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Faulted;

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
