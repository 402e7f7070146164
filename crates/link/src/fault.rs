//! A bad network from a seed: loses, repeats, reorders, delays and corrupts packets.
//!
//! Faults act on what is *received*, packet by packet; a super-packet is taken apart first. They cannot act on
//! what is sent: a packet's place in its batch is its IPv4 identification, which the ICRC covers, so a packet
//! taken out or sent alone would be a corrupt one. Two hosts that both lose what they receive make a network that
//! loses in both directions. A link that is down also loses what is sent: all of it, which leaves no gap in a batch.
//!
//! The same seed gives the same faults for the same packets. Each kind of fault draws from a stream of its own, once a
//! packet, so that what is lost does not depend on what else is switched on.

mod config;

use std::collections::VecDeque;
use std::time::Duration;

use userdma_mem::FrameMeta;
use userdma_verbs::Time;
use userdma_verbs::dice::{Dice, Stream};

pub use config::{Faults, Outage, ParseFaultsError};

/// What an injector has done so far, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultStats {
    /// Came in.
    pub packets: u64,
    /// Lost, also while the link was down; packets that were to be sent then are counted here only.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Overtaken by later ones.
    pub reordered: u64,
    /// Delivered late.
    pub delayed: u64,
    /// Delivered with one bit turned over.
    pub corrupted: u64,
}

/// Faults at work: packets in, what is left of them out.
#[derive(Debug)]
pub struct FaultInjector {
    faults: Faults,
    loss: Dice,
    duplicate: Dice,
    reorder: Dice,
    delay: Dice,
    corrupt: Dice,
    /// Which bit is turned over, how many packets overtake.
    detail: Stream,
    /// Held back until others have overtaken them.
    held: Vec<Held>,
    /// On their way, the earliest first: all take equally long.
    late: VecDeque<Late>,
    stats: FaultStats,
    /// When the link goes down and when it comes back.
    outage: Option<[Time; 2]>,
    /// Whether the link is down, as it was told last.
    told_down: bool,
}

#[derive(Debug)]
struct Held {
    packet: Stored,
    /// Packets that must still pass.
    overtakers: u32,
    /// When it goes even if none come.
    deadline: Time,
}

#[derive(Debug)]
struct Late {
    packet: Stored,
    due: Time,
}

#[derive(Debug)]
struct Stored {
    bytes: Vec<u8>,
    meta: FrameMeta,
}

/// What takes the packets that come out.
type Out<'a> = dyn FnMut(&[u8], FrameMeta) + 'a;

impl FaultInjector {
    /// Packets that may overtake one that is held back: 1 up to this.
    pub const MAX_OVERTAKERS: u32 = 8;
    /// How long one is held back at most, when too few others come.
    pub const MAX_HOLD: Duration = Duration::from_millis(10);

    /// An injector of these faults, from `start` on.
    pub fn new(faults: &Faults, start: Time) -> Self {
        let stream = |kind: u64| Stream::new(faults.seed, kind);
        Self {
            faults: *faults,
            loss: Dice::new(faults.loss, stream(1)),
            duplicate: Dice::new(faults.duplicate, stream(2)),
            reorder: Dice::new(faults.reorder, stream(3)),
            delay: Dice::new(faults.delay_share, stream(4)),
            corrupt: Dice::new(faults.corrupt, stream(5)),
            detail: stream(6),
            held: Vec::new(),
            late: VecDeque::new(),
            stats: FaultStats::default(),
            outage: faults.down.map(|outage| [start + outage.from, start + outage.until]),
            told_down: false,
        }
    }

    /// What it was told to do.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What it has done.
    pub fn stats(&self) -> FaultStats {
        self.stats
    }

    /// Takes a packet that came in and gives out what should be delivered now: nothing, it, others as well.
    pub fn apply(&mut self, now: Time, bytes: &[u8], meta: FrameMeta, out: &mut Out<'_>) {
        self.poll(now, out);
        self.stats.packets += 1;
        // Every die is cast for every packet, so that the streams stay independent of each other.
        let (lost, corrupt) = (self.loss.cast(), self.corrupt.cast());
        let (duplicate, reorder, delay) = (self.duplicate.cast(), self.reorder.cast(), self.delay.cast());
        let (bit, hold) = (self.detail.next(), self.detail.next());
        if lost || self.is_down(now) {
            self.stats.lost += 1;
            return;
        }
        let turned = if corrupt { turn_bit(bytes, bit) } else { None };
        self.stats.corrupted += u64::from(turned.is_some());
        let bytes = turned.as_deref().unwrap_or(bytes);
        if duplicate {
            self.stats.duplicated += 1;
            self.pass(now, bytes, meta, delay, out);
        }
        if reorder {
            self.stats.reordered += 1;
            self.hold(now, bytes, meta, hold);
        } else {
            self.pass(now, bytes, meta, delay, out);
        }
    }

