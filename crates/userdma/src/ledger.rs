//! The ledger of a work queue: which memory the posted work requests hold, and what their numbers are to the program.
//!
//! The device's completions carry numbers of ours. A completion ends its work request and all before it on the same queue:
//! a reliable connection executes in order, so unsignaled requests have ended when a later one completes. Until then
//! they hold their memory, whatever the program drops or forgets.

mod shared;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{mr, mw};

pub(crate) use shared::SharedLedger;

/// Something that a posted work request needs to exist.
#[derive(Debug)]
pub(crate) enum Held {
    /// A region.
    Mr { _mr: Arc<mr::Inner> },
    /// A window.
    Mw { _mw: Arc<mw::Inner> },
}

impl Held {
    pub(crate) fn mr(mr: &Arc<mr::Inner>) -> Self {
        Self::Mr { _mr: Arc::clone(mr) }
    }

    pub(crate) fn mw(mw: &Arc<mw::Inner>) -> Self {
        Self::Mw { _mw: Arc::clone(mw) }
    }
}

/// The ledger of a send or receive queue.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
}

/// What is posted and has not completed, oldest first.
#[derive(Debug)]
pub(crate) struct Entries {
    max: usize,
    /// Which ledger of the completion queue this is, and which life of it: in every number.
    tag: Tag,
    /// The number of the next work request.
    next: u32,
    posted: VecDeque<Entry>,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Entry {
    number: u32,
    wr_id: u64,
    held: u32,
}

/// The upper half of a completion's number.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tag {
    /// The place in the completion queue's table.
    pub(crate) slot: u16,
    /// Changes when the slot gets another ledger, or the queue is reset: what completed before counts no more.
    pub(crate) epoch: u16,
}

impl Tag {
    /// The number that the device gets.
    fn id(self, number: u32) -> u64 {
        u64::from(self.slot) << 48 | u64::from(self.epoch) << 32 | u64::from(number)
    }

    /// Takes a number apart.
    pub(crate) fn of(id: u64) -> (Self, u32) {
        let [a, b, c, d, e, f, g, h] = id.to_be_bytes();
        let tag = Self { slot: u16::from_be_bytes([a, b]), epoch: u16::from_be_bytes([c, d]) };
        (tag, u32::from_be_bytes([e, f, g, h]))
    }
}

impl Ledger {
    /// For a queue of `max` work requests with lists of `max_sge` elements. All the memory that it usually needs is
    /// there from now on.
    pub(crate) fn new(max: u32, max_sge: u32, tag: Tag) -> Self {
        let max = max as usize;
        // Long lists on deep queues are rare: they may grow it.
        let held = max * (max_sge as usize).min(4);
        let entries = Entries {
            max,
            tag,
            next: 0,
            posted: VecDeque::with_capacity(max),
            held: VecDeque::with_capacity(held),
        };
        Self { entries: Mutex::new(entries) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        // A panic while posting has posted nothing, or noted everything.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Whether no more may be posted before a completion is polled.
    pub(crate) fn is_full(&self) -> bool {
        self.posted.len() >= self.max
    }

    /// The queue's size.
    pub(crate) fn max(&self) -> u32 {
        u32::try_from(self.max).unwrap_or(u32::MAX)
    }

    /// The number for the next work request.
    pub(crate) fn next_id(&self) -> u64 {
        self.tag.id(self.next)
    }

    /// The work request with [`Entries::next_id`] was posted: it is `wr_id` to the program and holds `held`.
    pub(crate) fn push(&mut self, wr_id: u64, held: impl Iterator<Item = Held>) {
        let mut count = 0;
        for held in held {
            self.held.push_back(held);
            count += 1;
        }
        self.posted.push_back(Entry { number: self.next, wr_id, held: count });
        self.next = self.next.wrapping_add(1);
    }

    /// A completion has come: lets go of it and of those before it. What it is to the program; `None` if it belongs to an
    /// earlier life.
    pub(crate) fn complete(&mut self, tag: Tag, number: u32) -> Option<u64> {
        if tag != self.tag {
            return None;
        }
        loop {
            let oldest = self.posted.front()?;
            if number.wrapping_sub(oldest.number) > u32::MAX / 2 {
                return None; // It has ended before.
            }
            let (ended, wr_id, held) = (oldest.number, oldest.wr_id, oldest.held);
            self.posted.pop_front();
            for _ in 0..held {
                self.held.pop_front();
            }
            if ended == number {
                return Some(wr_id);
            }
        }
    }

    /// The queue was reset: nothing of it will complete, nor count if it has.
    pub(crate) fn reset(&mut self) {
        self.posted.clear();
        self.held.clear();
        self.tag.epoch = self.tag.epoch.wrapping_add(1);
    }

    /// The life of the slot after this ledger's.
    pub(crate) fn next_epoch(&self) -> u16 {
        self.tag.epoch.wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag { slot: 5, epoch: 9 };

    fn post(ledger: &Ledger, wr_id: u64) -> (Tag, u32) {
        let mut entries = ledger.lock();
        let id = entries.next_id();
        entries.push(wr_id, std::iter::empty());
        Tag::of(id)
    }

    #[test]
    fn a_completion_ends_everything_before_it() {
        let ledger = Ledger::new(3, 1, TAG);
        let ids: Vec<_> = [10, 20, 30].map(|wr_id| post(&ledger, wr_id)).to_vec();
        let mut entries = ledger.lock();
        assert!(entries.is_full());
        assert_eq!(entries.complete(ids[1].0, ids[1].1), Some(20));
        assert!(!entries.is_full());
        assert_eq!(entries.posted.len(), 1);
        assert_eq!(entries.complete(ids[0].0, ids[0].1), None, "it has ended with the one after it");
        assert_eq!(entries.complete(ids[2].0, ids[2].1), Some(30));
    }

    #[test]
    fn numbers_wrap() {
        let ledger = Ledger::new(4, 1, TAG);
        ledger.lock().next = u32::MAX;
        let ids: Vec<_> = [1, 2, 3].map(|wr_id| post(&ledger, wr_id)).to_vec();
        assert_eq!((ids[0].1, ids[1].1), (u32::MAX, 0));
        let mut entries = ledger.lock();
        assert_eq!(entries.complete(ids[0].0, ids[0].1), Some(1));
        assert_eq!(entries.complete(ids[2].0, ids[2].1), Some(3));
        assert_eq!(entries.posted.len(), 0);
    }

    #[test]
    fn a_reset_queue_does_not_know_its_past() {
        let ledger = Ledger::new(4, 1, TAG);
        let old = post(&ledger, 1);
        ledger.lock().reset();
        let new = post(&ledger, 2);
        assert_eq!(ledger.lock().complete(old.0, old.1), None);
        assert_eq!(ledger.lock().complete(new.0, new.1), Some(2));
    }

    #[test]
    fn a_tag_survives_the_number() {
        assert_eq!(Tag::of(TAG.id(0xffff_fffe)), (TAG, 0xffff_fffe));
    }
}
