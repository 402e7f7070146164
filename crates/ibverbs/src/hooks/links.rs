//! Links and whole paths. What the C library answers about our copy begins with where that lies; the answer is shortened to what
//! it stands for.

use std::ffi::{c_char, c_int};

use super::path::{Kind, bytes};
use super::{CWD, missing, next, path_hook, tree};
use crate::answer::{Refused, set_errno};

type RealPath = unsafe extern "C-unwind" fn(*const c_char, *mut c_char) -> *mut c_char;

path_hook!(realpath(@path, resolved: *mut c_char) -> *mut c_char, REALPATH, CWD, |path, kind, next| {
    restored(real_path(path, kind, resolved, next as RealPath))
});
path_hook!(__realpath_chk(@path, resolved: *mut c_char, room: usize) -> *mut c_char, REALPATH_CHK, CWD,
|path, kind, next| {
    // The library's own check: it ends the program if there is too little room.
    if kind.is_node() { restored(node_path(path, resolved)) } else { restored(next(path, resolved, room)) }
});
path_hook!(canonicalize_file_name(@path) -> *mut c_char, CANONICALIZE_FILE_NAME, CWD, |path, kind, next| {
    if kind.is_node() { restored(node_path(path, std::ptr::null_mut())) } else { restored(next(path)) }
});
path_hook!(readlink(@path, buf: *mut c_char, size: usize) -> isize, READLINK, CWD, |path, kind, next| {
    if kind.is_node() { no_link(path) } else { next(path, buf, size) }
});
path_hook!(__readlink_chk(@path, buf: *mut c_char, size: usize, room: usize) -> isize, READLINK_CHK, CWD,
    |path, kind, next| if kind.is_node() { no_link(path) } else { next(path, buf, size, room) });
path_hook!(readlinkat(dir: c_int, @path, buf: *mut c_char, size: usize) -> isize, READLINKAT, dir,
    |path, kind, next| if kind.is_node() { no_link(path) } else { next(dir, path, buf, size) });
path_hook!(__readlinkat_chk(dir: c_int, @path, buf: *mut c_char, size: usize, room: usize) -> isize,
    READLINKAT_CHK, dir,
    |path, kind, next| if kind.is_node() { no_link(path) } else { next(dir, path, buf, size, room) });

/// `getcwd`: a program that went to a directory of ours is told that one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn getcwd(buf: *mut c_char, size: usize) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*mut c_char, usize) -> *mut c_char;
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::GETCWD.function::<Function>() };
    let Some(next) = next else { return missing() };
    // SAFETY: the program calls with what the C library's function wants; the answer is a string that may be changed.
    unsafe { restored(next(buf, size)) }
}

#[cfg(test)]
const _: () = _ = getcwd;

/// # Safety
/// As `realpath`.
unsafe fn real_path(path: *const c_char, kind: Kind, to: *mut c_char, next: RealPath) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { if kind.is_node() { node_path(path, to) } else { next(path, to) } }
}

/// The whole path of a device node: it is there already, if there is such a node.
///
/// # Safety
/// `path` is a string, and `to` is null or has room for `PATH_MAX` bytes.
unsafe fn node_path(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's promise; `strdup` allocates as the library's function does.
    unsafe {
        if !exists(path) {
            return std::ptr::null_mut();
        }
        if to.is_null() { libc::strdup(path) } else { libc::strcpy(to, path) }
    }
}

/// A device node is no link.
///
/// # Safety
/// `path` is a string.
unsafe fn no_link(path: *const c_char) -> isize {
    // SAFETY: the caller's promise.
    if unsafe { exists(path) } {
        set_errno(Refused(libc::EINVAL));
    }
    -1
}

/// Whether there is something; if not, `errno` says why.
///
/// # Safety
/// `path` is a string.
unsafe fn exists(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) == 0 }
}

/// Shortens a path in place. `errno` stays.
///
/// # Safety
/// `path` is null or a string that may be changed.
unsafe fn restored(path: *mut c_char) -> *mut c_char {
    if !path.is_null() {
        // SAFETY: the caller's promise.
        unsafe { restore(path) };
    }
    path
}

/// Takes what lies before the path that programs know off the beginning of a path, in place.
///
/// # Safety
/// `path` is a string that may be changed.
pub(super) unsafe fn restore(path: *mut c_char) {
    // SAFETY: the caller's promise; the rest, with its end, moves within the string.
    unsafe {
        let foreign = foreign_len(path);
        if foreign > 0 {
            let rest = bytes(path).len() - foreign + 1;
            std::ptr::copy(path.add(foreign), path, rest);
        }
    }
}

/// How much of a path lies before what programs know of it: 0 if it is none of ours.
///
/// # Safety
/// `path` is a string.
pub(super) unsafe fn foreign_len(path: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    tree::foreign_len(unsafe { bytes(path) })
}
