//! The actions that ours replaced, and how a fault is handed to them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, sigaction, siginfo_t};

/// An action that was in front before one of our entries. Never changed after it was published, but for `spent`.
#[derive(Debug)]
pub(super) struct Previous {
    action: sigaction,
    /// A one-shot action (`SA_RESETHAND`) was used: the default follows.
    spent: AtomicBool,
}

/// What became of a fault that was offered to a previous action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Offered {
    /// A handler ran, or the signal is one to ignore.
    Handled,
    /// The action is the default: the process is to end.
    Default,
}

impl Previous {
    pub(super) fn new(action: &sigaction) -> Self {
        Self { action: *action, spent: AtomicBool::new(false) }
    }

    /// Whether it stands for the same action as `other` and has not been used up.
    pub(super) fn stands_for(&self, other: &Self) -> bool {
        same(&self.action, &other.action) && !self.spent.load(Ordering::Relaxed)
    }

    /// The flags and the mask that the kernel has to apply so that this action finds what it asked for.
    ///
    /// Ours always takes a `siginfo_t`. The one-shot flag is played by us, since our own action has to stay. Where no
    /// handler was, an alternate stack is used if the thread has one: a stack overflow is then reported as before.
    pub(super) fn conditions(&self) -> (c_int, libc::sigset_t) {
        let flags = if self.is_handler() {
            (self.action.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO
        } else {
            libc::SA_ONSTACK | libc::SA_SIGINFO
        };
        (flags, self.action.sa_mask)
    }

    fn is_handler(&self) -> bool {
        self.action.sa_sigaction != libc::SIG_DFL && self.action.sa_sigaction != libc::SIG_IGN
    }

    /// Does with the signal what this action would have done. Async-signal-safe as far as the handler is.
    ///
    /// # Safety
    /// Called by a signal handler with the arguments that the kernel gave it.
    pub(super) unsafe fn offer(&self, signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> Offered {
        let action = self.action.sa_sigaction;
        // SAFETY: the kernel's pointer, by contract.
        let recurs = unsafe { recurs(signal, info) };
        match action {
            libc::SIG_DFL => return Offered::Default,
            // As the kernel has it: a fault cannot be ignored, a signal that somebody sent can.
            libc::SIG_IGN if recurs => return Offered::Default,
            libc::SIG_IGN => return Offered::Handled,
            _ => {}
        }
        if self.action.sa_flags & libc::SA_RESETHAND != 0 && self.spent.swap(true, Ordering::Relaxed) {
            return Offered::Default;
        }
        if self.action.sa_flags & libc::SA_SIGINFO != 0 {
            // SAFETY: the program registered this address as a handler of three arguments.
            let handler: extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(action) };
            handler(signal, info, context);
        } else {
            // SAFETY: the program registered this address as a handler of one argument.
            let handler: extern "C-unwind" fn(c_int) = unsafe { std::mem::transmute(action) };
            handler(signal);
        }
        Offered::Handled
    }
}

/// Ends the process as the default action does: with the signal as its cause, and a core dump if wanted.
///
/// # Safety
/// Called by a signal handler with the arguments that the kernel gave it. Returns; the process ends when the
/// handler does.
pub(super) unsafe fn end_by_default(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: all-zero is the default action with an empty mask and no flags.
    let default: sigaction = unsafe { std::mem::zeroed() };
    let _ = replace(signal, &default);
    // SAFETY: the kernel's pointer, by contract.
    if unsafe { recurs(signal, info) } {
        return;
    }
    // Somebody sent it: it does not come again by itself, so we send it on to this thread, with its origin.
    // SAFETY: plain system calls; the kernel checks `info`.
    unsafe {
        let sent = libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), libc::gettid(), signal, info);
        if sent != 0 {
            libc::raise(signal);
        }
    }
}

/// Whether the signal is a fault of the interrupted instruction, which happens again when the handler returns.
///
/// Positive codes are the kernel's; one of them, a memory error that needs no action yet, is not of the instruction.
///
/// # Safety
/// `info` is the kernel's.
pub(super) unsafe fn recurs(signal: c_int, info: *const siginfo_t) -> bool {
    // SAFETY: by contract.
    let code = unsafe { (*info).si_code };
    code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO)
}

/// The signal's action now.
pub(super) fn query(signal: c_int) -> io::Result<sigaction> {
    // SAFETY: all-zero is a valid value, and the call only fills it.
    unsafe {
        let mut action: sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut action) {
            0 => Ok(action),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Sets the signal's action; returns the one it replaced. Async-signal-safe.
pub(super) fn replace(signal: c_int, action: &sigaction) -> io::Result<sigaction> {
    // SAFETY: the action holds a handler of ours, or one that the kernel gave us before.
    unsafe {
        let mut replaced: sigaction = std::mem::zeroed();
        match libc::sigaction(signal, action, &mut replaced) {
            0 => Ok(replaced),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether two actions are the same: handler, flags and mask.
pub(super) fn same(a: &sigaction, b: &sigaction) -> bool {
    a.sa_sigaction == b.sa_sigaction
        && a.sa_flags & !SA_RESTORER == b.sa_flags & !SA_RESTORER
        && (1..=LAST_SIGNAL).all(|signal| {
            // SAFETY: both sets were filled by the kernel or by `zeroed`.
            unsafe { libc::sigismember(&a.sa_mask, signal) == libc::sigismember(&b.sa_mask, signal) }
        })
}

/// A flag that the C library sets by itself, and shows or not.
const SA_RESTORER: c_int = 0x0400_0000;

/// Linux has 64 signals.
const LAST_SIGNAL: c_int = 64;
