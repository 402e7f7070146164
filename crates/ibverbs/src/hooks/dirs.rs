//! Directories: opening and listing them, going there, and patterns.

use std::ffi::{c_char, c_int, c_void};

use super::path::{bytes, is_pattern_of_ours};
use super::{CWD, links, missing, next, path, path_hook, redirect, tree};

path_hook!(opendir(@path) -> *mut libc::DIR, OPENDIR, CWD);
path_hook!(scandir(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, SCANDIR, CWD);
path_hook!(scandir64(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, SCANDIR64, CWD);
path_hook!(scandirat(dir: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int,
    SCANDIRAT, dir);
path_hook!(scandirat64(dir: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int,
    SCANDIRAT64, dir);
path_hook!(chdir(@path) -> c_int, CHDIR, CWD);

type ErrorFunction = *const c_void;
type Glob = unsafe extern "C-unwind" fn(*const c_char, c_int, ErrorFunction, *mut libc::glob_t) -> c_int;

macro_rules! glob_hook {
    ($name:ident, $next:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            pattern: *const c_char,
            flags: c_int,
            on_error: ErrorFunction,
            found: *mut libc::glob_t,
        ) -> c_int {
            // SAFETY: the type as the C library declares it.
            let next = unsafe { next::$next.function::<Glob>() };
            let Some(next) = next else { return missing() };
            // SAFETY: the program calls with what the C library's function wants.
            unsafe {
                // With functions of its own for directories the program sees what they see.
                if !path::concerns(pattern) || flags & libc::GLOB_ALTDIRFUNC != 0 {
                    return next(pattern, flags, on_error, found);
                }
                glob_ours(next, pattern, flags, on_error, found)
            }
        }

        #[cfg(test)]
        const _: () = _ = $name;
    };
}

glob_hook!(glob, GLOB);
glob_hook!(glob64, GLOB64);

/// # Safety
/// As the C library's function.
unsafe fn glob_ours(
    next: Glob,
    pattern: *const c_char,
    flags: c_int,
    on_error: ErrorFunction,
    found: *mut libc::glob_t,
) -> c_int {
    let mut open = path::PathBuffer::new();
    // SAFETY: the caller's promise. What is found was allocated by the C library and only becomes shorter.
    unsafe {
        let root = if is_pattern_of_ours(bytes(pattern)) { tree::root() } else { None };
        let result = match root {
            Some(root) if open.push(root) && open.push(bytes(pattern)) => {
                next(open.as_c(), flags, on_error, found)
            }
            _ => redirect::with(CWD, pattern, |pattern, _| next(pattern, flags, on_error, found)),
        };
        if result == 0 {
            for i in 0..(*found).gl_pathc {
                let reserved = if flags & libc::GLOB_DOOFFS != 0 { (*found).gl_offs } else { 0 };
                links::restore(*(*found).gl_pathv.add(reserved + i));
            }
        }
        result
    }
}
