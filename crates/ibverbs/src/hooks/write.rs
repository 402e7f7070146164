//! `write` and `writev`: to an event channel it is a command.
//!
//! A channel is the end of a pipe that is read. The kernel refuses to write to that, before it looks at anything else; so the
//! refusal is what is looked at, and every other `write` goes its way. Both may be called in handlers of signals.

use std::ffi::{c_int, c_void};

use super::{missing, next};
use crate::ucma;

/// `write`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
    // SAFETY: the type as the C library declares it; the program calls with what that function wants.
    unsafe {
        let Some(next) = next::WRITE.function::<Write>() else { return missing() };
        if !ucma::is_any() {
            return next(fd, buf, len);
        }
        let errno = *libc::__errno_location();
        let written = next(fd, buf, len);
        match refused(fd, written, errno) {
            Some(channel) => ucma::write(fd, channel, buf, len),
            None => written,
        }
    }
}

/// `writev`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    type Writev = unsafe extern "C-unwind" fn(c_int, *const c_void, c_int) -> isize;
    // SAFETY: as above.
    unsafe {
        let Some(next) = next::WRITEV.function::<Writev>() else { return missing() };
        if !ucma::is_any() {
            return next(fd, parts, count);
        }
        let errno = *libc::__errno_location();
        let written = next(fd, parts, count);
        match refused(fd, written, errno) {
            Some(channel) => ucma::writev(fd, channel, parts, count),
            None => written,
        }
    }
}

#[cfg(test)]
const _: () = _ = (write, writev);

/// The channel to which the kernel has just refused to write; then the refusal is forgotten, and `errno` is what it was before.
fn refused(fd: c_int, written: isize, errno: c_int) -> Option<ucma::Key> {
    // SAFETY: the C library's address of this thread's number.
    let place = unsafe { &mut *libc::__errno_location() };
    if written >= 0 || *place != libc::EBADF {
        return None;
    }
    let channel = ucma::of_descriptor(fd)?;
    *place = errno;
    Some(channel)
}
