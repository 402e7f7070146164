//! Signals as something to wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that can be read when SIGTERM, SIGINT or SIGHUP has come, which end nothing by themselves from now on. To be
/// called before other threads are started: only the calling thread, and those that it starts, leave the signals alone.
///
/// # Errors
/// The process has no descriptor left.
pub fn stop_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes `set` a set, the others change and read it. They do not fail with these arguments, but for
    // `signalfd`, whose descriptor is nobody's yet.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}
