//! Two hosts and the network between them, stepped from event to event on a virtual clock.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use userdma_ibt::Window;
use userdma_mem::{Frame, LinkCaps};
use userdma_nic::ShardConfig;
use userdma_verbs::{
    AccessFlags, AckTimeout, AhAttr, GlobalRoute, Mtu, Psn, QpAttr, QpAttrMask as M, QpCap, QpState, QpType,
    Qpn, RnrTimer, Time,
};

use crate::{Direction, Faults, Host, Network, QpEnd, Transit};

/// Two hosts, 0 and 1.
#[derive(Debug)]
pub struct Pair {
    /// The hosts.
    pub hosts: [Host; 2],
    /// The network.
    pub net: Network,
    now: Time,
    stalls: [Stall; 2],
}

/// A host that does not drive for a while, as a process that is not scheduled.
#[derive(Debug, Default)]
struct Stall {
    until: Option<Time>,
    /// What has arrived meanwhile is looked at before the timers are.
    packets_first: bool,
    backlog: VecDeque<Transit>,
}

/// How a pair is made.
#[derive(Clone, Copy, Debug)]
pub struct PairOptions {
    /// What everything random is drawn from.
    pub seed: u64,
    /// IPv6 addresses instead of IPv4.
    pub ipv6: bool,
    /// How long a packet takes.
    pub latency: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// What the links can do.
    pub link: LinkCaps,
    /// How long an owed acknowledgement may wait.
    pub ack_delay: Duration,
    /// Bytes that may be under way to one destination, at most.
    pub max_window: u32,
}

impl Default for PairOptions {
    /// A perfect IPv4 network, 5 µs, batches of 64 packets.
    fn default() -> Self {
        Self {
            seed: 1,
            ipv6: false,
            latency: Duration::from_micros(5),
            faults: Faults::NONE,
            link: LinkCaps { max_batch_bytes: 65_507, max_batch_packets: 64, mtu: 65_536 },
            ack_delay: Duration::from_micros(10),
            max_window: Window::MAX,
        }
    }
}

/// How a connection is made; both sides alike except for their first PSNs.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// The transport service: a reliable or an unreliable connection.
    pub service: QpType,
    /// Sizes of the queues.
    pub cap: QpCap,
    /// Every send completes.
    pub sq_sig_all: bool,
    /// Entries of each completion queue.
    pub cqe: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// First PSN of each side.
    pub psn: [Psn; 2],
    /// What peers may do.
    pub access: AccessFlags,
    /// READs and atomics outstanding.
    pub rd_atomic: u8,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Resends.
    pub retry_cnt: u8,
    /// Resends after RNR.
    pub rnr_retry: u8,
    /// What an RNR NAK asks for.
    pub min_rnr_timer: RnrTimer,
}

impl Default for ConnectOptions {
    /// A reliable connection, 64 requests of 4 elements a queue, MTU 1024, every right, a timeout of 1 ms, 7 retries, RNR for ever.
    fn default() -> Self {
        Self {
            service: QpType::Rc,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            sq_sig_all: false,
            cqe: 256,
            mtu: Mtu::Mtu1024,
            psn: [Psn::new(100), Psn::new(0xff_fff0)],
            access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
            rd_atomic: 4,
            timeout: AckTimeout::new(8).expect("below 32"),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(5).expect("below 32"),
        }
    }
}

