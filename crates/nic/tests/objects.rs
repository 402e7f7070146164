//! Objects: who holds whom, what ends with what, and completion queues that overflow.

use userdma_objects::{Arm, CompChannel};
use userdma_sim::{ConnectOptions, Host, Pair, PairOptions, QpEnd};
use userdma_verbs::{
    AccessFlags, AhAttr, AsyncEvent, CreateCqError, CreateQpError, DeviceAttr, Gid, GlobalRoute, ObjectError,
    QpCap, QpInitAttr, QpState, QpType, Qpn, RecvWr, SendFlags, SendOp, SendWr, WcStatus,
};

fn init() -> QpInitAttr {
    QpInitAttr { qp_type: QpType::Rc, cap: ConnectOptions::default().cap, sq_sig_all: false }
}

fn busy(result: Result<(), ObjectError>) -> u32 {
    match result {
        Err(ObjectError::Busy { users, .. }) => users,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_protection_domain_ends_only_when_nothing_is_in_it() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, address, .. } = &mut pair.hosts[0];
    let pd = *pd;
    let cq = shard.create_cq(1, None).unwrap().number();
    let qpn = shard.create_qp(pd, &init(), cq, cq).unwrap().qpn();
    let mw = shard.alloc_mw(pd).unwrap();
    let grh = GlobalRoute { dgid: Gid::from(*address), ..GlobalRoute::default() };
    let (ah, _) = shard.create_ah(pd, &AhAttr { grh, sl: 0, port_num: 1 }).unwrap();
    assert_eq!(busy(shard.dealloc_pd(pd)), 3);
    shard.destroy_ah(ah).unwrap();
    shard.dealloc_mw(mw).unwrap();
    assert_eq!(busy(shard.dealloc_pd(pd)), 1);
    shard.destroy_qp(userdma_verbs::Time::ZERO, qpn).unwrap();
    shard.dealloc_pd(pd).unwrap();
    assert!(shard.destroy_ah(ah).is_err());
    assert_eq!(
        shard.create_qp(pd, &init(), cq, cq).unwrap_err(),
        CreateQpError::NoObject("protection domain")
    );
}

#[test]
fn a_completion_queue_ends_only_when_no_queue_pair_uses_it() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let (send, recv) =
        (shard.create_cq(8, None).unwrap().number(), shard.create_cq(8, None).unwrap().number());
    let first = shard.create_qp(*pd, &init(), send, recv).unwrap().qpn();
    let second = shard.create_qp(*pd, &init(), send, send).unwrap().qpn();
    assert_eq!((busy(shard.destroy_cq(send)), busy(shard.destroy_cq(recv))), (3, 1));
    shard.destroy_qp(userdma_verbs::Time::ZERO, first).unwrap();
    shard.destroy_cq(recv).unwrap();
    assert_eq!(busy(shard.destroy_cq(send)), 2);
    shard.destroy_qp(userdma_verbs::Time::ZERO, second).unwrap();
    shard.destroy_cq(send).unwrap();
    assert_eq!(shard.destroy_cq(send), Err(ObjectError::NoObject("completion queue")));
}

/// Programs say what number they connect, and may say anything.
#[test]
fn a_number_of_another_slot_is_nobodys_here() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let cq = shard.create_cq(1, None).unwrap().number();
    let qpn = shard.create_qp(*pd, &init(), cq, cq).unwrap().qpn();
    let other = Qpn::new(qpn.get() ^ 1 << Qpn::INDEX_BITS);
    shard.guard_qpn(other, true);
    assert!(!shard.guards_qpns());
    shard.guard_qpn(qpn, true);
    shard.guard_qpn(other, false);
    assert!(shard.guards_qpns());
    shard.destroy_qp(userdma_verbs::Time::ZERO, qpn).unwrap();
    shard.guard_qpn(qpn, false);
    assert!(!shard.guards_qpns());
}

