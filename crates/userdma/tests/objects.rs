//! The lives of objects: what holds what, what is refused, what is left after a reset.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::time::Duration;

use common::{ALL, LONG, Options, pair, pair_with, pattern};
use userdma::{
    AccessFlags, Device, Error, Inline, Mr, ObjectError, PostError, QpAttr, QpAttrMask, QpState, RegMrError,
    SendFlags, WcStatus,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const SHORT: Option<Duration> = Some(Duration::from_millis(10));

#[test]
fn a_posted_operation_keeps_its_memory_whatever_the_program_drops() {
    let (a, b) = pair(81);
    let from = b.mr(64, 5);
    let to = a.mr(64, 0);
    a.qp.post_read(1, &to.slice(..), from.remote(), SIGNALED).unwrap();
    let rkey = to.rkey();
    let busy = to.deregister().unwrap_err();
    assert!(matches!(busy.reason, Error::Object(ObjectError::Busy { .. })));
    drop(busy);
    // Still registered: somebody else may write it.
    let probe = userdma::RemoteMr { addr: 0, rkey, len: 0 };
    b.qp.post_write(1, (), probe, SIGNALED).unwrap();
    b.done(1);
    a.done(1);
}

#[test]
fn a_leaked_region_stays_registered() {
    let (a, b) = pair(82);
    let mr = b.mr(64, 1);
    let remote = mr.remote();
    std::mem::forget(mr);
    let mine = a.mr(64, 2);
    a.qp.post_read(1, &mine.slice(..), remote, SIGNALED).unwrap();
    a.done(1);
    assert_eq!(mine.to_vec(..).unwrap(), pattern(64, 1));
}

#[test]
fn a_dropped_region_is_refused() {
    let (a, b) = pair(83);
    let remote = b.mr(64, 1).remote();
    a.qp.post_write(1, Inline(b"late"), remote, SIGNALED).unwrap();
    assert_eq!(a.next().status, WcStatus::RemAccessErr);
}

#[test]
fn a_queue_is_full_until_completions_are_polled() {
    let (a, b) = pair_with(84, &Options { qp: |b| b.max_send_wr(4).max_recv_wr(2), ..Options::default() });
    let theirs = b.mr(8, 0);
    let remote = theirs.remote();
    let cap = a.qp.cap();
    for id in 0..u64::from(cap.max_send_wr) {
        a.qp.post_write(id, Inline(b"x"), remote, SendFlags::empty()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    let full = a.qp.post_write(9, Inline(b"x"), remote, SIGNALED).unwrap_err();
    assert!(matches!(full, Error::Post(PostError::QueueFull { max }) if max == cap.max_send_wr), "{full}");
    for id in 0..u64::from(b.qp.cap().max_recv_wr) {
        b.qp.post_recv(id, ()).unwrap();
    }
    assert!(matches!(b.qp.post_recv(9, ()), Err(Error::Post(PostError::QueueFull { .. }))));
}

#[test]
fn a_reset_queue_pair_forgets_and_can_be_connected_again() {
    let (a, b) = pair(85);
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 2));
    for id in 0..3 {
        a.qp.post_recv(id, &mine.slice(..)).unwrap();
    }
    a.qp.post_write(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    // Its completion is in the queue, or will not come.
    let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    a.qp.modify(&reset, QpAttrMask::STATE).unwrap();
    assert_eq!(a.cq.wait_for(1, SHORT).unwrap(), []);
    assert_eq!(a.qp.state(), QpState::Reset);
    mine.deregister().expect("nothing holds it");
    let refused = a.qp.post_recv(1, ()).unwrap_err();
    assert!(matches!(refused, Error::Post(PostError::State(QpState::Reset))));
}

#[test]
fn a_queue_pair_in_error_flushes_what_is_posted() {
    let (a, _b) = pair(86);
    a.qp.post_recv(1, ()).unwrap();
    let error = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    a.qp.modify(&error, QpAttrMask::STATE).unwrap();
    a.qp.post_recv(2, ()).unwrap();
    a.qp.post_send(3, (), SendFlags::empty()).unwrap();
    let mut wcs = a.cq.wait_for(3, LONG).unwrap();
    wcs.sort_by_key(|wc| wc.wr_id);
    assert_eq!(
        wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(),
        [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr),]
    );
}

#[test]
fn the_states_can_be_walked_by_hand() {
    let device = Device::open("127.0.87.2").unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(16).unwrap();
    let qp = pd.create_qp(&cq, &cq).build_unchecked().unwrap();
    assert_eq!(qp.state(), QpState::Reset);
    let jump = QpAttr { qp_state: QpState::Rts, ..QpAttr::default() };
    let error = qp.modify(&jump, QpAttrMask::STATE).unwrap_err();
    assert_eq!(error.to_string(), "cannot modify the queue pair: a QP in Reset cannot go to Rts");
    let init = QpAttr { qp_state: QpState::Init, qp_access_flags: ALL.remote(), ..QpAttr::default() };
    let error = qp.modify(&init, QpAttrMask::STATE | QpAttrMask::PORT).unwrap_err().to_string();
    assert!(
        error.contains("PKEY_INDEX | ACCESS_FLAGS") || error.contains("ACCESS_FLAGS | PKEY_INDEX"),
        "{error}"
    );
    let mask = QpAttrMask::STATE | QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::ACCESS_FLAGS;
    qp.modify(&init, mask).unwrap();
    assert_eq!(qp.query().unwrap().qp_access_flags, ALL.remote());
}

#[test]
fn a_send_queue_drains_and_goes_on() {
    let (a, b) = pair(88);
    let theirs = b.mr(8, 0);
    let remote = theirs.remote();
    a.qp.post_write(1, Inline(b"x"), remote, SIGNALED).unwrap();
    let attr = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    a.qp.modify(&attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY).unwrap();
    let event = a.device.wait_event(LONG).unwrap();
    assert_eq!(event, Some(userdma::AsyncEvent::SqDrained { qpn: a.qp.qpn() }));
    a.done(1);
    a.qp.post_write(2, Inline(b"y"), remote, SIGNALED).unwrap();
    assert_eq!(a.cq.wait_for(1, SHORT).unwrap(), [], "it rests");
    let rts = QpAttr { qp_state: QpState::Rts, ..QpAttr::default() };
    a.qp.modify(&rts, QpAttrMask::STATE).unwrap();
    a.done(2);
}

#[test]
fn objects_of_two_devices_do_not_mix() {
    let (a, b) = pair(89);
    let foreign = b.mr(8, 0);
    let error = a.qp.post_send(1, &foreign.slice(..), SIGNALED).unwrap_err();
    assert_eq!(error.to_string(), "the memory region belongs to another device");
    let channel = a.device.create_comp_channel().unwrap();
    let error = b.device.create_cq_on(1, &channel).unwrap_err();
    assert_eq!(error.to_string(), "the completion channel belongs to another device");
    let error = a.pd.create_qp(&a.cq, &b.cq).build().unwrap_err();
    assert_eq!(error.to_string(), "the completion queue belongs to another device");
}

#[test]
fn wrong_arguments_are_named_with_their_values() {
    let (a, b) = pair(90);
    let text = |error: Error| error.to_string();
    let error = a.pd.alloc(8, AccessFlags::REMOTE_WRITE).unwrap_err();
    assert!(matches!(error, Error::RegMr(RegMrError::Access { .. })), "{error}");
    assert!(text(a.device.create_cq(0).unwrap_err()).contains("0 entries"));
    let error = a.pd.create_qp(&a.cq, &a.cq).max_send_wr(1 << 20).build().unwrap_err();
    assert!(text(error).contains("max_send_wr is 1048576"));
    let error = a.pd.create_qp(&a.cq, &a.cq).sgid_index(3).build().unwrap_err();
    assert_eq!(text(error), "sgid_index is 3, the device has 1 GIDs");
    let many = vec![a.mr(1, 0).slice(..); 17];
    let error = a.qp.post_send(1, &many, SIGNALED).unwrap_err();
    assert_eq!(text(error), "cannot post: 17 scatter/gather elements, the queue takes 16");
    let error = a.qp.post_send(1, Inline(&[0; 2000]), SIGNALED).unwrap_err();
    assert!(text(error).contains("2000 bytes inline"));
    let result = a.mr(16, 0);
    let error =
        a.qp.post_fetch_add(1, &result.slice(..8), b.mr(16, 0).remote().at(4), 1, SIGNALED).unwrap_err();
    assert!(matches!(error, Error::Post(PostError::Atomic { .. })), "{error}");
    let error = result.read(10, &mut [0; 7]).unwrap_err();
    assert!(text(error).contains("7 bytes at offset 0xa"));
}

#[test]
fn read_only_memory_can_be_registered_for_reading() {
    static WORDS: [u8; 16] = *b"sixteen letters.";
    let (a, b) = pair(91);
    let at = WORDS.as_ptr().cast_mut();
    // SAFETY: the memory is only read, there are only shared references to it, and it is never freed.
    let mr = unsafe { Mr::register_raw(&b.pd, at, 16, AccessFlags::REMOTE_READ) }.unwrap();
    // SAFETY: refused, since it cannot be written.
    let refused = unsafe { Mr::register_raw(&b.pd, at, 16, AccessFlags::LOCAL_WRITE) }.unwrap_err();
    assert!(matches!(refused, Error::RegMr(RegMrError::NotAccessible { write: true, .. })), "{refused}");
    let mine = a.mr(16, 0);
    a.qp.post_read(1, &mine.slice(..), mr.remote(), SIGNALED).unwrap();
    a.done(1);
    assert_eq!(mine.to_vec(..).unwrap(), WORDS);
    assert!(matches!(mr.write(0, b"no"), Err(Error::Memory(userdma::MemError::Fault))));
}

/// A full completion queue is an error that everybody learns of, and no completion is lost silently.
#[test]
fn an_overflown_completion_queue_is_an_error() {
    let (a, b) = pair_with(92, &Options { cqe: 2, ..Options::default() });
    let theirs = b.mr(8, 0);
    let remote = theirs.remote();
    let capacity = u64::from(a.cq.capacity());
    for id in 0..capacity + 1 {
        a.qp.post_write(id, Inline(b"x"), remote, SIGNALED).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(a.device.wait_event(LONG).unwrap(), Some(userdma::AsyncEvent::CqError { cq: a.cq.number() }));
    // Whoever waits for more than there are gets those first, and the error from the next call.
    let ids: Vec<_> = a.cq.wait_for(10, None).unwrap().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, (0..capacity).collect::<Vec<_>>());
    assert!(matches!(a.cq.wait_for(10, None), Err(Error::CqOverflow { .. })));
    assert!(matches!(a.cq.poll(&mut [common::EMPTY]), Err(Error::CqOverflow { .. })));
    assert_eq!(a.qp.state(), QpState::Err);
}
