//! Whether something may be read or written, and its extended attributes, of which nothing of ours has any.

use std::ffi::{c_char, c_int, c_void};

use super::{CWD, path_hook};

path_hook!(access(@path, mode: c_int) -> c_int, ACCESS, CWD);
path_hook!(eaccess(@path, mode: c_int) -> c_int, EACCESS, CWD);
path_hook!(euidaccess(@path, mode: c_int) -> c_int, EUIDACCESS, CWD);
path_hook!(faccessat(dir: c_int, @path, mode: c_int, flags: c_int) -> c_int, FACCESSAT, dir);

path_hook!(getxattr(@path, name: *const c_char, value: *mut c_void, size: usize) -> isize, GETXATTR, CWD);
path_hook!(lgetxattr(@path, name: *const c_char, value: *mut c_void, size: usize) -> isize, LGETXATTR, CWD);
path_hook!(listxattr(@path, list: *mut c_char, size: usize) -> isize, LISTXATTR, CWD);
path_hook!(llistxattr(@path, list: *mut c_char, size: usize) -> isize, LLISTXATTR, CWD);
