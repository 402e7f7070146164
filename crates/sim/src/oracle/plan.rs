//! What a program is like: the network, the connections, how much happens.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use userdma_ibt::Window;
use userdma_mem::LinkCaps;
use userdma_verbs::{AccessFlags, AckTimeout, Mtu, Psn, QpCap, QpType, RnrTimer};

use crate::{ConnectOptions, Faults, PairOptions};

/// The settings of one program.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) pair: PairOptions,
    pub(super) conns: Vec<ConnPlan>,
    pub(super) cqs: Vec<CqPlan>,
    /// The shared receive queue of each host, if it has one.
    pub(super) srqs: [Option<SrqPlan>; 2],
    pub(super) phases: usize,
    /// Most work requests that a flow posts in a phase.
    pub(super) max_ops: usize,
    /// Bytes of each target that READs and WRITEs use.
    pub(super) data: usize,
    /// Probability that a packet's place in its batch is known to the receiver.
    pub(super) coalesced: f64,
    /// Probability that a receive is held back at each turn: the higher, the more RNR NAKs.
    pub(super) lazy_recv: f64,
    /// Probability that a completion queue is not polled at a turn.
    pub(super) lazy_poll: f64,
    /// Probability that a work request is signaled.
    pub(super) signaled: f64,
    /// Probability that it waits for READs and atomics before it.
    pub(super) fence: f64,
    /// Probability that a connection has a deliberate mistake in a phase.
    pub(super) mistake: f64,
    /// Probability that a side stops sending at a turn (SQD), or goes on again.
    pub(super) pause: f64,
    /// Probability that a host stands still at a turn.
    pub(super) stall: f64,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct ConnPlan {
    /// The hosts of its ends: two, or one and the same.
    pub(super) hosts: [usize; 2],
    pub(super) options: ConnectOptions,
    /// The protection domain of each end, by number on its host.
    pub(super) pds: [usize; 2],
    /// The completion queues of each end.
    pub(super) send_cqs: [usize; 2],
    pub(super) recv_cqs: [usize; 2],
    /// The targets of its ends are part of a region that other connections use as well.
    pub(super) shares_region: bool,
    /// Ends that take receives from their host's shared receive queue.
    pub(super) shares_srq: [bool; 2],
}

/// A completion queue.
#[derive(Clone, Debug)]
pub(super) struct CqPlan {
    pub(super) host: usize,
    /// Work queues that complete here.
    pub(super) queues: u32,
    /// Entries.
    pub(super) cqe: u32,
    /// It is too small for what is posted, and rarely polled.
    pub(super) is_tight: bool,
    /// Entries besides, for receives of a shared receive queue.
    pub(super) shared: u32,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct SrqPlan {
    pub(super) max_wr: u32,
    /// Its protection domain, by number on its host.
    pub(super) pd: usize,
}

impl Plan {
    pub(super) fn draw(rng: &mut SmallRng, seed: u64) -> Self {
        let ipv6 = rng.random_bool(0.5);
        let latency = Duration::from_nanos(rng.random_range(500..20_000));
        let link =
            LinkCaps { max_batch_bytes: 65_507, max_batch_packets: pick(rng, &[1, 3, 16, 64]), mtu: 65_536 };
        let ack_delay = Duration::from_nanos(pick(rng, &[0, 1_000, 10_000]));
        let max_window = pick(rng, &[Window::MIN, 32 << 10, Window::MAX]);
        let stall = pick(rng, &[0.0, 0.0, 0.02]);
        let faults = draw_faults(rng, ipv6, latency, stall > 0.0);
        let mut cqs = Vec::new();
        let mut conns = draw_conns(rng, &mut cqs);
        draw_sizes(rng, &mut cqs);
        let srqs = draw_srqs(seed, &mut conns, &mut cqs);
        let phases = rng.random_range(1..=4);
        // Up to 200 requests in all, or a few more.
        let most = 400 / (2 * conns.len() * phases);
        Self {
            pair: PairOptions { seed, ipv6, latency, faults, link, ack_delay, max_window },
            phases,
            max_ops: pick(rng, &[2, 6, 12, 24, 100]).min(most.max(1)),
            data: if conns.len() == 1 { pick(rng, &[48, 192]) << 10 } else { pick(rng, &[8, 24, 48]) << 10 },
            conns,
            cqs,
            srqs,
            coalesced: pick(rng, &[0.0, 0.5, 1.0]),
            lazy_recv: pick(rng, &[0.0, 0.5, 0.97]),
            lazy_poll: pick(rng, &[0.0, 0.5, 0.9]),
            signaled: pick(rng, &[0.1, 0.5, 1.0]),
            fence: pick(rng, &[0.0, 0.2, 0.8]),
            mistake: 0.15,
            pause: pick(rng, &[0.0, 0.0, 0.05]),
            stall,
        }
    }

