//! An unreliable connection: sender and receiver of one queue pair.
//!
//! Primer. Messages are cut into packets with consecutive PSNs as on a reliable connection, and nobody answers. A send
//! completes when its last packet was given to the link; whether it arrives, nobody learns. The receiver expects the next
//! PSN. If another one comes, packets were lost: the message under way, if there is one, is given up, and what comes is
//! dropped until a packet begins a message, with which the expected PSN goes on. So a message completes whole or not at all;
//! a WRITE that is given up leaves what it has brought so far. A message that is not allowed, has no receive, or does not fit is
//! dropped in the same way.
//!
//! A send that fails takes the send queue to SQE: what is posted is flushed, and receiving goes on. From there a modify leads
//! back to RTS.
//!
//! Not here: which packets belong to this connection (`nic`), and the sockets.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use userdma_mem::TxBatch;
use userdma_verbs::{QpAttr, QpAttrMask, QpCap, QpState, Time};
use userdma_wire::Packet;

use self::receive::Receiver;
use self::send::Sender;
use crate::standing::Standing;
use crate::{Ctx, Fill, Out, Path};

/// The machine of an unreliable connection.
#[derive(Debug)]
pub struct Uc {
    standing: Standing,
    path: Option<Path>,
    sender: Sender,
    receiver: Receiver,
}

impl Uc {
    /// A machine in RESET for a queue pair of these sizes.
    pub fn new(cap: &QpCap) -> Self {
        Self {
            standing: Standing::new(cap),
            path: None,
            sender: Sender::new(cap),
            receiver: Receiver::new(cap),
        }
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.standing.state
    }

    /// As [`Rc::modify`](crate::Rc::modify).
    pub fn modify(
        &mut self,
        ctx: &mut Ctx<'_>,
        to: QpState,
        attr: &QpAttr,
        mask: QpAttrMask,
        path: Option<Path>,
    ) {
        match to {
            QpState::Reset => return self.reset(ctx),
            QpState::Err => return self.enter_error(ctx),
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        self.standing.adopt(attr, mask);
        if path.is_some() {
            self.path = path;
        }
        if mask.contains(QpAttrMask::RQ_PSN) {
            self.receiver.start(attr.rq_psn);
        }
        if mask.contains(QpAttrMask::SQ_PSN) {
            self.sender.departures.next_psn = attr.sq_psn;
        }
        self.standing.go(ctx, to, attr);
        self.report_drained(ctx);
    }

    /// The attributes as a query gives them.
    pub fn attr(&self) -> QpAttr {
        QpAttr {
            rq_psn: self.receiver.expected(),
            sq_psn: self.sender.departures.next_psn,
            ..self.standing.query()
        }
    }

    /// The path, from RTR on.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// A packet for this connection arrived: right QPN, service, partition and source, ICRC good.
    pub fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        if !self.standing.receives() {
            ctx.stats.drop_qpn += 1;
            return;
        }
        ctx.stats.rcvd_pkts += 1;
        let Standing { state, attr, .. } = &self.standing;
        if let Err(status) = self.receiver.handle_packet(ctx, *state, attr, packet) {
            self.receiver.fail(ctx, status);
            self.enter_error(ctx);
        }
    }

    /// Takes over what was posted, then appends packets to `batch` until it is full, another size must begin a new one, or
    /// nothing is left.
    pub fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch) -> Fill {
        match self.standing.state {
            QpState::Err => self.flush(ctx),
            QpState::Sqe => self.sender.flush(ctx),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {
                self.sender.departures.take_posted(ctx.qp);
            }
        }
        let Some(path) = &mut self.path else { return Fill::Done };
        let before = batch.count();
        let mut out = Out { path, attr: &self.standing.attr, batch, before };
        let fill = self.sender.fill(ctx, self.standing.state, &mut out);
        ctx.stats.sent_pkts += (batch.count() - before) as u64;
        self.settle(ctx);
        fill
    }

    /// Whether packets were filled whose requests complete once they have left ([`Uc::handle_sent`]).
    pub fn awaits_sending(&self) -> bool {
        self.sender.departures.awaits_sending()
    }

    /// What was filled has left: its requests complete.
    pub fn handle_sent(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.departures.complete_sent(ctx);
        self.settle(ctx);
    }

    /// Whether a fill would send something.
    pub fn has_work(&self) -> bool {
        self.path.is_some() && !self.is_paced() && self.sender.can_send(self.standing.state)
    }

    /// Whether the last fill stopped because it was too fast for the destination, and asked for more.
    pub fn is_paced(&self) -> bool {
        self.sender.departures.paced_until.is_some()
    }

    /// When `handle_timeout` must be called, if nothing happens before: it was too fast.
    pub fn deadline(&self) -> Option<Time> {
        self.sender.departures.paced_until
    }

    /// The time has come, or not yet (then nothing happens).
    pub fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.departures.handle_timeout(ctx.now);
    }

    /// What follows once nothing is on its way to the link: an error whose turn has come, or the end of draining.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        if self.sender.departures.fail_due(ctx) {
            // In this order: what is posted before the state changes is flushed here, what is posted later by its doorbell.
            self.standing.set_state(ctx, QpState::Sqe);
            self.sender.flush(ctx);
        }
        self.report_drained(ctx);
    }

    fn report_drained(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.report_drained(ctx, || self.sender.is_drained());
    }

    /// Takes the queue pair to ERR and flushes what is posted.
    fn enter_error(&mut self, ctx: &mut Ctx<'_>) {
        let is_new = self.standing.fail(ctx);
        self.flush(ctx);
        if is_new {
            ctx.report_last_wqe();
        }
    }

    fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.sender.flush(ctx);
        self.receiver.flush(ctx);
    }

    fn reset(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.reset(ctx);
        self.sender.clear();
        self.receiver.clear();
        self.path = None;
    }
}
