//! A reliable connection: requester, completer and responder of one queue pair.
//!
//! Primer. A message is cut into packets of the path MTU, each with a PSN. The *requester* sends them within a
//! window and remembers the work queue elements until they are answered; the *completer* reads the answers (ACK, NAK,
//! RNR NAK, READ and atomic responses) and writes completions in posting order; the *responder* judges the peer's
//! requests by their PSN, checks and executes them, and owes answers. Lost packets are sent again from the oldest
//! unanswered PSN on (go-back-N); nothing is buffered out of order. Both halves share nothing but the state.
//!
//! Not here: which packets belong to this connection (`nic`), how many bytes may be under way to a destination
//! ([`Window`](crate::Window)), and the sockets.

mod answers;
mod burst;
mod completer;
mod credits;
mod probe;
mod requester;
mod responder;
mod retry;
mod round_trip;
mod send;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use userdma_mem::TxBatch;
use userdma_verbs::dice::Dice;
use userdma_verbs::{QpAttr, QpAttrMask, QpCap, QpState, Time, WcStatus};
use userdma_wire::Packet;

use self::answers::BrokenRead;
use self::requester::{Asking, Requester};
use self::responder::Responder;
use crate::standing::Standing;
use crate::{Ctx, Fill, Out, Path, Window};

/// The machine of a reliable connection.
#[derive(Debug)]
pub struct Rc {
    standing: Standing,
    path: Option<Path>,
    req: Requester,
    resp: Responder,
}

impl Rc {
    /// A machine in RESET for a queue pair of these sizes.
    pub fn new(cap: &QpCap) -> Self {
        Self { standing: Standing::new(cap), path: None, req: Requester::new(cap), resp: Responder::new(cap) }
    }

    /// From now on messages that need a receive find none when the dice say yes, and are answered so.
    pub fn set_recv_fault(&mut self, dice: Dice) {
        self.resp.deny_recv = Some(Box::new(dice));
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.standing.state
    }

