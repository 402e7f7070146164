//! Opening files, and the device of the connection manager. The last argument of `open` and `openat` is passed on whether the
//! program gave it or not: the kernel looks at it only if it must be there.

use std::ffi::{c_char, c_int};

use super::path::{Kind, concerns};
use super::{CWD, missing, next, path_hook, redirect, tree};
use crate::ucma;

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, ...) -> c_int;

macro_rules! open_hook {
    ($name:ident, $next:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            flags: c_int,
            mode: libc::mode_t,
        ) -> c_int {
            // SAFETY: the type as the C library declares it.
            let next = unsafe { next::$next.function::<Open>() };
            let Some(next) = next else { return missing() };
            // SAFETY: the program calls with what the C library's function wants.
            unsafe {
                if !concerns(path) {
                    return next(path, flags, mode);
                }
                if redirect::is_connection_manager(CWD, path) {
                    return ucma::open(flags);
                }
                redirect::with(CWD, path, |path, kind| {
                    refresh(path, kind);
                    next(path, flags, mode)
                })
            }
        }

        #[cfg(test)]
        const _: () = _ = $name;
    };
}

macro_rules! openat_hook {
    ($name:ident, $next:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            dir: c_int,
            path: *const c_char,
            flags: c_int,
            mode: libc::mode_t,
        ) -> c_int {
            // SAFETY: the type as the C library declares it.
            let next = unsafe { next::$next.function::<OpenAt>() };
            let Some(next) = next else { return missing() };
            // SAFETY: the program calls with what the C library's function wants.
            unsafe {
                if !concerns(path) {
                    return next(dir, path, flags, mode);
                }
                if redirect::is_connection_manager(dir, path) {
                    return ucma::open(flags);
                }
                redirect::with(dir, path, |path, kind| {
                    refresh(path, kind);
                    next(dir, path, flags, mode)
                })
            }
        }

        #[cfg(test)]
        const _: () = _ = $name;
    };
}

open_hook!(open, OPEN);
open_hook!(open64, OPEN64);
openat_hook!(openat, OPENAT);
openat_hook!(openat64, OPENAT64);

// What a header that checks arguments calls instead, when there is no third.
path_hook!(__open_2(@path, flags: c_int) -> c_int, OPEN_2, CWD, |path, kind, next| {
    open_kind(path, kind, flags, || next(path, flags))
});
path_hook!(__open64_2(@path, flags: c_int) -> c_int, OPEN64_2, CWD, |path, kind, next| {
    open_kind(path, kind, flags, || next(path, flags))
});
path_hook!(__openat_2(dir: c_int, @path, flags: c_int) -> c_int, OPENAT_2, dir, |path, kind, next| {
    open_kind(path, kind, flags, || next(dir, path, flags))
});
path_hook!(__openat64_2(dir: c_int, @path, flags: c_int) -> c_int, OPENAT64_2, dir, |path, kind, next| {
    open_kind(path, kind, flags, || next(dir, path, flags))
});

path_hook!(fopen(@path, mode: *const c_char) -> *mut libc::FILE, FOPEN, CWD, |path, kind, next| {
    refresh(path, kind);
    next(path, mode)
});
path_hook!(fopen64(@path, mode: *const c_char) -> *mut libc::FILE, FOPEN64, CWD, |path, kind, next| {
    refresh(path, kind);
    next(path, mode)
});
path_hook!(freopen(@path, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, FREOPEN, CWD,
|path, kind, next| {
    refresh(path, kind);
    next(path, mode, file)
});
path_hook!(freopen64(@path, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, FREOPEN64, CWD,
|path, kind, next| {
    refresh(path, kind);
    next(path, mode, file)
});

/// Opens what lies at a path of ours: a channel of the connection manager, or a file, as `next` does.
///
/// # Safety
/// `path` is a string.
unsafe fn open_kind(path: *const c_char, kind: Kind, flags: c_int, next: impl FnOnce() -> c_int) -> c_int {
    if kind == Kind::ConnectionManager {
        return ucma::open(flags);
    }
    // SAFETY: the caller's promise.
    unsafe { refresh(path, kind) };
    next()
}

/// Brings a count up to date before it is read.
///
/// # Safety
/// `path` is a string.
unsafe fn refresh(path: *const c_char, kind: Kind) {
    if kind == Kind::Counter {
        // SAFETY: the caller's promise.
        redirect::keeping_errno(|| tree::refresh(unsafe { super::path::bytes(path) }));
    }
}
