//! Sends that nobody answers: they are filled in posting order, and complete when they have left. One that cannot leave fails
//! when everything before it has, and then the send queue stops.

use userdma_objects::{QpShared, WqeRing};
use userdma_verbs::{Psn, SendFlags, Time, Wc, WcStatus};

use crate::Ctx;

/// The sends of a queue pair of such a service.
#[derive(Debug)]
pub(crate) struct Departures {
    /// What has not completed: those before `next` were filled, and are on their way to the link.
    pub(crate) ring: WqeRing,
    /// The element that is sent next.
    pub(crate) next: u64,
    pub(crate) next_psn: Psn,
    /// The next element cannot be sent: it fails with this when those before it have completed.
    pub(crate) fault: Option<WcStatus>,
    /// The last fill was too fast for the destination: when to try again.
    pub(crate) paced_until: Option<Time>,
}

impl Departures {
    pub(crate) fn new(ring: WqeRing) -> Self {
        Self { ring, next: 0, next_psn: Psn::default(), fault: None, paced_until: None }
    }

    /// Takes over what was posted.
    pub(crate) fn take_posted(&mut self, qp: &QpShared) {
        qp.take_sends(&mut self.ring);
    }

    /// Whether elements were filled that complete once they have left.
    pub(crate) fn awaits_sending(&self) -> bool {
        self.ring.head() < self.next
    }

    /// Whether there is an element to send, were it not for the pace.
    pub(crate) fn has_next(&self) -> bool {
        self.next < self.ring.tail() && self.fault.is_none()
    }

    /// The time has come to try again, or not yet.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.paced_until = self.paced_until.filter(|&until| until > now);
    }

    /// What was filled has left: those that are signaled complete.
    pub(crate) fn complete_sent(&mut self, ctx: &mut Ctx<'_>) {
        while self.awaits_sending() {
            let Some(wqe) = self.ring.pop() else { return };
            ctx.qp.retire_sends(1);
            if wqe.flags.contains(SendFlags::SIGNALED) {
                let opcode = wqe.op.opcode().wc_opcode();
                let mut wc = Wc::new(wqe.wr_id, WcStatus::Success, opcode, ctx.qp.qpn());
                wc.byte_len = wqe.len;
                ctx.effects.complete(ctx.send_cq, wc, false);
            }
        }
    }

    /// The element that cannot be sent fails, if its turn has come; whether it did.
    pub(crate) fn fail_due(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.awaits_sending() {
            return false;
        }
        let Some(status) = self.fault.take() else { return false };
        self.complete_failed(ctx, status)
    }

    /// Completes everything as flushed, also what is still with the poster.
    pub(crate) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            self.take_posted(ctx.qp);
            if !self.complete_failed(ctx, WcStatus::WrFlushErr) {
                break;
            }
        }
        self.clear();
    }

    /// Forgets every element.
    pub(crate) fn clear(&mut self) {
        self.ring.clear();
        self.next = self.ring.tail();
        (self.fault, self.paced_until) = (None, None);
    }

    /// The oldest element completes with this error; whether there was one.
    fn complete_failed(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) -> bool {
        let Some(wqe) = self.ring.pop() else { return false };
        ctx.qp.retire_sends(1);
        let wc = Wc::new(wqe.wr_id, status, wqe.op.opcode().wc_opcode(), ctx.qp.qpn());
        ctx.effects.complete(ctx.send_cq, wc, false);
        true
    }
}
