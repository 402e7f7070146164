//! Shared receive queues: who uses them, what they give to whom, and what is told when.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use userdma_objects::Srq;
use userdma_sim::{ConnectOptions, Fate, Host, Memory, Pair, PairOptions, QpEnd};
use userdma_verbs::{
    AccessFlags, AsyncEvent, CreateQpError, CreateSrqError, DeviceAttr, ModifySrqError, ObjectError,
    PostError, QpCap, QpInitAttr, QpState, QpType, RecvWr, SendOp, SrqAttr, SrqAttrMask, SrqInitAttr, Srqn,
    Time, WcStatus,
};

const LIMITS: DeviceAttr = DeviceAttr::LIMITS;

/// Two connections whose ends on host 1 share a receive queue, and memory on both hosts.
struct Bench {
    pair: Pair,
    srq: Arc<Srq>,
    from: [QpEnd; 2],
    to: [QpEnd; 2],
    source: Memory,
    landing: Memory,
}

impl Bench {
    fn new() -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let srq = pair.hosts[1].create_srq(8);
        let options = ConnectOptions::default();
        let [a, b] = [(); 2].map(|()| {
            let ends = [pair.create(0, &options), pair.hosts[1].create_on(&options, Some(&srq))];
            pair.join(&ends, &options);
            ends
        });
        let source = pair.hosts[0].memory(1 << 16, AccessFlags::empty());
        let landing = pair.hosts[1].memory(1 << 16, AccessFlags::LOCAL_WRITE);
        let ([a0, a1], [b0, b1]) = (a, b);
        Self { pair, srq, from: [a0, b0], to: [a1, b1], source, landing }
    }

    /// Posts receive `wr_id`, whose place in memory its number says.
    fn post(&self, wr_id: u64) {
        self.srq.post_recv(&RecvWr { wr_id, sgl: &[self.landing.sge(wr_id * 4096, 4096)] }).unwrap();
    }

    /// Connection `end` sends `len` bytes.
    fn send(&self, end: usize, wr_id: u64, len: u32) {
        self.pair.hosts[0].send(&self.from[end], wr_id, SendOp::Send, self.source.sge(0, len));
    }

    fn received(&self, end: usize) -> Vec<(u64, WcStatus)> {
        self.to[end].poll_recv().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn arm(&self, srq_limit: u32) {
        let attr = SrqAttr { srq_limit, ..SrqAttr::default() };
        self.pair.hosts[1].shard.modify_srq(self.srq.srqn(), &attr, SrqAttrMask::LIMIT).unwrap();
    }
}

fn busy(result: Result<(), ObjectError>) -> u32 {
    match result {
        Err(ObjectError::Busy { users, .. }) => users,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queue_ends_only_when_no_queue_pair_uses_it_and_holds_its_domain() {
    let mut pair = Pair::new(&PairOptions::default());
    let srq = pair.hosts[0].create_srq(4);
    let end = pair.hosts[0].create_on(&ConnectOptions::default(), Some(&srq));
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    assert_eq!(end.qp.srq().map(|srq| srq.srqn()), Some(srq.srqn()));
    assert_eq!((busy(shard.destroy_srq(srq.srqn())), busy(shard.dealloc_pd(*pd))), (1, 2));
    shard.destroy_qp(Time::ZERO, end.qp.qpn()).unwrap();
    assert_eq!(busy(shard.dealloc_pd(*pd)), 1);
    shard.destroy_srq(srq.srqn()).unwrap();
    shard.dealloc_pd(*pd).unwrap();
    assert_eq!(shard.destroy_srq(srq.srqn()), Err(ObjectError::NoObject("shared receive queue")));
}

#[test]
fn sizes_and_objects_that_are_not_possible_are_named() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let pd = *pd;
    let mut create = |max_wr, max_sge| shard.create_srq(pd, &SrqInitAttr { max_wr, max_sge }).unwrap_err();
    let size = |field, value, min, max| CreateSrqError::Size { field, value, min, max };
    assert_eq!(create(0, 1), size("max_wr", 0, 1, LIMITS.max_srq_wr));
    assert_eq!(create(LIMITS.max_srq_wr + 1, 1), size("max_wr", LIMITS.max_srq_wr + 1, 1, LIMITS.max_srq_wr));
    assert_eq!(create(1, LIMITS.max_srq_sge + 1), size("max_sge", 33, 0, 32));
    let nobody = Srqn::new(77);
    assert!(shard.query_srq(nobody).is_err());
    assert_eq!(shard.modify_srq(nobody, &SrqAttr::default(), SrqAttrMask::LIMIT), Err(ModifySrqError::NoSrq));

    // The queue pair's own receives are not looked at if it has a shared queue.
    let cq = shard.create_cq(8, None).unwrap().number();
    let cap = QpCap { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..ConnectOptions::default().cap };
    let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: false };
    let refused = shard.create_qp_on(pd, &init, cq, cq, Some(nobody)).unwrap_err();
    assert_eq!(refused, CreateQpError::NoObject("shared receive queue"));
    let srqn = shard.create_srq(pd, &SrqInitAttr { max_wr: 1, max_sge: 32 }).unwrap().srqn();
    let qp = shard.create_qp_on(pd, &init, cq, cq, Some(srqn)).unwrap();
    let told = shard.query_qp(qp.qpn()).unwrap().cap;
    assert_eq!((qp.cap().max_recv_wr, told.max_recv_wr, told.max_recv_sge), (0, 0, 0));
    assert_eq!(qp.post_recv(&RecvWr { wr_id: 1, sgl: &[] }), Err(PostError::SharedRecvQueue));
}

