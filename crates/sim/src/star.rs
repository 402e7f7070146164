//! Hosts around a switch, each with a cable of some speed: where packets queue, and are lost when the queue is full.
//!
//! A packet leaves its host when the cable is free, takes its time on it, crosses the switch, waits in the queue of the
//! receiver's port and takes its time on that cable. A port's queue holds so many bytes; what does not fit is lost. Hosts
//! are infinitely fast. Besides, packets are lost by chance.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_ibt::Window;
use userdma_mem::{Frame, FrameMeta, LinkCaps};
use userdma_nic::ShardConfig;
use userdma_verbs::Time;

use crate::host::{Host, QpEnd};
use crate::net::arrival;
use crate::pair::{ConnectOptions, UP, attributes};
use crate::schedule::Schedule;

/// Hosts and the switch.
#[derive(Debug)]
pub struct Star {
    /// The hosts.
    pub hosts: Vec<Host>,
    options: StarOptions,
    ports: Vec<Port>,
    events: Schedule<Event>,
    rng: SmallRng,
    now: Time,
    stats: StarStats,
}

/// How a star is made.
#[derive(Clone, Copy, Debug)]
pub struct StarOptions {
    /// What is drawn from.
    pub seed: u64,
    /// Number of hosts: 2 ..= 200.
    pub hosts: u8,
    /// From one host to another and back, without queues and the time on the cables.
    pub round_trip: Duration,
    /// Speed of each cable, both ways.
    pub bits_per_second: u64,
    /// Bytes that a port of the switch queues for its host.
    pub queue_bytes: u64,
    /// Probability that a packet is lost though there is room.
    pub loss: f64,
    /// Bytes that may be under way to one destination, at most.
    pub max_window: u32,
}