#[test]
fn sizes_beyond_the_device_are_named() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let limits = shard.device_attr();
    assert_eq!(shard.create_cq(0, None).unwrap_err(), CreateCqError::Size { cqe: 0, max: limits.max_cqe });
    assert!(shard.create_cq(limits.max_cqe + 1, None).is_err());
    let cq = shard.create_cq(1, None).unwrap().number();
    let cap = QpCap { max_send_sge: limits.max_sge + 1, ..init().cap };
    assert_eq!(
        shard.create_qp(*pd, &QpInitAttr { cap, ..init() }, cq, cq).unwrap_err(),
        CreateQpError::Cap { field: "max_send_sge", value: limits.max_sge + 1, max: limits.max_sge }
    );
    assert_eq!(
        shard.create_qp(*pd, &init(), cq, 99).unwrap_err(),
        CreateQpError::NoObject("completion queue")
    );
    let xrc = QpInitAttr { qp_type: QpType::XrcSend, ..init() };
    assert_eq!(shard.create_qp(*pd, &xrc, cq, cq).unwrap_err(), CreateQpError::Type(QpType::XrcSend));
}

#[test]
fn there_are_no_more_queue_pairs_and_completion_queues_than_the_device_says() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let DeviceAttr { max_qp, max_cq, .. } = DeviceAttr::LIMITS;
    let smallest = QpInitAttr { cap: QpCap::default(), ..init() };
    let cq = shard.create_cq(1, None).unwrap().number();
    let last = (0..max_qp).map(|_| shard.create_qp(*pd, &smallest, cq, cq).unwrap().qpn()).last().unwrap();
    let refused = shard.create_qp(*pd, &smallest, cq, cq).unwrap_err();
    assert_eq!(refused, CreateQpError::TooMany { max: max_qp });
    assert_eq!(busy(shard.destroy_cq(cq)), 2 * max_qp, "the refused one counts nowhere");
    shard.destroy_qp(userdma_verbs::Time::ZERO, last).unwrap();
    shard.create_qp(*pd, &smallest, cq, cq).unwrap();

    (1..max_cq).for_each(|_| drop(shard.create_cq(1, None).unwrap()));
    assert_eq!(shard.create_cq(1, None).unwrap_err(), CreateCqError::TooMany { max: max_cq });
}

#[test]
fn a_queue_pairs_number_comes_back_as_late_as_possible() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let small = QpInitAttr { cap: QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() }, ..init() };
    let cq = shard.create_cq(1, None).unwrap().number();
    let create = |shard: &mut userdma_nic::Shard| {
        let qpn = shard.create_qp(*pd, &small, cq, cq).unwrap().qpn();
        shard.destroy_qp(userdma_verbs::Time::ZERO, qpn).unwrap();
        qpn.get()
    };
    let first = create(shard);
    assert_eq!(first, 1 << 14 | 2, "slot 1, and no QPNs 0 and 1");
    for next in first + 1..2 << 14 {
        assert_eq!(create(shard), next);
    }
    assert_eq!((create(shard), create(shard)), (first, first + 1));
}

#[test]
fn an_overflow_is_one_event_and_ends_every_queue_pair_of_the_queue() {
    let mut pair = Pair::new(&PairOptions::default());
    let small = ConnectOptions { cqe: 1, ..ConnectOptions::default() };
    let [a, b] = pair.connect(&small);
    let [c, d] = pair.connect(&ConnectOptions::default());
    // A third queue pair shares the small queue, and is idle.
    let host = &mut pair.hosts[0];
    let idle = host.shard.create_qp(host.pd, &init(), c.send_cq.number(), a.send_cq.number()).unwrap();
    let attr = pair.attr(0, d.qp.qpn(), &small, QpState::Init);
    let mask = userdma_verbs::Transition::rc(QpState::Reset, QpState::Init).unwrap().required;
    pair.modify(0, idle.qpn(), &attr, mask | userdma_verbs::QpAttrMask::STATE);

    let to = pair.hosts[1].memory(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let capacity = u64::from(a.send_cq.capacity());
    for wr_id in 0..capacity + 3 {
        let flags = SendFlags::SIGNALED | SendFlags::INLINE;
        let wr = SendWr { wr_id, op: SendOp::Write(to.remote(0)), flags, sgl: &[], inline: b"x" };
        pair.hosts[0].post_send(&a, &wr).unwrap();
    }
    pair.drive();
    assert_eq!(pair.hosts[0].events, [AsyncEvent::CqError { cq: a.send_cq.number() }]);
    assert_eq!((a.qp.state(), idle.state(), c.qp.state()), (QpState::Err, QpState::Err, QpState::Rts));
    let ids: Vec<u64> = a.poll_send().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, (0..capacity).collect::<Vec<_>>(), "what was in the queue can still be polled");
    assert_eq!(b.qp.state(), QpState::Rts, "the peer has not been told");
    let from = some_bytes(&mut pair.hosts[0]);
    pair.hosts[0].write(&c, 1, from, to.remote(0));
    pair.drive();
    assert_eq!(c.poll_send().iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success]);
}

