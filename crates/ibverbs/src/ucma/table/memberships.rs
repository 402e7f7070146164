//! Groups that identifiers have joined. Their numbers are others than those of identifiers: the smallest that is free, as the kernel's.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::Id;

/// A membership as programs name it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(in crate::ucma) struct Membership(pub(in crate::ucma) u32);

#[derive(Default)]
pub(super) struct Memberships {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<u32>>,
    by_owner: BTreeSet<(Id, Membership)>,
}

struct Entry {
    of: Id,
    /// What the program knows it by.
    uid: u64,
    /// Events that the program has taken.
    reported: u32,
}

impl Memberships {
    pub(super) fn add(&mut self, of: Id, uid: u64) -> Membership {
        let entry = Some(Entry { of, uid, reported: 0 });
        let membership = if let Some(Reverse(free)) = self.free.pop() {
            self.entries[free as usize] = entry;
            Membership(free)
        } else {
            self.entries.push(entry);
            // A table of 2^32 would not fit the memory.
            Membership(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
        };
        self.by_owner.insert((of, membership));
        membership
    }

    /// Whose it is.
    pub(super) fn owner(&self, membership: Membership) -> Option<Id> {
        self.entry(membership).map(|entry| entry.of)
    }

    /// What the program knows it by.
    pub(super) fn uid(&self, membership: Membership) -> Option<u64> {
        self.entry(membership).map(|entry| entry.uid)
    }

    /// The program has taken one of its events.
    pub(super) fn note_reported(&mut self, Membership(number): Membership) {
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.reported += 1;
        }
    }

    /// It has ended: how many events the program has taken.
    pub(super) fn remove(&mut self, membership: Membership) -> u32 {
        let Membership(number) = membership;
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::take) else { return 0 };
        self.free.push(Reverse(number));
        self.by_owner.remove(&(entry.of, membership));
        entry.reported
    }

    /// The identifier goes, and with it what it has joined.
    pub(super) fn remove_all(&mut self, of: Id) {
        let own = self.by_owner.range((of, Membership(0))..=(of, Membership(u32::MAX)));
        for (_, membership) in own.copied().collect::<Vec<_>>() {
            self.remove(membership);
        }
    }

    fn entry(&self, Membership(number): Membership) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }
}
