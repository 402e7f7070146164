//! The sending side: elements become packets in posting order, each of which is sent once.

use userdma_objects::{SgCursor, Wqe, WqeRing};
use userdma_verbs::{QpCap, QpState, SendFlags, SendOp, WcStatus};

use crate::data::{Data, DataPacket, Step, put_data};
use crate::departures::Departures;
use crate::pace::pace_cost;
use crate::segment::{packets_of, payload_of, position};
use crate::{Ctx, Fill, Out};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) departures: Departures,
    /// The packet of the element that is sent next.
    next_packet: u32,
    /// Where its payload comes from.
    cursor: SgCursor,
}

impl Sender {
    pub(super) fn new(cap: &QpCap) -> Self {
        let ring = WqeRing::new(cap.max_send_wr.max(1), cap.max_send_sge, cap.max_inline_data);
        Self { departures: Departures::new(ring), next_packet: 0, cursor: SgCursor::default() }
    }

    /// Whether everything that was begun has left.
    pub(super) fn is_drained(&self) -> bool {
        self.next_packet == 0 && !self.departures.awaits_sending()
    }

    /// Whether there is something to send, were it not for the pace: in SQD what was begun is finished, and nothing new is begun.
    pub(super) fn can_send(&self, state: QpState) -> bool {
        self.departures.has_next() && (state == QpState::Rts || state == QpState::Sqd && self.next_packet > 0)
    }

    /// Appends packets to the batch, as far as the pace allows.
    pub(super) fn fill(&mut self, ctx: &mut Ctx<'_>, state: QpState, out: &mut Out<'_>) -> Fill {
        self.departures.paced_until = None;
        if !self.can_send(state) {
            return Fill::Done;
        }
        let (route, dest) = (out.path.route, out.attr.dest_qp_num);
        let mut budget = Budget { bytes: ctx.paces.budget(ctx.now, &route, dest), spent: 0 };
        let fill = loop {
            if !self.can_send(state) {
                break Fill::Done;
            }
            let Some(&wqe) = self.departures.ring.wqe(self.departures.next) else { break Fill::Done };
            match self.send(ctx, out, &wqe, &mut budget) {
                Step::Sent => self.advance(ctx, &wqe),
                Step::Batch if budget.is_used_up() => {
                    let cost = pace_cost(payload_of(wqe.len, out.mtu(), self.next_packet));
                    self.departures.paced_until = Some(ctx.paces.ask(ctx.now, &route, dest, cost));
                    break Fill::Done;
                }
                Step::Batch => break Fill::More,
                Step::Fault(status) => self.departures.fault = Some(status),
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
            self.departures.next_psn = self.departures.next_psn.add(1);
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
        let mut bth = out.bth(opcode, self.departures.next_psn);
        bth.set_solicited(is_last && wqe.flags.contains(SendFlags::SOLICITED));
        let packet = DataPacket {
            data,
            len: wqe.len,
            position,
            offset: self.next_packet * out.mtu(),
            payload_len: payload_of(wqe.len, out.mtu(), self.next_packet),
        };
        let element = self.departures.ring.get(self.departures.next);
        put_data(ctx, out, &bth, opcode, &packet, element, &mut self.cursor)
    }

    /// The element at the sending position is in the batch, or done. One without a packet completes at once, unless one before it
    /// has to leave first.
    fn advance(&mut self, ctx: &mut Ctx<'_>, wqe: &Wqe) {
        let is_first = !self.departures.awaits_sending();
        self.departures.next += 1;
        self.rewind();
        if is_first && Data::of(wqe.op).is_none() {
            self.departures.complete_sent(ctx);
        }
    }

    /// Completes everything as flushed, also what is still with the poster.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.departures.flush(ctx);
        self.rewind();
    }

    /// Forgets every element.
    pub(super) fn clear(&mut self) {
        self.departures.clear();
        self.rewind();
    }

    /// Goes to the beginning of an element.
    fn rewind(&mut self) {
        (self.next_packet, self.cursor) = (0, SgCursor::default());
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
