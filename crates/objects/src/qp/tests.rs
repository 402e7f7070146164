use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::thread;

use userdma_verbs::{AtomicOp, BindMw, LKey, QpType, RKey, RemoteAddr, SendOp, SrqInitAttr, Srqn};

use super::*;

const CAP: QpCap =
    QpCap { max_send_wr: 4, max_recv_wr: 3, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 16 };

const STATES: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

const REMOTE: RemoteAddr = RemoteAddr { addr: 0x1000, rkey: RKey::new(5) };
const FETCH_ADD: AtomicOp = AtomicOp::FetchAdd { add: 1 };

fn qp_with(cap: QpCap, sq_sig_all: bool, state: QpState) -> QpShared {
    let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all };
    let qp = QpShared::new(Qpn::new(0x11), PdId(1), &init);
    qp.set_state(state);
    qp
}

fn qp(state: QpState) -> QpShared {
    qp_with(CAP, false, state)
}

/// A ring for the device's side of `qp`.
fn ring(qp: &QpShared) -> WqeRing {
    let cap = qp.cap();
    WqeRing::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data)
}

fn sge(length: u32) -> Sge {
    Sge { addr: 0x2000, length, lkey: LKey::new(9) }
}

fn send(wr_id: u64) -> SendWr<'static> {
    SendWr { wr_id, op: SendOp::Send, flags: SendFlags::empty(), sgl: &[], inline: &[] }
}

fn recv(wr_id: u64) -> RecvWr<'static> {
    RecvWr { wr_id, sgl: &[] }
}

/// The identifiers of all sends in the ring, which is emptied.
fn ids(ring: &mut WqeRing) -> Vec<u64> {
    std::iter::from_fn(|| ring.pop()).map(|wqe| wqe.wr_id).collect()
}

#[test]
fn a_new_queue_pair_is_in_reset_with_the_sizes_asked_for() {
    let init = QpInitAttr { qp_type: QpType::Rc, cap: CAP, sq_sig_all: false };
    let qp = QpShared::new(Qpn::new(0x11), PdId(1), &init);
    assert_eq!((qp.qpn(), qp.pd(), qp.cap(), qp.state()), (Qpn::new(0x11), PdId(1), CAP, QpState::Reset));
    assert_eq!((qp.recv_count(), qp.outstanding_sends()), (0, 0));
}

#[test]
fn the_state_decides_what_may_be_posted() {
    for state in STATES {
        let qp = qp(state);
        assert_eq!(qp.state(), state);
        let sends = matches!(state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err);
        let refused = Err(PostError::State(state));
        assert_eq!(qp.post_send(&send(1)), if sends { Ok(()) } else { refused }, "{state:?}");
        assert_eq!(
            qp.post_recv(&recv(1)),
            if state == QpState::Reset { refused } else { Ok(()) },
            "{state:?}"
        );
        assert_eq!(qp.take_sends(&mut ring(&qp)), u32::from(sends), "a send that was refused was not posted");
        assert_eq!(qp.recv_count(), u32::from(state != QpState::Reset));
    }
}

