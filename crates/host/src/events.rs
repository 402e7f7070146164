//! Asynchronous events of a device: a queue and a descriptor.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use userdma_verbs::AsyncEvent;

use crate::bell::Bell;
use crate::command::lock;

/// Events that nobody has taken yet. The descriptor is readable while there are some.
#[derive(Debug)]
pub(crate) struct Events {
    queue: Mutex<VecDeque<AsyncEvent>>,
    bell: Bell,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: Mutex::default(), bell: Bell::new()? })
    }

    /// Adds an event. If nobody takes any, the oldest is forgotten after [`MAX_EVENTS`].
    pub(crate) fn push(&self, event: AsyncEvent) {
        let mut queue = lock(&self.queue);
        if queue.len() == MAX_EVENTS {
            queue.pop_front();
        }
        queue.push_back(event);
        self.bell.ring();
    }

    /// Takes the oldest.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
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
        let events = Events::new().unwrap();
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
        let events = Events::new().unwrap();
        (0..=MAX_EVENTS).for_each(|_| events.push(AsyncEvent::GidChange));
        assert_eq!(lock(&events.queue).len(), MAX_EVENTS);
    }
}
