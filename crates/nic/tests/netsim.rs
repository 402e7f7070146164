//! Long transfers over a network that loses packets: what they cost in resends and waiting. Virtual time, fixed seeds.

#![allow(clippy::expect_used, reason = "a test")]

use std::time::Duration;

use userdma_sim::{ConnectOptions, Faults, Pair, PairOptions};
use userdma_verbs::{AccessFlags, AckTimeout, Mtu, SendOp, WcStatus};

const LEN: u32 = 4 << 20;

/// What a transfer of [`LEN`] bytes cost.
#[derive(Debug)]
struct Cost {
    /// Packets of both directions, for each packet that the payload needs.
    packets: f64,
    /// Local ACK timeouts.
    timeouts: u64,
    /// Times that the sender went back, timeouts included.
    resends: u64,
    /// Packets lost.
    lost: u64,
}

fn transfer(mtu: Mtu, loss: f64, read: bool) -> Cost {
    let faults = Faults { loss, ..Faults::NONE };
    let latency = Duration::from_micros(10);
    let mut pair = Pair::new(&PairOptions { faults, latency, ipv6: true, ..PairOptions::default() });
    let timeout = AckTimeout::new(12).expect("below 32");
    let [a, _b] = pair.connect(&ConnectOptions { mtu, timeout, rd_atomic: 16, ..ConnectOptions::default() });
    let local = pair.hosts[0].memory(LEN as usize, AccessFlags::LOCAL_WRITE);
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let remote = pair.hosts[1].memory(LEN as usize, rights);
    let op = if read { SendOp::Read(remote.remote(0)) } else { SendOp::Write(remote.remote(0)) };
    pair.hosts[0].send(&a, 1, op, local.sge(0, LEN));
    pair.drive();
    assert_eq!(a.poll_send().iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success]);
    let (stats, net) = (pair.hosts[0].shard.stats(), pair.net.stats());
    Cost {
        packets: net.sent as f64 / f64::from(LEN / mtu.bytes()),
        timeouts: stats.local_ack_timeout_err,
        resends: stats.completer_retry_err,
        lost: net.lost,
    }
}

#[test]
fn a_transfer_over_a_perfect_network_sends_each_packet_once_and_waits_for_nothing() {
    for mtu in Mtu::ALL {
        for read in [false, true] {
            let cost = transfer(mtu, 0.0, read);
            assert!(cost.packets < 1.1 && cost.resends == 0, "{mtu:?} read {read}: {cost:?}");
        }
    }
}

#[test]
fn loss_costs_a_few_resends_for_each_lost_packet_and_rarely_a_timeout() {
    for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
        for (loss, most_packets) in [(0.001, 1.15), (0.01, 1.5), (0.03, 2.2)] {
            for read in [false, true] {
                let cost = transfer(mtu, loss, read);
                println!("{mtu:?} loss {loss} read {read}: {cost:?}");
                assert!(cost.packets < most_packets, "{mtu:?} loss {loss} read {read}: {cost:?}");
                assert!(
                    cost.resends <= cost.lost + cost.lost / 4,
                    "{mtu:?} loss {loss} read {read}: {cost:?}"
                );
                assert!(cost.timeouts <= 1 + cost.lost / 2, "{mtu:?} loss {loss} read {read}: {cost:?}");
            }
        }
    }
}
