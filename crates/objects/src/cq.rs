//! Completion queues and completion channels.

use std::sync::Arc;

use userdma_verbs::Wc;

/// What a completion queue waits for before it notifies its channel. A request is used up by the notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next completion that is solicited or not a success.
    Solicited,
}

/// What a push did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Pushed {
    /// The completion is in the queue.
    Quiet,
    /// The same, and the channel has a new event: its descriptor must be made readable.
    Notify,
    /// The queue is full: the completion was refused and the queue is in error. Reported once; later pushes are `Lost`.
    Overflow,
    /// The queue is in error.
    Lost,
}

/// A completion queue: a bounded ring that the device fills and callers poll, on any thread.
#[derive(Debug)]
pub struct Cq {}

impl Cq {
    /// CQ `number` of at least `cqe` entries, reporting to `channel`.
    pub fn new(number: u32, cqe: u32, channel: Option<Arc<CompChannel>>) -> Self {
        let _ = (number, cqe, channel);
        todo!()
    }

    /// Its number on the device.
    pub fn number(&self) -> u32 {
        todo!()
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        todo!()
    }

    /// Its channel.
    pub fn channel(&self) -> Option<&Arc<CompChannel>> {
        todo!()
    }

    /// Whether it is empty: one load, no lock.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Device: adds a completion; `solicited` if the sender asked for notification.
    pub fn push(&self, wc: Wc, solicited: bool) -> Pushed {
        let _ = (wc, solicited);
        todo!()
    }

    /// Takes up to `out.len()` completions, oldest first; how many. Safe for several callers at once.
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        let _ = out;
        todo!()
    }

    /// Asks for one notification. A stronger request (`Any`) is not weakened by a later `Solicited`.
    pub fn arm(&self, arm: Arm) {
        let _ = arm;
        todo!()
    }

    /// Whether a completion was refused.
    pub fn has_overflowed(&self) -> bool {
        todo!()
    }
}

/// A completion channel: which completion queues have notified, in order. The host joins it to an eventfd.
#[derive(Debug)]
pub struct CompChannel {}

impl CompChannel {
    /// Channel `id` (the host's number for it).
    pub fn new(id: u32) -> Self {
        let _ = id;
        todo!()
    }

    /// The host's number.
    pub fn id(&self) -> u32 {
        todo!()
    }

    /// Takes the oldest event: the number of the completion queue that notified.
    pub fn take_event(&self) -> Option<u32> {
        todo!()
    }

    /// Events that wait.
    pub fn pending(&self) -> usize {
        todo!()
    }

    /// Forgets the events of a completion queue that is being destroyed; how many.
    pub fn forget(&self, cq: u32) -> usize {
        let _ = cq;
        todo!()
    }
}
