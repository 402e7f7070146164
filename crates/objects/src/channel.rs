//! Completion channels: where completion queues report that something arrived.

use std::collections::VecDeque;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

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

#[cfg(not(loom))]
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

#[cfg(loom)]
#[cfg(test)]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// The device adds two events while two threads take one each.
    #[test]
    fn each_event_is_taken_once() {
        loom::model(|| {
            let channel = Arc::new(CompChannel::new(0));
            let threads = [true, false].map(|is_device| {
                let channel = Arc::clone(&channel);
                thread::spawn(move || {
                    if is_device {
                        [3, 5].into_iter().for_each(|cq| channel.push_event(cq));
                        return None;
                    }
                    channel.take_event()
                })
            });
            let mine = channel.take_event();
            let theirs = threads.map(|thread| thread.join().unwrap())[1];
            let left = std::iter::from_fn(|| channel.take_event());
            let mut all: Vec<_> = [mine, theirs].into_iter().flatten().chain(left).collect();
            all.sort_unstable();
            assert_eq!(all, [3, 5]);
            assert_eq!(channel.pending(), 0);
        });
    }

    /// A completion queue goes while another thread takes events and a third queue notifies.
    #[test]
    fn an_event_is_taken_or_forgotten_and_others_stay() {
        loom::model(|| {
            let channel = Arc::new(CompChannel::new(0));
            channel.push_event(3);
            let other = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.push_event(5))
            };
            let taker = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.take_event())
            };
            let forgotten = channel.forget(3);
            other.join().unwrap();
            let taken = taker.join().unwrap();
            assert_eq!(forgotten, usize::from(taken != Some(3)));
            assert_eq!(channel.pending(), usize::from(taken != Some(5)));
            assert_eq!(channel.take_event(), (taken != Some(5)).then_some(5));
        });
    }
}
