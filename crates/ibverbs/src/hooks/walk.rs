//! Walking through a tree with a function for each entry: `ftw` and `nftw`, whose functions are told the paths.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use super::{CWD, links, path_hook};

type Ftw = unsafe extern "C-unwind" fn(*const c_char, *const c_void, c_int) -> c_int;
type Nftw = unsafe extern "C-unwind" fn(*const c_char, *const c_void, c_int, *mut Place) -> c_int;

/// `struct FTW`.
#[repr(C)]
pub(crate) struct Place {
    base: c_int,
    level: c_int,
}

thread_local! {
    /// The functions of the walks that this thread is on; a walk within a walk puts the outer one's back.
    static FTW: Cell<Option<Ftw>> = const { Cell::new(None) };
    static NFTW: Cell<Option<Nftw>> = const { Cell::new(None) };
}

path_hook!(ftw(@path, function: Option<Ftw>, descriptors: c_int) -> c_int, FTW, CWD, |path, _kind, next| {
    let outer = FTW.replace(function);
    let result = next(path, Some(ftw_entry), descriptors);
    FTW.set(outer);
    result
});
path_hook!(ftw64(@path, function: Option<Ftw>, descriptors: c_int) -> c_int, FTW64, CWD, |path, _kind, next| {
    let outer = FTW.replace(function);
    let result = next(path, Some(ftw_entry), descriptors);
    FTW.set(outer);
    result
});
path_hook!(nftw(@path, function: Option<Nftw>, descriptors: c_int, flags: c_int) -> c_int, NFTW, CWD,
|path, _kind, next| {
    let outer = NFTW.replace(function);
    let result = next(path, Some(nftw_entry), descriptors, flags);
    NFTW.set(outer);
    result
});
path_hook!(nftw64(@path, function: Option<Nftw>, descriptors: c_int, flags: c_int) -> c_int, NFTW64, CWD,
|path, _kind, next| {
    let outer = NFTW.replace(function);
    let result = next(path, Some(nftw_entry), descriptors, flags);
    NFTW.set(outer);
    result
});

unsafe extern "C-unwind" fn ftw_entry(path: *const c_char, stat: *const c_void, kind: c_int) -> c_int {
    let Some(function) = FTW.get() else { return 0 };
    // SAFETY: the C library's path and what belongs to it, for the program's function; the end of a string is one.
    unsafe { function(path.add(links::foreign_len(path)), stat, kind) }
}

unsafe extern "C-unwind" fn nftw_entry(
    path: *const c_char,
    stat: *const c_void,
    kind: c_int,
    place: *mut Place,
) -> c_int {
    let Some(function) = NFTW.get() else { return 0 };
    // SAFETY: as above; the place is the C library's, which makes it anew for each entry.
    unsafe {
        let foreign = links::foreign_len(path);
        let mut own = Place { base: (*place).base, level: (*place).level };
        own.base -= c_int::try_from(foreign).unwrap_or(0);
        function(path.add(foreign), stat, kind, &raw mut own)
    }
}
