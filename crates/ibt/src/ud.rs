//! Unreliable datagrams: sender and receiver of one queue pair.
//!
//! Primer. Each message is one packet, at most as long as the port's MTU, and each request says whom it is for: an address, a
//! queue pair there, and that queue pair's key. Nobody answers. A send completes when its packet was given to the link; whether it
//! arrives, nobody learns. PSNs count up and are not judged. A receiver takes packets of anybody who knows its key, finds
//! where they came from in the first 40 bytes of its buffer and in the completion, and drops what has no receive, or not
//! enough of one.
//!
//! A send that fails takes the send queue to SQE: what is posted behind it is flushed, and receiving goes on. From there a modify
//! leads back to RTS.
//!
//! Not here: which packets belong to this queue pair (`nic`), how fast one destination may be sent to
//! ([`Paces`](crate::Paces)), and the sockets.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use userdma_mem::{FrameMeta, LinkId, TxBatch};
use userdma_verbs::{AsyncEvent, QpAttr, QpAttrMask, QpCap, QpState, Time, WcStatus};
use userdma_wire::Packet;

use self::receive::Receiver;
use self::send::{Sender, Stop};
use crate::attr::copy_attr;
use crate::{Ctx, Fill};

/// The machine of a datagram queue pair.
#[derive(Debug)]
pub struct Ud {
    state: QpState,
    attr: QpAttr,
    sender: Sender,
    receiver: Receiver,
    /// SQD was entered and its event is still to be reported.
    drain_event: bool,
}

impl Ud {
    /// A machine in RESET for a queue pair of these sizes.
    pub fn new(cap: &QpCap) -> Self {
        Self {
            state: QpState::Reset,
            attr: QpAttr { cap: *cap, ..QpAttr::default() },
            sender: Sender::new(cap),
            receiver: Receiver::new(cap),
            drain_event: false,
        }
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// As [`Rc::modify`](crate::Rc::modify), without a path.
    pub fn modify(&mut self, ctx: &mut Ctx<'_>, to: QpState, attr: &QpAttr, mask: QpAttrMask) {
        match to {
            QpState::Reset => return self.reset(ctx),
            QpState::Err => return self.enter_error(ctx),
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        copy_attr(&mut self.attr, attr, mask);
        if mask.contains(QpAttrMask::SQ_PSN) {
            self.sender.start(attr.sq_psn);
        }
        self.drain_event = to == QpState::Sqd && attr.en_sqd_async_notify;
        self.set_state(ctx, to);
        self.report_drained(ctx);
    }

    /// The attributes as a query gives them.
    pub fn attr(&self) -> QpAttr {
        QpAttr { qp_state: self.state, cur_qp_state: self.state, sq_psn: self.sender.next_psn(), ..self.attr }
    }

    /// A datagram for this queue pair arrived: right QPN, service and partition, ICRC good. `meta` says where it came from.
    pub fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, meta: &FrameMeta) {
        let receives = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        if !receives {
            ctx.stats.drop_qpn += 1;
            return;
        }
        ctx.stats.rcvd_pkts += 1;
        if let Err(status) = self.receiver.handle_packet(ctx, self.attr.qkey, packet, meta) {
            self.receiver.fail(ctx, status);
            self.enter_error(ctx);
        }
    }

    /// Takes over what was posted, then appends packets to `batch` until it is full, a datagram to somebody else or of another
    /// size must begin a new one, the destination's pace is reached, or nothing is left.
    pub fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch) -> Fill {
        match self.state {
            QpState::Err => self.flush(ctx),
            QpState::Sqe => self.sender.flush(ctx),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {
                self.sender.take_posted(ctx.qp);
            }
        }
        if self.state != QpState::Rts {
            return Fill::Done;
        }
        let before = batch.count();
        let stop = self.sender.fill(ctx, &self.attr, batch);
        ctx.stats.sent_pkts += (batch.count() - before) as u64;
        self.settle(ctx);
        match stop {
            Stop::Batch => Fill::More,
            Stop::Idle => Fill::Done,
        }
    }

    /// Everything that was filled has been given to the link: it completes.
    pub fn handle_sent(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.complete_sent(ctx);
        self.settle(ctx);
        self.report_drained(ctx);
    }

    /// Whether something was filled and has not completed.
    pub fn awaits_sending(&self) -> bool {
        self.sender.awaits_sending()
    }

    /// Whether a fill would send something.
    pub fn has_work(&self) -> bool {
        self.state == QpState::Rts && self.sender.can_send()
    }

    /// Whether the last fill stopped because the destination's pace was reached.
    pub fn is_paced(&self) -> bool {
        self.sender.paced_until().is_some()
    }

    /// The link that the last datagram went by.
    pub fn link(&self) -> LinkId {
        self.sender.link()
    }

    /// When `handle_timeout` must be called, if nothing happens before: the pace may allow more.
    pub fn deadline(&self) -> Option<Time> {
        self.sender.paced_until()
    }

    /// The time has come, or not yet (then nothing happens).
    pub fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.handle_timeout(ctx.now);
    }

    /// A send that cannot leave fails when everything before it has completed.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(status) = self.sender.due_fault() {
            self.fail_head(ctx, status);
        }
    }

    fn report_drained(&mut self, ctx: &mut Ctx<'_>) {
        if self.drain_event && self.state == QpState::Sqd && !self.sender.awaits_sending() {
            self.drain_event = false;
            ctx.effects.events.push(AsyncEvent::SqDrained { qpn: ctx.qp.qpn() });
        }
    }

    fn set_state(&mut self, ctx: &Ctx<'_>, state: QpState) {
        self.state = state;
        ctx.qp.set_state(state);
    }

    /// The oldest send fails with `status`; the send queue goes to SQE, and what is behind is flushed.
    fn fail_head(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        self.sender.fail(ctx, status);
        // In this order: what is posted before the state has changed is flushed here, what is posted later by its doorbell.
        self.set_state(ctx, QpState::Sqe);
        self.sender.flush(ctx);
    }

    /// Takes the queue pair to ERR and flushes what is posted. What was filled leaves all the same, and completes.
    fn enter_error(&mut self, ctx: &mut Ctx<'_>) {
        let was_there = self.state == QpState::Err;
        self.set_state(ctx, QpState::Err);
        self.sender.complete_sent(ctx);
        self.flush(ctx);
        if !was_there {
            ctx.report_last_wqe();
        }
    }

    fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.flush(ctx);
        self.receiver.flush(ctx);
    }

    fn reset(&mut self, ctx: &mut Ctx<'_>) {
        self.set_state(ctx, QpState::Reset);
        ctx.qp.clear();
        ctx.mrs.unbind_all(ctx.qp.qpn());
        self.sender.clear();
        self.receiver.clear();
        self.drain_event = false;
        self.attr = QpAttr { cap: self.attr.cap, ..QpAttr::default() };
    }
}
