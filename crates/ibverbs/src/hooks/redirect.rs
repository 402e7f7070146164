//! From a path of the program's to the path that is opened.

use std::ffi::{c_char, c_int};

use super::path::{self, Kind, Outcome, PathBuffer};
use super::tree;

/// Calls `call` with where `path`, relative to the directory `dir`, lies, and what is there. `errno` is what `call` leaves.
///
/// # Safety
/// `path` is a string.
#[cold]
#[inline(never)]
pub(super) unsafe fn with<R>(
    dir: c_int,
    path: *const c_char,
    call: impl FnOnce(*const c_char, Kind) -> R,
) -> R {
    let mut out = PathBuffer::new();
    // SAFETY: the caller's promise.
    match keeping_errno(|| find(dir, unsafe { path::bytes(path) }, &mut out)) {
        Outcome::Elsewhere => call(path, Kind::Plain),
        Outcome::Left => call(out.as_c(), Kind::Plain),
        Outcome::Served(kind) => call(out.as_c(), kind),
    }
}

/// Whether a path leads to the connection manager's device. Nothing is made to find that out.
///
/// # Safety
/// `path` is a string.
#[cold]
#[inline(never)]
pub(super) unsafe fn is_connection_manager(dir: c_int, path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let path = unsafe { path::bytes(path) };
    let place = || {
        let mut base = PathBuffer::new();
        let is_known = path.first() == Some(&b'/') || directory(dir, &mut base);
        is_known.then(|| path::place(b"", base.as_bytes(), path, &mut PathBuffer::new()))
    };
    path.ends_with(b"/rdma_cm") && keeping_errno(place) == Some(Outcome::Served(Kind::ConnectionManager))
}

/// Runs `f`, after which `errno` is as before.
pub(super) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the C library's address of this thread's number, before and after.
    unsafe {
        let before = *libc::__errno_location();
        let result = f();
        *libc::__errno_location() = before;
        result
    }
}

fn find(dir: c_int, path: &[u8], out: &mut PathBuffer) -> Outcome {
    let mut base = PathBuffer::new();
    if path.first() != Some(&b'/') && !directory(dir, &mut base) {
        return Outcome::Elsewhere;
    }
    // Most paths with the word in them are somebody else's: nothing is made for their sake.
    let mut anywhere = PathBuffer::new();
    if path::place(b"", base.as_bytes(), path, &mut anywhere) == Outcome::Elsewhere {
        return Outcome::Elsewhere;
    }
    match tree::root() {
        Some(root) => path::place(root, base.as_bytes(), path, out),
        None => Outcome::Elsewhere,
    }
}

/// The path of the directory behind a descriptor, or of the current one.
fn directory(dir: c_int, out: &mut PathBuffer) -> bool {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    if dir != libc::AT_FDCWD {
        let Ok(mut number) = u32::try_from(dir) else { return false };
        let mut digits = [0; 10];
        let mut first = digits.len();
        while number > 0 || first == digits.len() {
            first -= 1;
            // Less than ten.
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let len = digits.len() - first;
        link[14..14 + len].copy_from_slice(&digits[first..]);
    }
    out.fill(|room| {
        // SAFETY: the kernel writes at most as much as there is room for. Not the C library's functions, which are hooked.
        let len = unsafe {
            if dir == libc::AT_FDCWD {
                // With the zero at the end.
                libc::syscall(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) - 1
            } else {
                let link = link.as_ptr();
                libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, room.as_mut_ptr(), room.len())
            }
        };
        usize::try_from(len).ok().filter(|&len| len > 0 && room[0] == b'/')
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn descriptors_and_the_current_directory_have_paths() {
        let mut out = PathBuffer::new();
        let root = std::fs::File::open("/").unwrap();
        assert!(directory(root.as_raw_fd(), &mut out));
        assert_eq!(out.as_bytes(), b"/");
        assert!(directory(libc::AT_FDCWD, &mut out));
        assert_eq!(out.as_bytes(), std::env::current_dir().unwrap().as_os_str().as_encoded_bytes());
        assert!(!directory(-5, &mut out) && !directory(1_000_000, &mut out));
    }
}
