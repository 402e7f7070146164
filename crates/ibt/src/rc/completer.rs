//! The completer: answers from the peer retire elements in posting order.

use userdma_objects::{Wqe, scatter};
use userdma_verbs::{Psn, QpAttr, SendFlags, SendOp, Wc, WcStatus};
use userdma_wire::{Aeth, NakCode, Operation, Packet, Syndrome};

use super::Rc;
use super::requester::{Requester, reported_len};
use crate::Ctx;
use crate::segment::{packet_cost, payload_of};

/// How far an acknowledgement of earlier packets came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    /// Everything before the PSN is answered.
    All,
    /// A READ or an atomic before it still misses its data.
    Gap,
}

/// What an answer means for the queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Fine,
    /// The oldest element failed.
    Head(WcStatus),
    /// The element that holds this PSN failed, with the syndrome for `vendor_err`.
    At(Psn, WcStatus, u8),
}

impl Rc {
    /// Reads an answer of the peer's responder.
    pub(super) fn handle_response(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let psn = packet.bth().psn();
        // Answers to what was answered before, or never asked, say nothing.
        if psn.is_before(self.req.una_psn) || !psn.is_before(self.req.max_psn) {
            ctx.stats.unexpected_response += 1;
            return;
        }
        let verdict = match packet.info().op {
            Operation::Acknowledge => match packet.aeth() {
                Some(aeth) => self.req.handle_aeth(ctx, &self.standing.attr, psn, aeth),
                None => Verdict::Fine,
            },
            Operation::ReadResponse => self.req.handle_read_response(ctx, &self.standing.attr, psn, packet),
            Operation::AtomicAcknowledge => {
                self.req.handle_atomic_response(ctx, &self.standing.attr, psn, packet)
            }
            Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => Verdict::Fine,
        };
        match verdict {
            Verdict::Fine => self.settle(ctx),
            Verdict::Head(status) => self.fail_head(ctx, status),
            Verdict::At(psn, status, syndrome) => {
                let number = self.req.element_at(psn);
                self.req.fail(ctx, Some(number), status, u32::from(syndrome));
                self.enter_error(ctx);
            }
        }
    }
}

impl Requester {
    fn handle_aeth(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, psn: Psn, aeth: &Aeth) -> Verdict {
        match aeth.syndrome() {
            Syndrome::Ack { .. } => match self.answered_before(ctx, attr, psn.add(1)) {
                Reach::All => Verdict::Fine,
                Reach::Gap => self.handle_gap(ctx, attr),
            },
            Syndrome::Rnr { timer } => {
                ctx.stats.rcvd_rnr_err += 1;
                self.silence.reset();
                if self.answered_before(ctx, attr, psn) == Reach::Gap {
                    return self.handle_gap(ctx, attr);
                }
                self.wait_rnr(ctx, attr, timer).map_or(Verdict::Fine, Verdict::Head)
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                ctx.stats.rcvd_seq_err += 1;
                self.silence.reset();
                let _ = self.answered_before(ctx, attr, psn);
                // A peer that asked to wait drops what follows, and may report that as a gap (as `rxe_resp.c
                // check_psn()`). Nothing is lost, and everything is sent again when the wait is over.
                if self.rnr_until.is_some() {
                    return Verdict::Fine;
                }
                self.on_gap(ctx.window);
                self.retry(ctx, attr).map_or(Verdict::Fine, Verdict::Head)
            }
            Syndrome::Nak(code) => {
                let _ = self.answered_before(ctx, attr, psn);
                Verdict::At(psn, nak_status(code), aeth.syndrome_byte())
            }
            Syndrome::Reserved(_) => {
                ctx.stats.unexpected_response += 1;
                Verdict::Fine
            }
        }
    }