    /// Gives out what is due by `now`.
    pub fn poll(&mut self, now: Time, out: &mut Out<'_>) {
        if self.is_down(now) {
            self.lose_due(now);
            return;
        }
        while self.late.front().is_some_and(|late| late.due <= now) {
            if let Some(late) = self.late.pop_front() {
                out(&late.packet.bytes, late.packet.meta);
            }
        }
        self.release(out, |held| held.deadline <= now);
    }

    /// When [`FaultInjector::poll`] has something to give out, if nothing comes in before.
    pub fn next_deadline(&self) -> Option<Time> {
        let late = self.late.front().map(|late| late.due);
        let change = self.outage.map(|[from, until]| if self.told_down { until } else { from });
        late.into_iter().chain(change).chain(self.held.iter().map(|held| held.deadline)).min()
    }

    /// Whether the link is down: nothing comes in and nothing goes out.
    pub fn is_down(&self, now: Time) -> bool {
        self.outage.is_some_and(|[from, until]| (from..until).contains(&now))
    }

    /// Whether the link has gone down (`true`) or come back since this was asked last. To be asked after
    /// [`FaultInjector::next_deadline`], at least.
    pub fn poll_change(&mut self, now: Time) -> Option<bool> {
        let is_down = self.is_down(now);
        if is_down == self.told_down {
            return None;
        }
        self.told_down = is_down;
        if !is_down {
            // It was the only one.
            self.outage = None;
        }
        Some(is_down)
    }

    /// Counts packets that were to be sent and are lost with the link.
    pub fn lose_sent(&mut self, packets: u64) {
        self.stats.lost += packets;
    }

    /// What would be due while the link is down does not come.
    fn lose_due(&mut self, now: Time) {
        let before = self.late.len() + self.held.len();
        self.late.retain(|late| late.due > now);
        self.held.retain(|held| held.deadline > now);
        self.stats.lost += (before - self.late.len() - self.held.len()) as u64;
    }

    /// A packet goes on its way, at once or late, and those that waited for it to overtake follow.
    fn pass(&mut self, now: Time, bytes: &[u8], meta: FrameMeta, delay: bool, out: &mut Out<'_>) {
        if delay && !self.faults.delay.is_zero() {
            self.stats.delayed += 1;
            self.late.push_back(Late { packet: Stored::new(bytes, meta), due: now + self.faults.delay });
        } else {
            out(bytes, meta);
        }
        for held in &mut self.held {
            held.overtakers = held.overtakers.saturating_sub(1);
        }
        self.release(out, |held| held.overtakers == 0);
    }

    fn hold(&mut self, now: Time, bytes: &[u8], meta: FrameMeta, random: u64) {
        // The remainder is below MAX_OVERTAKERS.
        let overtakers = 1 + u32::try_from(random % u64::from(Self::MAX_OVERTAKERS)).unwrap_or(0);
        let deadline = now + Self::MAX_HOLD + self.faults.delay;
        self.held.push(Held { packet: Stored::new(bytes, meta), overtakers, deadline });
    }

    /// Gives out the held packets that are `ready`, in the order they came.
    fn release(&mut self, out: &mut Out<'_>, ready: impl Fn(&Held) -> bool) {
        self.held.retain(|held| {
            let go = ready(held);
            if go {
                out(&held.packet.bytes, held.packet.meta);
            }
            !go
        });
    }
}

impl Stored {
    fn new(bytes: &[u8], meta: FrameMeta) -> Self {
        Self { bytes: bytes.to_vec(), meta }
    }
}

/// The packet with one of its bits turned over; `None` if it has none.
fn turn_bit(bytes: &[u8], random: u64) -> Option<Vec<u8>> {
    let bits = (bytes.len() as u64).checked_mul(8).filter(|&bits| bits > 0)?;
    let bit = random % bits;
    let mut turned = bytes.to_vec();
    // The byte's index is below the length, which is a usize.
    let byte = turned.get_mut(usize::try_from(bit / 8).ok()?)?;
    *byte ^= 1 << (bit % 8);
    Some(turned)
}

#[cfg(test)]
mod tests;
