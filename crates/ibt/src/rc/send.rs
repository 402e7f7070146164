//! The requester sends: elements become packets, as far as windows, fences and limits allow.

use userdma_objects::{SgCursor, Wqe};
use userdma_verbs::{AtomicOp, QpAttr, QpState, RemoteAddr, SendFlags, SendOp, Time, WcStatus};
use userdma_wire::{AtomicEth, Opcode, Reth, packet_len};

use super::may_send;
use super::requester::{Asking, Mark, Requester};
use crate::data::{Data, DataPacket, Step, put_data};
use crate::segment::{packet_cost, packets_of, payload_of, position};
use crate::{Ctx, Fill, Out, Window};

/// Packets after which an acknowledgement is asked for, within a message or not.
const ACK_REQ_EVERY: u32 = 16;

/// PSNs that may be under way at most: far below half of their space, where "before" ends.
const MAX_PSNS: i32 = 1 << 20;

/// Why the next packet does not go out now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wait {
    /// There is nothing, or something else must happen first.
    Idle,
    /// The window is full.
    Window,
}

impl Requester {
    /// Appends request packets to the batch.
    pub(super) fn fill(&mut self, ctx: &mut Ctx<'_>, state: QpState, out: &mut Out<'_>) -> Fill {
        self.window_blocked = false;
        if self.silence.is_probe_due() && self.fill_probe(ctx, out) == Fill::More {
            return Fill::More;
        }
        loop {
            match self.check_next(state, ctx.window, out.attr) {
                Ok(()) => {}
                Err(wait) => {
                    self.window_blocked = wait == Wait::Window;
                    return Fill::Done;
                }
            }
            let Some(&wqe) = self.ring.wqe(self.next) else { return Fill::Done };
            if self.next_packet == 0 && self.next >= self.begun {
                self.begin(&wqe, out.mtu(), ctx.window);
            }
            // It sends nothing that could ask for those before it.
            let is_stuck = is_local(&wqe) && wqe.flags.contains(SendFlags::SIGNALED);
            if is_stuck && self.ask(ctx, out.attr) {
                continue;
            }
            let step = match wqe.op {
                SendOp::LocalInv(rkey) => self.local(ctx, |ctx| ctx.invalidate(rkey)),
                SendOp::BindMw(bind) => self.local(ctx, |ctx| ctx.bind_window(&bind)),
                SendOp::Read(_) | SendOp::Atomic(..) if out.attr.max_rd_atomic == 0 => {
                    Step::Fault(WcStatus::LocQpOpErr)
                }
                SendOp::Read(remote) => self.send_read(ctx, out, &wqe, remote),
                SendOp::Atomic(remote, op) => self.send_atomic(ctx, out, remote, op),
                SendOp::Send => self.send_data(ctx, out, &wqe, Data::Send),
                SendOp::SendWithImm(imm) => self.send_data(ctx, out, &wqe, Data::SendWithImm(imm)),
                SendOp::SendWithInv(rkey) => self.send_data(ctx, out, &wqe, Data::SendWithInv(rkey)),
                SendOp::Write(remote) => self.send_data(ctx, out, &wqe, Data::Write(remote)),
                SendOp::WriteWithImm(remote, imm) => {
                    self.send_data(ctx, out, &wqe, Data::WriteWithImm(remote, imm))
                }
            };
            match step {
                Step::Sent => self.retire_local(ctx),
                Step::Batch => return Fill::More,
                // The error waits for the answers to everything before it.
                Step::Fault(_) if self.next != self.ring.head() && self.ask(ctx, out.attr) => {}
                Step::Fault(status) => {
                    self.fault = Some(status);
                    return Fill::Done;
                }
            }
        }
    }

    /// Whether a fill would send a request.
    pub(super) fn can_send(&self, state: QpState, window: &Window, attr: &QpAttr) -> bool {
        self.silence.is_probe_due() || self.check_next(state, window, attr).is_ok()
    }

