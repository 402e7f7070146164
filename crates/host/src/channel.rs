//! Completion channels: where threads wait for completion queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use userdma_objects::CompChannel;

use crate::HostError;

/// Why there is no event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The device is not usable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A signal handler ran while the thread waited.
    #[error("interrupted by a signal")]
    Interrupted,
}

/// A completion channel. Its descriptor is readable while events wait.
#[derive(Debug)]
pub struct Channel {}

impl Channel {
    /// The half that completion queues are made with.
    pub fn comp_channel(&self) -> &Arc<CompChannel> {
        todo!()
    }

    /// Takes the oldest event, the number of the completion queue; `None` if there is none now.
    pub fn try_event(&self) -> Result<Option<u32>, EventError> {
        todo!()
    }

    /// Waits for an event; the waiting thread drives the device. `None` if `timeout` has passed.
    pub fn get_event(&self, timeout: Option<Duration>) -> Result<Option<u32>, EventError> {
        let _ = timeout;
        todo!()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
