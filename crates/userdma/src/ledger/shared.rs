//! The ledger of a shared receive queue. Its receives complete in any order and on any of several completion queues, so each has
//! a place of its own, which its completion gives back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use userdma_verbs::Srqn;

use crate::{MrSlice, mr};

/// The ledger of a shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    srqn: Srqn,
    places: Mutex<Places>,
}

/// What is posted and has not completed.
#[derive(Debug)]
pub(crate) struct Places {
    max_sge: usize,
    /// What the receive of a place is to the program, if there is one.
    wr_ids: Vec<Option<u64>>,
    /// `max_sge` regions for each place.
    held: Vec<Option<Arc<mr::Inner>>>,
    free: Vec<u32>,
    /// The queue is gone.
    has_ended: bool,
}

/// The slot that marks a completion's number as one of a shared receive queue: no ledger of a queue pair has it.
const SLOT: u64 = 0xffff;
/// Bits of a place in such a number; those of the queue's number are above.
const PLACE_BITS: u32 = 24;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

impl SharedLedger {
    /// For a queue of `max_wr` receives, at most 2^24, with lists of `max_sge` elements. It never allocates afterwards.
    pub(crate) fn new(srqn: Srqn, max_wr: u32, max_sge: u32) -> Self {
        let (wrs, max_sge) = (max_wr as usize, max_sge as usize);
        let places = Places {
            max_sge,
            wr_ids: vec![None; wrs],
            held: vec![None; wrs * max_sge],
            free: (0..max_wr).rev().collect(),
            has_ended: false,
        };
        Self { srqn, places: Mutex::new(places) }
    }

    pub(crate) fn srqn(&self) -> Srqn {
        self.srqn
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Places> {
        // A panic while posting has posted nothing, or noted everything.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number that the device gets for a place.
    pub(crate) fn id(&self, place: u32) -> u64 {
        SLOT << 48 | u64::from(self.srqn.get()) << PLACE_BITS | u64::from(place)
    }

    /// Takes a number apart, if it is one of a shared receive queue.
    pub(crate) fn of(id: u64) -> Option<(Srqn, u32)> {
        let srqn = u32::try_from(id >> PLACE_BITS & 0xff_ffff).ok()?;
        let place = u32::try_from(id & PLACE_MASK).ok()?;
        (id >> 48 == SLOT).then_some((Srqn::new(srqn), place))
    }

    /// A receive has completed: lets go of its memory. What it is to the program; `None` if there is no such receive.
    pub(crate) fn complete(&self, place: u32) -> Option<u64> {
        let mut places = self.lock();
        let index = place as usize;
        let wr_id = places.wr_ids.get_mut(index)?.take()?;
        let max_sge = places.max_sge;
        places.held[index * max_sge..][..max_sge].fill(None);
        places.free.push(place);
        Some(wr_id)
    }

    /// The queue is gone: nothing of it will complete. Lets go of everything.
    pub(crate) fn end(&self) {
        let mut places = self.lock();
        places.has_ended = true;
        places.free.clear();
        let held = std::mem::take(&mut places.held);
        places.wr_ids = Vec::new();
        drop(places);
        drop(held);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }
}

impl Places {
    /// A place that is free; `None` if as many receives are posted as the queue takes.
    pub(crate) fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The queue's size.
    pub(crate) fn max(&self) -> u32 {
        u32::try_from(self.wr_ids.len()).unwrap_or(u32::MAX)
    }

    /// A receive was posted at the place that [`Places::next`] has given: it is `wr_id` to the program and holds the regions of
    /// `list`, at most `max_sge`.
    pub(crate) fn push(&mut self, wr_id: u64, list: &[MrSlice]) {
        let Some(place) = self.free.pop() else { return };
        let index = place as usize;
        self.wr_ids[index] = Some(wr_id);
        for (held, slice) in self.held[index * self.max_sge..].iter_mut().zip(list) {
            *held = Some(Arc::clone(slice.mr()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(ledger: &SharedLedger, wr_id: u64) -> Option<u32> {
        let mut places = ledger.lock();
        let place = places.next()?;
        places.push(wr_id, &[]);
        Some(place)
    }

    #[test]
    fn receives_complete_in_any_order_and_once() {
        let ledger = SharedLedger::new(Srqn::new(7), 3, 2);
        let [a, b, c] = [10, 20, 30].map(|wr_id| post(&ledger, wr_id).unwrap());
        assert_eq!((post(&ledger, 40), ledger.lock().max()), (None, 3));
        assert_eq!((ledger.complete(b), ledger.complete(b)), (Some(20), None));
        let d = post(&ledger, 40).unwrap();
        assert_eq!([c, d, a].map(|place| ledger.complete(place)), [Some(30), Some(40), Some(10)]);
        assert_eq!(ledger.complete(3), None, "no such place");
    }

    #[test]
    fn a_number_names_queue_and_place_and_no_queue_pair() {
        let ledger = SharedLedger::new(Srqn::new(0xab_cdef), 1, 1);
        assert_eq!(SharedLedger::of(ledger.id(0x12_3456)), Some((Srqn::new(0xab_cdef), 0x12_3456)));
        assert_eq!(SharedLedger::of(0x7fff_0000_0000_0001), None);
    }

    #[test]
    fn nothing_completes_after_the_end() {
        let ledger = SharedLedger::new(Srqn::new(7), 2, 2);
        let place = post(&ledger, 1).unwrap();
        ledger.end();
        assert_eq!((ledger.complete(place), ledger.has_ended(), post(&ledger, 2)), (None, true, None));
    }
}
