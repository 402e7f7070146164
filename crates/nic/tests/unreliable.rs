//! Unreliable connections over networks that lose, repeat, delay and spoil packets: what completes is whole, unchanged, in
//! order and comes once, and nothing is written where nobody may write.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_mem::TxBatch;
use userdma_sim::{ConnectOptions, Faults, Memory, Pair, PairOptions, QpEnd};
use userdma_verbs::{
    AccessFlags, AsyncEvent, LKey, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge, WcOpcode,
    WcStatus,
};

const OPTIONS: fn() -> ConnectOptions =
    || ConnectOptions { service: QpType::Uc, ..ConnectOptions::default() };

/// Bytes of a place for a message, and of what lies behind it and must stay as it was.
const PLACE: u64 = 16 << 10;
const GUARD: u8 = 0xee;
const PLACES: u64 = 32;

/// Two hosts, 0 sends to 1.
struct Bench {
    pair: Pair,
    ends: [QpEnd; 2],
    source: Memory,
    target: Memory,
    rng: SmallRng,
}

impl Bench {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut pair = Pair::new(&PairOptions { seed, faults, ..PairOptions::default() });
        let ends = pair.connect(&OPTIONS());
        let source = pair.hosts[0].memory(PLACE as usize, AccessFlags::empty());
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let target = pair.hosts[1].memory((PLACE * PLACES) as usize, access);
        target.fill(&vec![GUARD; (PLACE * PLACES) as usize]);
        Self { pair, ends, source, target, rng: SmallRng::seed_from_u64(seed) }
    }

    /// Sends message `number` as a SEND or a WRITE, which carries its number as immediate data; its length.
    fn send(&mut self, number: u32) -> u32 {
        let len = if self.rng.random_bool(0.5) { self.rng.random_range(0..300) } else { self.len() };
        self.source.fill(&pattern(number, len));
        let op = if self.rng.random_bool(0.5) {
            SendOp::SendWithImm(number)
        } else {
            SendOp::WriteWithImm(self.target.remote(place_of(number)), number)
        };
        self.pair.hosts[0].send(&self.ends[0], number.into(), op, self.source.sge(0, len));
        // The source is free once the send has completed, and so may be written again: the packets were made.
        while self.ends[0].poll_send().is_empty() {
            self.pair.progress();
            if self.ends[0].send_cq.is_empty() {
                self.pair.step();
            }
        }
        len
    }

    fn len(&mut self) -> u32 {
        self.rng.random_range(0..PLACE as u32 - 64)
    }
}

/// SENDs land in the lower half of the places, WRITEs in the upper.
fn place_of(number: u32) -> u64 {
    (PLACES / 2 + u64::from(number) % (PLACES / 2)) * PLACE
}

fn pattern(number: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ (number as u8).wrapping_mul(7)).collect()
}

/// Some hundred messages; how many completed at the receiver.
fn exchange(seed: u64, faults: Faults) -> u32 {
    const MESSAGES: u32 = 300;
    let mut bench = Bench::new(seed, faults);
    let place = |n: u64| n % (PLACES / 2) * PLACE;
    let post = |bench: &Bench, n: u64| {
        bench.pair.hosts[1].recv(&bench.ends[1], n, bench.target.sge(place(n), PLACE as u32 - 8));
    };
    (0..PLACES / 2).for_each(|n| post(&bench, n));
    let (mut lens, mut next, mut completed) = (Vec::new(), 0, 0);
    for number in 0..MESSAGES {
        let len = bench.send(number);
        lens.push(len);
        bench.pair.drive_for(Duration::from_micros(bench.rng.random_range(0..60)));
        for wc in bench.ends[1].poll_recv() {
            let about = format!("seed {seed}: message {}", wc.imm_data);
            assert_eq!(wc.status, WcStatus::Success, "{about}");
            assert!(wc.imm_data >= next, "{about}: after {next}");
            let is_send = wc.opcode == WcOpcode::Recv;
            let at = if is_send { place(wc.wr_id) } else { place_of(wc.imm_data) };
            let want = lens[wc.imm_data as usize];
            assert_eq!(wc.byte_len, want, "{about}");
            assert!(bench.target.bytes(at, want as usize) == pattern(wc.imm_data, want), "{about}");
            (next, completed) = (wc.imm_data + 1, completed + 1);
            post(&bench, wc.wr_id);
        }
    }
    for n in 0..PLACES {
        let end = (n + 1) * PLACE;
        assert_eq!(bench.target.bytes(end - 8, 8), [GUARD; 8], "seed {seed}: behind place {n}");
    }
    assert_eq!(bench.pair.hosts[1].shard.stats().sent_pkts, 0, "seed {seed}: nothing is answered");
    assert_eq!([bench.ends[0].qp.state(), bench.ends[1].qp.state()], [QpState::Rts; 2], "seed {seed}");
    completed
}

