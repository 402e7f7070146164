//! The half of a queue pair that callers share with the device: where work is posted.

use userdma_verbs::{PostError, QpCap, QpInitAttr, QpState, Qpn, RecvWr, SendWr, Sge};

use crate::{PdId, WqeRing};

/// What callers post to and the device takes from. Shared by reference count; every method is safe on any thread.
#[derive(Debug)]
pub struct QpShared {}

impl QpShared {
    /// The shared half of QP `qpn`, in RESET, with queues of the sizes in `init.cap`.
    pub fn new(qpn: Qpn, pd: PdId, init: &QpInitAttr) -> Self {
        let _ = (qpn, pd, init);
        todo!()
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> Qpn {
        todo!()
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        todo!()
    }

    /// Its sizes.
    pub fn cap(&self) -> QpCap {
        todo!()
    }

    /// The state as callers see it.
    pub fn state(&self) -> QpState {
        todo!()
    }

    /// Set by the device with every transition.
    pub fn set_state(&self, state: QpState) {
        let _ = state;
        todo!()
    }

    /// Posts a send. Legal in RTS, SQD, SQE and ERR (where it is flushed). The caller rings the doorbell afterwards.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let _ = wr;
        todo!()
    }

    /// Posts a receive. Legal in every state but RESET. In ERR the caller rings the doorbell, so that it is flushed.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let _ = wr;
        todo!()
    }

    /// Device: moves posted sends into its own ring; how many. Cheap (one load) if there are none.
    pub fn take_sends(&self, into: &mut WqeRing) -> u32 {
        let _ = into;
        todo!()
    }

    /// Device: `count` sends have left the queue (completed or retired unsignaled), so that as many may be posted.
    pub fn retire_sends(&self, count: u32) {
        let _ = count;
        todo!()
    }

    /// Device: takes the oldest receive; its list is copied into `sgl` (cleared first, capacity kept). `None` if none
    /// is posted.
    pub fn take_recv(&self, sgl: &mut Vec<Sge>) -> Option<u64> {
        let _ = sgl;
        todo!()
    }

    /// Receives that are posted and not taken: the responder's credits.
    pub fn recv_count(&self) -> u32 {
        todo!()
    }

    /// Device: forgets everything that is posted (RESET).
    pub fn clear(&self) {
        todo!()
    }
}

/// A ring of receive work queue elements.
#[derive(Debug)]
pub struct RecvQueue {}
