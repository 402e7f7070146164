//! What a path is. Of a device node always the device, never the link that stands for it. Of an open descriptor the kernel says
//! what it says: a node's is a character device. An event channel is called one too, though it is a pipe.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::path::Kind;
use super::{CWD, missing, next, path_hook};
use crate::ucma;

type Stat = unsafe extern "C-unwind" fn(*const c_char, *mut c_void) -> c_int;
type XStat = unsafe extern "C-unwind" fn(c_int, *const c_char, *mut c_void) -> c_int;

path_hook!(stat(@path, buf: *mut c_void) -> c_int, STAT, CWD);
path_hook!(stat64(@path, buf: *mut c_void) -> c_int, STAT64, CWD);
path_hook!(lstat(@path, buf: *mut c_void) -> c_int, LSTAT, CWD, |path, kind, next| {
    instead(kind, &next::STAT, next as Stat)(path, buf)
});
path_hook!(lstat64(@path, buf: *mut c_void) -> c_int, LSTAT64, CWD, |path, kind, next| {
    instead(kind, &next::STAT64, next as Stat)(path, buf)
});
path_hook!(fstatat(dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FSTATAT, dir,
    |path, kind, next| next(dir, path, buf, following(kind, flags)), |result| shown(result, flags, buf));
path_hook!(fstatat64(dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FSTATAT64, dir,
    |path, kind, next| next(dir, path, buf, following(kind, flags)), |result| shown(result, flags, buf));
path_hook!(statx(dir: c_int, @path, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, STATX, dir,
    |path, kind, next| next(dir, path, following(kind, flags), mask, buf), |result| shown_x(result, flags, buf));

// What programs call that were built before glibc 2.33. The first argument is the version of the structure.
path_hook!(__xstat(version: c_int, @path, buf: *mut c_void) -> c_int, XSTAT, CWD);
path_hook!(__xstat64(version: c_int, @path, buf: *mut c_void) -> c_int, XSTAT64, CWD);
path_hook!(__lxstat(version: c_int, @path, buf: *mut c_void) -> c_int, LXSTAT, CWD, |path, kind, next| {
    instead_x(kind, &next::XSTAT, next as XStat)(version, path, buf)
});
path_hook!(__lxstat64(version: c_int, @path, buf: *mut c_void) -> c_int, LXSTAT64, CWD, |path, kind, next| {
    instead_x(kind, &next::XSTAT64, next as XStat)(version, path, buf)
});
path_hook!(__fxstatat(version: c_int, dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FXSTATAT, dir,
    |path, kind, next| next(version, dir, path, buf, following(kind, flags)), |result| shown(result, flags, buf));
path_hook!(__fxstatat64(version: c_int, dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FXSTATAT64, dir,
    |path, kind, next| next(version, dir, path, buf, following(kind, flags)), |result| shown(result, flags, buf));

/// A function that is told a descriptor: an event channel is a character device.
macro_rules! fstat_hook {
    ($name:ident($($before:ident: $type:ty,)* @fd), $next:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name($($before: $type,)* fd: c_int, buf: *mut c_void) -> c_int {
            type Function = unsafe extern "C-unwind" fn($($type,)* c_int, *mut c_void) -> c_int;
            // SAFETY: the type as the C library declares it; the program calls with what that function wants.
            unsafe {
                let Some(next) = next::$next.function::<Function>() else { return missing() };
                if !ucma::is_any() {
                    return next($($before,)* fd, buf);
                }
                shown(next($($before,)* fd, buf), libc::AT_EMPTY_PATH, buf)
            }
        }

        #[cfg(test)]
        const _: () = _ = $name;
    };
}

fstat_hook!(fstat(@fd), FSTAT);
fstat_hook!(fstat64(@fd), FSTAT64);
fstat_hook!(__fxstat(version: c_int, @fd), FXSTAT);
fstat_hook!(__fxstat64(version: c_int, @fd), FXSTAT64);

/// What a call has found out about a descriptor, which may be an event channel.
///
/// # Safety
/// If `result` is 0, `buf` is a `struct stat`, which has the same form in all of these functions.
unsafe fn shown(result: c_int, flags: c_int, buf: *mut c_void) -> c_int {
    if result == 0 && flags & libc::AT_EMPTY_PATH != 0 && ucma::is_any() {
        // SAFETY: the caller's promise.
        let stat = unsafe { &mut *buf.cast::<libc::stat>() };
        if stat.st_mode & libc::S_IFMT == libc::S_IFIFO && ucma::of_pipe(stat.st_dev, stat.st_ino).is_some() {
            stat.st_mode = libc::S_IFCHR | 0o666;
            stat.st_rdev = libc::makedev(NODE.0, NODE.1);
        }
    }
    result
}

/// The same for `statx`.
///
/// # Safety
/// If `result` is 0, `buf` is a `struct statx`.
unsafe fn shown_x(result: c_int, flags: c_int, buf: *mut c_void) -> c_int {
    if result == 0 && flags & libc::AT_EMPTY_PATH != 0 && ucma::is_any() {
        // SAFETY: the caller's promise.
        let stat = unsafe { &mut *buf.cast::<libc::statx>() };
        let device = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        if libc::mode_t::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFIFO
            && ucma::of_pipe(device, stat.stx_ino).is_some()
        {
            stat.stx_mode = MODE_X;
            (stat.stx_rdev_major, stat.stx_rdev_minor) = NODE;
        }
    }
    result
}

fn following(kind: Kind, flags: c_int) -> c_int {
    if kind.is_node() { flags & !libc::AT_SYMLINK_NOFOLLOW } else { flags }
}

/// The function to ask: for a node the one that follows links, if there is one.
fn instead(kind: Kind, following: &next::Next, usual: Stat) -> Stat {
    if !kind.is_node() {
        return usual;
    }
    // SAFETY: `stat` and `lstat` have the same types.
    unsafe { following.function::<Stat>() }.unwrap_or(usual)
}

fn instead_x(kind: Kind, following: &next::Next, usual: XStat) -> XStat {
    if !kind.is_node() {
        return usual;
    }
    // SAFETY: `__xstat` and `__lxstat` have the same types.
    unsafe { following.function::<XStat>() }.unwrap_or(usual)
}

/// The device that all nodes are links to, as major and minor number.
const NODE: (c_uint, c_uint) = (1, 3);
/// What all of them are and allow, in the 16 bits that `statx` has for it: `S_IFCHR` and 0666.
const MODE_X: u16 = 0o020_666;