    /// Whether packets can be lost or overtaken, so that an answer may not come when it should.
    pub(super) fn is_lossy(&self) -> bool {
        let faults = &self.pair.faults;
        faults.loss + faults.response_loss + faults.corrupt + faults.reorder + self.stall > 0.0
    }
}

/// A third of the networks is perfect, so that mistakes of the program alone are seen too. Corruption is for IPv6: over
/// IPv4 a flipped bit passes for a foreign identification once in 65,536 times.
fn draw_faults(rng: &mut SmallRng, ipv6: bool, latency: Duration, stalls: bool) -> Faults {
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
        // Twice as many, for a request and its answer, are fewer than the resends; a host that stands still takes some.
        max_hits: if stalls { 2 } else { 3 },
    }
}

fn draw_conns(rng: &mut SmallRng, cqs: &mut Vec<CqPlan>) -> Vec<ConnPlan> {
    let count = pick(rng, &[1, 1, 2, 2, 3, 4, 6]);
    // One for all that share theirs, on each host.
    let mut shared = [None; 2];
    (0..count)
        .map(|_| {
            let hosts = pick(rng, &[[0, 1], [0, 1], [0, 1], [1, 0], [0, 0], [1, 1]]);
            let mut send_cqs = [0; 2];
            let mut recv_cqs = [0; 2];
            for end in [0, 1] {
                (send_cqs[end], recv_cqs[end]) = draw_cqs(rng, cqs, hosts[end], &mut shared[hosts[end]]);
            }
            ConnPlan {
                hosts,
                options: draw_connect(rng),
                pds: [rng.random_range(0..PDS), rng.random_range(0..PDS)],
                send_cqs,
                recv_cqs,
                shares_region: rng.random_bool(0.5),
                shares_srq: [false; 2],
            }
        })
        .collect()
}

/// The completion queues of one end: one for both of its work queues, or two, of its own or shared.
fn draw_cqs(
    rng: &mut SmallRng,
    cqs: &mut Vec<CqPlan>,
    host: usize,
    shared: &mut Option<usize>,
) -> (usize, usize) {
    let mut new = |queues| {
        cqs.push(CqPlan { host, queues, cqe: 0, is_tight: false, shared: 0 });
        cqs.len() - 1
    };
    match rng.random_range(0..4) {
        0 | 1 => (new(1), new(1)),
        2 => {
            let both = new(2);
            (both, both)
        }
        _ => {
            let one = *shared.get_or_insert_with(|| new(0));
            cqs[one].queues += 2;
            (one, one)
        }
    }
}

/// How large the completion queues are: at least one entry for each work queue, so that nobody waits for ever; now and
/// then one of them is too small for a program that does not count.
fn draw_sizes(rng: &mut SmallRng, cqs: &mut [CqPlan]) {
    for cq in cqs.iter_mut() {
        cq.cqe = cq.queues * pick(rng, &[1, 4, 64, 256]);
    }
    if rng.random_bool(0.12) {
        let at = rng.random_range(0..cqs.len());
        cqs[at].is_tight = true;
        cqs[at].cqe = rng.random_range(1..=8);
    }
}

/// Shared receive queues, and who uses them. They have dice of their own: the rest of a program does not depend on them. A
/// completion queue that is too small loses completions, and with them places of a shared queue, so these do not meet.
fn draw_srqs(seed: u64, conns: &mut [ConnPlan], cqs: &mut [CqPlan]) -> [Option<SrqPlan>; 2] {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x0073_6861_7265_6421);
    let srqs = [0, 1].map(|_| {
        let srq = SrqPlan { max_wr: pick(&mut rng, &[1, 3, 16]), pd: rng.random_range(0..PDS) };
        rng.random_bool(0.4).then_some(srq)
    });
    for conn in conns {
        for end in [0, 1] {
            let cq = &mut cqs[conn.recv_cqs[end]];
            if let Some(srq) = srqs[conn.hosts[end]]
                && !cq.is_tight
                && rng.random_bool(0.7)
            {
                conn.shares_srq[end] = true;
                cq.shared = srq.max_wr;
            }
        }
    }
    srqs
}

fn draw_connect(rng: &mut SmallRng) -> ConnectOptions {
    let max_send_wr = pick(rng, &[1, 4, 16, 64]);
    let max_recv_wr = pick(rng, &[1, 4, 64]);
    let psn = draw_psns(rng);
    let every = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let lacking = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    let lacking = if rng.random_bool(0.15) { pick(rng, &lacking) } else { AccessFlags::empty() };
    ConnectOptions {
        service: QpType::Rc,
        cap: QpCap {
            max_send_wr,
            max_recv_wr,
            max_send_sge: rng.random_range(1..=4),
            max_recv_sge: rng.random_range(1..=4),
            max_inline_data: pick(rng, &[0, 64, 512]),
        },
        sq_sig_all: rng.random_bool(0.2),
        cqe: 1,
        mtu: pick(rng, &Mtu::ALL),
        psn,
        access: every - lacking,
        rd_atomic: pick(rng, &[1, 2, 4, 16]),
        timeout: AckTimeout::new(rng.random_range(7..=9)).unwrap(),
        retry_cnt: 7,
        rnr_retry: if rng.random_bool(0.1) { rng.random_range(0..7) } else { 7 },
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

/// Protection domains of each host.
pub(super) const PDS: usize = 2;
