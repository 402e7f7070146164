//! Groups that identifiers have joined. Their numbers are others than those of identifiers: the smallest that is free, as the kernel's.

use super::Id;

/// A membership as programs name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::ucma) struct Membership(pub(in crate::ucma) u32);

#[derive(Default)]
pub(super) struct Memberships {
    entries: Vec<Option<Entry>>,
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
        let at = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if at == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[at] = entry;
        }
        // A table of 2^32 would not fit the memory.
        Membership(u32::try_from(at).unwrap_or(u32::MAX))
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
    pub(super) fn remove(&mut self, Membership(number): Membership) -> u32 {
        let entry = self.entries.get_mut(number as usize).and_then(Option::take);
        entry.map_or(0, |entry| entry.reported)
    }

    /// The identifier goes, and with it what it has joined.
    pub(super) fn remove_all(&mut self, of: Id) {
        for entry in &mut self.entries {
            entry.take_if(|entry| entry.of == of);
        }
    }

    fn entry(&self, Membership(number): Membership) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }
}
