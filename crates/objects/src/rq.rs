//! Receive queues: rings of receive work queue elements.

use userdma_verbs::{RecvWr, Sge};

/// A ring of receive work queue elements.
///
/// All its memory is set aside when it is made and touched when it is first used.
#[derive(Debug)]
pub struct RecvQueue {
    capacity: u32,
    max_sge: usize,
    /// Grows to the capacity as slots are used for the first time, in memory set aside before.
    entries: Vec<Entry>,
    /// `max_sge` for each entry.
    sges: Vec<Sge>,
    /// The slot of the oldest element.
    head: usize,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wr_id: u64,
    num_sge: usize,
}

impl RecvQueue {
    /// A queue of `capacity` receives with lists of up to `max_sge` elements.
    pub fn new(capacity: u32, max_sge: u32) -> Self {
        let (slots, max_sge) = (capacity as usize, max_sge as usize);
        Self {
            capacity,
            max_sge,
            entries: Vec::with_capacity(slots),
            sges: Vec::with_capacity(slots * max_sge),
            head: 0,
            len: 0,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements that it holds at most.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Moves to memory for `capacity` receives, which what it holds must fit.
    pub fn resize(&mut self, capacity: u32) {
        debug_assert!(capacity >= self.len, "{} receives do not fit {capacity}", self.len);
        let mut resized = Self::new(capacity, u32::try_from(self.max_sge).unwrap_or(u32::MAX));
        let mut sgl = Vec::with_capacity(self.max_sge);
        while let Some(wr_id) = self.pop(&mut sgl) {
            resized.push(&RecvWr { wr_id, sgl: &sgl });
        }
        *self = resized;
    }

    /// Appends a receive whose list is not longer than `max_sge`; false if the queue is full.
    pub fn push(&mut self, wr: &RecvWr<'_>) -> bool {
        let num_sge = wr.sgl.len();
        debug_assert!(num_sge <= self.max_sge, "a list that was not checked");
        if self.len == self.capacity || num_sge > self.max_sge {
            return false;
        }
        let slot = self.wrap(self.head + self.len as usize);
        let entry = Entry { wr_id: wr.wr_id, num_sge };
        match self.entries.get_mut(slot) {
            Some(there) => *there = entry,
            // The first time round: the tail is the next slot that does not exist yet.
            None => {
                self.entries.push(entry);
                self.sges.resize(self.entries.len() * self.max_sge, Sge::default());
            }
        }
        self.sges[slot * self.max_sge..][..num_sge].copy_from_slice(wr.sgl);
        self.len += 1;
        true
    }

    /// Takes the oldest receive: its list goes to `sgl` (cleared first, capacity kept), its identifier is returned.
    pub fn pop(&mut self, sgl: &mut Vec<Sge>) -> Option<u64> {
        sgl.clear();
        if self.len == 0 {
            return None;
        }
        let entry = self.entries[self.head];
        sgl.extend_from_slice(&self.sges[self.head * self.max_sge..][..entry.num_sge]);
        self.head = self.wrap(self.head + 1);
        self.len -= 1;
        Some(entry.wr_id)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Bytes of memory that the queue takes once all of it has been used.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.sges.capacity() * size_of::<Sge>()
    }

    /// `slot`, at most twice the capacity, in the ring.
    fn wrap(&self, slot: usize) -> usize {
        let slots = self.capacity as usize;
        if slot >= slots { slot - slots } else { slot }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use userdma_verbs::LKey;

    use super::*;

    fn sge(addr: u64) -> Sge {
        Sge { addr, length: 1, lkey: LKey::new(7) }
    }

    #[test]
    fn receives_come_out_in_order_with_their_lists_round_and_round() {
        let mut queue = RecvQueue::new(3, 2);
        let mut sgl = vec![sge(99)];
        assert_eq!(queue.pop(&mut sgl), None);
        assert!(sgl.is_empty(), "cleared even if there is nothing");
        for round in 0..10 {
            let lists = [vec![], vec![sge(round)], vec![sge(round), sge(round + 1)]];
            for (wr_id, list) in (0..).zip(&lists) {
                assert!(queue.push(&RecvWr { wr_id, sgl: list }));
            }
            assert!(!queue.push(&RecvWr { wr_id: 3, sgl: &[] }), "full");
            assert_eq!(queue.len(), 3);
            for (wr_id, list) in (0..).zip(&lists) {
                assert_eq!(queue.pop(&mut sgl), Some(wr_id));
                assert_eq!(&sgl, list);
            }
            assert!(queue.is_empty());
            // One more, so that the next round starts in another slot.
            assert!(queue.push(&RecvWr { wr_id: 9, sgl: &[] }));
            queue.clear();
            assert_eq!(queue.pop(&mut sgl), None);
        }
    }

    #[test]
    fn a_queue_of_no_entries_is_full_and_empty() {
        let mut queue = RecvQueue::new(0, 4);
        assert!(!queue.push(&RecvWr { wr_id: 1, sgl: &[] }));
        queue.clear();
        assert_eq!(queue.pop(&mut Vec::new()), None);
    }

    #[test]
    fn memory_is_set_aside_when_the_queue_is_made() {
        let mut queue = RecvQueue::new(5, 3);
        let before = queue.memory_bytes();
        assert!(before >= 5 * (16 + 3 * 16));
        for wr_id in 0..20 {
            let _ = queue.push(&RecvWr { wr_id, sgl: &[sge(1), sge(2), sge(3)] });
            let _ = queue.pop(&mut Vec::new());
        }
        assert_eq!(queue.memory_bytes(), before);
    }
}