impl Pair {
    /// Two hosts without connections.
    pub fn new(options: &PairOptions) -> Self {
        let host = |index: u16| {
            let config = ShardConfig {
                seed: options.seed ^ u64::from(index),
                slot: index + 1,
                links: vec![options.link],
                ack_delay_ns: u64::try_from(options.ack_delay.as_nanos()).unwrap_or(u64::MAX),
                max_window: options.max_window,
                ..ShardConfig::default()
            };
            Host::new(address(options.ipv6, index), options.link, config)
        };
        Self {
            hosts: [host(0), host(1)],
            net: Network::new(options.seed, options.latency, options.faults),
            now: Time::from_nanos(1_000_000),
            stalls: Default::default(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A connection in RTS on both sides, each with its own completion queues.
    pub fn connect(&mut self, options: &ConnectOptions) -> [QpEnd; 2] {
        let ends = [self.create(0, options), self.create(1, options)];
        self.join(&ends, options);
        ends
    }

    /// Takes two queue pairs in RESET to RTS, connected to each other.
    pub fn join(&mut self, ends: &[QpEnd; 2], options: &ConnectOptions) {
        self.join_between([0, 1], ends, options);
    }

    /// The same with the hosts that the ends are on, which may be one and the same.
    pub fn join_between(&mut self, hosts: [usize; 2], ends: &[QpEnd; 2], options: &ConnectOptions) {
        for end in [0, 1] {
            for (state, mask) in UP {
                let attr = self.attr_to(end, hosts[1 - end], ends[1 - end].qp.qpn(), options, state);
                let mask = mask_of(options.service, mask);
                self.modify(hosts[end], ends[end].qp.qpn(), &attr, mask);
            }
        }
    }

    /// Takes a queue pair to RESET, where it forgets everything.
    pub fn reset(&mut self, side: usize, qpn: Qpn) {
        self.modify(side, qpn, &QpAttr::default(), M::STATE);
    }

    /// A queue pair in RESET with completion queues of its own.
    pub fn create(&mut self, side: usize, options: &ConnectOptions) -> QpEnd {
        self.hosts[side].create(options)
    }

    /// The attributes with which `side` goes to `state` as part of a connection to the peer's QP `dest`.
    pub fn attr(&self, side: usize, dest: Qpn, options: &ConnectOptions, state: QpState) -> QpAttr {
        self.attr_to(side, 1 - side, dest, options, state)
    }

    /// The attributes with which the connection's end `end` (0 or 1) goes to `state` as the peer of QP `dest` on `host`.
    fn attr_to(
        &self,
        end: usize,
        host: usize,
        dest: Qpn,
        options: &ConnectOptions,
        state: QpState,
    ) -> QpAttr {
        attributes(end, self.hosts[host].address, dest, options, state)
    }

    /// Modifies a queue pair; panics if it is refused.
    pub fn modify(&mut self, side: usize, qpn: Qpn, attr: &QpAttr, mask: M) {
        let result = self.hosts[side].shard.modify_qp(self.now, qpn, attr, mask);
        result.unwrap_or_else(|error| panic!("modify of {qpn} to {:?}: {error}", attr.qp_state));
    }

    /// Takes a queue pair to ERR, so that everything posted is flushed.
    pub fn fail(&mut self, side: usize, qpn: Qpn) {
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        self.modify(side, qpn, &attr, M::STATE);
    }

    /// Lets both devices do what can be done now, then goes to the next point in time at which something happens, and
    /// delivers what arrives there. False if nothing is going to happen.
    pub fn step(&mut self) -> bool {
        self.progress();
        let Some(next) = self.next() else { return false };
        self.now = self.now.max(next);
        self.wake();
        self.deliver();
        true
    }

    /// Steps until nothing is going to happen.
    ///
    /// # Panics
    /// After [`Pair::MAX_STEPS`] steps: something goes on for ever.
    pub fn drive(&mut self) {
        for _ in 0..Self::MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        let trace = self.net.take_trace();
        panic!("no end after {} steps; {:?}\n{}", Self::MAX_STEPS, self.net, trace.join("\n"));
    }

    /// Steps of [`Pair::drive`] at most.
    pub const MAX_STEPS: usize = 2_000_000;

    /// Does everything that happens up to `time`, which becomes the time.
    pub fn drive_until(&mut self, time: Time) {
        self.progress();
        while self.next().is_some_and(|next| next <= time) {
            self.step();
            self.progress();
        }
        self.now = self.now.max(time);
    }

    /// As [`Pair::drive_until`], from now on for this long.
    pub fn drive_for(&mut self, duration: Duration) {
        self.drive_until(self.now + duration);
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let host = |side: usize| match self.stalls[side].until {
            Some(until) => Some(until),
            None => self.hosts[side].shard.poll_timeout(),
        };
        [host(0), host(1), self.net.next()].into_iter().flatten().min()
    }

    /// Lets a host neither look at packets nor at its timers for this long, nor send; with `packets_first` it looks at
    /// what has arrived before it looks at the timers when it goes on.
    pub fn stall(&mut self, side: usize, duration: Duration, packets_first: bool) {
        self.stalls[side].until = Some(self.now + duration);
        self.stalls[side].packets_first = packets_first;
    }

    /// Whether a host stands still.
    pub fn is_stalled(&self, side: usize) -> bool {
        self.stalls[side].until.is_some()
    }

    /// Hosts whose time has come go on.
    fn wake(&mut self) {
        for side in [0, 1] {
            if self.stalls[side].until.is_none_or(|until| until > self.now) {
                continue;
            }
            self.stalls[side].until = None;
            if !self.stalls[side].packets_first {
                self.progress();
            }
            while let Some(transit) = self.stalls[side].backlog.pop_front() {
                self.hand_over(&transit);
            }
        }
    }

    /// Lets owed acknowledgements of a host leave, as a host does with a post or an empty poll.
    pub fn release_acks(&mut self, side: usize) {
        self.hosts[side].shard.release_acks();
    }

    /// Doorbells, timeouts that are due, and everything that wants to be sent.
    pub fn progress(&mut self) {
        for side in [0, 1].into_iter().filter(|&side| self.stalls[side].until.is_none()) {
            let addresses = [self.hosts[0].address, self.hosts[1].address];
            let host = &mut self.hosts[side];
            if host.is_rung() {
                host.shard.handle_doorbells();
            }
            if host.shard.poll_timeout().is_some_and(|at| at <= self.now) {
                host.shard.handle_timeout(self.now);
            }
            while host.poll_transmit(self.now) {
                let is_own = host.batch.route().is_some_and(|route| route.remote == addresses[side]);
                let direction = Direction { from: side, to: if is_own { side } else { 1 - side } };
                self.net.send(self.now, direction, &host.batch);
            }
            host.collect();
        }
    }

    fn deliver(&mut self) {
        while let Some(transit) = self.net.pop_due(self.now) {
            let stall = &mut self.stalls[transit.direction.to];
            if stall.until.is_some() {
                stall.backlog.push_back(transit);
            } else {
                self.hand_over(&transit);
            }
        }
    }

    fn hand_over(&mut self, transit: &Transit) {
        let host = &mut self.hosts[transit.direction.to];
        host.shard.handle_frame(self.now, Frame { bytes: &transit.bytes, meta: transit.meta });
        host.collect();
    }
}

/// The attributes with which side 0 or 1 of a connection goes to `state`, its peer being QP `dest` at `address`.
pub(crate) fn attributes(
    side: usize,
    address: IpAddr,
    dest: Qpn,
    options: &ConnectOptions,
    state: QpState,
) -> QpAttr {
    let grh = GlobalRoute { dgid: address.into(), ..GlobalRoute::default() };
    QpAttr {
        qp_state: state,
        path_mtu: options.mtu,
        rq_psn: options.psn[1 - side],
        sq_psn: options.psn[side],
        dest_qp_num: dest,
        qp_access_flags: options.access,
        ah_attr: AhAttr { grh, sl: 0, port_num: 1 },
        max_rd_atomic: options.rd_atomic,
        max_dest_rd_atomic: options.rd_atomic,
        min_rnr_timer: options.min_rnr_timer,
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        ..QpAttr::default()
    }
}

fn address(ipv6: bool, index: u16) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, index + 1).into()
    } else {
        // Two hosts.
        Ipv4Addr::new(10, 0, 0, if index == 0 { 1 } else { 2 }).into()
    }
}

