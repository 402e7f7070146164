//! Calls that are not there: they say so, and change nothing.

use std::ffi::{c_int, c_void};

use crate::answer::{Refused, UNSUPPORTED, minus_one, set_errno};

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
