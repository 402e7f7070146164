//! The network between two hosts: latency, and faults drawn from a seed or named by the test.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_mem::{FrameMeta, Route, TxBatch};
use userdma_verbs::{Psn, Qpn, Time};
use userdma_wire::Packet;

use crate::schedule::Schedule;

/// How bad the network is. Probabilities are for each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a response (acknowledgement, READ or atomic response) is lost, besides `loss`.
    pub response_loss: f64,
    /// Probability that a packet comes twice.
    pub duplicate: f64,
    /// Probability that a packet is held back for up to `hold`.
    pub reorder: f64,
    /// Probability that a bit of a packet is turned over.
    pub corrupt: f64,
    /// How long a packet that is held back stays away at most.
    pub hold: Duration,
    /// How often the same packet (by PSN) is lost, corrupted or held back at most: with less than half the resends
    /// that a queue pair has, it gets through.
    pub max_hits: u8,
}

impl Faults {
    /// A perfect network.
    pub const NONE: Self = Self {
        loss: 0.0,
        response_loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        hold: Duration::ZERO,
        max_hits: u8::MAX,
    };
}

/// Who sends to whom, by index of the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Direction {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Transit {
    /// From whom to whom.
    pub direction: Direction,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
    /// What the receiver's socket will say of it.
    pub meta: FrameMeta,
}

impl Transit {
    /// The packet; `None` if it cannot be read.
    pub fn packet(&self) -> Option<Packet<'_>> {
        Packet::parse(&self.bytes).ok()
    }
}

/// What makes a packet the same packet, however often it is sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Hit {
    to: usize,
    qpn: Qpn,
    psn: Psn,
    is_response: bool,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice, the second time after as long again.
    Duplicate,
    /// It arrives with a bit turned over.
    Corrupt,
    /// It arrives later by this.
    Delay(Duration),
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NetStats {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets that were held back.
    pub delayed: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
}

type Filter = Box<dyn FnMut(&Transit) -> Fate>;

/// The network.
pub struct Network {
    /// How long a packet takes.
    pub latency: Duration,
    /// What goes wrong by chance.
    pub faults: Faults,
    /// Probability that the receiver's kernel tells a packet's place in its batch; else it comes as if alone.
    pub coalesced: f64,
    rng: SmallRng,
    filter: Option<Filter>,
    in_flight: Schedule<Transit>,
    /// How often packets were hit.
    hits: HashMap<Hit, u8>,
    /// The faults that chance has drawn so far.
    faults_drawn: u64,
    /// Of these, by number, the only ones that happen.
    only_faults: Option<BTreeSet<u64>>,
    stats: NetStats,
    trace: Option<Vec<String>>,
}

impl Network {
    pub(crate) fn new(seed: u64, latency: Duration, faults: Faults) -> Self {
        Self {
            latency,
            faults,
            coalesced: 1.0,
            rng: SmallRng::seed_from_u64(seed),
            filter: None,
            in_flight: Schedule::new(),
            hits: HashMap::new(),
            faults_drawn: 0,
            only_faults: None,
            stats: NetStats::default(),
            trace: None,
        }
    }

    /// Asks `filter` for the fate of each packet from now on, instead of chance.
    pub fn set_filter(&mut self, filter: impl FnMut(&Transit) -> Fate + 'static) {
        self.filter = Some(Box::new(filter));
    }

    /// Leaves the fate of packets to chance again.
    pub fn clear_filter(&mut self) {
        self.filter = None;
    }

    /// Of the faults that chance draws, counted from 0, lets only these happen.
    pub fn keep_faults(&mut self, numbers: BTreeSet<u64>) {
        self.only_faults = Some(numbers);
    }

    /// How many faults chance has drawn.
    pub fn faults_drawn(&self) -> u64 {
        self.faults_drawn
    }

    /// Keeps a line for every packet and what became of it.
    pub fn start_trace(&mut self) {
        self.trace.get_or_insert_default();
    }

