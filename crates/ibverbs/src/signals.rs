//! Whether a wait that a signal handler ended goes on, as a kernel's `read` of an event would.

use std::mem::MaybeUninit;

/// Whether every handler of this process is to restart system calls (`SA_RESTART`). Which one has run cannot be known: if they
/// differ, the wait ends, so that a program which waits for its signal gets it.
pub(crate) fn restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call writes the whole structure, which is valid as zeros too; signals it does not know it refuses.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let is_handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0 || is_own(signal)
    })
}

/// The faults that our copies handle: they interrupt no system call.
fn is_own(signal: libc::c_int) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
}
