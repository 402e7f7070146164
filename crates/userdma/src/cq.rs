//! Completion queues.

use std::time::Duration;

use userdma_objects::Arm;
use userdma_verbs::Wc;

use crate::Error;

/// A completion queue. Clones are the same queue; any number of threads may poll it.
#[derive(Clone, Debug)]
pub struct Cq {}

impl Cq {
    /// Its number on the device.
    pub fn number(&self) -> u32 {
        todo!()
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        todo!()
    }

    /// Takes up to `out.len()` completions, oldest first; how many. If there is none it drives the device once, and
    /// looks again. Never waits.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, Error> {
        let _ = out;
        todo!()
    }

    /// Takes one completion, if there is one. Never waits.
    pub fn poll_one(&self) -> Result<Option<Wc>, Error> {
        todo!()
    }

    /// As [`Cq::poll`], but sleeps until there is a completion or `timeout` has passed (then 0; never, if `None`). The
    /// sleeping thread drives the device.
    ///
    /// # Errors
    /// [`Error::SharedChannel`] for a queue made with [`Device::create_cq_on`](crate::Device::create_cq_on).
    pub fn wait(&self, out: &mut [Wc], timeout: Option<Duration>) -> Result<usize, Error> {
        let _ = (out, timeout);
        todo!()
    }

    /// Waits for `count` completions; fewer if `timeout` has passed.
    pub fn wait_for(&self, count: usize, timeout: Option<Duration>) -> Result<Vec<Wc>, Error> {
        let _ = (count, timeout);
        todo!()
    }

    /// Asks for one event on the channel, for the next completion (or the next solicited or failed one). Poll once more
    /// afterwards: what is in the queue already raises no event.
    pub fn req_notify(&self, arm: Arm) -> Result<(), Error> {
        let _ = arm;
        todo!()
    }
}
