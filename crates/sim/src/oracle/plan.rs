//! What a program is like: the network, the connections, how much happens.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use userdma_ibt::Window;
use userdma_mem::LinkCaps;
use userdma_verbs::{AccessFlags, AckTimeout, Mtu, Psn, QpCap, RnrTimer};

use crate::{ConnectOptions, Faults, PairOptions};

/// The settings of one program.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) pair: PairOptions,
    pub(super) connect: ConnectOptions,
    pub(super) conns: usize,
    pub(super) phases: usize,
    /// Most work requests that a flow posts in a phase.
    pub(super) max_ops: usize,
    /// Probability that a packet's place in its batch is known to the receiver.
    pub(super) coalesced: f64,
    /// Probability that a receive is held back at each turn: the higher, the more RNR NAKs.
    pub(super) lazy_recv: f64,
    /// Probability that a work request is signaled.
    pub(super) signaled: f64,
    /// Probability that it waits for READs and atomics before it.
    pub(super) fence: f64,
    /// Probability that a connection has a deliberate mistake in a phase.
    pub(super) mistake: f64,
    /// Probability that a side stops sending at a turn (SQD), or goes on again.
    pub(super) pause: f64,
}

impl Plan {
    pub(super) fn draw(rng: &mut SmallRng, seed: u64) -> Self {
        let ipv6 = rng.random_bool(0.5);
        let latency = Duration::from_nanos(rng.random_range(500..20_000));
        let link =
            LinkCaps { max_batch_bytes: 65_507, max_batch_packets: pick(rng, &[1, 3, 16, 64]), mtu: 65_536 };
        let ack_delay = Duration::from_nanos(pick(rng, &[0, 1_000, 10_000]));
        let max_window = pick(rng, &[Window::MIN, 32 << 10, Window::MAX]);
        let faults = draw_faults(rng, ipv6, latency);
        Self {
            pair: PairOptions { seed, ipv6, latency, faults, link, ack_delay, max_window },
            connect: draw_connect(rng),
            conns: rng.random_range(1..=2),
            phases: rng.random_range(1..=4),
            max_ops: pick(rng, &[2, 6, 12, 24]),
            coalesced: pick(rng, &[0.0, 0.5, 1.0]),
            lazy_recv: pick(rng, &[0.0, 0.5, 0.97]),
            signaled: pick(rng, &[0.1, 0.5, 1.0]),
            fence: pick(rng, &[0.0, 0.2, 0.8]),
            mistake: 0.15,
            pause: pick(rng, &[0.0, 0.0, 0.05]),
        }
    }

    /// Whether packets can be lost or overtaken, so that an answer may not come when it should.
    pub(super) fn is_lossy(&self) -> bool {
        let faults = &self.pair.faults;
        faults.loss + faults.response_loss + faults.corrupt + faults.reorder > 0.0
    }
}

/// A third of the networks is perfect, so that mistakes of the program alone are seen too. Corruption is for IPv6: over
/// IPv4 a flipped bit passes for a foreign identification once in 65,536 times.
fn draw_faults(rng: &mut SmallRng, ipv6: bool, latency: Duration) -> Faults {
    let level = pick(rng, &[0.0, 0.01, 0.05]);
    let mut probability = |most: f64| if rng.random_bool(0.6) { level * most } else { 0.0 };
    Faults {
        loss: probability(1.0),
        response_loss: probability(1.5),
        duplicate: probability(1.0),
        reorder: probability(2.0),
        corrupt: if ipv6 { probability(1.0) } else { 0.0 },
        // Now and then longer than the timeout, so that packets come that nobody remembers.
        hold: pick(rng, &[latency * 6, latency * 6, Duration::from_millis(3)]),
        // Twice as many, for a request and its answer, are fewer than the resends.
        max_hits: 3,
    }
}

fn draw_connect(rng: &mut SmallRng) -> ConnectOptions {
    let max_send_wr = pick(rng, &[1, 4, 16, 64]);
    let max_recv_wr = pick(rng, &[1, 4, 64]);
    let psn = draw_psns(rng);
    ConnectOptions {
        cap: QpCap {
            max_send_wr,
            max_recv_wr,
            max_send_sge: rng.random_range(1..=4),
            max_recv_sge: rng.random_range(1..=4),
            max_inline_data: pick(rng, &[0, 64, 512]),
        },
        sq_sig_all: rng.random_bool(0.2),
        cqe: 512,
        mtu: pick(rng, &Mtu::ALL),
        psn,
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
        rd_atomic: pick(rng, &[1, 2, 4, 16]),
        timeout: AckTimeout::new(rng.random_range(7..=9)).unwrap(),
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: RnrTimer::new(rng.random_range(1..=14)).unwrap(),
    }
}

/// First PSNs of both sides, half of them shortly before the wrap.
pub(super) fn draw_psns(rng: &mut SmallRng) -> [Psn; 2] {
    [0, 1].map(|_| {
        let back = rng.random_range(0..64);
        if rng.random_bool(0.5) { Psn::new(0).sub(back) } else { Psn::new(rng.random()) }
    })
}

pub(super) fn pick<T: Copy>(rng: &mut SmallRng, from: &[T]) -> T {
    *from.choose(rng).unwrap()
}