#[test]
fn a_send_is_checked_when_it_is_posted() {
    const GIB: u32 = 1 << 30;
    let atomic = |addr| SendOp::Atomic(RemoteAddr { addr, ..REMOTE }, FETCH_ADD);
    let bind = SendOp::BindMw(BindMw {
        mw: RKey::new(1),
        rkey: RKey::new(1),
        mr: LKey::new(1),
        addr: 0,
        length: 1,
        access: userdma_verbs::AccessFlags::empty(),
    });
    let invalidate = SendOp::LocalInv(RKey::new(1));
    let no_data = Err(PostError::Operation("a local invalidate or bind carries no data"));
    let not_inline = Err(PostError::Operation("a READ or atomic has no data to send inline"));
    let length = |value| Err(PostError::Atomic { field: "length", value, allowed: "8" });
    let (two, three) = ([sge(1); 2], [sge(1); 3]);
    let (none, inline) = (SendFlags::empty(), SendFlags::INLINE);
    let too_long = |len| Err(PostError::TooLong { len });

    type Row<'a> = (SendOp, SendFlags, &'a [Sge], &'a [u8], Result<(), PostError>);
    let rows: &[Row<'_>] = &[
        (SendOp::Send, none, &[], &[], Ok(())),
        (SendOp::Send, none, &two, &[], Ok(())),
        (SendOp::Send, none, &three, &[], Err(PostError::TooManySge { num: 3, max: 2 })),
        (SendOp::Send, none, &[sge(2 * GIB)], &[], Ok(())),
        (SendOp::Send, none, &[sge(2 * GIB), sge(1)], &[], too_long(u64::from(2 * GIB) + 1)),
        (SendOp::Send, none, &[sge(u32::MAX), sge(u32::MAX)], &[], too_long(2 * u64::from(u32::MAX))),
        (SendOp::Send, SendFlags::all().difference(inline), &two, &[], Ok(())),
        (SendOp::Send, none, &two, &[0; 99], Ok(())),
        (SendOp::Send, inline, &[], &[0; 16], Ok(())),
        (SendOp::Send, inline, &[], &[], Ok(())),
        (SendOp::Send, inline, &three, &[0; 16], Ok(())),
        (SendOp::Send, inline, &[], &[0; 17], Err(PostError::InlineTooLong { len: 17, max: 16 })),
        (SendOp::SendWithImm(7), inline, &[], &[0; 8], Ok(())),
        (SendOp::SendWithInv(RKey::new(7)), inline, &[], &[0; 8], Ok(())),
        (SendOp::Write(REMOTE), inline, &[], &[0; 8], Ok(())),
        (SendOp::WriteWithImm(REMOTE, 7), inline, &[], &[0; 8], Ok(())),
        (SendOp::Read(REMOTE), none, &two, &[], Ok(())),
        (SendOp::Read(REMOTE), inline, &[], &[0; 8], not_inline),
        (atomic(0x1000), none, &[sge(8)], &[], Ok(())),
        (atomic(0x1000), none, &[sge(4), sge(4)], &[], Ok(())),
        (atomic(0x1000), none, &[sge(7)], &[], length(7)),
        (atomic(0x1000), none, &[sge(9)], &[], length(9)),
        (atomic(0x1000), none, &[], &[], length(0)),
        (atomic(0x1000), inline, &[], &[0; 8], not_inline),
        (
            atomic(0x1004),
            none,
            &[sge(8)],
            &[],
            Err(PostError::Atomic { field: "remote_addr", value: 0x1004, allowed: "a multiple of 8" }),
        ),
        (invalidate, none, &[], &[], Ok(())),
        (invalidate, SendFlags::FENCE | SendFlags::SOLICITED, &[], &[], Ok(())),
        (invalidate, none, &[sge(0)], &[], no_data),
        (invalidate, inline, &[], &[], no_data),
        (bind, none, &[], &[], Ok(())),
        (bind, none, &[sge(1)], &[], no_data),
        (bind, inline, &[], &[], no_data),
    ];
    for (row, &(op, flags, sgl, inline, expected)) in rows.iter().enumerate() {
        let qp = qp(QpState::Rts);
        assert_eq!(qp.post_send(&SendWr { wr_id: 1, op, flags, sgl, inline }), expected, "row {row}: {op:?}");
        let is_posted = u32::from(expected.is_ok());
        assert_eq!(qp.outstanding_sends(), is_posted, "row {row}");
        assert_eq!(qp.take_sends(&mut ring(&qp)), is_posted, "row {row}");
    }
}

#[test]
fn a_receive_is_checked_when_it_is_posted() {
    let qp = qp(QpState::Init);
    let three = [sge(1); 3];
    let too_many = Err(PostError::TooManySge { num: 3, max: 2 });
    assert_eq!(qp.post_recv(&RecvWr { wr_id: 1, sgl: &three }), too_many);
    assert_eq!(qp.recv_count(), 0);
    assert_eq!(qp.post_recv(&RecvWr { wr_id: 1, sgl: &three[..2] }), Ok(()));
}

#[test]
fn inline_data_is_taken_when_it_is_posted() {
    let qp = qp(QpState::Rts);
    let mut data = *b"before";
    let wr = SendWr { flags: SendFlags::INLINE, inline: &data, ..send(1) };
    qp.post_send(&wr).expect("valid");
    data.copy_from_slice(b"after.");
    let mut ring = ring(&qp);
    qp.take_sends(&mut ring);
    let wqe = ring.get(0).expect("taken");
    assert_eq!((wqe.inline, wqe.wqe.len), (&b"before"[..], 6));
    assert_eq!(&data, b"after.");
}

