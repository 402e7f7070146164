//! Asynchronous events of a device: queues, each with a descriptor.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use userdma_verbs::AsyncEvent;

use crate::bell::Bell;
use crate::command::lock;

/// The device's own queue, and those that users of it have asked for.
#[derive(Debug)]
pub(crate) struct Events {
    own: EventQueue,
    others: Mutex<Vec<Weak<EventQueue>>>,
}

/// Events that nobody has taken yet. The descriptor is readable while there are some.
#[derive(Debug)]
pub struct EventQueue {
    queue: Mutex<VecDeque<AsyncEvent>>,
    bell: Bell,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { own: EventQueue::new()?, others: Mutex::default() })
    }

    /// Adds an event to every queue.
    pub(crate) fn push(&self, event: AsyncEvent) {
        self.own.push(event);
        lock(&self.others).iter().filter_map(Weak::upgrade).for_each(|queue| queue.push(event));
    }

    /// Takes the oldest of the device's own queue.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        self.own.take()
    }

    /// A further queue, which gets every event from now on as long as it exists.
    pub(crate) fn subscribe(&self) -> io::Result<Arc<EventQueue>> {
        let queue = Arc::new(EventQueue::new()?);
        let mut others = lock(&self.others);
        others.retain(|other| other.strong_count() > 0);
        others.push(Arc::downgrade(&queue));
        Ok(queue)
    }
}

impl EventQueue {
    fn new() -> io::Result<Self> {
        Ok(Self { queue: Mutex::default(), bell: Bell::new()? })
    }

    /// Adds an event. If nobody takes any, the oldest is forgotten after [`MAX_EVENTS`].
    fn push(&self, event: AsyncEvent) {
        let mut queue = lock(&self.queue);
        if queue.len() == MAX_EVENTS {
            queue.pop_front();
        }
        queue.push_back(event);
        self.bell.ring();
    }

    /// Takes the oldest. Never waits.
    pub fn take(&self) -> Option<AsyncEvent> {
        let mut queue = lock(&self.queue);
        let event = queue.pop_front();
        if queue.is_empty() && event.is_some() {
            self.bell.hush();
        }
        event
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Events that are kept. A program that never looks must not lose its memory to them.
const MAX_EVENTS: usize = 4096;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
        let events = EventQueue::new().unwrap();
        events.push(AsyncEvent::PortActive);
        events.push(AsyncEvent::PortError);
        assert_eq!(events.take(), Some(AsyncEvent::PortActive));
        assert!(events.bell.hush(), "one is left");
        events.bell.ring();
        assert_eq!(events.take(), Some(AsyncEvent::PortError));
        assert!(!events.bell.hush());
        assert_eq!(events.take(), None);
    }

    #[test]
    fn events_that_nobody_takes_do_not_pile_up() {
        let events = EventQueue::new().unwrap();
        (0..=MAX_EVENTS).for_each(|_| events.push(AsyncEvent::GidChange));
        assert_eq!(lock(&events.queue).len(), MAX_EVENTS);
    }

    #[test]
    fn every_queue_gets_every_event_as_long_as_it_exists() {
        let events = Events::new().unwrap();
        let (first, second) = (events.subscribe().unwrap(), events.subscribe().unwrap());
        events.push(AsyncEvent::PortActive);
        drop(first);
        events.push(AsyncEvent::PortError);
        let both = [Some(AsyncEvent::PortActive), Some(AsyncEvent::PortError), None];
        assert_eq!([(); 3].map(|()| second.take()), both);
        assert_eq!([(); 3].map(|()| events.take()), both);
    }
}