    fn handle_read_response(
        &mut self,
        ctx: &mut Ctx<'_>,
        attr: &QpAttr,
        psn: Psn,
        packet: &Packet<'_>,
    ) -> Verdict {
        if let Some(verdict) = self.reach(ctx, attr, psn) {
            return verdict;
        }
        let head = self.ring.head();
        let Some(element) = self.ring.get(head).filter(|_| head < self.begun) else {
            ctx.stats.unexpected_response += 1;
            return Verdict::Fine;
        };
        let (mtu, mark, wqe) = (attr.path_mtu.bytes(), self.mark(head), *element.wqe);
        // The position in the answer (First, Middle, …) is not looked at: a peer that continues a READ which was
        // partly answered may begin with a Middle. The PSN says where the bytes go, and the length must agree.
        let want = payload_of(wqe.len, mtu, mark.acked);
        if !matches!(wqe.op, SendOp::Read(_)) || packet.payload().len() != want as usize {
            return Verdict::Head(WcStatus::BadRespErr);
        }
        let mut landing = mark.landing;
        if scatter(ctx.mrs, ctx.qp.pd(), element.sgl, &mut landing, packet.payload()).is_err() {
            return Verdict::Head(WcStatus::LocProtErr);
        }
        let mark = self.mark_mut(head);
        mark.landing = landing;
        mark.acked += 1;
        self.answered_one(ctx, attr, psn, packet_cost(want));
        Verdict::Fine
    }

    fn handle_atomic_response(
        &mut self,
        ctx: &mut Ctx<'_>,
        attr: &QpAttr,
        psn: Psn,
        packet: &Packet<'_>,
    ) -> Verdict {
        if let Some(verdict) = self.reach(ctx, attr, psn) {
            return verdict;
        }
        let head = self.ring.head();
        let (Some(element), Some(answer)) =
            (self.ring.get(head).filter(|_| head < self.begun), packet.atomic_ack_eth())
        else {
            ctx.stats.unexpected_response += 1;
            return Verdict::Fine;
        };
        if !matches!(element.wqe.op, SendOp::Atomic(..)) {
            return Verdict::Head(WcStatus::BadRespErr);
        }
        let mut landing = self.mark(head).landing;
        let bytes = answer.orig().to_ne_bytes();
        if scatter(ctx.mrs, ctx.qp.pd(), element.sgl, &mut landing, &bytes).is_err() {
            return Verdict::Head(WcStatus::LocProtErr);
        }
        self.mark_mut(head).acked = 1;
        self.answered_one(ctx, attr, psn, packet_cost(8));
        Verdict::Fine
    }

    /// Data for `psn` acknowledges everything before it. The verdict if data before it is missing: that was lost then.
    fn reach(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, psn: Psn) -> Option<Verdict> {
        match self.answered_before(ctx, attr, psn) {
            Reach::All => None,
            Reach::Gap => {
                ctx.stats.implied_nak_seq_err += 1;
                Some(self.handle_gap(ctx, attr))
            }
        }
    }

    /// The packet `psn` of the oldest element is answered with data.
    fn answered_one(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, psn: Psn, cost: u32) {
        self.una_psn = psn.add(1);
        self.acked(ctx.window, cost);
        self.retire_done(ctx);
        self.moved_on(ctx, attr);
    }

    /// Everything before `end` is answered, except that READs and atomics need their data.
    fn answered_before(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, end: Psn) -> Reach {
        let (mtu, before) = (attr.path_mtu.bytes(), self.una_psn);
        let mut reach = Reach::All;
        loop {
            self.retire_done(ctx);
            let head = self.ring.head();
            let Some(element) = self.ring.get(head).filter(|_| head < self.begun) else { break };
            let (wqe, mark) = (*element.wqe, self.mark(head));
            // Counted from what is answered already: a message may have as many packets as half the PSN space.
            let Ok(more @ 1..) = u32::try_from(end.distance(mark.first_psn.add(mark.acked))) else { break };
            let answered = mark.acked.saturating_add(more).min(mark.packets);
            if answered == mark.acked {
                // A local operation that waits for its turn. Nothing behind it was sent, whatever the peer says.
                break;
            }
            if wqe.op.opcode().is_read_or_atomic() {
                if mark.acked < answered {
                    reach = Reach::Gap;
                }
                break;
            }
            let cost = Self::cost(wqe.len, mtu, mark.acked, answered);
            self.mark_mut(head).acked = answered;
            self.una_psn = mark.first_psn.add(answered);
            self.acked(ctx.window, cost);
        }
        if self.una_psn != before {
            self.moved_on(ctx, attr);
        }
        reach
    }

