//! Datagrams to queue pairs that share a receive queue: each takes one receive, whoever it is for, and what finds none is lost.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use userdma_objects::Srq;
use userdma_sim::{ConnectOptions, Memory, Pair, PairOptions, QpEnd};
use userdma_verbs::{AccessFlags, RecvWr, WcStatus};

const PAIRS: usize = 3;
const GRH: u32 = 40;

/// Queue pairs of host 1 that share a receive queue, one of host 0 that sends to all, and memory on both.
struct Bench {
    pair: Pair,
    srq: Arc<Srq>,
    from: QpEnd,
    to: [QpEnd; PAIRS],
    source: Memory,
    landing: Memory,
}

impl Bench {
    fn new() -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let options = ConnectOptions::default();
        let srq = pair.hosts[1].create_srq(8);
        let from = pair.datagram_end(0, &options, None);
        let to = [(); PAIRS].map(|()| pair.datagram_end(1, &options, Some(&srq)));
        let source = pair.hosts[0].memory(4096, AccessFlags::empty());
        let landing = pair.hosts[1].memory(1 << 16, AccessFlags::LOCAL_WRITE);
        Self { pair, srq, from, to, source, landing }
    }

    /// Posts receive `wr_id` for `len` bytes, whose place in memory its number says.
    fn post(&self, wr_id: u64, len: u32) {
        let sge = self.landing.sge(wr_id * 256, GRH + len);
        self.srq.post_recv(&RecvWr { wr_id, sgl: &[sge] }).unwrap();
    }

    /// Sends `len` bytes of `byte` to queue pair `end`.
    fn send(&mut self, end: usize, byte: u8, len: u32) {
        self.source.fill(&[byte; 256]);
        let to = self.pair.addr_of(1, &self.to[end]);
        self.pair.hosts[0].send_to(&self.from, 0, self.source.sge(0, len), &to).unwrap();
        self.pair.drive();
    }

    /// The receives that queue pair `end` has used up, and what is in them.
    fn received(&self, end: usize) -> Vec<(u64, WcStatus, u8)> {
        let wcs = self.to[end].poll_recv();
        assert!(wcs.iter().all(|wc| wc.qpn == self.to[end].qp.qpn()));
        let first = |wr_id| self.landing.bytes(wr_id * 256 + u64::from(GRH), 1)[0];
        wcs.iter().map(|wc| (wc.wr_id, wc.status, first(wc.wr_id))).collect()
    }

    fn lost(&self) -> u64 {
        self.pair.hosts[1].shard.stats().drop_no_receive
    }
}

#[test]
fn each_takes_the_next_receive_and_what_finds_none_is_lost() {
    let mut bench = Bench::new();
    (0..8).for_each(|wr_id| bench.post(wr_id, 64));
    for number in 0..12 {
        bench.send(usize::from(number) % PAIRS, number, 64);
    }
    let ok = |number: u8| (u64::from(number), WcStatus::Success, number);
    assert_eq!(bench.received(0), [0, 3, 6].map(ok));
    assert_eq!(bench.received(1), [1, 4, 7].map(ok));
    assert_eq!(bench.received(2), [2, 5].map(ok));
    assert_eq!((bench.lost(), bench.srq.recv_count()), (4, 0));
    assert_eq!(bench.from.poll_send().len(), 12, "nobody tells the sender");

    bench.post(0, 64);
    bench.send(2, 100, 64);
    assert_eq!(bench.received(2), [(0, WcStatus::Success, 100)], "a queue that was empty goes on");
    assert_eq!(bench.lost(), 4);
}

#[test]
fn one_that_is_too_long_uses_a_receive_up_and_the_next_is_for_the_others() {
    let mut bench = Bench::new();
    bench.post(0, 8);
    bench.post(1, 64);
    bench.send(0, 7, 64);
    bench.send(1, 9, 64);
    assert_eq!(bench.received(0), [(0, WcStatus::RemInvReqErr, 0)]);
    assert_eq!(bench.received(1), [(1, WcStatus::Success, 9)]);
    assert_eq!(bench.lost(), 0);
}