    /// Goes to `to` with attributes that the device has checked (legal transition, mandatory attributes there, values
    /// in range). `path` is given whenever `mask` has `AV`. To ERR: everything posted is flushed. To RESET:
    /// everything is forgotten without completions.
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
            QpState::Err => {
                self.resp.end();
                return self.go_to_error(ctx);
            }
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        self.standing.adopt(attr, mask);
        if path.is_some() {
            self.path = path;
        }
        if mask.contains(QpAttrMask::RQ_PSN) {
            self.resp.start(attr.rq_psn);
        }
        if mask.contains(QpAttrMask::SQ_PSN) {
            self.req.start(attr.sq_psn, &self.standing.attr);
        }
        if to == QpState::Sqd && self.req.next_packet == 0 {
            // Draining would wait for what nobody was asked for. A message that is half sent asks with its end.
            self.req.ask(ctx, &self.standing.attr);
        }
        self.standing.go(ctx, to, attr);
        self.report_drained(ctx);
    }

    /// The attributes as a query gives them.
    pub fn attr(&self) -> QpAttr {
        QpAttr { rq_psn: self.resp.expected(), sq_psn: self.req.next_psn(), ..self.standing.query() }
    }

    /// The path, from RTR on.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// Something was posted: takes sends over; in ERR flushes sends and receives.
    fn handle_doorbell(&mut self, ctx: &mut Ctx<'_>) {
        if self.standing.state == QpState::Err {
            self.flush(ctx);
        } else {
            self.req.take_posted(ctx.qp);
        }
    }

    /// A packet for this connection arrived: right QPN, service, partition and source, ICRC good.
    pub fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        if !self.standing.receives() {
            ctx.stats.drop_qpn += 1;
            return;
        }
        ctx.stats.rcvd_pkts += 1;
        if packet.info().is_response() {
            self.handle_response(ctx, packet);
        } else {
            self.handle_request(ctx, packet);
        }
    }

    /// Takes over what was posted, then appends packets to `batch` until it is full, another size must begin a new one, or
    /// nothing is left. Owed acknowledgements join if requests or other responses left in this call, or if `acks`.
    pub fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch, acks: bool) -> Fill {
        self.handle_doorbell(ctx);
        let before = batch.count();
        let result = loop {
            match self.fill_in_order(ctx, batch, before, acks) {
                Ok(fill) => break fill,
                Err(broken) => self.fail_read(ctx, broken),
            }
        };
        ctx.stats.sent_pkts += (batch.count() - before) as u64;
        self.settle(ctx);
        result
    }

    /// Answers first, then requests, then acknowledgements. `Err` if a READ cannot be answered any further.
    fn fill_in_order(
        &mut self,
        ctx: &mut Ctx<'_>,
        batch: &mut TxBatch,
        before: usize,
        acks: bool,
    ) -> Result<Fill, BrokenRead> {
        let Some(path) = &mut self.path else { return Ok(Fill::Done) };
        let is_conversing = self.resp.heard_at.is_some_and(|at| ctx.now.since(at) < CONVERSATION);
        self.req.asking = match self.standing.state {
            QpState::Rts if is_conversing => Asking::Seldom,
            QpState::Rts => Asking::UnlessFollowed,
            // Nothing begins that could ask later.
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqd | QpState::Sqe | QpState::Err => {
                Asking::Always
            }
        };
        let mut out = Out { path, attr: &self.standing.attr, batch, before };
        if self.resp.fill(ctx, &mut out)? == Fill::More {
            return Ok(Fill::More);
        }
        if self.req.fill(ctx, self.standing.state, &mut out) == Fill::More {
            return Ok(Fill::More);
        }
        let sent = out.batch.count() > before;
        Ok(self.resp.fill_ack(ctx, &mut out, acks || sent))
    }

    /// Whether a fill would send something without owed acknowledgements.
    pub fn has_work(&self, ctx: &Ctx<'_>) -> bool {
        self.path.is_some()
            && (self.resp.has_responses()
                || self.req.can_send(self.standing.state, ctx.window, &self.standing.attr))
    }

    /// Whether the last fill stopped because the window was full: try again when the window has room.
    pub fn is_window_blocked(&self) -> bool {
        self.req.is_window_blocked()
    }

    /// Since when an acknowledgement is owed.
    pub fn ack_owed_since(&self) -> Option<Time> {
        self.resp.ack_owed_since()
    }

    /// When `handle_timeout` must be called, if nothing happens before: probe, retransmission or end of an RNR wait.
    pub fn deadline(&self) -> Option<Time> {
        self.req.deadline()
    }

    /// The time has come, or not yet (then nothing happens). Packets that have come in meanwhile are handled first.
    pub fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(status) = self.req.handle_timeout(ctx, &self.standing.attr) {
            self.fail_head(ctx, status);
        }
    }

    /// What follows once the requester stands still: a local error whose turn has come, or the end of draining.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(status) = self.req.due_fault() {
            self.fail_head(ctx, status);
        }
        self.report_drained(ctx);
    }

    fn report_drained(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.report_drained(ctx, || self.req.is_drained());
    }

    /// The oldest request fails with `status`; the queue pair goes to the error state.
    fn fail_head(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        self.req.fail(ctx, None, status, 0);
        self.enter_error(ctx);
    }

    /// Takes the queue pair to ERR and flushes what is posted. Answers that are queued still leave: among them is
    /// the NAK that tells the peer why.
    fn enter_error(&mut self, ctx: &mut Ctx<'_>) {
        self.resp.owed = None;
        self.go_to_error(ctx);
    }

    /// The same, and what is to be acknowledged still is.
    fn go_to_error(&mut self, ctx: &mut Ctx<'_>) {
        let is_new = self.standing.fail(ctx);
        self.req.stop(ctx.window);
        self.flush(ctx);
        if is_new {
            ctx.report_last_wqe();
        }
    }

    /// Completes everything that is posted as flushed.
    fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.req.flush(ctx);
        self.resp.flush(ctx);
    }

    fn reset(&mut self, ctx: &mut Ctx<'_>) {
        self.standing.reset(ctx);
        self.req.stop(ctx.window);
        self.req.clear();
        self.resp.clear();
        self.path = None;
    }
}

/// How long after a request of the peer an answer is expected to be followed by another.
const CONVERSATION: Duration = Duration::from_micros(100);

/// Whether `cost` more bytes may be under way: the window has room, or nothing of this queue pair is under way,
/// so that a full window of others cannot starve it.
fn may_send(window: &Window, own_in_flight: u32, cost: u32) -> bool {
    own_in_flight == 0 || window.has_room(cost)
}
