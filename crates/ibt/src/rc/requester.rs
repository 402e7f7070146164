//! The requester's memory: which elements were sent how far, and which PSNs are under way.

use std::collections::VecDeque;

use userdma_objects::{Failure, QpShared, SgCursor, WqeRing};
use userdma_verbs::{Psn, QpAttr, QpCap, Time, WcOpcode, WcStatus, WrOpcode};

use super::probe::Silence;
use super::round_trip::RoundTrip;
use crate::segment::{packet_cost, payload_of};
use crate::{Ctx, Window};

/// How far one element has come. Kept beside the ring, by slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// PSN of its first packet.
    pub(super) first_psn: Psn,
    /// PSNs that it takes; 0 for local operations.
    pub(super) packets: u32,
    /// Packets acknowledged, or responses received.
    pub(super) acked: u32,
    /// Packets of the pieces in which a READ is asked for. Asking again keeps to the same pieces: to the responder a
    /// request that begins in an executed one and ends in the next is neither a repetition nor new.
    pub(super) piece: u32,
    /// Where the next response lands.
    pub(super) landing: SgCursor,
    /// A local operation that was executed: it is not executed again when sending goes back.
    pub(super) is_executed: bool,
}

/// Which messages ask for an acknowledgement, if nothing waits for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asking {
    /// Each.
    Always,
    /// One that no other follows.
    UnlessFollowed,
    /// None: the peer sends requests as well just now, so others are likely to follow.
    Seldom,
}

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) ring: WqeRing,
    marks: Box<[Mark]>,
    /// Elements with a mark: those below this number were begun.
    pub(super) begun: u64,
    /// The element that is sent next, and its packet.
    pub(super) next: u64,
    pub(super) next_packet: u32,
    /// Where the next packet's payload comes from.
    pub(super) cursor: SgCursor,
    pub(super) next_psn: Psn,
    /// The oldest PSN without an answer.
    pub(super) una_psn: Psn,
    /// One past the highest PSN that was ever sent.
    pub(super) max_psn: Psn,
    /// Cost of the packets from `una_psn` to `next_psn`.
    pub(super) in_flight: u32,
    /// The last PSN of each READ request and atomic under way.
    pub(super) reads: VecDeque<Psn>,
    /// Packets sent since the last that asked for an acknowledgement.
    pub(super) since_ack_req: u32,
    pub(super) retries_left: u8,
    pub(super) rnr_left: u8,
    pub(super) ack_deadline: Option<Time>,
    /// The timer has asked for an acknowledgement, and nothing has come forward since.
    pub(super) has_asked: bool,
    /// The ACK timer was handled late and started again, and nothing has come forward or was sent again since.
    pub(super) is_excused: bool,
    /// When an answer is overdue, long before the ACK timer says so.
    pub(super) silence: Silence,
    pub(super) round_trip: RoundTrip,
    pub(super) rnr_until: Option<Time>,
    /// A gap in the responses was acted on, and nothing has come forward since.
    pub(super) gap_handled: bool,
    /// The window was made smaller for a loss before this PSN, which is not reached yet.
    pub(super) recover_psn: Option<Psn>,
    /// The next element cannot be sent: it fails with this when it has become the oldest.
    pub(super) fault: Option<WcStatus>,
    pub(super) window_blocked: bool,
    /// As the state and the peer are just now.
    pub(super) asking: Asking,
}

impl Requester {
    pub(super) fn new(cap: &QpCap) -> Self {
        let capacity = cap.max_send_wr.max(1);
        Self {
            ring: WqeRing::new(capacity, cap.max_send_sge, cap.max_inline_data),
            marks: vec![Mark::default(); (capacity as usize).next_power_of_two()].into_boxed_slice(),
            begun: 0,
            next: 0,
            next_packet: 0,
            cursor: SgCursor::default(),
            next_psn: Psn::default(),
            una_psn: Psn::default(),
            max_psn: Psn::default(),
            in_flight: 0,
            reads: VecDeque::new(),
            since_ack_req: 0,
            retries_left: 0,
            rnr_left: 0,
            ack_deadline: None,
            has_asked: false,
            is_excused: false,
            silence: Silence::default(),
            round_trip: RoundTrip::default(),
            rnr_until: None,
            gap_handled: false,
            recover_psn: None,
            fault: None,
            window_blocked: false,
            asking: Asking::Always,
        }
    }

    /// Begins with `psn`.
    pub(super) fn start(&mut self, psn: Psn, attr: &QpAttr) {
        (self.next_psn, self.una_psn, self.max_psn) = (psn, psn, psn);
        self.recover_psn = None;
        self.round_trip = RoundTrip::default();
        self.silence.reset();
        self.reads.reserve(usize::from(attr.max_rd_atomic));
        self.restore_retries(attr);
    }

    pub(super) fn restore_retries(&mut self, attr: &QpAttr) {
        self.retries_left = attr.retry_cnt;
        self.rnr_left = attr.rnr_retry;
        self.gap_handled = false;
        self.has_asked = false;
        self.is_excused = false;
    }

    pub(super) fn next_psn(&self) -> Psn {
        self.next_psn
    }

