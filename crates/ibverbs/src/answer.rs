//! How calls answer: with an error number, with a null pointer, or with -1 and `errno`. A panic, which is an error of ours,
//! answers `EIO` and does not reach the program. No thread is cancelled in such a call ([`call`]).
//!
//! Here errors become numbers, so here is told what the number does not say: which call, which object, which field, which value.
//! Nothing is kept for that unless somebody wants to be told.

use std::any::type_name;
use std::cell::Cell;
use std::ffi::c_int;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use userdma_host::{AttachFailure, HostError, OpenError, PostFailure, call};
use userdma_nic::CreateAhError;
use userdma_verbs::{
    BindMwError, CreateCqError, CreateQpError, CreateSrqError, ModifyQpError, ModifySrqError, ObjectError,
    PostError, RegMrError,
};

use crate::log::{self, Level};

/// Why a call did nothing: a positive error number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refused(pub(crate) c_int);

thread_local! {
    /// What the error that became a number just now had to say.
    static WHY: Cell<String> = const { Cell::new(String::new()) };
}

/// A thread that ends may call us when its variables are gone already.
fn keep(why: String) {
    let _ = WHY.try_with(|place| place.set(why));
}

fn take() -> String {
    WHY.try_with(Cell::take).unwrap_or_default()
}

impl Refused {
    /// With what is wrong, for people.
    pub(crate) fn because(self, why: impl FnOnce() -> String) -> Self {
        if log::is_on(Level::Warn) {
            keep(why());
        }
        self
    }

    /// With what it is about, as `QP 0x4002`, before what is wrong.
    pub(crate) fn about(self, what: impl FnOnce() -> String) -> Self {
        self.because(|| match take() {
            why if why.is_empty() => what(),
            why => format!("{}: {why}", what()),
        })
    }
}

/// A field has a value that is not possible.
pub(crate) fn wrong(field: &str, value: impl Display, allowed: &str) -> Refused {
    INVALID.because(|| format!("{field} is {value}, {allowed} is possible"))
}

/// Names the object that a failure is about.
pub(crate) trait About<T> {
    /// As [`Refused::about`].
    fn about(self, what: impl FnOnce() -> String) -> Result<T, Refused>;
}

impl<T, E: Into<Refused>> About<T> for Result<T, E> {
    fn about(self, what: impl FnOnce() -> String) -> Result<T, Refused> {
        self.map_err(|error| error.into().about(what))
    }
}

/// An argument is wrong.
pub(crate) const INVALID: Refused = Refused(libc::EINVAL);
/// There is no such operation here.
pub(crate) const UNSUPPORTED: Refused = Refused(libc::EOPNOTSUPP);
/// Others still use the object.
pub(crate) const BUSY: Refused = Refused(libc::EBUSY);

macro_rules! by_errno {
    ($($error:ty),*) => { $(
        impl From<$error> for Refused {
            fn from(error: $error) -> Self {
                Self(error.errno() as c_int).because(|| error.to_string())
            }
        }
    )* };
}
by_errno!(
    AttachFailure,
    BindMwError,
    CreateCqError,
    CreateQpError,
    CreateSrqError,
    ModifyQpError,
    ModifySrqError,
    ObjectError,
    OpenError,
    PostError,
    RegMrError
);

impl From<CreateAhError> for Refused {
    fn from(error: CreateAhError) -> Self {
        INVALID.because(|| error.to_string())
    }
}

impl From<HostError> for Refused {
    fn from(error: HostError) -> Self {
        let refused = match error {
            HostError::NoThread => Self(libc::EAGAIN),
            // The device is the parent's, or has stopped. More kinds may come.
            HostError::Forked | HostError::Failed | _ => Self(libc::EIO),
        };
        refused.because(|| error.to_string())
    }
}

impl From<PostFailure> for Refused {
    fn from(error: PostFailure) -> Self {
        match error {
            PostFailure::Post(error) => error.into(),
            PostFailure::Host(error) => error.into(),
        }
    }
}

/// Runs a call that returns 0 or an error number.
#[inline]
pub(crate) fn status<F: FnOnce() -> Result<(), Refused>>(call: F) -> c_int {
    status_of(type_name::<F>(), call)
}

