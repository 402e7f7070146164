//! What a call of a C program needs to know of its thread: it must not be cancelled while it holds something, and it may have
//! been interrupted by a signal handler that calls again.
//!
//! Cancellation is off from the begin of a call to its end, and on while it sleeps: there it holds nothing. So no frame that
//! has something to give back is ever unwound by the C library.
//!
//! A handler's call finds the interrupted one's locks taken, perhaps, and nobody would ever release them. It is *nested*: it
//! tries locks instead of waiting, and rings instead of driving.

use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    /// Calls that this thread is in: more than one only in signal handlers.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// What was so before a call, to be so again at its end. No destructor: see [`end`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Before {
    depth: u32,
    cancel_state: c_int,
}

/// A call begins on this thread.
#[inline]
pub fn begin() -> Before {
    let cancel_state = set_cancel_state(CANCEL_DISABLE);
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    Before { depth, cancel_state }
}

/// The call ends, or is about to sleep with nothing in its hands.
#[inline]
pub fn end(before: Before) {
    DEPTH.set(before.depth);
    set_cancel_state(before.cancel_state);
}

/// Whether the call has interrupted another one of the same thread.
#[inline]
pub fn is_nested() -> bool {
    DEPTH.get() > 1
}

/// Sets whether the thread may be cancelled; what was so before.
#[allow(unsafe_code)]
fn set_cancel_state(state: c_int) -> c_int {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    let mut old = CANCEL_ENABLE;
    // SAFETY: `old` outlives the call, which fails only for other states. It is not a point at which threads are cancelled.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// `PTHREAD_CANCEL_ENABLE`.
const CANCEL_ENABLE: c_int = 0;
/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_not_cancelled_within_a_call_and_a_second_one_is_nested() {
        assert!(!is_nested());
        let outer = begin();
        assert!(!is_nested());
        let inner = begin();
        assert!(is_nested());
        end(inner);
        assert_eq!(set_cancel_state(CANCEL_DISABLE), CANCEL_DISABLE, "the outer call goes on");
        end(outer);
        assert_eq!(set_cancel_state(CANCEL_ENABLE), CANCEL_ENABLE);
        assert!(!is_nested());
    }
}
