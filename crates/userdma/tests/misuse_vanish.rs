//! Memory that is taken away while it is registered: which side gets which status, operation by operation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, and its helpers too")]

mod common;

use common::{ALL, LONG, Side, pair, pattern};
use userdma::{AsyncEvent, Errno, Inline, Mr, QpState, SendFlags, WcStatus};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const LEN: usize = 64 << 10;

/// Registered pages that can be taken away. Their addresses stay reserved, so that nothing else comes to lie there.
struct Pages {
    mr: Mr,
}

impl Pages {
    fn of(side: &Side) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), LEN, prot, flags, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        // SAFETY: no reference to the pages is ever made, and they are never unmapped.
        Self { mr: unsafe { Mr::register_raw(&side.pd, addr.cast(), LEN, ALL) }.unwrap() }
    }

    fn take_away(&self) {
        let addr = self.mr.addr() as *mut libc::c_void;
        // SAFETY: the pages are the mapping of `of`, which is reached by copies that survive this.
        assert_eq!(unsafe { libc::mprotect(addr, LEN, libc::PROT_NONE) }, 0);
    }
}

#[track_caller]
fn fails(side: &Side, status: WcStatus) {
    assert_eq!((side.next().status, side.qp.state()), (status, QpState::Err));
}

/// Side `b`'s program has nothing posted that could tell it, so an event does.
#[track_caller]
fn is_fatal_for(b: &Side) {
    let event = b.device.wait_event(LONG).unwrap();
    assert_eq!(event, Some(AsyncEvent::QpFatal { qpn: b.qp.qpn() }));
    assert_eq!(b.qp.state(), QpState::Err);
}

#[test]
fn a_write_into_it_fails_at_the_peer_and_is_an_event_here() {
    let (a, b) = pair(180);
    let (mine, gone) = (a.mr(LEN, 1), Pages::of(&b));
    gone.take_away();
    a.qp.post_write(1, &mine.slice(..), gone.mr.remote(), SIGNALED).unwrap();
    fails(&a, WcStatus::RemOpErr);
    is_fatal_for(&b);
}

#[test]
fn a_read_from_it_fails_at_the_peer_and_is_an_event_here() {
    let (a, b) = pair(241);
    let (mine, gone) = (a.mr(LEN, 1), Pages::of(&b));
    gone.take_away();
    a.qp.post_read(1, &mine.slice(..), gone.mr.remote(), SIGNALED).unwrap();
    fails(&a, WcStatus::RemOpErr);
    is_fatal_for(&b);
    assert_eq!(mine.to_vec(..).unwrap(), pattern(LEN, 1));
}

#[test]
fn an_atomic_on_it_fails_at_the_peer_and_is_an_event_here() {
    let (a, b) = pair(242);
    let (mine, gone) = (a.mr(8, 1), Pages::of(&b));
    gone.take_away();
    a.qp.post_fetch_add(1, &mine.slice(..), gone.mr.remote(), 1, SIGNALED).unwrap();
    fails(&a, WcStatus::RemOpErr);
    is_fatal_for(&b);
}

#[test]
fn a_receive_into_it_fails_on_both_sides() {
    let (a, b) = pair(183);
    let gone = Pages::of(&b);
    b.qp.post_recv(1, &gone.mr.slice(..)).unwrap();
    gone.take_away();
    a.qp.post_send(2, Inline(b"x"), SIGNALED).unwrap();
    fails(&b, WcStatus::LocProtErr);
    fails(&a, WcStatus::RemOpErr);
}

#[test]
fn a_send_from_it_and_a_read_into_it_fail_here() {
    let (a, b) = pair(184);
    let (gone, theirs) = (Pages::of(&a), b.mr(LEN, 2));
    gone.take_away();
    a.qp.post_write(1, &gone.mr.slice(..), theirs.remote(), SIGNALED).unwrap();
    fails(&a, WcStatus::LocProtErr);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(LEN, 2));

    let (a, b) = pair(185);
    let (gone, theirs) = (Pages::of(&a), b.mr(LEN, 2));
    gone.take_away();
    a.qp.post_read(1, &gone.mr.slice(..), theirs.remote(), SIGNALED).unwrap();
    fails(&a, WcStatus::LocProtErr);
    assert_eq!(b.qp.state(), QpState::Rts, "the peer has done what it was asked for");
}

#[test]
fn the_programs_own_copies_are_refused() {
    let (a, _b) = pair(186);
    let gone = Pages::of(&a);
    gone.take_away();
    for error in [
        gone.mr.read(0, &mut [0; 8]).unwrap_err(),
        gone.mr.write(0, &[0; 8]).unwrap_err(),
        gone.mr.fetch_add(0, 1).unwrap_err(),
        gone.mr.to_vec(..).unwrap_err(),
    ] {
        assert_eq!(
            (error.to_string().as_str(), error.errno()),
            ("cannot copy: memory is no longer accessible", Errno::Efault)
        );
    }
}