    fn check_next(&self, state: QpState, window: &Window, attr: &QpAttr) -> Result<(), Wait> {
        if self.rnr_until.is_some() || self.fault.is_some() {
            return Err(Wait::Idle);
        }
        // In SQD what was begun is finished, lost packets included, and nothing new is begun.
        let finishes = self.next < self.begun;
        if !(state == QpState::Rts || state == QpState::Sqd && finishes) {
            return Err(Wait::Idle);
        }
        let wqe = self.ring.wqe(self.next).ok_or(Wait::Idle)?;
        if self.next_packet == 0 && wqe.flags.contains(SendFlags::FENCE) && !self.reads.is_empty() {
            return Err(Wait::Idle);
        }
        let opcode = wqe.op.opcode();
        // With a limit of 0 the element fails when it is sent.
        if opcode.is_read_or_atomic() && self.reads.len() >= usize::from(attr.max_rd_atomic).max(1) {
            return Err(Wait::Idle);
        }
        if self.next_psn.distance(self.una_psn) >= MAX_PSNS {
            return Err(Wait::Idle);
        }
        if self.has_room(window, wqe, attr) { Ok(()) } else { Err(Wait::Window) }
    }

    /// Whether the next packet of the element fits the window.
    #[inline]
    fn has_room(&self, window: &Window, wqe: &Wqe, attr: &QpAttr) -> bool {
        let cost = packet_cost(payload_of(wqe.len, attr.path_mtu.bytes(), self.next_packet));
        self.fits(window, cost)
    }

    /// Whether a packet fits the window.
    #[inline]
    pub(super) fn fits(&self, window: &Window, cost: u32) -> bool {
        // Packets that asked for no acknowledgement would wait for ever behind a full window: one more may go.
        may_send(window, self.in_flight, cost) || self.since_ack_req > 0
    }

    /// Gives the element its PSNs, and a READ the size of its pieces.
    fn begin(&mut self, wqe: &Wqe, mtu: u32, window: &Window) {
        let packets = packets_of(wqe.len, mtu);
        let (packets, piece) = match wqe.op {
            SendOp::LocalInv(_) | SendOp::BindMw(_) => (0, 0),
            SendOp::Atomic(..) => (1, 0),
            SendOp::Send
            | SendOp::SendWithImm(_)
            | SendOp::SendWithInv(_)
            | SendOp::Write(_)
            | SendOp::WriteWithImm(..) => (packets, 0),
            SendOp::Read(_) => (packets, (window.limit() / 2 / packet_cost(mtu)).max(1)),
        };
        *self.mark_mut(self.next) = Mark { first_psn: self.next_psn, packets, piece, ..Mark::default() };
        self.begun = self.next + 1;
    }

