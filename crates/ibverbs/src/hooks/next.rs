//! The functions that ours stand in front of: those of the C library, or of another library that is preloaded behind us.
//!
//! They are looked up when our library is initialised. A call that comes before that (from the constructor of a library that
//! is initialised earlier) looks up its own; looking up takes the loader's lock and nothing of the allocator's.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function.
pub(super) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function; `None` if this C library has none.
    ///
    /// # Safety
    /// `F` is the type of a pointer to a function as the C library declares this one.
    #[inline]
    pub(super) unsafe fn function<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            found = self.look_up();
        }
        // SAFETY: the address of the function, which is what a pointer to it holds; not null, which is what no pointer holds.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: strings that live for ever. Functions that newer C libraries keep for old programs only are found by their
        // version alone.
        let found = unsafe {
            match libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) {
                found if found.is_null() => {
                    libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), OLDEST.as_ptr())
                }
                found => found,
            }
        };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! nexts {
    ($($constant:ident = $name:literal,)*) => {
        $(pub(super) static $constant: Next = Next::new($name);)*

        /// Looks all of them up. `errno` and the loader's last error are as before.
        pub(super) fn look_up_all() {
            $($constant.look_up();)*
            // Not every C library has all of them: the loader forgets what it would tell the program.
            // SAFETY: takes nothing.
            unsafe { libc::dlerror() };
        }
    };
}

nexts! {
    OPEN = c"open",
    OPEN64 = c"open64",
    OPENAT = c"openat",
    OPENAT64 = c"openat64",
    OPEN_2 = c"__open_2",
    OPEN64_2 = c"__open64_2",
    OPENAT_2 = c"__openat_2",
    OPENAT64_2 = c"__openat64_2",
    FOPEN = c"fopen",
    FOPEN64 = c"fopen64",
    FREOPEN = c"freopen",
    FREOPEN64 = c"freopen64",
    ACCESS = c"access",
    EACCESS = c"eaccess",
    EUIDACCESS = c"euidaccess",
    FACCESSAT = c"faccessat",
    STAT = c"stat",
    STAT64 = c"stat64",
    LSTAT = c"lstat",
    LSTAT64 = c"lstat64",
    FSTATAT = c"fstatat",
    FSTATAT64 = c"fstatat64",
    STATX = c"statx",
    XSTAT = c"__xstat",
    XSTAT64 = c"__xstat64",
    LXSTAT = c"__lxstat",
    LXSTAT64 = c"__lxstat64",
    FSTAT = c"fstat",
    FSTAT64 = c"fstat64",
    FXSTAT = c"__fxstat",
    FXSTAT64 = c"__fxstat64",
    FXSTATAT = c"__fxstatat",
    FXSTATAT64 = c"__fxstatat64",
    GETXATTR = c"getxattr",
    LGETXATTR = c"lgetxattr",
    LISTXATTR = c"listxattr",
    LLISTXATTR = c"llistxattr",
    OPENDIR = c"opendir",
    SCANDIR = c"scandir",
    SCANDIR64 = c"scandir64",
    SCANDIRAT = c"scandirat",
    SCANDIRAT64 = c"scandirat64",
    CHDIR = c"chdir",
    GLOB = c"glob",
    GLOB64 = c"glob64",
    FTW = c"ftw",
    FTW64 = c"ftw64",
    NFTW = c"nftw",
    NFTW64 = c"nftw64",
    REALPATH = c"realpath",
    REALPATH_CHK = c"__realpath_chk",
    CANONICALIZE_FILE_NAME = c"canonicalize_file_name",
    READLINK = c"readlink",
    READLINK_CHK = c"__readlink_chk",
    READLINKAT = c"readlinkat",
    READLINKAT_CHK = c"__readlinkat_chk",
    GETCWD = c"getcwd",
    CLOSE = c"close",
    CLOSE_RANGE = c"close_range",
    CLOSEFROM = c"closefrom",
    DUP2 = c"dup2",
    DUP3 = c"dup3",
    WRITE = c"write",
    WRITEV = c"writev",
    SOCKET = c"socket",
}

/// The version that the oldest functions of this architecture have.
#[cfg(target_arch = "x86_64")]
const OLDEST: &CStr = c"GLIBC_2.2.5";
#[cfg(target_arch = "aarch64")]
const OLDEST: &CStr = c"GLIBC_2.17";
