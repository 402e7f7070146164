//! Which ledgers a completion queue serves.

use std::sync::Arc;

use userdma_verbs::Wc;

use crate::ledger::{Ledger, SharedLedger, Tag};

/// Ledgers by slot.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// Those of shared receive queues, of which there are few.
    shared: Vec<Arc<SharedLedger>>,
}

#[derive(Debug)]
struct Slot {
    ledger: Option<Arc<Ledger>>,
    /// The epoch of the next ledger here.
    epoch: u16,
}

impl Table {
    /// Adds a ledger.
    pub(super) fn add(&mut self, make: impl FnOnce(Tag) -> Ledger) -> Arc<Ledger> {
        let free = self.slots.iter().position(|slot| slot.ledger.is_none());
        let index = free.unwrap_or_else(|| {
            self.slots.push(Slot { ledger: None, epoch: 0 });
            self.slots.len() - 1
        });
        // A device has fewer than 2^14 queue pairs, with two ledgers each.
        let tag = Tag { slot: u16::try_from(index).unwrap_or(u16::MAX), epoch: self.slots[index].epoch };
        let ledger = Arc::new(make(tag));
        self.slots[index].ledger = Some(Arc::clone(&ledger));
        ledger
    }

    /// Removes a ledger and gives back the table's share.
    pub(super) fn remove(&mut self, ledger: &Arc<Ledger>) -> Option<Arc<Ledger>> {
        let is_it = |slot: &&mut Slot| slot.ledger.as_ref().is_some_and(|l| Arc::ptr_eq(l, ledger));
        let slot = self.slots.iter_mut().find(is_it)?;
        slot.epoch = ledger.lock().next_epoch();
        slot.ledger.take()
    }

    /// Adds the ledger of a shared receive queue, if it is not there. It stays until the queue is gone.
    pub(super) fn add_shared(&mut self, ledger: &Arc<SharedLedger>) {
        // A number may be that of a queue which is gone.
        self.shared.retain(|other| !other.has_ended());
        if !self.shared.iter().any(|other| Arc::ptr_eq(other, ledger)) {
            self.shared.push(Arc::clone(ledger));
        }
    }

    /// Whether receives of shared receive queues complete here.
    pub(super) fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Gives completions the numbers that the program knows, and ends their work requests. Those of queues that are gone
    /// are dropped; how many are left.
    pub(super) fn translate(&mut self, wcs: &mut [Wc]) -> usize {
        let mut kept = 0;
        for index in 0..wcs.len() {
            let mut wc = wcs[index];
            if let Some(wr_id) = self.complete(wc.wr_id) {
                wc.wr_id = wr_id;
                wcs[kept] = wc;
                kept += 1;
            }
        }
        kept
    }

    /// Ends the work request with this number; what it is to the program.
    #[inline]
    fn complete(&self, id: u64) -> Option<u64> {
        let (tag, number) = Tag::of(id);
        match self.slots.get(usize::from(tag.slot)) {
            Some(slot) => slot.ledger.as_ref()?.lock().complete(tag, number),
            None => self.complete_shared(id),
        }
    }

    fn complete_shared(&self, id: u64) -> Option<u64> {
        let (srqn, place) = SharedLedger::of(id)?;
        self.shared.iter().find(|ledger| ledger.srqn() == srqn)?.complete(place)
    }
}

#[cfg(test)]
mod tests {
    use userdma_verbs::{Qpn, WcOpcode, WcStatus};

    use super::*;

    fn completion(ledger: &Ledger, wr_id: u64) -> Wc {
        let mut entries = ledger.lock();
        let wc = Wc::new(entries.next_id(), WcStatus::Success, WcOpcode::Send, Qpn::new(1));
        entries.push(wr_id, std::iter::empty());
        wc
    }

    #[test]
    fn completions_of_queues_that_are_gone_are_dropped() {
        let mut table = Table::default();
        let make = |tag| Ledger::new(8, 1, tag);
        let (a, b) = (table.add(make), table.add(make));
        let (stale, good) = (completion(&a, 100), completion(&b, 200));
        table.remove(&a).unwrap();
        let c = table.add(make);
        let newer = completion(&c, 300);
        let mut wcs = [stale, good, newer];
        assert_eq!(table.translate(&mut wcs), 2);
        assert_eq!(wcs[..2].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [200, 300]);
    }
}
