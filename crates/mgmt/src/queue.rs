//! Events that wait, and can be taken back: whoever ends is told nothing any more, however much waits for others.

use std::collections::{BTreeMap, BTreeSet};

/// Events and whose they are, the oldest first. Each call takes a time that grows as the logarithm of what waits, for each event
/// that goes.
#[derive(Debug)]
pub(crate) struct EventQueue<K, E> {
    all: BTreeMap<u64, (K, E)>,
    by_owner: BTreeSet<(K, u64)>,
    /// Events there have been.
    count: u64,
}

impl<K, E> Default for EventQueue<K, E> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_owner: BTreeSet::new(), count: 0 }
    }
}

impl<K: Copy + Ord, E> EventQueue<K, E> {
    /// Puts an event behind all others.
    pub(crate) fn push(&mut self, owner: K, event: E) {
        self.count += 1;
        self.all.insert(self.count, (owner, event));
        self.by_owner.insert((owner, self.count));
    }

    /// Takes the oldest.
    pub(crate) fn pop(&mut self) -> Option<(K, E)> {
        let (nth, (owner, event)) = self.all.pop_first()?;
        self.by_owner.remove(&(owner, nth));
        Some((owner, event))
    }

    /// Takes back what waits for an owner.
    pub(crate) fn forget(&mut self, owner: K) {
        while let Some(&(owner, nth)) = self.by_owner.range((owner, 0)..=(owner, u64::MAX)).next() {
            self.by_owner.remove(&(owner, nth));
            self.all.remove(&nth);
        }
    }

    /// What waits, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, E)> {
        self.all.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.by_owner.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_gone_and_the_rest_stays_in_order() {
        let mut queue = EventQueue::default();
        for (owner, event) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd'), (2, 'e')] {
            queue.push(owner, event);
        }
        assert_eq!(queue.pop(), Some((1, 'a')));
        queue.forget(2);
        queue.forget(2);
        queue.push(2, 'f');
        assert_eq!(queue.iter().map(|&(_, event)| event).collect::<String>(), "cdf");
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [(1, 'c'), (3, 'd'), (2, 'f')]);
        assert_eq!((queue.len(), queue.by_owner.len()), (0, 0));
    }

    #[test]
    fn nothing_is_left_of_what_was_forgotten() {
        let mut queue = EventQueue::default();
        (0..1000).for_each(|event| queue.push(event % 10, event));
        (0..5).for_each(|owner| queue.forget(owner));
        assert_eq!((queue.len(), queue.by_owner.len()), (500, 500));
        queue.clear();
        assert_eq!((queue.pop(), queue.by_owner.len()), (None, 0));
    }
}