/// The way from RESET to RTS.
pub(crate) const UP: [(QpState, M); 3] = [(QpState::Init, INIT), (QpState::Rtr, RTR), (QpState::Rts, RTS)];

/// What RESET to INIT takes.
const INIT: M = M::STATE.union(M::PKEY_INDEX).union(M::PORT).union(M::ACCESS_FLAGS);
/// What INIT to RTR takes.
const RTR: M = M::STATE
    .union(M::AV)
    .union(M::PATH_MTU)
    .union(M::DEST_QPN)
    .union(M::RQ_PSN)
    .union(M::MAX_DEST_RD_ATOMIC)
    .union(M::MIN_RNR_TIMER);
/// What RTR to RTS takes.
const RTS: M = M::STATE
    .union(M::TIMEOUT)
    .union(M::RETRY_CNT)
    .union(M::RNR_RETRY)
    .union(M::SQ_PSN)
    .union(M::MAX_QP_RD_ATOMIC);
/// What a transition of [`UP`] takes with this service.
pub(crate) fn mask_of(service: QpType, mask: M) -> M {
    match service {
        QpType::Uc => mask.difference(OF_RC),
        // To INIT the key, which connections do not have.
        QpType::Ud if mask.contains(M::PORT) => mask.difference(OF_CONNECTIONS).union(M::QKEY),
        QpType::Ud => mask.difference(OF_RC.union(OF_CONNECTIONS)),
        QpType::Rc | QpType::XrcSend | QpType::XrcRecv => mask,
    }
}

/// What only connections take.
const OF_CONNECTIONS: M = M::ACCESS_FLAGS.union(M::AV).union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);

/// What an unreliable connection does not take.
const OF_RC: M = M::MAX_DEST_RD_ATOMIC
    .union(M::MIN_RNR_TIMER)
    .union(M::TIMEOUT)
    .union(M::RETRY_CNT)
    .union(M::RNR_RETRY)
    .union(M::MAX_QP_RD_ATOMIC);
