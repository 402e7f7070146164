//! What happens when: a queue ordered by time, and by arrival among equals.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use userdma_verbs::Time;

/// Things that are due at points of the virtual clock.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    heap: BinaryHeap<Entry<T>>,
    count: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    order: u64,
    item: T,
}

impl<T> Schedule<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, item: T) {
        self.count += 1;
        self.heap.push(Entry { at, order: self.count, item });
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<T> {
        self.next().filter(|&at| at <= now)?;
        self.heap.pop().map(|entry| entry.item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<T> Ord for Entry<T> {
    /// The earliest is the greatest, since the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_come_in_order_of_arrival() {
        let mut schedule = Schedule::new();
        for (at, name) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            schedule.push(Time::from_nanos(at), name);
        }
        let due: String = std::iter::from_fn(|| schedule.pop_due(Time::from_nanos(5))).collect();
        assert_eq!((due.as_str(), schedule.next()), ("abc", Some(Time::from_nanos(9))));
    }
}