#[test]
fn there_are_no_more_than_the_device_says() {
    let mut pair = Pair::new(&PairOptions::default());
    let Host { shard, pd, .. } = &mut pair.hosts[0];
    let init = SrqInitAttr { max_wr: 1, max_sge: 0 };
    let first = shard.create_srq(*pd, &init).unwrap().srqn();
    (1..LIMITS.max_srq).for_each(|_| drop(shard.create_srq(*pd, &init).unwrap()));
    assert_eq!(shard.create_srq(*pd, &init).unwrap_err(), CreateSrqError::TooMany { max: LIMITS.max_srq });
    shard.destroy_srq(first).unwrap();
    let next = shard.create_srq(*pd, &init).unwrap().srqn();
    assert_ne!(next, first, "a number is used again as late as possible");
}

#[test]
fn queue_pairs_take_receives_in_the_order_of_their_messages() {
    let mut bench = Bench::new();
    (0..4).for_each(|wr_id| bench.post(wr_id));
    for (end, len, byte) in [(0, 10, 1), (1, 3000, 2), (1, 0, 2), (0, 4096, 1)] {
        bench.source.put(0, &[byte; 4096]);
        bench.send(end, 9, len);
        bench.pair.drive();
    }
    let ok = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!((bench.received(0), bench.received(1)), (vec![ok(0), ok(3)], vec![ok(1), ok(2)]));
    assert_eq!(bench.landing.bytes(0, 11), [&[1; 10][..], &[0]].concat());
    assert_eq!(bench.landing.bytes(4096, 3001), [&[2; 3000][..], &[0]].concat());
    assert_eq!(bench.landing.bytes(3 * 4096, 4096), [1; 4096]);
}

#[test]
fn messages_wait_for_receives_that_come_later() {
    let mut bench = Bench::new();
    bench.send(0, 1, 100);
    bench.send(1, 2, 100);
    bench.pair.drive_for(std::time::Duration::from_millis(1));
    assert!(bench.pair.hosts[1].shard.stats().sent_rnr_err >= 2);
    bench.post(0);
    bench.post(1);
    bench.pair.drive();
    let all = [bench.received(0), bench.received(1)].concat();
    assert_eq!(all.iter().filter(|wc| wc.1 == WcStatus::Success).count(), 2);
    assert_eq!((bench.from[0].poll_send().len(), bench.from[1].poll_send().len()), (1, 1));
}

