//! Devices that share an address and its port 4791: of one process, of several, when some are killed, when their agent is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::collections::BTreeSet;

use common::offer::{meet, offer_memory};
use common::{Options, Side, connect, pattern};
use userdma::{AckTimeout, Device, Qpn, RemoteMr, RtrAttr, RtsAttr, SendFlags, WcStatus};
use userdma_other::{Other, is_other, role, say};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// 17 ms, two resends.
fn impatient() -> RtsAttr {
    RtsAttr { timeout: AckTimeout::new(12).unwrap(), retry_cnt: 2, ..RtsAttr::default() }
}

/// Connects to a process that runs [`offer_memory`].
fn reach(device: &Device, other: &mut Other) -> (Side, RemoteMr) {
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(64).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    let (peer, remote) = meet(other, &qp.endpoint());
    let qp = qp.connect_with(&peer, &RtrAttr::default(), &impatient()).unwrap();
    (Side { device: device.clone(), pd, cq, qp }, remote)
}

/// Writes a pattern into the other's memory and reads it back.
fn check(side: &Side, remote: RemoteMr, seed: u8) {
    let (mine, back) = (side.mr(LEN, seed), side.mr(LEN, 0));
    side.qp.post_write(1, &mine.slice(..), remote, SIGNALED).unwrap();
    side.done(1);
    side.qp.post_read(2, &back.slice(..), remote, SIGNALED).unwrap();
    side.done(2);
    assert_eq!(back.to_vec(..).unwrap(), pattern(LEN, seed));
}

#[test]
fn two_devices_of_a_process_on_one_address_talk_to_each_other() {
    let open = || Device::open("127.0.160.2").unwrap();
    let (a, b) = connect(&open(), &open(), &Options::default());
    let (mine, theirs) = (a.mr(LEN, 1), b.mr(LEN, 2));
    a.qp.post_write(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(1);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(LEN, 1));
}

#[test]
fn a_queue_pairs_number_is_not_given_to_the_next_device() {
    let numbers = |count: usize| -> Vec<Qpn> {
        let device = Device::open("127.0.160.4").unwrap();
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4).unwrap());
        let qps: Vec<_> = (0..count).map(|_| pd.create_qp(&cq, &cq).build().unwrap()).collect();
        qps.iter().map(|qp| qp.endpoint().qpn).collect()
    };
    let all: Vec<_> = [3, 2, 4].into_iter().flat_map(numbers).collect();
    assert_eq!(all.iter().map(|qpn| qpn.get()).collect::<BTreeSet<_>>().len(), 9, "{all:?}");
}

#[test]
fn processes_on_one_address_talk_and_one_that_is_killed_takes_nobody_with_it() {
    const TEST: &str = "processes_on_one_address_talk_and_one_that_is_killed_takes_nobody_with_it";
    const HERE: &str = "127.0.161.2";
    if is_other() {
        return offer_memory(HERE, LEN);
    }
    let (near, far) = (Device::open(HERE).unwrap(), Device::open("127.0.161.3").unwrap());
    let mut others: Vec<_> = (0..6).map(|_| Other::start(TEST, "other")).collect();
    let mut sides: Vec<_> = (0u8..)
        .zip(&mut others)
        // From the same address, and from another.
        .map(|(number, other)| reach(if number % 2 == 0 { &near } else { &far }, other))
        .collect();
    for (seed, (side, remote)) in (1u8..).zip(&sides) {
        check(side, *remote, seed);
    }
    others.remove(0).child.kill().unwrap();
    let (side, remote) = sides.remove(0);
    let mr = side.mr(LEN, 0);
    side.qp.post_write(9, &mr.slice(..), remote, SIGNALED).unwrap();
    assert_eq!(side.next().status, WcStatus::RetryExcErr);
    let mut new = Other::start(TEST, "other");
    let (side, remote) = reach(&near, &mut new);
    sides.push((side, remote));
    for (seed, (side, remote)) in (40u8..).zip(&sides) {
        check(side, *remote, seed);
    }
}

/// A process of another address is the first, so that it is the agent. It is killed while others are connected.
#[test]
fn connections_outlive_the_agent_and_new_ones_are_made() {
    const TEST: &str = "connections_outlive_the_agent_and_new_ones_are_made";
    const HERE: &str = "127.0.162.2";
    match role().as_deref() {
        None => {
            let mut scenario = Other::start_with(TEST, "scenario", &[("USERDMA_AGENT", "outlive")]);
            assert_eq!(scenario.line(), "done");
            // It ends those that it has started.
            assert!(scenario.child.wait().unwrap().success());
        }
        Some("agent") => {
            let _device = Device::open("127.0.162.3").unwrap();
            say("open");
            std::thread::park();
        }
        Some("scenario") => {
            let mut agent = Other::start(TEST, "agent");
            assert_eq!(agent.line(), "open");
            let device = Device::open(HERE).unwrap();
            let mut old = Other::start(TEST, "offer");
            let (old_side, old_remote) = reach(&device, &mut old);
            check(&old_side, old_remote, 1);
            agent.child.kill().unwrap();
            agent.child.wait().unwrap();
            check(&old_side, old_remote, 2);
            // More than the group has sockets for.
            let mut new: Vec<_> = (0..4).map(|_| Other::start(TEST, "offer")).collect();
            for (seed, other) in (3u8..).zip(&mut new) {
                let (side, remote) = reach(&device, other);
                check(&side, remote, seed);
            }
            check(&old_side, old_remote, 9);
            say("done");
        }
        Some(_) => offer_memory(HERE, LEN),
    }
}

/// Memory to be written and read: some packets, the last not full.
const LEN: usize = 70_000;