/// The same for a call whose name is not that of the function.
#[inline]
pub(crate) fn status_of(name: &'static str, call: impl FnOnce() -> Result<(), Refused>) -> c_int {
    match guard(name, call) {
        Ok(()) => 0,
        Err(Refused(errno)) => errno,
    }
}

/// Runs a call that returns a pointer, or null and sets `errno`.
pub(crate) fn pointer<T, F: FnOnce() -> Result<*mut T, Refused>>(call: F) -> *mut T {
    guard(type_name::<F>(), call).unwrap_or_else(|refused| {
        set_errno(refused);
        std::ptr::null_mut()
    })
}

/// Runs a call that returns a number, or -1 and sets `errno`.
#[inline]
pub(crate) fn number<F: FnOnce() -> Result<c_int, Refused>>(call: F) -> c_int {
    guard(type_name::<F>(), call).unwrap_or_else(minus_one)
}

/// Sets `errno`; -1.
pub(crate) fn minus_one(refused: Refused) -> c_int {
    set_errno(refused);
    -1
}

pub(crate) fn set_errno(Refused(errno): Refused) {
    // SAFETY: the C library's address of this thread's number.
    unsafe { *libc::__errno_location() = errno }
}

#[inline]
fn guard<R>(name: &'static str, run: impl FnOnce() -> Result<R, Refused>) -> Result<R, Refused> {
    if log::is_on(Level::Warn) {
        // What another call left untold.
        take();
    }
    // What a panic leaves half done belongs to the device, which stops by itself, or to one object.
    let before = call::begin();
    let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(panicked()));
    if let Err(refused) = answer
        && log::is_on(Level::Warn)
    {
        tell(name, refused);
    }
    call::end(before);
    answer
}

#[cold]
fn panicked() -> Refused {
    Refused(libc::EIO).because(|| "an error of the library itself: please report it".to_owned())
}

/// Tells why a call failed.
#[cold]
fn tell(name: &'static str, refused: Refused) {
    let why = take();
    let name = call_name(name);
    let number = errno_name(refused);
    match (level(refused, &why), why.as_str()) {
        (None, _) => {}
        (Some(level), "") => log::tell(level, format_args!("{name}: {number}")),
        (Some(level), why) => log::tell(level, format_args!("{name} {why} ({number})")),
    }
}

/// Programs ask what there is to ask for and whether something has happened: answers to that are no failures.
fn level(Refused(errno): Refused, why: &str) -> Option<Level> {
    match errno {
        libc::EAGAIN | libc::EINTR | libc::ENOENT if why.is_empty() => None,
        libc::ENODATA => Some(Level::Debug),
        libc::EOPNOTSUPP if why.is_empty() => Some(Level::Debug),
        _ => Some(Level::Warn),
    }
}

/// `modify_qp` of `ibverbs::qp::modify_qp::{{closure}}`, which is what the compiler calls what a function lets run here.
fn call_name(path: &'static str) -> &'static str {
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// The number as people know it.
fn errno_name(Refused(errno): Refused) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_answer_in_three_ways() {
        assert_eq!((status(|| Ok(())), status(|| Err(INVALID))), (0, libc::EINVAL));
        assert!(pointer::<u8, _>(|| Err(UNSUPPORTED)).is_null());
        // SAFETY: as in `set_errno`.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EOPNOTSUPP);
        assert_eq!(number(|| Err(BUSY)), -1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EBUSY);
    }

    #[test]
    fn calls_are_known_by_their_functions() {
        fn name_of<F: FnOnce() -> u8>(_: F) -> &'static str {
            call_name(type_name::<F>())
        }
        assert_eq!(name_of(|| 7), "calls_are_known_by_their_functions");
        assert_eq!(call_name("post_send"), "post_send");
    }

    #[test]
    fn what_programs_ask_as_a_matter_of_course_is_no_failure() {
        assert_eq!(level(Refused(libc::EAGAIN), ""), None);
        assert_eq!(level(Refused(libc::EAGAIN), "the system gives no thread"), Some(Level::Warn));
        assert_eq!(level(UNSUPPORTED, ""), Some(Level::Debug));
        assert_eq!(level(INVALID, ""), Some(Level::Warn));
    }

    #[test]
    fn a_panic_is_an_error_number() {
        assert_eq!(status(|| panic!("as if by a bug")), libc::EIO);
    }
}
