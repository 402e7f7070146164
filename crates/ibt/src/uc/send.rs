//! The sending side: elements become packets in posting order, each of which is sent once.

use userdma_objects::{QpShared, SgCursor, Wqe, WqeRing};
use userdma_verbs::{Psn, QpCap, QpState, SendFlags, SendOp, Time, WcStatus};

use crate::data::{Data, DataPacket, Step, put_data};
use crate::pace::pace_cost;
use crate::retire::{complete_failed, complete_sent};
use crate::segment::{packets_of, payload_of, position};
use crate::{Ctx, Fill, Out};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    /// What has not completed: those before `next` are in batches that are on their way to the link.
    ring: WqeRing,
    /// The element that is sent next, and its packet.
    next: u64,
    next_packet: u32,
    /// Where its payload comes from.
    cursor: SgCursor,
    next_psn: Psn,
    /// The next element cannot be sent: it fails with this when those before it have completed.
    fault: Option<WcStatus>,
    /// The last fill was too fast for the destination: when to try again.
    paced_until: Option<Time>,
}

impl Sender {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self {
            ring: WqeRing::new(cap.max_send_wr.max(1), cap.max_send_sge, cap.max_inline_data),
            next: 0,
            next_packet: 0,
            cursor: SgCursor::default(),
            next_psn: Psn::default(),
            fault: None,
            paced_until: None,
        }
    }

    /// Begins with `psn`.
    pub(super) fn start(&mut self, psn: Psn) {
        self.next_psn = psn;
    }

    pub(super) fn next_psn(&self) -> Psn {
        self.next_psn
    }

    /// Takes over what was posted.
    pub(super) fn take_posted(&mut self, qp: &QpShared) {
        qp.take_sends(&mut self.ring);
    }

    /// Whether everything that was begun has left.
    pub(super) fn is_drained(&self) -> bool {
        self.next_packet == 0 && !self.awaits_sending()
    }

    /// Whether elements complete once the batches are with the link.
    pub(super) fn awaits_sending(&self) -> bool {
        self.ring.head() < self.next
    }

    /// When to try again what was too fast.
    pub(super) fn paced_until(&self) -> Option<Time> {
        self.paced_until
    }

    /// The time has come, or not yet.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.paced_until = self.paced_until.filter(|&until| until > now);
    }

    /// Whether there is something to send, were it not for the pace: in SQD what was begun is finished, and nothing new is begun.
    pub(super) fn can_send(&self, state: QpState) -> bool {
        self.next < self.ring.tail()
            && self.fault.is_none()
            && (state == QpState::Rts || state == QpState::Sqd && self.next_packet > 0)
    }

    /// Appends packets to the batch, as far as the pace allows.
    pub(super) fn fill(&mut self, ctx: &mut Ctx<'_>, state: QpState, out: &mut Out<'_>) -> Fill {
        self.paced_until = None;
        if !self.can_send(state) {
            return Fill::Done;
        }
        let (route, dest) = (out.path.route, out.attr.dest_qp_num);
        let mut budget = Budget { bytes: ctx.paces.budget(ctx.now, &route, dest), spent: 0 };
        let fill = loop {
            if !self.can_send(state) {
                break Fill::Done;
            }
            let Some(&wqe) = self.ring.wqe(self.next) else { break Fill::Done };
            match self.send(ctx, out, &wqe, &mut budget) {
                Step::Sent => self.advance(ctx, &wqe),
                Step::Batch if budget.is_used_up() => {
                    let cost = pace_cost(payload_of(wqe.len, out.mtu(), self.next_packet));
                    self.paced_until = Some(ctx.paces.ask(ctx.now, &route, dest, cost));
                    break Fill::Done;
                }
                Step::Batch => break Fill::More,
                Step::Fault(status) => self.fault = Some(status),
            }
        };
        ctx.paces.spend(&route, dest, budget.spent);
        fill
    }

    /// Does what an element asks.
    fn send(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, budget: &mut Budget) -> Step {
        match (wqe.op, Data::of(wqe.op)) {
            (_, Some(data)) => self.send_data(ctx, out, wqe, data, budget),
            (SendOp::LocalInv(rkey), None) => local(ctx.invalidate(rkey)),
            (SendOp::BindMw(bind), None) => local(ctx.bind_window(&bind)),
            // Posting has refused them.
            (_, None) => Step::Fault(WcStatus::LocQpOpErr),
        }
    }

    /// Sends the rest of a message, as far as the batch and the budget take it. What they do not take waits for another batch.
    fn send_data(
        &mut self,
        ctx: &mut Ctx<'_>,
        out: &mut Out<'_>,
        wqe: &Wqe,
        data: Data,
        budget: &mut Budget,
    ) -> Step {
        let packets = packets_of(wqe.len, out.mtu());
        while self.next_packet < packets {
            if budget.is_used_up() {
                return Step::Batch;
            }
            let cost = pace_cost(payload_of(wqe.len, out.mtu(), self.next_packet));
            let step = self.send_packet(ctx, out, wqe, data, packets);
            if step != Step::Sent {
                return step;
            }
            budget.spent += cost;
            self.next_packet += 1;
            self.next_psn = self.next_psn.add(1);
        }
        Step::Sent
    }

    fn send_packet(
        &mut self,
        ctx: &mut Ctx<'_>,
        out: &mut Out<'_>,
        wqe: &Wqe,
        data: Data,
        packets: u32,
    ) -> Step {
        let position = position(self.next_packet, packets);
        let Some(opcode) = data.uc_opcode(position) else { return Step::Fault(WcStatus::LocQpOpErr) };
        let is_last = self.next_packet + 1 == packets;
        let mut bth = out.bth(opcode, self.next_psn);
        bth.set_solicited(is_last && wqe.flags.contains(SendFlags::SOLICITED));
        let packet = DataPacket {
            data,
            len: wqe.len,
            position,
            offset: self.next_packet * out.mtu(),
            payload_len: payload_of(wqe.len, out.mtu(), self.next_packet),
        };
        put_data(ctx, out, &bth, opcode, &packet, self.ring.get(self.next), &mut self.cursor)
    }

    /// The element at the sending position is in the batch, or done. One without a packet completes at once, unless one before it
    /// has to leave first.
    fn advance(&mut self, ctx: &mut Ctx<'_>, wqe: &Wqe) {
        let is_first = !self.awaits_sending();
        self.rewind(self.next + 1);
        if is_first && Data::of(wqe.op).is_none() {
            self.complete_sent(ctx);
        }
    }

    /// What was filled has left: it completes.
    pub(super) fn complete_sent(&mut self, ctx: &mut Ctx<'_>) {
        complete_sent(ctx, &mut self.ring, self.next);
    }

    /// The element that cannot be sent fails, if its turn has come; whether it did.
    pub(super) fn fail_due(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.awaits_sending() {
            return false;
        }
        let Some(status) = self.fault.take() else { return false };
        complete_failed(ctx, &mut self.ring, status)
    }

    /// Completes everything as flushed, also what is still with the poster.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            self.take_posted(ctx.qp);
            if !complete_failed(ctx, &mut self.ring, WcStatus::WrFlushErr) {
                break;
            }
        }
        self.clear();
    }

    /// Forgets every element.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.rewind(self.ring.tail());
        (self.fault, self.paced_until) = (None, None);
    }

    /// Goes to the beginning of an element.
    fn rewind(&mut self, next: u64) {
        (self.next, self.next_packet, self.cursor) = (next, 0, SgCursor::default());
    }
}

/// What a fill may send.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes: u32,
    spent: u32,
}

impl Budget {
    const fn is_used_up(&self) -> bool {
        self.spent >= self.bytes
    }
}

/// An operation that needs no packet.
const fn local(result: Result<(), WcStatus>) -> Step {
    match result {
        Ok(()) => Step::Sent,
        Err(status) => Step::Fault(status),
    }
}
