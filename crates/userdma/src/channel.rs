//! Completion channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::{Cq, Error};

/// Where several completion queues report that they have completions, if asked by [`Cq::req_notify`]. Clones are the
/// same channel. Its descriptor is readable while events wait and may join any `poll` or `epoll`.
#[derive(Clone, Debug)]
pub struct CompChannel {}

/// A completion queue has completions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CqEvent {
    /// The queue's number.
    pub cq: u32,
}

impl CqEvent {
    /// Whether the event is of this queue.
    pub fn is_of(&self, cq: &Cq) -> bool {
        self.cq == cq.number()
    }
}

impl CompChannel {
    /// Takes the oldest event, if there is one. Never waits.
    pub fn try_event(&self) -> Result<Option<CqEvent>, Error> {
        todo!()
    }

    /// Waits for an event; `None` once `timeout` has passed (never, if `None`). The waiting thread drives the device.
    pub fn get_event(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>, Error> {
        let _ = timeout;
        todo!()
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