#[test]
fn every_send_is_signaled_if_the_queue_pair_was_made_so() {
    for sq_sig_all in [false, true] {
        let qp = qp_with(CAP, sq_sig_all, QpState::Rts);
        qp.post_send(&SendWr { flags: SendFlags::FENCE, ..send(1) }).expect("valid");
        qp.post_send(&SendWr { flags: SendFlags::SIGNALED, ..send(2) }).expect("valid");
        let mut ring = ring(&qp);
        qp.take_sends(&mut ring);
        let flags: Vec<_> = std::iter::from_fn(|| ring.pop()).map(|wqe| wqe.flags).collect();
        let first = if sq_sig_all { SendFlags::FENCE | SendFlags::SIGNALED } else { SendFlags::FENCE };
        assert_eq!(flags, [first, SendFlags::SIGNALED]);
    }
}

#[test]
fn a_place_in_the_send_queue_is_free_when_its_send_has_retired() {
    let qp = qp(QpState::Rts);
    let full = Err(PostError::QueueFull { max: 4 });
    for wr_id in 0..4 {
        assert_eq!(qp.post_send(&send(wr_id)), Ok(()));
    }
    assert_eq!(qp.post_send(&send(4)), full);
    let mut ring = ring(&qp);
    assert_eq!(qp.take_sends(&mut ring), 4);
    assert_eq!(qp.take_sends(&mut ring), 0);
    assert_eq!(qp.post_send(&send(4)), full, "taken is not retired");
    ring.pop();
    ring.pop();
    qp.retire_sends(2);
    assert_eq!([5, 6].map(|wr_id| qp.post_send(&send(wr_id))), [Ok(()); 2]);
    assert_eq!(qp.post_send(&send(7)), full);
    assert_eq!(qp.take_sends(&mut ring), 2);
    assert_eq!(ids(&mut ring), [2, 3, 5, 6]);
}

#[test]
fn sends_that_do_not_fit_the_devices_ring_stay_for_the_next_call() {
    let qp = qp(QpState::Rts);
    for wr_id in 0..4 {
        qp.post_send(&send(wr_id)).expect("room");
    }
    let mut small = WqeRing::new(3, 2, 16);
    assert_eq!([qp.take_sends(&mut small), qp.take_sends(&mut small)], [3, 0]);
    assert_eq!(ids(&mut small), [0, 1, 2]);
    assert_eq!([qp.take_sends(&mut small), qp.take_sends(&mut small)], [1, 0]);
    assert_eq!(ids(&mut small), [3]);
}

#[test]
fn the_receive_queue_holds_what_was_not_taken() {
    let qp = qp(QpState::Rts);
    let lists = [vec![sge(1)], vec![], vec![sge(2), sge(3)]];
    for (wr_id, sgl) in (0..).zip(&lists) {
        assert_eq!(qp.post_recv(&RecvWr { wr_id, sgl }), Ok(()));
    }
    assert_eq!(qp.post_recv(&recv(3)), Err(PostError::QueueFull { max: 3 }));
    let mut sgl = Vec::new();
    for (wr_id, list) in (0..).zip(&lists) {
        assert_eq!(qp.take_recv(&mut sgl), Some(wr_id));
        assert_eq!(&sgl, list);
        assert_eq!(u64::from(qp.recv_count()), 2 - wr_id);
    }
    assert_eq!(qp.take_recv(&mut sgl), None);
    assert!(sgl.is_empty(), "cleared even if there is nothing");
    assert_eq!(qp.post_recv(&recv(3)), Ok(()));
}

#[test]
fn queues_of_no_entries_are_always_full() {
    let qp = qp_with(QpCap::default(), false, QpState::Rts);
    assert_eq!(qp.post_send(&send(1)), Err(PostError::QueueFull { max: 0 }));
    assert_eq!(qp.post_recv(&recv(1)), Err(PostError::QueueFull { max: 0 }));
}

#[test]
fn reset_forgets_and_other_states_do_not() {
    for state in STATES {
        let qp = qp(QpState::Rts);
        let mut ring = ring(&qp);
        qp.post_send(&send(1)).expect("valid");
        qp.take_sends(&mut ring);
        qp.post_send(&send(2)).expect("valid");
        qp.post_recv(&recv(3)).expect("valid");
        qp.set_state(state);
        let is_kept = u32::from(state != QpState::Reset);
        assert_eq!(qp.recv_count(), is_kept, "{state:?}");
        assert_eq!(qp.take_recv(&mut Vec::new()).is_some(), is_kept == 1);
        assert_eq!(qp.outstanding_sends(), 2 * is_kept);
        assert_eq!(qp.take_sends(&mut ring), is_kept);
    }
}