    /// The lines so far, oldest first; they are forgotten here.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A line of the caller's own among the packets.
    pub fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9} us  {}", micros(now), line()));
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> NetStats {
        self.stats
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.in_flight.next()
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Transit> {
        self.in_flight.pop_due(now)
    }

    /// Puts every packet of a batch on its way.
    pub(crate) fn send(&mut self, now: Time, direction: Direction, batch: &TxBatch) {
        let Some(route) = batch.route() else { return };
        for (index, bytes) in batch.packets().enumerate() {
            let segment = if self.chance(self.coalesced) { u16::try_from(index).unwrap_or(0) } else { 0 };
            let meta = arrival(route, segment);
            self.carry(now, Transit { direction, bytes: bytes.to_vec(), meta });
        }
    }

    /// Puts a packet that a test made on its way.
    pub fn carry(&mut self, now: Time, mut transit: Transit) {
        let fate = match &mut self.filter {
            Some(filter) => filter(&transit),
            None => self.draw_counted(&transit),
        };
        self.stats.sent += 1;
        self.note(now, || describe(&transit, fate));
        let at = now + self.latency;
        match fate {
            Fate::Deliver => self.in_flight.push(at, transit),
            Fate::Drop => self.stats.lost += 1,
            Fate::Duplicate => {
                self.stats.duplicated += 1;
                self.in_flight.push(at, transit.clone());
                self.in_flight.push(at + self.latency, transit);
            }
            Fate::Corrupt => {
                self.stats.corrupted += 1;
                self.corrupt(&mut transit.bytes);
                self.in_flight.push(at, transit);
            }
            Fate::Delay(more) => {
                self.stats.delayed += 1;
                self.in_flight.push(at + more, transit);
            }
        }
    }

    fn draw_counted(&mut self, transit: &Transit) -> Fate {
        let fate = self.temper(transit);
        if fate == Fate::Deliver {
            return fate;
        }
        self.faults_drawn += 1;
        let number = self.faults_drawn - 1;
        match &self.only_faults {
            Some(kept) if !kept.contains(&number) => Fate::Deliver,
            Some(_) | None => fate,
        }
    }

    /// Draws a fate, and makes it a good one if the packet was hit often enough.
    fn temper(&mut self, transit: &Transit) -> Fate {
        let fate = self.draw(transit);
        let (Fate::Drop | Fate::Corrupt | Fate::Delay(_), Some(packet)) = (fate, transit.packet()) else {
            return fate;
        };
        let hit = Hit {
            to: transit.direction.to,
            qpn: packet.bth().qpn(),
            psn: packet.bth().psn(),
            is_response: packet.info().is_response(),
        };
        let hits = self.hits.entry(hit).or_default();
        if *hits >= self.faults.max_hits {
            return Fate::Deliver;
        }
        *hits += 1;
        fate
    }

    fn draw(&mut self, transit: &Transit) -> Fate {
        let faults = self.faults;
        let is_response = transit.packet().is_some_and(|packet| packet.info().is_response());
        if self.chance(faults.loss) || is_response && self.chance(faults.response_loss) {
            Fate::Drop
        } else if self.chance(faults.corrupt) {
            Fate::Corrupt
        } else if self.chance(faults.duplicate) {
            Fate::Duplicate
        } else if self.chance(faults.reorder) {
            Fate::Delay(faults.hold.mul_f64(self.rng.random()))
        } else {
            Fate::Deliver
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability >= 1.0 || probability > 0.0 && self.rng.random_bool(probability)
    }

    /// Turns over one bit that the ICRC covers. The ICRC stays, and so is wrong.
    fn corrupt(&mut self, bytes: &mut [u8]) {
        let at = loop {
            let at = self.rng.random_range(0..bytes.len());
            if at != CONGESTION_BYTE {
                break at;
            }
        };
        bytes[at] ^= 1 << self.rng.random_range(0..8);
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("faults", &self.faults)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// The byte of a BTH that routers may change, so that the ICRC leaves it out.
const CONGESTION_BYTE: usize = 4;

/// What the receiver's socket says of a packet of a batch that took `route`, `segment` being its place in the batch.
pub fn arrival(route: &Route, segment: u16) -> FrameMeta {
    FrameMeta {
        link: route.link,
        remote: route.local,
        remote_port: route.local_port,
        local: route.remote,
        local_port: route.remote_port,
        traffic_class: route.traffic_class,
        segment,
    }
}

fn describe(transit: &Transit, fate: Fate) -> String {
    let Direction { from, to } = transit.direction;
    let arrow = format!("{from} -> {to}");
    let packet =
        transit.packet().map_or_else(|| format!("{:02x?}", transit.bytes), |packet| packet.to_string());
    match fate {
        Fate::Deliver => format!("{arrow}  {packet}"),
        Fate::Drop | Fate::Duplicate | Fate::Corrupt | Fate::Delay(_) => {
            format!("{arrow}  {packet}   ** {fate:?}")
        }
    }
}

fn micros(time: Time) -> String {
    format!("{}.{:03}", time.nanos() / 1000, time.nanos() % 1000)
}
