//! Work requests that were accepted and cannot be done: their status, what becomes of what was posted behind them, and
//! that other queue pairs do not notice.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, and its helpers too")]

mod common;

use common::{ALL, LONG, Options, Side, connect, pair, pair_with, pattern};
use userdma::{AccessFlags, AsyncEvent, Inline, QpAttr, QpAttrMask, QpState, RtsAttr, SendFlags, WcStatus};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The next completion has this status, and its queue pair is in error.
#[track_caller]
fn fails(side: &Side, wr_id: u64, status: WcStatus) {
    let wc = side.next();
    assert_eq!((wc.wr_id, wc.status, side.qp.state()), (wr_id, status, QpState::Err), "{wc:?}");
}

#[test]
fn memory_of_another_domain_is_refused_when_it_is_used() {
    let (a, b) = pair(231);
    let other = a.device.alloc_pd().unwrap().alloc(64, ALL).unwrap();
    let theirs = b.mr(64, 0);
    a.qp.post_write(1, &other.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.qp.post_write(2, Inline(b"behind"), theirs.remote(), SendFlags::empty()).unwrap();
    fails(&a, 1, WcStatus::LocProtErr);
    fails(&a, 2, WcStatus::WrFlushErr);
    assert_eq!(b.qp.state(), QpState::Rts, "nothing was sent");
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(64, 0));

    let (a, b) = pair(232);
    let other = b.device.alloc_pd().unwrap().alloc(64, ALL).unwrap();
    a.qp.post_write(1, Inline(b"x"), other.remote(), SIGNALED).unwrap();
    fails(&a, 1, WcStatus::RemAccessErr);
    let event = b.device.wait_event(LONG).unwrap();
    assert_eq!(event, Some(AsyncEvent::QpAccessError { qpn: b.qp.qpn() }));
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_is_an_error_for_both() {
    let (a, b) = pair(233);
    let fixed = b.pd.alloc(64, AccessFlags::REMOTE_READ).unwrap();
    b.qp.post_recv(1, &fixed.slice(..)).unwrap();
    b.qp.post_recv(2, ()).unwrap();
    a.qp.post_send(3, Inline(b"x"), SIGNALED).unwrap();
    fails(&b, 1, WcStatus::LocProtErr);
    fails(&b, 2, WcStatus::WrFlushErr);
    fails(&a, 3, WcStatus::RemOpErr);
}

#[test]
fn a_message_longer_than_its_receive_is_an_error_for_both() {
    let (a, b) = pair(234);
    let short = b.mr(64, 0);
    b.qp.post_recv(1, &short.slice(..4)).unwrap();
    a.qp.post_send(2, Inline(b"five."), SIGNALED).unwrap();
    fails(&b, 1, WcStatus::LocLenErr);
    fails(&a, 2, WcStatus::RemInvReqErr);
    assert_eq!(short.to_vec(..).unwrap(), pattern(64, 0), "nothing was written");
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_connection() {
    let rts = RtsAttr { rnr_retry: 2, ..RtsAttr::default() };
    let (a, b) = pair_with(235, &Options { rts, ..Options::default() });
    a.qp.post_send(1, Inline(b"x"), SIGNALED).unwrap();
    fails(&a, 1, WcStatus::RnrRetryExcErr);
    assert_eq!(a.device.stats().unwrap().rnr_nak_retry_err, 1);
    assert_eq!((b.device.stats().unwrap().sent_rnr_err, b.qp.state()), (3, QpState::Rts));
}

#[test]
fn a_right_that_the_peers_queue_pair_lacks_is_an_invalid_request() {
    let options = Options { qp: |b| b.access(AccessFlags::REMOTE_READ), ..Options::default() };
    let (a, b) = pair_with(236, &options);
    let theirs = b.mr(64, 0);
    a.qp.post_write(1, Inline(b"x"), theirs.remote(), SIGNALED).unwrap();
    fails(&a, 1, WcStatus::RemInvReqErr);
    let event = b.device.wait_event(LONG).unwrap();
    assert_eq!(event, Some(AsyncEvent::QpRequestError { qpn: b.qp.qpn() }));
}

#[test]
fn a_read_where_none_was_agreed_on_fails_here() {
    let rts = RtsAttr { max_rd_atomic: 0, ..RtsAttr::default() };
    let (a, b) = pair_with(237, &Options { rts, ..Options::default() });
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 2));
    a.qp.post_read(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    fails(&a, 1, WcStatus::LocQpOpErr);
    assert_eq!(b.qp.state(), QpState::Rts, "nothing was sent");
}

#[test]
fn windows_that_cannot_be_bound_fail_in_their_completion() {
    let (bind, read) = (AccessFlags::MW_BIND, AccessFlags::REMOTE_READ);
    for (net, what, region, rights, is_elsewhere) in [
        (167, "a region without MW_BIND", ALL, read, false),
        (168, "a window that writes, a region that does not", bind, AccessFlags::REMOTE_WRITE, false),
        (169, "a zero based region", bind | AccessFlags::ZERO_BASED, read, false),
        (170, "another domain's window", bind, read, true),
    ] {
        let (a, _b) = pair(net);
        let mr = a.pd.alloc(4096, region).unwrap();
        let pd = if is_elsewhere { a.device.alloc_pd().unwrap() } else { a.pd.clone() };
        let mw = pd.alloc_mw().unwrap();
        a.qp.post_bind_mw(1, &mw, &mr.slice(..64), rights, SIGNALED).unwrap();
        let wc = a.next();
        assert_eq!((wc.status, a.qp.state()), (WcStatus::MwBindErr, QpState::Err), "{what}");
    }

    let (a, _b) = pair(243);
    let mr = a.pd.alloc(4096, bind).unwrap();
    let mw = a.pd.alloc_mw().unwrap();
    a.qp.post_bind_mw(1, &mw, &mr.slice(..64), AccessFlags::REMOTE_READ, SIGNALED).unwrap();
    a.qp.post_bind_mw(2, &mw, &mr.slice(64..), AccessFlags::REMOTE_READ, SIGNALED).unwrap();
    a.done(1);
    fails(&a, 2, WcStatus::MwBindErr);
}

#[test]
fn only_a_bound_windows_key_can_be_invalidated() {
    let (a, _b) = pair(238);
    let region = a.mr(64, 0);
    a.qp.post_local_inv(1, region.rkey(), SIGNALED).unwrap();
    fails(&a, 1, WcStatus::LocQpOpErr);

    let (a, b) = pair(244);
    let region = b.mr(64, 0);
    b.qp.post_recv(1, ()).unwrap();
    a.qp.post_send_with_inv(2, (), region.rkey(), SIGNALED).unwrap();
    fails(&a, 2, WcStatus::RemAccessErr);
    fails(&b, 1, WcStatus::RemInvReqErr);
}

#[test]
fn an_error_on_one_queue_pair_leaves_the_others_alone() {
    let (a, b) = pair(239);
    let (c, d) = connect(&a.device, &b.device, &Options::default());
    let mine = a.mr(1 << 20, 1);
    let theirs = d.pd.alloc(1 << 20, ALL).unwrap();
    // The first connection's domain does not have that memory.
    c.qp.post_write(1, &c.mr(1 << 20, 3).slice(..), theirs.remote(), SIGNALED).unwrap();
    a.qp.post_write(2, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    fails(&a, 2, WcStatus::RemAccessErr);
    c.done(1);
    c.qp.post_write(3, Inline(b"after"), theirs.remote(), SIGNALED).unwrap();
    c.done(3);
    assert_eq!((c.qp.state(), d.qp.state()), (QpState::Rts, QpState::Rts));
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Err, QpState::Err));
}

#[test]
fn a_queue_pair_in_error_refuses_every_state_but_reset() {
    let (a, _b) = pair(240);
    let to = |qp_state| QpAttr { qp_state, ..QpAttr::default() };
    a.qp.modify(&to(QpState::Err), QpAttrMask::STATE).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        let error = a.qp.modify(&to(state), QpAttrMask::STATE).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot modify the queue pair: a QP in Err cannot go to {state:?}")
        );
    }
    a.qp.modify(&to(QpState::Reset), QpAttrMask::STATE).unwrap();
    assert_eq!(a.qp.state(), QpState::Reset);
}
