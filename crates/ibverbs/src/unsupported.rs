//! Calls that are not there: they say so, and change nothing.

use std::ffi::{c_int, c_void};

use crate::answer::{INVALID, Refused, UNSUPPORTED, minus_one, set_errno};

/// Functions that return an error number.
pub(crate) extern "C" fn errno() -> c_int {
    set_errno(UNSUPPORTED);
    let Refused(errno) = UNSUPPORTED;
    errno
}

/// Functions that return -1 and set `errno`.
pub(crate) extern "C" fn negative() -> c_int {
    minus_one(UNSUPPORTED)
}

/// Functions that return a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    set_errno(UNSUPPORTED);
    std::ptr::null_mut()
}

/// `ibv_import_device`: what is no device is told from devices, which cannot be imported.
pub(crate) extern "C" fn import_device(cmd_fd: c_int) -> *mut c_void {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure, which outlives it, or fails.
    let is_device = unsafe {
        libc::fstat(cmd_fd, stat.as_mut_ptr()) == 0
            && stat.assume_init().st_mode & libc::S_IFMT == libc::S_IFCHR
    };
    set_errno(if is_device { UNSUPPORTED } else { INVALID });
    std::ptr::null_mut()
}

/// Functions that return nothing, or 0, which stands for nothing. Provider libraries register themselves with such a one
/// when they are loaded, and are not called any more.
pub(crate) extern "C" fn nothing() -> u64 {
    0
}

/// `ibv_fork_init`, `ibv_dontfork_range`, `ibv_dofork_range`: no memory is pinned, so there is nothing to protect.
pub(crate) extern "C" fn fork_is_safe() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn fork_needs_nothing() -> c_int {
    2
}
