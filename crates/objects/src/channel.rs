//! Completion channels: where completion queues report that something arrived.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock;

/// A completion channel: which completion queues have notified, in order. The host joins it to an eventfd.
#[derive(Debug)]
pub struct CompChannel {
    id: u32,
    /// The length of `events`, changed under its lock.
    pending: AtomicUsize,
    events: Mutex<VecDeque<u32>>,
}

impl CompChannel {
    /// Channel `id` (the host's number for it).
    pub fn new(id: u32) -> Self {
        Self { id, pending: AtomicUsize::new(0), events: Mutex::new(VecDeque::with_capacity(ROOM)) }
    }

    /// The host's number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Takes the oldest event: the number of the completion queue that notified.
    pub fn take_event(&self) -> Option<u32> {
        if self.pending() == 0 {
            return None;
        }
        let mut events = lock(&self.events);
        let cq = events.pop_front();
        self.pending.store(events.len(), Ordering::Release);
        cq
    }

    /// Events that wait. An event whose push happened before the call is counted; no lock is taken.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Forgets the events of a completion queue that is being destroyed; how many.
    pub fn forget(&self, cq: u32) -> usize {
        let mut events = lock(&self.events);
        let before = events.len();
        events.retain(|&event| event != cq);
        self.pending.store(events.len(), Ordering::Release);
        before - events.len()
    }

    /// Adds an event of the completion queue `cq`.
    pub fn push_event(&self, cq: u32) {
        let mut events = lock(&self.events);
        events.push_back(cq);
        self.pending.store(events.len(), Ordering::Release);
    }
}

/// Events that fit before the queue allocates. A queue has more than one event only if it is armed again before
/// the first was taken.
const ROOM: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_in_order() {
        let channel = CompChannel::new(4);
        assert_eq!((channel.id(), channel.pending(), channel.take_event()), (4, 0, None));
        for cq in [3, 1, 3] {
            channel.push_event(cq);
        }
        assert_eq!(channel.pending(), 3);
        assert_eq!(
            [channel.take_event(), channel.take_event(), channel.take_event()],
            [Some(3), Some(1), Some(3)]
        );
        assert_eq!((channel.pending(), channel.take_event()), (0, None));
    }

    #[test]
    fn the_events_of_a_queue_that_goes_are_forgotten_and_others_stay() {
        let channel = CompChannel::new(0);
        for cq in [3, 1, 3, 2] {
            channel.push_event(cq);
        }
        assert_eq!(channel.forget(3), 2);
        assert_eq!(channel.forget(3), 0);
        assert_eq!(channel.pending(), 2);
        assert_eq!(
            [channel.take_event(), channel.take_event(), channel.take_event()],
            [Some(1), Some(2), None]
        );
    }
}