#[test]
fn a_perfect_network_brings_everything() {
    assert_eq!(exchange(1, Faults::NONE), 300);
}

#[test]
fn what_completes_over_a_bad_network_is_whole_in_order_and_comes_once() {
    let faults = Faults {
        loss: 0.02,
        duplicate: 0.05,
        reorder: 0.05,
        corrupt: 0.01,
        hold: Duration::from_micros(80),
        ..Faults::NONE
    };
    let all: Vec<u32> = (1..=40).map(|seed| exchange(seed, faults)).collect();
    assert!(all.iter().all(|&completed| completed > 50 && completed < 300), "{all:?}");
}

#[test]
fn sends_complete_once_their_packets_have_left() {
    let mut bench = Bench::new(1, Faults::NONE);
    bench.pair.hosts[0].send(&bench.ends[0], 1, SendOp::Send, bench.source.sge(0, 64));
    let now = bench.pair.now();
    let shard = &mut bench.pair.hosts[0].shard;
    shard.handle_doorbells();
    let mut batch = TxBatch::new(&PairOptions::default().link);
    assert!(shard.poll_transmit(now, &mut batch).is_some());
    assert!(bench.ends[0].poll_send().is_empty());
    bench.pair.hosts[0].shard.handle_sent(now);
    assert_eq!(bench.ends[0].poll_send()[0].status, WcStatus::Success);
}

#[test]
fn two_that_send_to_one_host_share_its_pace_and_both_come_to_their_end() {
    let mut bench = Bench::new(1, Faults::NONE);
    let others = bench.pair.connect(&OPTIONS());
    for (end, wr_id) in [(&bench.ends, 0), (&others, 1)] {
        for n in 0..32 {
            let to = bench.target.remote(place_of(n));
            bench.pair.hosts[0].write(&end[0], wr_id, bench.source.sge(0, PLACE as u32 - 64), to);
        }
    }
    let start = bench.pair.now();
    bench.pair.drive();
    for end in [&bench.ends[0], &others[0]] {
        assert_eq!(end.poll_send().len(), 32);
    }
    let took = bench.pair.now().since(start);
    // 900 KiB beyond the burst at a byte a nanosecond; each turn may send a packet more than it should.
    assert!(took > Duration::from_micros(400), "{took:?}");
}

#[test]
fn a_send_that_fails_takes_the_queue_pair_to_sqe_and_its_peer_goes_on() {
    let mut bench = Bench::new(1, Faults::NONE);
    let wrong = Sge { lkey: LKey::new(0x7777), ..bench.source.sge(0, 8) };
    bench.pair.hosts[0].send(&bench.ends[0], 1, SendOp::Send, wrong);
    bench.pair.drive();
    assert_eq!(bench.ends[0].poll_send()[0].status, WcStatus::LocProtErr);
    assert_eq!(bench.ends[0].qp.state(), QpState::Sqe);
    let wr = SendWr { wr_id: 2, op: SendOp::Send, flags: SendFlags::empty(), sgl: &[], inline: &[] };
    bench.pair.hosts[0].post_send(&bench.ends[0], &wr).unwrap();
    bench.pair.hosts[0].post_recv(&bench.ends[0], &RecvWr { wr_id: 3, sgl: &[] }).unwrap();
    bench.pair.hosts[1].post_send(&bench.ends[1], &wr).unwrap();
    bench.pair.drive();
    assert_eq!(bench.ends[0].poll_send()[0].status, WcStatus::WrFlushErr);
    assert_eq!(bench.ends[0].poll_recv()[0].status, WcStatus::Success);
    assert_eq!(bench.pair.hosts[0].events, [] as [AsyncEvent; 0]);
}