#[test]
fn a_cleared_queue_pair_has_all_its_places_again() {
    let qp = qp(QpState::Rts);
    for round in 0..3 {
        for wr_id in 0..4 {
            assert_eq!(qp.post_send(&send(wr_id)), Ok(()), "round {round}");
        }
        for wr_id in 0..3 {
            assert_eq!(qp.post_recv(&recv(wr_id)), Ok(()), "round {round}");
        }
        qp.clear();
        assert_eq!(qp.take_sends(&mut ring(&qp)), 0);
        assert_eq!(qp.take_recv(&mut Vec::new()), None);
    }
}

#[test]
fn memory_is_set_aside_when_the_queue_pair_is_made() {
    let qp = qp(QpState::Rts);
    let before = qp.memory_bytes();
    assert!(before > 4 * 16 + 3 * 2 * size_of::<Sge>());
    for wr_id in 0..100 {
        qp.post_send(&send(wr_id)).expect("room");
        qp.post_recv(&recv(wr_id)).expect("room");
        qp.clear();
    }
    assert_eq!(qp.memory_bytes(), before);
}

/// Posts sends and receives until told to stop; what was accepted.
fn post_while(qp: &QpShared, thread: u64, stop: &AtomicBool) -> (Vec<u64>, Vec<u64>) {
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let wr_id = thread << 32 | n;
        let is_sent = is_accepted(qp.post_send(&send(wr_id)));
        let is_received = is_accepted(qp.post_recv(&recv(wr_id)));
        sends.extend(is_sent.then_some(wr_id));
        recvs.extend(is_received.then_some(wr_id));
        if !is_sent && !is_received {
            thread::yield_now();
        }
    }
    (sends, recvs)
}

