//! Batches on their way from the device to the links.

use userdma_ibt::Room;
use userdma_link::{Backlog, Link, SendReport};
use userdma_mem::{LinkCaps, LinkId, Route, TxBatch};
use userdma_nic::Shard;
use userdma_verbs::{Qpn, Time};

/// A fixed number of batches: filled by the device, in order, sent in order. What a link does not take now stays for
/// the next time.
#[derive(Debug)]
pub(crate) struct TxPool {
    batches: Vec<TxBatch>,
    links: Vec<LinkId>,
    /// The first that is filled and not sent.
    head: usize,
    /// One past the last that is filled.
    tail: usize,
}

/// How far a transmission came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    /// The device has nothing more to send.
    All,
    /// The budget is used up; there may be more.
    Some,
    /// The kernel's buffers are full: later.
    Blocked,
}

/// What one transmission may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Batches to fill at most.
    pub(crate) batches: usize,
    /// Whether owed acknowledgements leave, after everything else.
    pub(crate) acks: bool,
}

impl TxPool {
    /// Batches in the pool.
    pub(crate) const LEN: usize = 16;
    /// Batches that are filled before they are sent: few, so that they are in the processor's cache when the kernel
    /// copies them, and the receiver can begin.
    const CHUNK: usize = 4;

    /// A pool for links of which `caps` is the least.
    pub(crate) fn new(caps: &LinkCaps) -> Self {
        Self {
            batches: (0..Self::LEN).map(|_| TxBatch::new(caps)).collect(),
            links: vec![LinkId::default(); Self::LEN],
            head: 0,
            tail: 0,
        }
    }

    /// Whether nothing waits to be sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Sends what is left from before, then what the device has, within the budget.
    pub(crate) fn transmit(
        &mut self,
        shard: &mut Shard,
        links: &mut [Link],
        now: Time,
        mut budget: Budget,
    ) -> Sent {
        loop {
            let more = self.fill(shard, now, &mut budget);
            if !self.send(shard, links, now) {
                return Sent::Blocked;
            }
            shard.handle_sent(now);
            if !more && !answer_asks(shard, links, now) {
                return Sent::All;
            }
            if budget.batches == 0 {
                return Sent::Some;
            }
        }
    }

    /// Fills batches while there is room and budget; whether the device may have more.
    fn fill(&mut self, shard: &mut Shard, now: Time, budget: &mut Budget) -> bool {
        let end = self.batches.len().min(self.tail + Self::CHUNK);
        while self.tail < end {
            if budget.batches == 0 {
                return true;
            }
            match shard.poll_transmit(now, &mut self.batches[self.tail]) {
                Some(link) => {
                    self.links[self.tail] = link;
                    self.tail += 1;
                    budget.batches -= 1;
                }
                None if budget.acks => {
                    budget.acks = false;
                    shard.release_acks();
                }
                None => return false,
            }
        }
        true
    }

    /// Sends what is filled; whether all of it left.
    fn send(&mut self, shard: &mut Shard, links: &mut [Link], now: Time) -> bool {
        while self.head < self.tail {
            let id = self.links[self.head];
            let run = self.links[self.head..self.tail].iter().take_while(|l| **l == id).count();
            let batches = &mut self.batches[self.head..self.head + run];
            let Some(link) = links.get_mut(usize::from(id.0)) else {
                // The device names links that it was made with; one that is not there loses its packets.
                debug_assert!(false, "no link {id:?}");
                batches.iter_mut().for_each(TxBatch::clear);
                self.head += run;
                continue;
            };
            let report = link.send(now, batches);
            self.head += report.taken;
            if report.caps_changed || report.too_long.is_some() {
                self.note(shard, link, &report);
            }
            if report.blocked {
                return false;
            }
        }
        (self.head, self.tail) = (0, 0);
        true
    }

    /// Takes over what a send has told of the link.
    #[cold]
    fn note(&mut self, shard: &mut Shard, link: &Link, report: &SendReport) {
        if report.caps_changed {
            let caps = link.caps();
            shard.set_link_caps(link.id(), caps);
            for batch in self.batches.iter_mut().filter(|b| b.is_empty()) {
                batch.set_max_packets(caps.max_batch_packets);
            }
            tracing::warn!(link = link.id().0, "the kernel has stopped segmenting: packets travel alone");
        }
        if let Some(too_long) = report.too_long {
            tracing::warn!(remote = %too_long.remote, bytes = too_long.bytes, "packet is longer than the path's MTU");
        }
    }
}

/// Tells the device of the buffers that it asks about, once everything that it had for them is there; whether it has more to
/// send because of it.
fn answer_asks(shard: &mut Shard, links: &mut [Link], now: Time) -> bool {
    let mut has_more = false;
    while let Some(ask) = shard.poll_ask() {
        let room = backlog(links, now, &ask.route, ask.qpn);
        let room = room.map(|backlog| Room { used: backlog.used, limit: backlog.limit });
        has_more |= shard.handle_room(now, &ask, room);
    }
    has_more
}

/// How full the receiver of a packet by `route` to `dest_qpn` is: see [`Link::backlog`]. A socket of ours on any of our
/// addresses shares a group with those of others.
pub(crate) fn backlog(links: &mut [Link], now: Time, route: &Route, dest_qpn: Qpn) -> Option<Backlog> {
    let is_there = |link: &&mut Link| matches!(link, Link::Udp(link) if link.local() == route.remote);
    links.iter_mut().find(is_there)?.backlog(now, route, dest_qpn)
}