    /// An answer shows that earlier responses were lost: asks for them again, once until something comes forward.
    fn handle_gap(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) -> Verdict {
        if self.gap_handled {
            return Verdict::Fine;
        }
        self.gap_handled = true;
        self.silence.reset();
        self.on_gap(ctx.window);
        ctx.stats.completer_retry_err += 1;
        self.go_back(ctx, attr);
        Verdict::Fine
    }

    /// `una_psn` has moved: retries are new, the timers start again, and the sending position is not behind it.
    fn moved_on(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr) {
        self.restore_retries(attr);
        self.silence.reset();
        self.round_trip.handle_answer(self.una_psn, ctx.now);
        // Kept longer, it would lie ahead again once half of all PSNs have gone by.
        if self.recover_psn.is_some_and(|psn| !self.una_psn.is_before(psn)) {
            self.recover_psn = None;
        }
        while self.reads.front().is_some_and(|last| last.is_before(self.una_psn)) {
            self.reads.pop_front();
        }
        if self.next_psn.is_before(self.una_psn) {
            self.seek(attr);
        }
        self.ack_deadline = if self.next_psn == self.una_psn { None } else { attr.timeout.deadline(ctx.now) };
        if self.awaits_answer() {
            self.listen(ctx.now, attr);
        }
    }

    /// Retires what is done at the head of the ring.
    pub(super) fn retire_done(&mut self, ctx: &mut Ctx<'_>) {
        let mut retired = 0;
        while self.head_is_done() {
            let Some(wqe) = self.ring.pop() else { break };
            retired += 1;
            if wqe.flags.contains(SendFlags::SIGNALED) {
                // Its place is free before its completion is seen.
                ctx.qp.retire_sends(std::mem::take(&mut retired));
                complete(ctx, &wqe);
            }
        }
        if retired > 0 {
            ctx.qp.retire_sends(retired);
        }
        self.skip_to_head();
    }

    /// Retires local operations that have just been done; one load if there are none.
    pub(super) fn retire_local(&mut self, ctx: &mut Ctx<'_>) {
        if self.head_is_done() {
            self.retire_done(ctx);
        }
    }

    /// The element that holds `psn`, or the oldest.
    fn element_at(&self, psn: Psn) -> u64 {
        let head = self.ring.head();
        let mut ahead = u32::try_from(psn.distance(self.una_psn)).unwrap_or(0);
        for number in head..self.begun {
            let mark = self.mark(number);
            let left = mark.packets - mark.acked;
            if ahead < left {
                return number;
            }
            ahead -= left;
        }
        head
    }
}

fn complete(ctx: &mut Ctx<'_>, wqe: &Wqe) {
    let opcode = wqe.op.opcode();
    let mut wc = Wc::new(wqe.wr_id, WcStatus::Success, opcode.wc_opcode(), ctx.qp.qpn());
    wc.byte_len = reported_len(opcode, wqe.len);
    ctx.effects.complete(ctx.send_cq, wc, false);
}

/// The status that a NAK gives to the request.
const fn nak_status(code: NakCode) -> WcStatus {
    match code {
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccess => WcStatus::RemAccessErr,
        NakCode::RemoteOperational | NakCode::PsnSequence => WcStatus::RemOpErr,
        NakCode::InvalidRd => WcStatus::RemInvReqErr,
    }
}
