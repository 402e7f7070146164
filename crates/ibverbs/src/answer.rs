//! How calls answer: with an error number, with a null pointer, or with -1 and `errno`. A panic, which is an error of ours,
//! answers `EIO` and does not reach the program. No thread is cancelled in such a call ([`call`]).

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use userdma_host::{HostError, OpenError, PostFailure, call};
use userdma_nic::CreateAhError;
use userdma_verbs::{
    BindMwError, CreateCqError, CreateQpError, CreateSrqError, ModifyQpError, ModifySrqError, ObjectError,
    PostError, RegMrError,
};

/// Why a call did nothing: a positive error number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refused(pub(crate) c_int);

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
                Self(error.errno() as c_int)
            }
        }
    )* };
}
by_errno!(
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
    fn from(_: CreateAhError) -> Self {
        INVALID
    }
}

impl From<HostError> for Refused {
    fn from(error: HostError) -> Self {
        match error {
            HostError::NoThread => Self(libc::EAGAIN),
            // The device is the parent's, or has stopped. More kinds may come.
            HostError::Forked | HostError::Failed | _ => Self(libc::EIO),
        }
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
pub(crate) fn status(call: impl FnOnce() -> Result<(), Refused>) -> c_int {
    match guard(call) {
        Ok(()) => 0,
        Err(Refused(errno)) => errno,
    }
}

/// Runs a call that returns a pointer, or null and sets `errno`.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<*mut T, Refused>) -> *mut T {
    guard(call).unwrap_or_else(|refused| {
        set_errno(refused);
        std::ptr::null_mut()
    })
}

/// Runs a call that returns a number, or -1 and sets `errno`.
pub(crate) fn number(call: impl FnOnce() -> Result<c_int, Refused>) -> c_int {
    guard(call).unwrap_or_else(minus_one)
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

fn guard<R>(run: impl FnOnce() -> Result<R, Refused>) -> Result<R, Refused> {
    let before = call::begin();
    // What a panic leaves half done belongs to the device, which stops by itself, or to one object.
    let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Refused(libc::EIO)));
    call::end(before);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_answer_in_three_ways() {
        assert_eq!((status(|| Ok(())), status(|| Err(INVALID))), (0, libc::EINVAL));
        assert!(pointer::<u8>(|| Err(UNSUPPORTED)).is_null());
        // SAFETY: as in `set_errno`.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EOPNOTSUPP);
        assert_eq!(number(|| Err(BUSY)), -1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EBUSY);
    }

    #[test]
    fn a_panic_is_an_error_number() {
        assert_eq!(status(|| panic!("as if by a bug")), libc::EIO);
    }
}