impl Default for StarOptions {
    /// Two hosts, 10 Gbit/s, 20 µs, queues of 512 KiB, no loss.
    fn default() -> Self {
        Self {
            seed: 1,
            hosts: 2,
            round_trip: Duration::from_micros(20),
            bits_per_second: 10_000_000_000,
            queue_bytes: 512 << 10,
            loss: 0.0,
            max_window: Window::MAX,
        }
    }
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StarStats {
    /// Packets that were sent.
    pub sent: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because a queue was full.
    pub overflowed: u64,
}

/// When a host's cable is free, to the switch and from it.
#[derive(Clone, Copy, Debug)]
struct Port {
    up_free: Time,
    down_free: Time,
}

/// Where a packet is.
#[derive(Debug)]
enum Event {
    /// It reaches the switch.
    AtSwitch(Parcel),
    /// It reaches its host.
    AtHost(Parcel),
}

#[derive(Debug)]
struct Parcel {
    to: usize,
    bytes: Vec<u8>,
    meta: FrameMeta,
}

impl Star {
    /// Hosts without connections.
    pub fn new(options: &StarOptions) -> Self {
        let start = Time::from_nanos(1_000_000);
        let hosts = (0..options.hosts).map(|index| host(options, index)).collect::<Vec<_>>();
        Self {
            ports: vec![Port { up_free: start, down_free: start }; hosts.len()],
            hosts,
            options: *options,
            events: Schedule::new(),
            rng: SmallRng::seed_from_u64(options.seed),
            now: start,
            stats: StarStats::default(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What the network did so far.
    pub fn stats(&self) -> StarStats {
        self.stats
    }

    /// A reliable connection between two hosts, in RTS on both sides, each with its own completion queues.
    pub fn connect(&mut self, hosts: [usize; 2], options: &ConnectOptions) -> [QpEnd; 2] {
        let ends = hosts.map(|host| self.hosts[host].create(options));
        for side in [0, 1] {
            let (peer, dest) = (self.hosts[hosts[1 - side]].address, ends[1 - side].qp.qpn());
            for (state, mask) in UP {
                let attr = attributes(side, peer, dest, options, state);
                let shard = &mut self.hosts[hosts[side]].shard;
                shard.modify_qp(self.now, ends[side].qp.qpn(), &attr, mask).expect("a legal transition");
            }
        }
        ends
    }

    /// Lets every device do what can be done now, then goes to the next point in time at which something happens, and does
    /// it. False if nothing is going to happen.
    pub fn step(&mut self) -> bool {
        (0..self.hosts.len()).for_each(|host| self.progress(host));
        let timeouts = self.hosts.iter().filter_map(|host| host.shard.poll_timeout());
        let Some(next) = timeouts.chain(self.events.next()).min() else { return false };
        self.now = self.now.max(next);
        while let Some(event) = self.events.pop_due(self.now) {
            match event {
                Event::AtSwitch(parcel) => self.forward(parcel),
                Event::AtHost(parcel) => self.deliver(&parcel),
            }
        }
        true
    }

    fn progress(&mut self, from: usize) {
        let host = &mut self.hosts[from];
        if host.is_rung() {
            host.shard.handle_doorbells();
        }
        if host.shard.poll_timeout().is_some_and(|at| at <= self.now) {
            host.shard.handle_timeout(self.now);
        }
        while self.hosts[from].poll_transmit(self.now) {
            self.send(from);
        }
        self.hosts[from].collect();
    }

    /// Puts the packets of the host's batch on its cable.
    fn send(&mut self, from: usize) {
        let batch = &self.hosts[from].batch;
        let Some(route) = batch.route() else { return };
        let Some(to) = self.hosts.iter().position(|host| host.address == route.remote) else { return };
        for (segment, bytes) in (0..).zip(batch.packets()) {
            self.stats.sent += 1;
            let time = time_on_cable(&self.options, bytes.len());
            let port = &mut self.ports[from];
            port.up_free = port.up_free.max(self.now).plus_nanos(time);
            if self.options.loss > 0.0 && self.rng.random_bool(self.options.loss) {
                self.stats.lost += 1;
                continue;
            }
            let meta = arrival(route, segment);
            let parcel = Parcel { to, bytes: bytes.to_vec(), meta };
            self.events.push(port.up_free + self.options.round_trip / 4, Event::AtSwitch(parcel));
        }
    }

    /// Queues a packet for its host.
    fn forward(&mut self, parcel: Parcel) {
        let port = &mut self.ports[parcel.to];
        let wait = port.down_free.since(self.now).as_nanos();
        let queued = wait * u128::from(self.options.bits_per_second) / 8_000_000_000;
        if queued + parcel.bytes.len() as u128 > u128::from(self.options.queue_bytes) {
            self.stats.overflowed += 1;
            return;
        }
        let time = time_on_cable(&self.options, parcel.bytes.len());
        port.down_free = port.down_free.max(self.now).plus_nanos(time);
        self.events.push(port.down_free + self.options.round_trip / 4, Event::AtHost(parcel));
    }

    fn deliver(&mut self, parcel: &Parcel) {
        let host = &mut self.hosts[parcel.to];
        host.shard.handle_frame(self.now, Frame { bytes: &parcel.bytes, meta: parcel.meta });
        host.collect();
    }
}

fn host(options: &StarOptions, index: u8) -> Host {
    let link = LinkCaps { max_batch_bytes: 65_507, max_batch_packets: 64, mtu: 65_536 };
    let config = ShardConfig {
        seed: options.seed ^ u64::from(index),
        slot: u16::from(index) + 1,
        links: vec![link],
        max_window: options.max_window,
        ..ShardConfig::default()
    };
    Host::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index + 1)), link, config)
}

/// Nanoseconds that a packet takes on the cable, with everything around it.
fn time_on_cable(options: &StarOptions, len: usize) -> u64 {
    (len as u64 + AROUND) * 8_000_000_000 / options.bits_per_second
}

/// Bytes around a packet on Ethernet: preamble 8, header 14, IPv4 20, UDP 8, check 4, gap 12.
const AROUND: u64 = 66;
