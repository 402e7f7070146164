//! Descriptors of ours that the program does not know: it closes them no more than it could close an adapter.
//!
//! To the program they are not open: closing one fails with `EBADF`, and a range is closed around them. Putting another
//! descriptor in the place of one (`dup2`) fails with `EBUSY`. After `fork` the numbers are the child's to do as it likes.

use std::ffi::{c_int, c_uint};

use userdma_link::guard::{first_guarded, is_guarded};

use super::{missing, next};
use crate::answer::{Refused, minus_one};

/// `close`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::CLOSE.function::<Close>() };
    match next {
        _ if is_guarded(fd) => minus_one(Refused(libc::EBADF)),
        // SAFETY: takes a number.
        Some(next) => unsafe { next(fd) },
        None => missing(),
    }
}

/// `dup2`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    type Dup2 = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::DUP2.function::<Dup2>() };
    match next {
        _ if is_guarded(to) && from != to => minus_one(Refused(libc::EBUSY)),
        // SAFETY: takes numbers.
        Some(next) => unsafe { next(from, to) },
        None => missing(),
    }
}

/// `dup3`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::DUP3.function::<Dup3>() };
    match next {
        _ if is_guarded(to) && from != to => minus_one(Refused(libc::EBUSY)),
        // SAFETY: takes numbers.
        Some(next) => unsafe { next(from, to, flags) },
        None => missing(),
    }
}

type CloseRange = unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int;

/// `close_range`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::CLOSE_RANGE.function::<CloseRange>() };
    let Some(next) = next else { return missing() };
    // Ours are closed by `exec` as it is.
    let closes = flags & CLOEXEC == 0 && first <= last;
    if !closes || next_guarded(first, last).is_none() {
        // SAFETY: takes numbers.
        return unsafe { next(first, last, flags) };
    }
    close_around(first, last, flags, next)
}

/// `closefrom`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    type CloseFrom = unsafe extern "C-unwind" fn(c_int);
    let low = first.max(0).cast_unsigned();
    // SAFETY: the types as the C library declares them.
    let (from, range) =
        unsafe { (next::CLOSEFROM.function::<CloseFrom>(), next::CLOSE_RANGE.function::<CloseRange>()) };
    match (from, range) {
        (_, Some(range)) if next_guarded(low, c_uint::MAX).is_some() => {
            close_around(low, c_uint::MAX, 0, range);
        }
        // SAFETY: takes a number.
        (Some(from), _) => unsafe { from(first) },
        (None, _) => {}
    }
}

#[cfg(test)]
const _: () = _ = (close, dup2, dup3, close_range, closefrom);

/// Closes the pieces between what is guarded.
fn close_around(first: c_uint, last: c_uint, flags: c_int, next: CloseRange) -> c_int {
    let mut flags = flags;
    if flags & UNSHARE != 0 {
        // SAFETY: gives the calling thread a table of its own, as the flag asks, and leaves the table as it is.
        if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
            return -1;
        }
        flags &= !UNSHARE;
    }
    let mut start = first;
    loop {
        let end = next_guarded(start, last);
        let piece = end.map_or(Some(last), |end| end.checked_sub(1)).filter(|&piece| piece >= start);
        if let Some(piece) = piece {
            // SAFETY: takes numbers.
            let result = unsafe { next(start, piece, flags) };
            if result != 0 {
                return result;
            }
        }
        match end {
            Some(end) if end < last => start = end + 1,
            Some(_) | None => return 0,
        }
    }
}

fn next_guarded(first: c_uint, last: c_uint) -> Option<c_uint> {
    let last = c_int::try_from(last).unwrap_or(c_int::MAX);
    first_guarded(c_int::try_from(first).ok()?, last).map(c_int::cast_unsigned)
}

/// `CLOSE_RANGE_UNSHARE` and `CLOSE_RANGE_CLOEXEC`.
const UNSHARE: c_int = 1 << 1;
const CLOEXEC: c_int = 1 << 2;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};

    use userdma_link::guard::GuardedFd;

    use super::*;

    unsafe extern "C-unwind" fn kernels(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // SAFETY: takes numbers, of descriptors that this test has opened.
        c_int::try_from(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).unwrap_or(-1)
    }

    fn is_open(fd: c_int) -> bool {
        // SAFETY: asks.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_range_is_closed_around_what_is_guarded() {
        let null = File::open("/dev/null").unwrap();
        // Out of other tests' way.
        let at = |low: c_int| {
            // SAFETY: makes a descriptor, which is nobody's yet.
            unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, low) }
        };
        let [a, ours, b] = [900, 901, 902].map(at);
        // SAFETY: made above.
        let ours = GuardedFd::from(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(ours) });
        assert_eq!(close_around(a.cast_unsigned(), b.cast_unsigned(), 0, kernels), 0);
        assert!(!is_open(a) && !is_open(b) && is_open(ours.as_raw_fd()));
        let only = ours.as_raw_fd().cast_unsigned();
        assert_eq!(close_around(only, only, 0, kernels), 0);
        assert!(is_open(ours.as_raw_fd()));
    }
}