    pub(super) fn is_window_blocked(&self) -> bool {
        self.window_blocked
    }

    /// Takes over what was posted.
    pub(super) fn take_posted(&mut self, qp: &QpShared) {
        qp.take_sends(&mut self.ring);
    }

    pub(super) fn mark(&self, number: u64) -> Mark {
        self.marks.get(self.slot(number)).copied().unwrap_or_default()
    }

    pub(super) fn mark_mut(&mut self, number: u64) -> &mut Mark {
        let slot = self.slot(number);
        // `slot` is below the length.
        &mut self.marks[slot]
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        // As many marks as a power of two; what the mask leaves is below a length of memory.
        usize::try_from(number & (self.marks.len() as u64 - 1)).unwrap_or(0)
    }

    /// Whether the oldest element can leave the ring: it was begun and nothing of it is missing.
    pub(super) fn head_is_done(&self) -> bool {
        let head = self.ring.head();
        head < self.begun && {
            let mark = self.mark(head);
            // A local operation is done when it was executed, even if sending has gone back to before it since.
            mark.acked == mark.packets && (mark.packets > 0 || mark.is_executed)
        }
    }

    /// Whether everything that was begun is answered, and no message stands half sent.
    pub(super) fn is_drained(&self) -> bool {
        self.ring.head() >= self.begun && self.next_packet == 0
    }

    /// The status of a local error whose element has become the oldest.
    pub(super) fn due_fault(&self) -> Option<WcStatus> {
        self.fault.filter(|_| self.next == self.ring.head())
    }

    /// Cost of packets `from..to` of a message.
    pub(super) fn cost(len: u32, mtu: u32, from: u32, to: u32) -> u32 {
        if from >= to {
            return 0;
        }
        let last = packet_cost(payload_of(len, mtu, to - 1));
        (to - 1 - from).saturating_mul(packet_cost(mtu)).saturating_add(last)
    }

    /// Notes that `cost` bytes are answered.
    pub(super) fn acked(&mut self, window: &mut Window, cost: u32) {
        let cost = cost.min(self.in_flight);
        self.in_flight -= cost;
        window.on_acked(cost);
    }

    /// Nothing is under way any more: gives the window back and stops the timers.
    pub(super) fn stop(&mut self, window: &mut Window) {
        window.forget(self.in_flight);
        self.in_flight = 0;
        self.reads.clear();
        self.ack_deadline = None;
        self.silence.stop();
        self.rnr_until = None;
        self.fault = None;
        self.window_blocked = false;
    }

    /// Forgets every element.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.begun = self.ring.tail();
        self.next = self.ring.tail();
        self.next_packet = 0;
        self.cursor = SgCursor::default();
        self.since_ack_req = 0;
    }

    /// Completes elements in error, oldest first, up to element `number` (the oldest if `None`), which gets `status`;
    /// those before it are flushed, since nothing will answer them any more.
    pub(super) fn fail(&mut self, ctx: &mut Ctx<'_>, number: Option<u64>, status: WcStatus, vendor_err: u32) {
        let last = number.unwrap_or(self.ring.head());
        while self.ring.head() <= last {
            let is_last = self.ring.head() == last;
            if is_last && let Some(failed) = self.ring.get(last) {
                let (wqe, sgl) = (failed.wqe, failed.sgl.to_vec());
                let failure = Failure { wr_id: wqe.wr_id, op: Some(wqe.op), len: wqe.len, sgl };
                ctx.qp.note_failure(failure);
            }
            let Some(wqe) = self.ring.pop() else { break };
            ctx.qp.retire_sends(1);
            let mut wc = ctx.flushed(wqe.wr_id, wqe.op.opcode().wc_opcode());
            if is_last {
                (wc.status, wc.vendor_err) = (status, vendor_err);
            }
            ctx.effects.complete(ctx.send_cq, wc, false);
        }
        self.skip_to_head();
    }

    /// Completes everything as flushed, also what is still with the poster.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            self.take_posted(ctx.qp);
            let Some(wqe) = self.ring.pop() else { break };
            ctx.qp.retire_sends(1);
            let wc = ctx.flushed(wqe.wr_id, wqe.op.opcode().wc_opcode());
            ctx.effects.complete(ctx.send_cq, wc, false);
        }
        self.clear();
    }

    /// Moves the sending position forward if elements before it have left the ring.
    pub(super) fn skip_to_head(&mut self) {
        let head = self.ring.head();
        if self.next < head {
            (self.next, self.next_packet) = (head, 0);
            self.cursor = SgCursor::default();
        }
        self.begun = self.begun.max(head);
    }
}

/// Bytes that a completion of `opcode` reports for a message of `len` bytes.
pub(super) const fn reported_len(opcode: WrOpcode, len: u32) -> u32 {
    match opcode.wc_opcode() {
        WcOpcode::CompSwap | WcOpcode::FetchAdd => 8,
        WcOpcode::Send
        | WcOpcode::RdmaWrite
        | WcOpcode::RdmaRead
        | WcOpcode::BindMw
        | WcOpcode::LocalInv
        | WcOpcode::Recv
        | WcOpcode::RecvRdmaWithImm => len,
    }
}
