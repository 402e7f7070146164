//! The requester goes back: timeouts, the end of an RNR wait, and where sending starts again.

use userdma_objects::SgCursor;
use userdma_verbs::{QpAttr, RnrTimer, Time, WcStatus};

use super::requester::Requester;
use crate::{Ctx, Window};

impl Requester {
    pub(super) fn deadline(&self) -> Option<Time> {
        match (self.rnr_until, self.ack_deadline) {
            (Some(until), _) => Some(until),
            (None, deadline) => deadline.map(|deadline| deadline.min(self.silence.overdue_at)),
        }
    }

    /// Acts on a deadline that has passed. `Some` if the oldest request has failed.
    pub(super) fn handle_timeout(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) -> Option<WcStatus> {
        if self.rnr_until.is_some_and(|until| until <= ctx.now) {
            self.rnr_until = None;
        }
        self.handle_silence(ctx);
        let deadline = self.ack_deadline.filter(|&deadline| deadline <= ctx.now)?;
        if self.ask(ctx, attr) || self.excuse(ctx, attr, deadline) {
            return None;
        }
        ctx.stats.local_ack_timeout_err += 1;
        // Silence for as long as this is no chance.
        self.on_loss(ctx.window, u32::MAX);
        self.retry(ctx, attr)
    }

    /// Whether the ACK timer is handled so late that we cannot have been running: the answer may wait in the socket, and
    /// a peer on the same machine may not have been running either. Then the timer starts again, once, and nothing counts.
    fn excuse(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, deadline: Time) -> bool {
        let Some(timeout) = attr.timeout.duration() else { return false };
        if self.is_excused || ctx.now.since(deadline) < timeout / 4 {
            return false;
        }
        self.is_excused = true;
        ctx.stats.late_ack_timers += 1;
        self.ack_deadline = Some(ctx.now + timeout);
        true
    }

    /// If the last packets have not asked for an acknowledgement: sends the last one again, so that it does, once. Nothing
    /// is known to be lost; if it was, the answer says so, or the next timeout.
    pub(super) fn ask(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) -> bool {
        let is_open = self.since_ack_req > 0 && !self.has_asked;
        let Some(last) = self.next.checked_sub(1).filter(|_| is_open) else { return false };
        let (Some(&wqe), mark) = (self.ring.wqe(last), self.mark(last)) else { return false };
        // Once: a second timeout in a row is a loss.
        self.has_asked = true;
        // After a local operation, or within a message, all of it is sent again.
        if self.next_packet != 0 || mark.packets == 0 {
            self.go_back(ctx, attr);
            return true;
        }
        let packet = mark.packets - 1;
        let mtu = attr.path_mtu.bytes();
        let cost = Self::cost(wqe.len, mtu, packet, mark.packets).min(self.in_flight);
        ctx.window.forget(cost);
        self.in_flight -= cost;
        self.next_psn = self.next_psn.sub(1);
        self.stand_at(last, packet, mtu);
        // `since_ack_req` stays until the packet leaves: it may do so even if the window is full.
        self.ack_deadline = attr.timeout.deadline(ctx.now);
        self.round_trip.give_up();
        // What could not be sent after it is tried again.
        self.fault = None;
        true
    }

    /// Sends again from the oldest unanswered PSN on, if the retry count allows; `Some` if it does not.
    pub(super) fn retry(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) -> Option<WcStatus> {
        if self.retries_left == 0 {
            ctx.stats.retry_exceeded_err += 1;
            return Some(WcStatus::RetryExcErr);
        }
        self.retries_left -= 1;
        self.is_excused = false;
        ctx.stats.completer_retry_err += 1;
        self.go_back(ctx, attr);
        None
    }

    /// Waits as an RNR NAK asks. `Some` if the RNR retry count is used up.
    pub(super) fn wait_rnr(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, timer: RnrTimer) -> Option<WcStatus> {
        const FOR_EVER: u8 = 7;
        if attr.rnr_retry != FOR_EVER {
            if self.rnr_left == 0 {
                ctx.stats.rnr_nak_retry_err += 1;
                return Some(WcStatus::RnrRetryExcErr);
            }
            self.rnr_left -= 1;
        }
        // The peer has answered: what was lost before counts no longer.
        self.retries_left = attr.retry_cnt;
        self.go_back(ctx, attr);
        self.rnr_until = Some(ctx.now + timer.duration());
        None
    }

    /// Puts the sending position back to the oldest unanswered PSN. Nothing is under way afterwards.
    pub(super) fn go_back(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) {
        ctx.window.forget(self.in_flight);
        self.in_flight = 0;
        self.reads.clear();
        self.since_ack_req = 0;
        self.ack_deadline = None;
        self.silence.stop();
        self.round_trip.give_up();
        self.fault = None;
        self.seek(attr);
    }

    /// Puts the sending position to `una_psn`: the oldest element that was begun and misses an answer.
    pub(super) fn seek(&mut self, attr: &QpAttr) {
        let head = self.ring.head();
        self.next_psn = self.una_psn;
        if head >= self.begun {
            (self.next, self.next_packet) = (head, 0);
            self.cursor = SgCursor::default();
            return;
        }
        self.stand_at(head, self.mark(head).acked, attr.path_mtu.bytes());
    }

    /// Puts the sending position to a packet of an element. The PSN is the caller's to set.
    pub(super) fn stand_at(&mut self, number: u64, packet: u32, mtu: u32) {
        (self.next, self.next_packet) = (number, packet);
        let offset = u64::from(packet) * u64::from(mtu);
        self.cursor = self.ring.get(number).map_or(SgCursor::default(), |e| SgCursor::at(e.sgl, offset));
    }

    /// Makes the window smaller, once for all losses among the packets that are under way now, of which `queued` bytes waited
    /// in queues.
    fn on_loss(&mut self, window: &mut Window, queued: u32) {
        if self.recover_psn.is_some_and(|psn| self.una_psn.is_before(psn)) {
            return;
        }
        self.recover_psn = Some(self.max_psn);
        window.on_loss(queued);
    }

    /// The peer says that a packet is missing, or its answers do.
    pub(super) fn on_gap(&mut self, window: &mut Window) {
        let queued = self.round_trip.queued(window.limit());
        self.on_loss(window, queued);
    }
}
