//! Completion channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use userdma_host::{Channel, EventError, Host};

use crate::cq::Deadline;
use crate::{Cq, Device, Error};

/// Where several completion queues report that they have completions, if asked by [`Cq::req_notify`]. Clones are the
/// same channel. Its descriptor is readable while events wait and may join any `poll` or `epoll`.
#[derive(Clone, Debug)]
pub struct CompChannel {
    channel: Arc<Channel>,
    host: Host,
}

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
    pub(crate) fn create(device: &Device) -> Result<Self, Error> {
        let host = device.host.clone();
        Ok(Self { channel: Arc::new(host.create_channel()?), host })
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.host.is_same(&device.host)
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Wakes whoever waits, as an event of `cq` would.
    pub(crate) fn notify(&self, cq: &Cq) {
        self.channel.notify(cq.number());
    }

    /// Takes the oldest event, if there is one. Never waits.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn try_event(&self) -> Result<Option<CqEvent>, Error> {
        Ok(self.channel.try_event()?.map(|cq| CqEvent { cq }))
    }

    /// Waits for an event; `None` once `timeout` has passed (never, if `None`). The waiting thread drives the device.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn get_event(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>, Error> {
        let deadline = Deadline::after(timeout);
        loop {
            match self.channel.get_event(deadline.left()) {
                Ok(event) => return Ok(event.map(|cq| CqEvent { cq })),
                Err(EventError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