fn is_accepted(result: Result<(), PostError>) -> bool {
    match result {
        Ok(()) => true,
        Err(PostError::QueueFull { .. } | PostError::State(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Takes and retires everything; the identifiers, in order.
fn take_all(qp: &QpShared, ring: &mut WqeRing, sends: &mut Vec<u64>, recvs: &mut Vec<u64>) {
    let mut sgl = Vec::new();
    qp.take_sends(ring);
    let taken = ids(ring);
    qp.retire_sends(u32::try_from(taken.len()).expect("few"));
    sends.extend(taken);
    recvs.extend(std::iter::from_fn(|| qp.take_recv(&mut sgl)));
}

#[test]
fn everything_that_was_accepted_is_taken_once_and_in_order() {
    const ENOUGH: usize = 20_000;
    let cap = QpCap { max_send_wr: 16, max_recv_wr: 16, ..CAP };
    let qp = qp_with(cap, false, QpState::Rts);
    let stop = AtomicBool::new(false);
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    let mut ring = ring(&qp);
    let accepted: Vec<_> = thread::scope(|scope| {
        let posters: Vec<_> = (0..2)
            .map(|thread| {
                let (qp, stop) = (&qp, &stop);
                scope.spawn(move || post_while(qp, thread, stop))
            })
            .collect();
        while sends.len() < ENOUGH {
            take_all(&qp, &mut ring, &mut sends, &mut recvs);
            assert!(qp.outstanding_sends() <= 16 && qp.recv_count() <= 16);
        }
        stop.store(true, Ordering::Relaxed);
        posters.into_iter().map(|poster| poster.join().expect("no panic")).collect()
    });
    take_all(&qp, &mut ring, &mut sends, &mut recvs);
    for (thread, (sent, received)) in (0..).zip(&accepted) {
        let of = |all: &[u64]| all.iter().copied().filter(|id| id >> 32 == thread).collect::<Vec<_>>();
        assert!(of(&sends) == *sent, "sends of thread {thread}");
        assert!(of(&recvs) == *received, "receives of thread {thread}");
    }
    assert_eq!((qp.outstanding_sends(), qp.recv_count()), (0, 0));
}

/// One thread posts while another changes the state from RTS to `state` and then takes what is there.
fn race(state: QpState) -> Race {
    let cap = QpCap { max_send_wr: 1 << 12, max_recv_wr: 1 << 12, ..CAP };
    let qp = qp_with(cap, false, QpState::Rts);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let poster = scope.spawn(|| post_while(&qp, 0, &stop));
        while qp.recv_count() < 20 {
            thread::yield_now();
        }
        qp.set_state(state);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        let mut ring = ring(&qp);
        take_all(&qp, &mut ring, &mut sends, &mut recvs);
        let before = (sends.len(), recvs.len());
        stop.store(true, Ordering::Relaxed);
        let accepted = poster.join().expect("no panic");
        take_all(&qp, &mut ring, &mut sends, &mut recvs);
        assert_eq!((qp.outstanding_sends(), qp.recv_count()), (0, 0));
        Race { accepted, taken: (sends, recvs), before }
    })
}

struct Race {
    /// Sends and receives that the poster got `Ok` for.
    accepted: (Vec<u64>, Vec<u64>),
    /// What the device found from the transition on.
    taken: (Vec<u64>, Vec<u64>),
    /// How many sends and receives of that right after it.
    before: (usize, usize),
}

#[test]
fn a_post_that_races_with_the_error_state_is_seen_by_the_device() {
    for _ in 0..100 {
        let race = race(QpState::Err);
        assert!(race.accepted == race.taken, "accepted is flushed, all of it and once");
        assert!(race.before.1 >= 20);
    }
}

#[test]
fn a_post_that_races_with_reset_is_forgotten_or_refused() {
    for _ in 0..100 {
        let race = race(QpState::Reset);
        assert_eq!(race.taken, (vec![], vec![]), "nothing slips in after the reset");
        assert!(race.accepted.1.len() >= 20);
    }
}

#[test]
fn a_post_that_races_with_the_way_out_of_rts_is_refused_or_seen() {
    for _ in 0..100 {
        // No state that refuses sends is reached from RTS but RESET; the rule holds for any.
        let race = race(QpState::Init);
        assert_eq!(race.accepted.0, race.taken.0);
        assert_eq!(race.before.0, race.taken.0.len(), "no send comes after the transition");
        assert_eq!(race.accepted.1, race.taken.1, "receives go on");
    }
}

#[test]
fn one_place_is_enough_for_two_threads() {
    let qp = qp_with(QpCap { max_send_wr: 1, ..CAP }, false, QpState::Rts);
    let stop = AtomicBool::new(false);
    let mut seen = HashSet::new();
    thread::scope(|scope| {
        for thread in 0..2 {
            let (qp, stop) = (&qp, &stop);
            scope.spawn(move || post_while(qp, thread, stop));
        }
        let mut ring = ring(&qp);
        while seen.len() < 2_000 {
            let taken = qp.take_sends(&mut ring);
            assert!(taken <= 1 && qp.outstanding_sends() <= 1);
            if let Some(wqe) = ring.pop() {
                assert!(seen.insert(wqe.wr_id), "{:#x} came twice", wqe.wr_id);
                qp.retire_sends(1);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn with_a_shared_receive_queue_there_is_none_of_its_own() {
    let init = QpInitAttr { qp_type: QpType::Rc, cap: CAP, sq_sig_all: false };
    let srq = Arc::new(Srq::new(Srqn::new(3), PdId(2), &SrqInitAttr { max_wr: 4, max_sge: 5 }));
    let qp = QpShared::with_srq(Qpn::new(0x11), PdId(1), &init, Arc::clone(&srq));
    assert_eq!(qp.cap(), QpCap { max_recv_wr: 0, max_recv_sge: 0, ..CAP });
    assert_eq!((qp.pd(), qp.recv_pd()), (PdId(1), PdId(2)));
    for state in STATES {
        qp.set_state(state);
        assert_eq!(qp.post_recv(&recv(1)), Err(PostError::SharedRecvQueue), "{state:?}");
    }
    srq.post_recv(&recv(7)).unwrap();
    qp.set_state(QpState::Err);
    assert_eq!(qp.take_recv(&mut Vec::new()), None, "what is flushed is its own");
    qp.set_state(QpState::Reset);
    assert_eq!(srq.recv_count(), 1, "and so is what is forgotten");
}

#[test]
fn a_post_that_has_interrupted_another_is_refused_and_waits_for_nobody() {
    let qp = qp(QpState::Rts);
    let (sends, recvs) = (lock(&qp.sends), lock(&qp.recvs));
    let refused = qp.post_send_unless(&send(1), || true).unwrap_err();
    assert_eq!(refused, PostError::Interrupted);
    let text = "the queue is busy with what this signal handler has interrupted";
    assert_eq!(refused.to_string(), text);
    assert_eq!(qp.post_recv_unless(&recv(1), || true), Err(PostError::Interrupted));
    drop((sends, recvs));
    assert_eq!(qp.post_send_unless(&send(1), || true), Ok(()), "nobody is busy with it");
    assert_eq!(qp.post_recv_unless(&recv(1), || true), Ok(()));
}