    /// An operation that needs no packet.
    fn local(&mut self, ctx: &mut Ctx<'_>, run: impl FnOnce(&mut Ctx<'_>) -> Result<(), WcStatus>) -> Step {
        if !self.mark(self.next).is_executed {
            if let Err(status) = run(ctx) {
                return Step::Fault(status);
            }
            self.mark_mut(self.next).is_executed = true;
        }
        self.advance(0, 0, 0);
        Step::Sent
    }

    /// Sends packets of a message, as many as the batch and the window take.
    fn send_data(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, data: Data) -> Step {
        let packets = self.mark(self.next).packets;
        let message = self.next;
        loop {
            let step = self.send_packet(ctx, out, wqe, data, packets);
            if !matches!(step, Step::Sent) || self.next != message {
                return step;
            }
            self.send_middles(ctx, out, data, packets);
            if !self.has_room(ctx.window, wqe, out.attr) {
                return Step::Sent;
            }
        }
    }

    /// Sends the packet with data at the sending position.
    fn send_packet(
        &mut self,
        ctx: &mut Ctx<'_>,
        out: &mut Out<'_>,
        wqe: &Wqe,
        data: Data,
        packets: u32,
    ) -> Step {
        let cost = packet_cost(payload_of(wqe.len, out.mtu(), self.next_packet));
        let is_last = self.next_packet + 1 == packets;
        let asks = is_last && self.needs_ack(wqe, out) || self.must_ask(ctx.window, cost);
        let step = self.put_data(ctx, out, wqe, data, asks);
        if matches!(step, Step::Sent) {
            self.sent_data(ctx.now, ctx.window, out.attr, asks, cost, packets);
        }
        step
    }

    /// Whether a packet must ask for an acknowledgement, wherever it stands in its message.
    #[inline]
    pub(super) fn must_ask(&self, window: &Window, cost: u32) -> bool {
        self.since_ack_req + 1 >= ACK_REQ_EVERY || !window.has_room(cost * 2)
    }

    /// A packet with data has left, of a message of `of` packets.
    #[inline]
    pub(super) fn sent_data(
        &mut self,
        now: Time,
        window: &mut Window,
        attr: &QpAttr,
        asks: bool,
        cost: u32,
        of: u32,
    ) {
        if asks {
            self.expect_answer(now, attr);
        }
        self.since_ack_req = if asks { 0 } else { self.since_ack_req + 1 };
        self.sent(now, window, attr, 1, cost, of);
    }

    /// Writes the packet at the sending position, which stays where it is.
    #[inline(always)]
    fn put_data(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, data: Data, asks: bool) -> Step {
        let packets = self.mark(self.next).packets;
        let position = position(self.next_packet, packets);
        let opcode = data.rc_opcode(position);
        let is_last = self.next_packet + 1 == packets;
        let mut bth = out.bth(opcode, self.next_psn);
        bth.set_ack_req(asks);
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

    /// Writes the packet at the sending position, asking for an answer, and counts nothing.
    #[cold]
    pub(super) fn put(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe) -> Step {
        let data = match wqe.op {
            SendOp::Read(remote) => return self.put_read(ctx, out, wqe, remote),
            SendOp::Atomic(remote, op) => return self.put_atomic(ctx, out, remote, op),
            SendOp::Send => Data::Send,
            SendOp::SendWithImm(imm) => Data::SendWithImm(imm),
            SendOp::SendWithInv(rkey) => Data::SendWithInv(rkey),
            SendOp::Write(remote) => Data::Write(remote),
            SendOp::WriteWithImm(remote, imm) => Data::WriteWithImm(remote, imm),
            // They have no packet.
            SendOp::LocalInv(_) | SendOp::BindMw(_) => return Step::Sent,
        };
        self.put_data(ctx, out, wqe, data, true)
    }

    /// Whether the last packet of a message must ask for an acknowledgement. A completion waits for it, or the place in the
    /// queue does. If neither is the case it can come with a later message's: in a conversation each message would
    /// otherwise cost two packets. Should no later message follow, the timer asks ([`Requester::ask`]).
    fn needs_ack(&self, wqe: &Wqe, out: &Out<'_>) -> bool {
        let is_crowded = self.ring.len() >= self.ring.capacity() / 2;
        let follows = |wqe: &Wqe| !is_local(wqe);
        let can_wait = match self.asking {
            Asking::Always => false,
            Asking::UnlessFollowed => self.ring.wqe(self.next + 1).is_some_and(follows),
            Asking::Seldom => true,
        };
        wqe.flags.contains(SendFlags::SIGNALED)
            || is_crowded
            || !can_wait
            // What is sent again is sent for the sake of an answer.
            || self.next_psn.is_before(self.max_psn)
            || out.attr.timeout.duration().is_none()
    }

    /// READs are asked for in pieces of half a window, so that the answers fit into our socket's buffer; on the wire
    /// each piece is a READ of its own.
    fn send_read(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, remote: RemoteAddr) -> Step {
        let step = self.put_read(ctx, out, wqe, remote);
        if matches!(step, Step::Sent) {
            let packets = self.packets_of_piece();
            let cost = Self::cost(wqe.len, out.mtu(), self.next_packet, self.next_packet + packets);
            self.sent_read_or_atomic(ctx, out.attr, packets, cost);
        }
        step
    }

    /// Packets of the piece that begins at the sending position.
    fn packets_of_piece(&self) -> u32 {
        let mark = self.mark(self.next);
        let left_of_piece = mark.piece - self.next_packet % mark.piece.max(1);
        (mark.packets - self.next_packet).min(left_of_piece)
    }

    /// Writes the request for the piece at the sending position, which stays where it is.
    #[inline(always)]
    fn put_read(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, wqe: &Wqe, remote: RemoteAddr) -> Step {
        let size = packet_len(Opcode::RcReadRequest, 0);
        if !out.fits(size) {
            return Step::Batch;
        }
        if !self.landing_is_writable(ctx) {
            return Step::Fault(WcStatus::LocProtErr);
        }
        let mtu = out.mtu();
        let offset = self.next_packet * mtu;
        let len = (wqe.len - offset).min(self.packets_of_piece() * mtu);
        let reth = Reth::new(remote.addr.wrapping_add(u64::from(offset)), remote.rkey, len);
        let mut bth = out.bth(Opcode::RcReadRequest, self.next_psn);
        bth.set_ack_req(true);
        let Some(mut place) = out.push(size) else { return Step::Batch };
        place.writer(&bth).reth(&reth).finish();
        place.seal();
        Step::Sent
    }

    fn send_atomic(
        &mut self,
        ctx: &mut Ctx<'_>,
        out: &mut Out<'_>,
        remote: RemoteAddr,
        op: AtomicOp,
    ) -> Step {
        let step = self.put_atomic(ctx, out, remote, op);
        if matches!(step, Step::Sent) {
            self.sent_read_or_atomic(ctx, out.attr, 1, packet_cost(8));
        }
        step
    }

    /// Writes the request of an atomic; the sending position stays where it is.
    #[inline(always)]
    fn put_atomic(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, remote: RemoteAddr, op: AtomicOp) -> Step {
        let (opcode, swap_add, compare) = match op {
            AtomicOp::CompareSwap { compare, swap } => (Opcode::RcCompareSwap, swap, compare),
            AtomicOp::FetchAdd { add } => (Opcode::RcFetchAdd, add, 0),
        };
        let size = packet_len(opcode, 0);
        if !out.fits(size) {
            return Step::Batch;
        }
        if !self.landing_is_writable(ctx) {
            return Step::Fault(WcStatus::LocProtErr);
        }
        let mut bth = out.bth(opcode, self.next_psn);
        bth.set_ack_req(true);
        let Some(mut place) = out.push(size) else { return Step::Batch };
        place.writer(&bth).atomic_eth(&AtomicEth::new(remote.addr, remote.rkey, swap_add, compare)).finish();
        place.seal();
        Step::Sent
    }

    /// A request that is answered by data has left, for `packets` PSNs.
    fn sent_read_or_atomic(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, packets: u32, cost: u32) {
        self.expect_answer(ctx.now, attr);
        self.reads.push_back(self.next_psn.add(packets - 1));
        self.since_ack_req = 0;
        self.sent(ctx.now, ctx.window, attr, packets, cost, self.mark(self.next).packets);
    }

    /// Whether the answer to the next element has somewhere to go. Asked before the request leaves, so that a READ
    /// or an atomic whose local buffer is wrong has no effect at the peer.
    fn landing_is_writable(&self, ctx: &Ctx<'_>) -> bool {
        self.ring.get(self.next).is_some_and(|element| {
            element
                .sgl
                .iter()
                .filter(|sge| sge.length > 0)
                .all(|sge| ctx.mrs.open_local(ctx.qp.pd(), sge, true).is_ok())
        })
    }

    /// `packets` PSNs have left, of an element that has `of`.
    #[inline]
    fn sent(&mut self, now: Time, window: &mut Window, attr: &QpAttr, packets: u32, cost: u32, of: u32) {
        window.on_sent(cost);
        self.advance(packets, cost, of);
        if self.ack_deadline.is_none() {
            self.ack_deadline = attr.timeout.deadline(now);
        }
    }

    /// Moves the sending position by `packets` of the `of` packets of the element.
    fn advance(&mut self, packets: u32, cost: u32, of: u32) {
        self.in_flight = self.in_flight.saturating_add(cost);
        self.next_psn = self.next_psn.add(packets);
        if self.max_psn.is_before(self.next_psn) {
            self.max_psn = self.next_psn;
        }
        self.next_packet += packets;
        if self.next_packet >= of {
            self.next += 1;
            self.next_packet = 0;
            self.cursor = SgCursor::default();
        }
    }
}

/// Whether an element is done without a packet.
fn is_local(wqe: &Wqe) -> bool {
    matches!(wqe.op, SendOp::LocalInv(_) | SendOp::BindMw(_))
}
