//! What a path is. Of a device node always the device, never the link that stands for it. Of an open descriptor the kernel says
//! what it says: a node's is a character device.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::path::Kind;
use super::{CWD, next, path_hook};

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
    |path, kind, next| next(dir, path, buf, following(kind, flags)));
path_hook!(fstatat64(dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FSTATAT64, dir,
    |path, kind, next| next(dir, path, buf, following(kind, flags)));
path_hook!(statx(dir: c_int, @path, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, STATX, dir,
    |path, kind, next| next(dir, path, following(kind, flags), mask, buf));

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
    |path, kind, next| next(version, dir, path, buf, following(kind, flags)));
path_hook!(__fxstatat64(version: c_int, dir: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, FXSTATAT64, dir,
    |path, kind, next| next(version, dir, path, buf, following(kind, flags)));

fn following(kind: Kind, flags: c_int) -> c_int {
    if kind == Kind::Node { flags & !libc::AT_SYMLINK_NOFOLLOW } else { flags }
}

/// The function to ask: for a node the one that follows links, if there is one.
fn instead(kind: Kind, following: &next::Next, usual: Stat) -> Stat {
    if kind != Kind::Node {
        return usual;
    }
    // SAFETY: `stat` and `lstat` have the same types.
    unsafe { following.function::<Stat>() }.unwrap_or(usual)
}

fn instead_x(kind: Kind, following: &next::Next, usual: XStat) -> XStat {
    if kind != Kind::Node {
        return usual;
    }
    // SAFETY: `__xstat` and `__lxstat` have the same types.
    unsafe { following.function::<XStat>() }.unwrap_or(usual)
}
