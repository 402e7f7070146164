//! The sending side: elements become packets in posting order, each of which is sent once.

use userdma_objects::{QpShared, SgCursor, Wqe, WqeRing};
use userdma_verbs::{Psn, QpCap, QpState, SendFlags, SendOp, Wc, WcStatus};

use crate::data::{Data, DataPacket, Step, put_data};
use crate::segment::{packets_of, payload_of, position};
use crate::{Ctx, Fill, Out};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    /// What is not sent yet; the oldest may have left in part.
    ring: WqeRing,
    /// The packet of the oldest element that is sent next.
    next_packet: u32,
    /// Where its payload comes from.
    cursor: SgCursor,
    next_psn: Psn,
}

impl Sender {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self {
            ring: WqeRing::new(cap.max_send_wr.max(1), cap.max_send_sge, cap.max_inline_data),
            next_packet: 0,
            cursor: SgCursor::default(),
            next_psn: Psn::default(),
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

    /// Whether no message stands half sent.
    pub(super) fn is_drained(&self) -> bool {
        self.next_packet == 0
    }

    /// Whether a fill would do something: in SQD what was begun is finished, and nothing new is begun.
    pub(super) fn can_send(&self, state: QpState) -> bool {
        !self.ring.is_empty() && (state == QpState::Rts || state == QpState::Sqd && self.next_packet > 0)
    }

    /// Appends packets to the batch. `Err` if the oldest element cannot be sent; what is in the batch leaves all the same.
    pub(super) fn fill(
        &mut self,
        ctx: &mut Ctx<'_>,
        state: QpState,
        out: &mut Out<'_>,
    ) -> Result<Fill, WcStatus> {
        while self.can_send(state) {
            let Some(&wqe) = self.ring.wqe(self.ring.head()) else { break };
            let step = match (wqe.op, Data::of(wqe.op)) {
                (_, Some(data)) => self.send_data(ctx, out, &wqe, data),
                (SendOp::LocalInv(rkey), None) => local(ctx.invalidate(rkey)),
                (SendOp::BindMw(bind), None) => local(ctx.bind_window(&bind)),
                // Posting has refused them.
                (_, None) => Step::Fault(WcStatus::LocQpOpErr),
            };
            match step {
                Step::Sent => self.complete(ctx),
                Step::Batch => return Ok(Fill::More),
                Step::Fault(status) => return Err(status),
            }
        }
        Ok(Fill::Done)
    }

    /// Sends the rest of a message, as far as the batch takes it.
    fn send_data(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, data: Data) -> Step {
        let packets = packets_of(wqe.len, out.mtu());
        while self.next_packet < packets {
            let step = self.send_packet(ctx, out, wqe, data, packets);
            if step != Step::Sent {
                return step;
            }
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
        put_data(ctx, out, &bth, opcode, &packet, self.ring.get(self.ring.head()), &mut self.cursor)
    }

    /// The oldest element is sent, or done: it leaves the queue.
    fn complete(&mut self, ctx: &mut Ctx<'_>) {
        let Some(wqe) = self.pop(ctx) else { return };
        if wqe.flags.contains(SendFlags::SIGNALED) {
            let mut wc = Wc::new(wqe.wr_id, WcStatus::Success, wqe.op.opcode().wc_opcode(), ctx.qp.qpn());
            wc.byte_len = wqe.len;
            ctx.effects.complete(ctx.send_cq, wc, false);
        }
    }

    /// The oldest element fails.
    pub(super) fn fail(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        let Some(wqe) = self.pop(ctx) else { return };
        let wc = Wc::new(wqe.wr_id, status, wqe.op.opcode().wc_opcode(), ctx.qp.qpn());
        ctx.effects.complete(ctx.send_cq, wc, false);
    }

    /// Completes everything as flushed, also what is still with the poster.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            self.take_posted(ctx.qp);
            let Some(wqe) = self.pop(ctx) else { return };
            let wc = ctx.flushed(wqe.wr_id, wqe.op.opcode().wc_opcode());
            ctx.effects.complete(ctx.send_cq, wc, false);
        }
    }

    /// Forgets every element.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.rewind();
    }

    fn pop(&mut self, ctx: &Ctx<'_>) -> Option<Wqe> {
        self.rewind();
        let wqe = self.ring.pop()?;
        ctx.qp.retire_sends(1);
        Some(wqe)
    }

    /// The next element begins at its beginning.
    fn rewind(&mut self) {
        (self.next_packet, self.cursor) = (0, SgCursor::default());
    }
}

/// An operation that needs no packet.
const fn local(result: Result<(), WcStatus>) -> Step {
    match result {
        Ok(()) => Step::Sent,
        Err(status) => Step::Fault(status),
    }
}
