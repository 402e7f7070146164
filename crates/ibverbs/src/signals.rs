//! Whether a wait that a signal handler ended goes on, as a kernel's `read` of an event would.

use std::mem::MaybeUninit;

/// Runs `f` with the program's signals held back, whose handlers might call again, or leave by `longjmp`. Not those that tell of a
/// fault in the thread itself.
pub(crate) fn hold_back<R>(f: impl FnOnce() -> R) -> R {
    let mut held = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` makes a set, the others change and read it, and `pthread_sigmask` makes one of `before`. They do not fail
    // with these arguments.
    unsafe {
        libc::sigfillset(held.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(held.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, held.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: made by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

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

/// What a thread does to itself; held back, it would end the process.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