#[test]
fn a_queue_pair_that_comes_back_to_an_overflown_queue_fails_with_its_next_completion() {
    let mut pair = Pair::new(&PairOptions::default());
    let small = ConnectOptions { cqe: 1, ..ConnectOptions::default() };
    let ends = pair.connect(&small);
    let to = pair.hosts[1].memory(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let from = some_bytes(&mut pair.hosts[0]);
    for wr_id in 0..2 {
        pair.hosts[0].write(&ends[0], wr_id, from, to.remote(0));
    }
    pair.drive();
    assert!(ends[0].send_cq.has_overflowed());
    for side in [0, 1] {
        pair.reset(side, ends[side].qp.qpn());
    }
    pair.join(&ends, &small);
    pair.hosts[0].write(&ends[0], 7, from, to.remote(0));
    pair.drive();
    assert_eq!(ends[0].qp.state(), QpState::Err, "its completion was lost");
    assert_eq!(pair.hosts[0].events, [AsyncEvent::CqError { cq: ends[0].send_cq.number() }], "told once");
}

fn some_bytes(host: &mut Host) -> userdma_verbs::Sge {
    host.memory(64, AccessFlags::empty()).sge(0, 8)
}

#[test]
fn channels_notify_once_for_each_arming() {
    let mut pair = Pair::new(&PairOptions::default());
    let channel = std::sync::Arc::new(CompChannel::new(7));
    let options = ConnectOptions::default();
    let host = &mut pair.hosts[0];
    let cq = host.shard.create_cq(64, Some(channel.clone())).unwrap();
    let cq_number = cq.number();
    let qp = host.shard.create_qp(host.pd, &init(), cq_number, cq_number).unwrap();
    let a = QpEnd { qp, send_cq: cq.clone(), recv_cq: cq.clone() };
    let b = pair.create(1, &options);
    let ends = [a.clone(), b];
    for side in [0, 1] {
        for (from, to) in
            [(QpState::Reset, QpState::Init), (QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)]
        {
            let attr = pair.attr(side, ends[1 - side].qp.qpn(), &options, to);
            let mask = userdma_verbs::Transition::rc(from, to).unwrap().required;
            pair.modify(side, ends[side].qp.qpn(), &attr, mask | userdma_verbs::QpAttrMask::STATE);
        }
    }
    let to = pair.hosts[1].memory(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let from = some_bytes(&mut pair.hosts[0]);
    cq.arm(Arm::Any);
    for wr_id in 0..3 {
        pair.hosts[0].write(&a, wr_id, from, to.remote(0));
        pair.drive();
    }
    assert_eq!(pair.hosts[0].channels, [7], "one arming, one notification");
    assert_eq!((channel.take_event(), channel.take_event()), (Some(cq_number), None));
    let (now, qpn) = (pair.now(), a.qp.qpn());
    cq.arm(Arm::Any);
    pair.hosts[0].write(&a, 3, from, to.remote(0));
    pair.drive();
    pair.hosts[0].shard.destroy_qp(now, qpn).unwrap();
    pair.hosts[0].shard.destroy_cq(cq_number).unwrap();
    assert_eq!(channel.pending(), 0, "the events of a queue go with it");
}

#[test]
fn destroying_a_queue_pair_completes_nothing_and_frees_the_way_for_others() {
    let mut pair = Pair::new(&PairOptions::default());
    let [a, _b] = pair.connect(&ConnectOptions::default());
    let [c, _d] = pair.connect(&ConnectOptions::default());
    let to = pair.hosts[1].memory(1 << 20, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let from = pair.hosts[0].memory(1 << 20, AccessFlags::empty());
    // A fills the window that both share, and nothing comes back.
    pair.net.set_filter(|_| userdma_sim::Fate::Drop);
    pair.hosts[0].write(&a, 1, from.sge(0, 1 << 20), to.remote(0));
    pair.progress();
    pair.hosts[0].write(&c, 2, from.sge(0, 1 << 20), to.remote(0));
    pair.progress();
    pair.net.clear_filter();
    let (now, qpn) = (pair.now(), a.qp.qpn());
    pair.hosts[0].shard.destroy_qp(now, qpn).unwrap();
    pair.drive();
    assert!(a.poll_send().is_empty());
    assert_eq!(c.poll_send().iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success]);
}

/// The window is full, and those at the head of its line end before it has room.
#[test]
fn queue_pairs_that_end_in_the_line_for_a_window_hold_up_nobody_behind_them() {
    let mut pair = Pair::new(&PairOptions::default());
    let to = pair.hosts[1].memory(1 << 20, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let from = pair.hosts[0].memory(1 << 20, AccessFlags::empty());
    pair.net.set_filter(|_| userdma_sim::Fate::Drop);
    let ends: Vec<_> = (0..5)
        .map(|wr_id| {
            let [end, _] = pair.connect(&ConnectOptions::default());
            for _ in 0..2 {
                pair.hosts[0].write(&end, wr_id, from.sge(0, 1 << 20), to.remote(0));
            }
            pair.progress();
            end
        })
        .collect();
    pair.net.clear_filter();
    let now = pair.now();
    // Those that wait, then the one that fills the window.
    for end in [&ends[1], &ends[2], &ends[3], &ends[0]] {
        pair.hosts[0].shard.destroy_qp(now, end.qp.qpn()).unwrap();
    }
    pair.progress();
    assert!(!pair.net.is_empty(), "the last in the line sends at once, not when a timer expires");
    pair.drive();
    assert_eq!(ends[4].poll_send().len(), 2);
}

/// Another queue pair on the completion queues of `end`.
#[allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]
fn sibling(host: &mut Host, end: &QpEnd) -> QpEnd {
    let qp = host.shard.create_qp(host.pd, &init(), end.send_cq.number(), end.recv_cq.number()).unwrap();
    QpEnd { qp, ..end.clone() }
}

/// Two queue pairs share their completion queues; one is reset, or destroyed, with completions on both sides unpolled.
#[test]
fn completions_of_a_queue_pair_leave_with_it_and_others_stay() {
    for is_reset in [true, false] {
        let mut pair = Pair::new(&PairOptions::default());
        let options = ConnectOptions::default();
        let [a, b] = pair.connect(&options);
        let others = [0, 1].map(|side| sibling(&mut pair.hosts[side], [&a, &b][side]));
        pair.join(&others, &options);
        let [c, d] = others;
        let from = some_bytes(&mut pair.hosts[0]);
        let to = pair.hosts[1].memory(64, AccessFlags::LOCAL_WRITE);
        for (wr_id, (sender, receiver)) in [(&a, &b), (&c, &d), (&a, &b)].into_iter().enumerate() {
            let wr_id = wr_id as u64;
            pair.hosts[1].post_recv(receiver, &RecvWr { wr_id, sgl: &[to.sge(0, 8)] }).unwrap();
            let send =
                SendWr { wr_id, op: SendOp::Send, flags: SendFlags::SIGNALED, sgl: &[from], inline: &[] };
            pair.hosts[0].post_send(sender, &send).unwrap();
        }
        pair.drive();
        let now = pair.now();
        for (side, end) in [(0, &a), (1, &b)] {
            if is_reset {
                pair.reset(side, end.qp.qpn());
            } else {
                pair.hosts[side].shard.destroy_qp(now, end.qp.qpn()).unwrap();
            }
        }
        assert_eq!(a.poll_send().iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1], "reset: {is_reset}");
        assert_eq!(b.poll_recv().iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1], "reset: {is_reset}");
    }
}
