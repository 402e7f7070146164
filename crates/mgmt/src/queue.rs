//! Events that wait, and can be taken back: whoever ends is told nothing any more, however much waits for others.

use std::collections::{BTreeMap, BTreeSet};

/// Events and whose they are, the oldest first. Each call takes a time that grows as the logarithm of what waits, for each event
/// that goes.
#[derive(Debug)]
pub struct EventQueue<K, E> {
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
    pub fn push(&mut self, owner: K, event: E) {
        self.count += 1;
        self.all.insert(self.count, (owner, event));
        self.by_owner.insert((owner, self.count));
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<(K, E)> {
        let (nth, (owner, event)) = self.all.pop_first()?;
        self.by_owner.remove(&(owner, nth));
        Some((owner, event))
    }

    /// The oldest.
    pub fn front(&self) -> Option<&(K, E)> {
        self.all.first_key_value().map(|(_, first)| first)
    }

    /// Takes back what waits for an owner.
    pub fn forget(&mut self, owner: K) {
        self.extract(owner, |_| true);
    }

    /// Takes out what waits for an owner, as far as `which` says so, the oldest first.
    pub fn extract(&mut self, owner: K, which: impl Fn(&E) -> bool) -> Vec<E> {
        let own = self.by_owner.range((owner, 0)..=(owner, u64::MAX)).map(|&(_, nth)| nth);
        let is_it = |nth: &u64| self.all.get(nth).is_some_and(|(_, event)| which(event));
        let out: Vec<u64> = own.filter(is_it).collect();
        let take = |nth| {
            self.by_owner.remove(&(owner, nth));
            self.all.remove(&nth).map(|(_, event)| event)
        };
        out.into_iter().filter_map(take).collect()
    }

    /// What waits, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &(K, E)> {
        self.all.values()
    }

    /// How much waits.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes everything back.
    pub fn clear(&mut self) {
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
        assert_eq!(queue.extract(1, |&event| event != 'c'), []);
        assert_eq!(queue.front(), Some(&(1, 'c')));
        assert_eq!(queue.iter().map(|&(_, event)| event).collect::<String>(), "cdf");
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [(1, 'c'), (3, 'd'), (2, 'f')]);
        assert_eq!((queue.len(), queue.by_owner.len()), (0, 0));
    }

    #[test]
    fn nothing_is_left_of_what_was_forgotten() {
        let mut queue = EventQueue::default();
        (0..1000).for_each(|event| queue.push(event % 10, event));
        (0..5).for_each(|owner| queue.forget(owner));
        assert_eq!(queue.extract(5, |event| event % 3 == 0).len(), 33);
        assert_eq!(queue.extract(5, |_| true).iter().filter(|&event| event % 3 == 0).count(), 0);
        (0..100).for_each(|event| queue.push(5, event));
        assert_eq!((queue.len(), queue.by_owner.len()), (500, 500));
        queue.clear();
        assert_eq!((queue.pop(), queue.by_owner.len()), (None, 0));
    }
}
