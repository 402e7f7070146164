//! Threads of C programs may be cancelled in library calls that wait. Posting and polling are no such calls: a thread that
//! is cancelled there would leave the device half driven.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::pair;
use userdma::{SendFlags, WcStatus};

// SAFETY: as POSIX declares them.
unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> libc::c_int;
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const DISABLE: libc::c_int = 1;

#[test]
fn posting_and_polling_are_no_cancellation_points() {
    let (a, b) = pair(140);
    let (mine, theirs) = (a.mr(100_000, 1), b.mr(100_000, 2));
    let survived = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // From here on the first cancellation point ends the thread.
            // SAFETY: this thread exists.
            assert_eq!(unsafe { pthread_cancel(libc::pthread_self()) }, 0);
            let mut failed = 0;
            for round in 0..200 {
                b.qp.post_recv(round, &theirs.slice(..)).unwrap();
                a.qp.post_send(round, &mine.slice(..), SendFlags::SIGNALED).unwrap();
                for side in [&b, &a] {
                    failed += u32::from(side.poll().status != WcStatus::Success);
                }
            }
            // SAFETY: the old state may be left unasked.
            unsafe { pthread_setcancelstate(DISABLE, std::ptr::null_mut()) };
            survived.store(failed == 0, Ordering::SeqCst);
        });
    });
    assert!(survived.load(Ordering::SeqCst));
}