#[test]
fn the_limit_is_told_once_for_each_arming() {
    let mut bench = Bench::new();
    let event = AsyncEvent::SrqLimitReached { srqn: bench.srq.srqn() };
    (0..4).for_each(|wr_id| bench.post(wr_id));
    bench.arm(4);
    bench.send(0, 1, 1);
    bench.send(1, 2, 1);
    bench.pair.drive();
    assert_eq!(bench.pair.hosts[1].events, [event]);
    let attr = bench.pair.hosts[1].shard.query_srq(bench.srq.srqn()).unwrap();
    assert_eq!(attr, SrqAttr { max_wr: 8, max_sge: 4, srq_limit: 0 });
    bench.arm(2);
    bench.send(1, 3, 1);
    bench.pair.drive();
    assert_eq!(bench.pair.hosts[1].events, [event, event]);
}

#[test]
fn a_queue_grows_while_it_is_in_use() {
    let mut bench = Bench::new();
    (0..8).for_each(|wr_id| bench.post(wr_id));
    let nine = RecvWr { wr_id: 8, sgl: &[] };
    assert_eq!(bench.srq.post_recv(&nine), Err(PostError::QueueFull { max: 8 }));
    let attr = SrqAttr { max_wr: 9, ..SrqAttr::default() };
    bench.pair.hosts[1].shard.modify_srq(bench.srq.srqn(), &attr, SrqAttrMask::MAX_WR).unwrap();
    bench.srq.post_recv(&nine).unwrap();
    (0..8).for_each(|wr_id| bench.send(0, wr_id, 20));
    bench.send(0, 8, 0);
    bench.pair.drive();
    assert_eq!(bench.received(0), [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|wr_id| (wr_id, WcStatus::Success)));
}

#[test]
fn a_queue_pair_that_fails_leaves_the_queue_to_the_others() {
    let mut bench = Bench::new();
    (0..3).for_each(|wr_id| bench.post(wr_id));
    // The rest of a message of three packets is lost, and the queue pair goes to the error state meanwhile.
    let mut seen = 0;
    bench.pair.net.set_filter(move |_| {
        seen += 1;
        if seen == 1 { Fate::Deliver } else { Fate::Drop }
    });
    bench.send(0, 1, 3000);
    bench.pair.drive_for(std::time::Duration::from_micros(50));
    let qpn = bench.to[0].qp.qpn();
    bench.pair.fail(1, qpn);
    bench.pair.progress();
    bench.pair.net.clear_filter();
    assert_eq!(bench.received(0), [(0, WcStatus::WrFlushErr)]);
    assert_eq!(bench.pair.hosts[1].events, [AsyncEvent::QpLastWqeReached { qpn }]);
    bench.send(1, 2, 3000);
    bench.pair.drive();
    assert_eq!((bench.received(1), bench.srq.recv_count()), (vec![(1, WcStatus::Success)], 1));
    assert_eq!(bench.to[1].qp.state(), QpState::Rts);
    assert!(bench.received(0).is_empty());
}

#[test]
fn events_go_with_their_objects() {
    let mut bench = Bench::new();
    bench.post(0);
    bench.arm(1);
    bench.send(0, 1, 1);
    bench.pair.drive();
    assert_eq!(bench.pair.hosts[1].events.len(), 1);
    let (now, srqn) = (bench.pair.now(), bench.srq.srqn());
    let qpns = [0, 1].map(|end| bench.to[end].qp.qpn());
    bench.pair.fail(1, qpns[0]);
    let shard = &mut bench.pair.hosts[1].shard;
    qpns.into_iter().for_each(|qpn| shard.destroy_qp(now, qpn).unwrap());
    shard.destroy_srq(srqn).unwrap();
    assert_eq!(shard.poll_event(), None);
}

#[test]
fn completions_of_shared_receives_stay_when_their_queue_pair_goes() {
    for is_reset in [true, false] {
        let mut bench = Bench::new();
        (0..2).for_each(|wr_id| bench.post(wr_id));
        bench.send(0, 1, 10);
        bench.send(1, 2, 10);
        bench.pair.drive();
        let (now, qpn) = (bench.pair.now(), bench.to[0].qp.qpn());
        if is_reset {
            bench.pair.reset(1, qpn);
        } else {
            bench.pair.hosts[1].shard.destroy_qp(now, qpn).unwrap();
        }
        let all = [bench.received(0), bench.received(1)];
        assert_eq!(all, [0, 1].map(|wr_id| vec![(wr_id, WcStatus::Success)]), "reset: {is_reset}");
    }
}
