//! Hooks of the C library: where programs look for devices, they find ours.
//!
//! Before they use a device, programs look at `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and
//! `/dev/infiniband`. There is nothing without a kernel module, and nobody may put something there. So the functions of the C
//! library that take a path stand here too, unversioned, in front of the library's own. Each looks whether the path leads to
//! one of those directories (`path`) and, if it does, calls the library's function with the path of a copy that is made of real
//! files (`tree`, `render`) when somebody asks for the first time. So whatever a program does with what it has opened is the
//! kernel's business: reading, listing, going up and down. Device nodes are links to `/dev/null`; `stat` and its kin do not
//! show that.
//!
//! Rules for everything here:
//!
//! * A path that is not ours costs one look at its letters: no allocation, lock or system call. `errno` is what the C library's
//!   function leaves.
//! * A hook calls the function behind it and nothing after it, or has nothing to clean up then: a thread may be cancelled in
//!   there.
//! * Hooks are called at any time: before our constructor, in handlers of signals, in children of `vfork`. Only the first
//!   look at the copy makes it, and a child of `vfork` never does.
//!
//! The connection manager's device is no file: it opens as a channel of `ucma`, and `write` to one is a command.
//!
//! Not reached are system calls without the C library, links of the program's own that lead to those directories, and calls
//! that the C library makes of itself.

mod access;
mod descriptors;
mod dirs;
mod files;
mod links;
mod next;
mod path;
mod real;
mod redirect;
mod render;
mod socket;
mod stat;
mod tree;
mod walk;
mod write;

pub(crate) use real::{first_free_number, warn_of_unusable};
pub(crate) use render::View;

use std::ffi::c_int;

/// A function of the C library that takes a path: `path_hook!(access(@path, mode: c_int) -> c_int, ACCESS, CWD)` has its
/// arguments, of which `@path` stands for the path, the function behind it, and the directory of relative paths. A fourth
/// argument says what to call instead of that function, a fifth what to make of the answer for other paths. In tests, which are
/// programs, nothing stands in front of the C library; the functions only have to exist.
macro_rules! path_hook {
    ($name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*) -> $ret:ty,
     $next:ident, $dir:expr) => {
        path_hook!($name($($before: $before_type,)* @path $(, $after: $after_type)*) -> $ret, $next, $dir,
            |path, _kind, next| next($($before,)* path $(, $after)*));
    };
    ($name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*) -> $ret:ty,
     $next:ident, $dir:expr, |$path:ident, $kind:ident, $function:ident| $ours:expr
     $(, |$result:ident| $otherwise:expr)?) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($before: $before_type,)*
            path: *const std::ffi::c_char
            $(, $after: $after_type)*
        ) -> $ret {
            type Function =
                unsafe extern "C-unwind" fn($($before_type,)* *const std::ffi::c_char $(, $after_type)*) -> $ret;
            // SAFETY: the type as the C library declares it; the program calls with what that function wants.
            unsafe {
                let Some($function) = $crate::hooks::next::$next.function::<Function>() else {
                    return $crate::hooks::missing();
                };
                if !$crate::hooks::path::concerns(path) {
                    let answer = $function($($before,)* path $(, $after)*);
                    $(let answer = { let $result = answer; $otherwise };)?
                    return answer;
                }
                $crate::hooks::redirect::with($dir, path, |$path, $kind| $ours)
            }
        }

        #[cfg(test)]
        const _: () = _ = $name;
    };
}
use path_hook;

/// What functions return that fail.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: Self = std::ptr::null_mut();
}

/// The C library has no such function; nobody who is linked with it calls one.
#[cold]
fn missing<R: Failure>() -> R {
    crate::answer::set_errno(crate::answer::Refused(libc::ENOSYS));
    R::FAILURE
}

/// The directory of relative paths, for functions that are told none.
const CWD: c_int = libc::AT_FDCWD;

/// Runs when the library is loaded, in every program that it is preloaded into.
extern "C" fn initialise() {
    redirect::keeping_errno(|| {
        next::look_up_all();
        tree::initialise();
    });
}

/// Runs when the program ends by `exit`, or `main` returns.
extern "C" fn finish() {
    tree::remove();
}

#[cfg(not(test))]
#[used]
// SAFETY: the section holds functions that are called once, with arguments that this one does not look at.
#[unsafe(link_section = ".init_array")]
static INITIALISE: extern "C" fn() = initialise;

#[cfg(not(test))]
#[used]
// SAFETY: as above, without arguments.
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

#[cfg(test)]
const _: [extern "C" fn(); 2] = [initialise, finish];
