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
use userdma_verbs::{QpAttr, QpAttrMask, QpCap, QpState, Time};
use userdma_wire::Packet;

use self::receive::Receiver;
use self::send::{Sender, Stop};
use crate::standing::Standing;
use crate::{Ctx, Fill};

/// The machine of a datagram queue pair.
#[derive(Debug)]
pub struct Ud {
    standing: Standing,
    sender: Sender,
    receiver: Receiver,
}

impl Ud {
    /// A machine in RESET for a queue pair of these sizes.
    pub fn new(cap: &QpCap) -> Self {
        Self { standing: Standing::new(cap), sender: Sender::new(cap), receiver: Receiver::new(cap) }
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.standing.state
    }

    /// As [`Rc::modify`](crate::Rc::modify), without a path.
    pub fn modify(&mut self, ctx: &mut Ctx<'_>, to: QpState, attr: &QpAttr, mask: QpAttrMask) {
        match to {
            QpState::Reset => return self.reset(ctx),
            QpState::Err => return self.enter_error(ctx),
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        self.standing.adopt(attr, mask);
        if mask.contains(QpAttrMask::SQ_PSN) {
            self.sender.departures.next_psn = attr.sq_psn;
        }
        self.standing.go(ctx, to, attr);
        self.report_drained(ctx);
    }

    /// The attributes as a query gives them.
    pub fn attr(&self) -> QpAttr {
        QpAttr { sq_psn: self.sender.departures.next_psn, ..self.standing.query() }
    }

    /// A datagram for this queue pair arrived: right QPN, service and partition, ICRC good. `meta` says where it came from.
    pub fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, meta: &FrameMeta) {
        if !self.standing.receives() {
            ctx.stats.drop_qpn += 1;
            return;
        }
        ctx.stats.rcvd_pkts += 1;
        if let Err(status) = self.receiver.handle_packet(ctx, self.standing.attr.qkey, packet, meta) {
            self.receiver.fail(ctx, status);
            self.enter_error(ctx);
        }
    }

    /// Takes over what was posted, then appends packets to `batch` until it is full, a datagram to somebody else or of another
    /// size must begin a new one, the destination's pace is reached, or nothing is left.
    pub fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch) -> Fill {
        match self.standing.state {
            QpState::Err => self.flush(ctx),
            QpState::Sqe => self.sender.departures.flush(ctx),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {
                self.sender.departures.take_posted(ctx.qp);
            }
        }
        if self.standing.state != QpState::Rts {
            return Fill::Done;
        }
        let before = batch.count();
        let stop = self.sender.fill(ctx, &self.standing.attr, batch);
        ctx.stats.sent_pkts += (batch.count() - before) as u64;
        self.settle(ctx);
        match stop {
            Stop::Batch => Fill::More,
            Stop::Idle => Fill::Done,
        }
    }

    /// Everything that was filled has been given to the link: it completes.
    pub fn handle_sent(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.departures.complete_sent(ctx);
        self.settle(ctx);
        self.report_drained(ctx);
    }

    /// Whether something was filled and has not completed.
    pub fn awaits_sending(&self) -> bool {
        self.sender.departures.awaits_sending()
    }

    /// Whether a fill would send something.
    pub fn has_work(&self) -> bool {
        self.standing.state == QpState::Rts && self.sender.can_send()
    }

    /// Whether the last fill stopped because the destination's pace was reached.
    pub fn is_paced(&self) -> bool {
        self.sender.departures.paced_until.is_some()
    }

    /// The link that the last datagram went by.
    pub fn link(&self) -> LinkId {
        self.sender.link()
    }

    /// When `handle_timeout` must be called, if nothing happens before: the pace may allow more.
    pub fn deadline(&self) -> Option<Time> {
        self.sender.departures.paced_until
    }

    /// The time has come, or not yet (then nothing happens).
    pub fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.departures.handle_timeout(ctx.now);
    }

    /// A send that cannot leave fails when everything before it has completed; the send queue goes to SQE, and what is behind is
    /// flushed.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        if self.sender.departures.fail_due(ctx) {
            // In this order: what is posted before the state has changed is flushed here, what is posted later by its doorbell.
            self.standing.set_state(ctx, QpState::Sqe);
            self.sender.departures.flush(ctx);
        }
    }

    fn report_drained(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.report_drained(ctx, || !self.sender.departures.awaits_sending());
    }

    /// Takes the queue pair to ERR and flushes what is posted. What was filled leaves all the same, and completes.
    fn enter_error(&mut self, ctx: &mut Ctx<'_>) {
        let is_new = self.standing.fail(ctx);
        self.sender.departures.complete_sent(ctx);
        self.flush(ctx);
        if is_new {
            ctx.report_last_wqe();
        }
    }

    fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.departures.flush(ctx);
        self.receiver.flush(ctx);
    }

    fn reset(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.reset(ctx);
        self.sender.clear();
        self.receiver.clear();
    }
}
