//! Deadlines of queue pairs: a heap with at most one entry for each.
//!
//! Deadlines mostly move later, with every packet. A later deadline is not entered: the entry fires early, and whoever
//! asks the queue pair then arms it again. So a packet costs no heap operation.

use userdma_verbs::Time;

use crate::config::table_index;

/// The earliest known deadline of each queue pair, by index.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    /// Where a queue pair's entry lies in the heap, plus one; 0 if it has none.
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    index: u32,
}

impl Timers {
    /// Makes room for that many queue pairs, with indices below `indices`.
    pub(crate) fn reserve(&mut self, qps: usize, indices: usize) {
        self.heap.reserve(qps.saturating_sub(self.heap.len()));
        if self.places.len() < indices {
            self.places.resize(indices, 0);
        }
    }

    /// Sees to it that `index` fires at `at` or before.
    pub(crate) fn arm(&mut self, index: u32, at: Time) {
        match self.place(index) {
            Some(place) if self.heap[place].at <= at => {}
            Some(place) => {
                self.heap[place].at = at;
                self.sift_up(place);
            }
            None => {
                if self.places.len() <= index as usize {
                    self.places.resize(index as usize + 1, 0);
                }
                self.heap.push(Entry { at, index });
                self.sift_up(self.heap.len() - 1);
            }
        }
    }

    /// Takes the entry of a queue pair out.
    pub(crate) fn disarm(&mut self, index: u32) {
        if let Some(place) = self.place(index) {
            self.remove(place);
        }
    }

    /// Whether nothing is armed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// When the first entry fires.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Takes out one entry whose time has come, earliest first.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let first = self.heap.first().filter(|entry| entry.at <= now)?.index;
        self.remove(0);
        Some(first)
    }

    fn place(&self, index: u32) -> Option<usize> {
        self.places.get(index as usize).and_then(|place| place.checked_sub(1)).map(|place| place as usize)
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.places[gone.index as usize] = 0;
        if place < self.heap.len() {
            self.sift_down(place);
            self.sift_up(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].at <= entry.at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let left = 2 * place + 1;
            let Some(first) = self.heap.get(left) else { break };
            let child = match self.heap.get(left + 1) {
                Some(second) if second.at < first.at => left + 1,
                Some(_) | None => left,
            };
            if entry.at <= self.heap[child].at {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.index as usize] = table_index(place) + 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn t(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn a_later_deadline_changes_nothing_and_an_earlier_one_counts() {
        let mut timers = Timers::default();
        timers.arm(5, t(100));
        timers.arm(5, t(200));
        assert_eq!(timers.next(), Some(t(100)));
        timers.arm(5, t(50));
        assert_eq!(
            (timers.pop_due(t(49)), timers.pop_due(t(50)), timers.pop_due(t(300))),
            (None, Some(5), None)
        );
    }

    #[test]
    fn what_is_reserved_is_not_allocated_again() {
        let mut timers = Timers::default();
        timers.reserve(20, 30);
        let memory =
            |timers: &Timers| (timers.heap.capacity(), timers.places.capacity(), timers.places.len());
        let before = memory(&timers);
        for index in 10..30 {
            timers.arm(index, t(u64::from(index)));
        }
        assert_eq!(memory(&timers), before);
    }

    #[test]
    fn agrees_with_a_sorted_map_under_random_use() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut timers = Timers::default();
        let mut model = BTreeMap::new();
        for _ in 0..50_000 {
            let (index, at) = (rng.random_range(0..40), rng.random_range(0..1000));
            match rng.random_range(0..4) {
                0 | 1 => {
                    timers.arm(index, t(at));
                    model.entry(index).and_modify(|m: &mut u64| *m = at.min(*m)).or_insert(at);
                }
                2 => {
                    timers.disarm(index);
                    model.remove(&index);
                }
                _ => {
                    let popped = timers.pop_due(t(at));
                    let first = model.values().min().copied().filter(|&first| first <= at);
                    assert_eq!(popped.and_then(|index| model.remove(&index)), first);
                }
            }
            assert_eq!(timers.next(), model.values().min().copied().map(t));
        }
    }
}
