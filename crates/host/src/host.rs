//! The device of a process.

use std::path::Path;
use std::time::Duration;

use userdma_ibt::Stats;
use userdma_nic::{GidEntry, Shard};
use userdma_objects::{Arm, Cq, QpShared};
use userdma_verbs::{AsyncEvent, RecvWr, SendWr, Time, Wc};

use crate::{Channel, HostConfig, HostError, OpenError, PostFailure};

/// An open device. Clones are the same device; it closes with the last.
#[derive(Clone, Debug)]
pub struct Host {}

impl Host {
    /// Opens the device with these addresses.
    pub fn open(config: &HostConfig) -> Result<Self, OpenError> {
        let _ = config;
        todo!()
    }

    /// The device's name, as `roce_lo`.
    pub fn name(&self) -> &str {
        todo!()
    }

    /// The GID table.
    pub fn gids(&self) -> &[GidEntry] {
        todo!()
    }

    /// Whether the device can be used by this process.
    pub fn check(&self) -> Result<(), HostError> {
        todo!()
    }

    /// Runs a verbs call on the device: at once if nobody drives it, else by whoever does, while the caller waits.
    pub fn control<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Shard, Time) -> R + Send + 'static,
    ) -> Result<R, HostError> {
        let _ = call;
        todo!()
    }

    /// Posts a send and starts it.
    pub fn post_send(&self, qp: &QpShared, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        self.check()?;
        qp.post_send(wr)?;
        self.doorbell_send(qp);
        Ok(())
    }

    /// Posts a receive.
    pub fn post_recv(&self, qp: &QpShared, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        self.check()?;
        qp.post_recv(wr)?;
        self.doorbell_recv(qp);
        Ok(())
    }

    /// Starts what was posted to a send queue.
    pub fn doorbell_send(&self, qp: &QpShared) {
        let _ = qp;
        todo!()
    }

    /// Tells the device of receives, where it needs to know.
    pub fn doorbell_recv(&self, qp: &QpShared) {
        let _ = qp;
        todo!()
    }

    /// Takes completions; if there are none, drives the device once and looks again.
    pub fn poll_cq(&self, cq: &Cq, out: &mut [Wc]) -> Result<usize, HostError> {
        let _ = (cq, out);
        todo!()
    }

    /// Asks for one event on the queue's channel.
    pub fn req_notify(&self, cq: &Cq, arm: Arm) -> Result<(), HostError> {
        let _ = (cq, arm);
        todo!()
    }

    /// A new completion channel.
    pub fn create_channel(&self) -> Result<Channel, OpenError> {
        todo!()
    }

    /// The oldest asynchronous event.
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, HostError> {
        todo!()
    }

    /// Waits for an asynchronous event; `None` if `timeout` has passed.
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, HostError> {
        let _ = timeout;
        todo!()
    }

    /// What the device has counted.
    pub fn stats(&self) -> Result<Stats, HostError> {
        todo!()
    }

    /// Writes every packet from now on to a pcapng file.
    pub fn start_capture(&self, path: &Path) -> Result<(), OpenError> {
        let _ = path;
        todo!()
    }

    /// Ends the capture; whether there was one.
    pub fn stop_capture(&self) -> Result<bool, HostError> {
        todo!()
    }
}
