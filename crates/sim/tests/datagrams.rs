//! Datagrams over a bad network: what arrives is whole and unchanged, and comes once.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

use std::time::Duration;

use userdma_sim::{ConnectOptions, Faults, Pair, PairOptions};
use userdma_verbs::{AccessFlags, QpCap, Sge, WcStatus};

const COUNT: u64 = 2000;
const SLOT: u64 = 2048;
const ROUND: u64 = 16;

/// Bytes of message `number`: 8 to 1600.
fn len(number: u64) -> u64 {
    8 + number * 131 % 1593
}

fn message(number: u64) -> Vec<u8> {
    let pattern = (0..len(number) - 8).map(|i| (i * 7 + number) as u8);
    number.to_be_bytes().into_iter().chain(pattern).collect()
}

/// Sends `COUNT` messages from host 0 to host 1; which arrived, in order.
fn arrivals(options: &PairOptions) -> Vec<u64> {
    let mut pair = Pair::new(options);
    let usual = ConnectOptions::default();
    let cap = QpCap { max_recv_wr: 2 * ROUND as u32, ..usual.cap };
    let ends = pair.datagrams(&ConnectOptions { cap, ..usual });
    let to = pair.addr_of(1, &ends[1]);
    let memory = [0, 1].map(|side: usize| pair.hosts[side].memory(64 << 10, AccessFlags::LOCAL_WRITE));
    for slot in 0..2 * ROUND {
        pair.hosts[1].recv(&ends[1], slot, memory[1].sge(slot * SLOT, SLOT as u32));
    }
    let mut arrived = Vec::new();
    for first in (0..COUNT).step_by(ROUND as usize) {
        for number in first..(first + ROUND).min(COUNT) {
            memory[0].put(number % ROUND * SLOT, &message(number));
            let sge: Sge = memory[0].sge(number % ROUND * SLOT, len(number) as u32);
            pair.hosts[0].send_to(&ends[0], number, sge, &to).unwrap();
        }
        pair.drive();
        assert!(ends[0].poll_send().iter().all(|wc| wc.status == WcStatus::Success));
        for wc in ends[1].poll_recv() {
            assert_eq!((wc.status, wc.src_qp), (WcStatus::Success, ends[0].qp.qpn()));
            let bytes = memory[1].bytes(wc.wr_id * SLOT + 40, wc.byte_len as usize - 40);
            let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, message(number), "message {number} is not as it was sent");
            arrived.push(number);
            pair.hosts[1].recv(&ends[1], wc.wr_id, memory[1].sge(wc.wr_id * SLOT, SLOT as u32));
        }
    }
    arrived
}

#[test]
fn over_a_good_network_all_arrive_in_order() {
    for ipv6 in [false, true] {
        let arrived = arrivals(&PairOptions { ipv6, ..PairOptions::default() });
        assert!(arrived.iter().copied().eq(0..COUNT));
    }
}

#[test]
fn over_a_bad_one_what_arrives_is_whole_unchanged_and_comes_once() {
    for seed in 1..5 {
        let faults = Faults {
            loss: 0.1,
            corrupt: 0.05,
            reorder: 0.1,
            hold: Duration::from_micros(200),
            ..Faults::NONE
        };
        let mut arrived = arrivals(&PairOptions { seed, faults, ..PairOptions::default() });
        let count = arrived.len() as u64;
        arrived.sort_unstable();
        arrived.dedup();
        assert_eq!(arrived.len() as u64, count, "seed {seed}: something came twice");
        assert!((COUNT * 8 / 10..COUNT * 9 / 10).contains(&count), "seed {seed}: {count} arrived");
    }
}
