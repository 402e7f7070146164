//! The responder: judges the peer's requests, checks them in the order of the standard, executes them.
//!
//! The checks come in the sequence of the kernel's `rxe_resp.c rxe_receiver()`: PSN, sequence of opcodes, operation
//! allowed, receive and READ resources, length, key; then the request is executed. A check that fails yields the NAK
//! that it earns.

use std::collections::VecDeque;

use userdma_objects::AccessFault;
use userdma_verbs::dice::Dice;
use userdma_verbs::{AccessFlags, AsyncEvent, Msn, Psn, QpCap, QpState, Time, WcOpcode, WcStatus};
use userdma_wire::{NakCode, Operation, Packet};

use super::Rc;
use super::answers::{Answer, ReadAnswer};
use crate::Ctx;
use crate::landing::{Landing, LandingError, has_right_length};
use crate::segment::packets_of;

/// What the responder does with a request, judged by its PSN alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Judgement {
    /// The expected packet: execute it.
    Accept,
    /// Already executed: answer again, change nothing.
    Repeat,
    /// A gap: report it once.
    Nak,
    /// A gap that was already reported.
    Drop,
}

/// Why a request was not executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// No receive is posted: the peer shall try again later.
    Rnr,
    /// The request is wrong, or failed: the connection ends. The status is for the receive that it had taken.
    Nak(NakCode, WcStatus),
}

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest, WcStatus::WrFlushErr);
const NO_ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccess, WcStatus::WrFlushErr);

/// A request whose answer can be given again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resource {
    /// A READ is executed again.
    Read(ReadAnswer),
    /// An atomic is not: its answer is kept.
    Atomic { psn: Psn, msn: Msn, original: u64 },
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Responder {
    /// The PSN of the next new request.
    pub(super) epsn: Psn,
    /// Messages executed.
    pub(super) msn: Msn,
    /// A gap or an RNR condition was reported and not yet filled: later packets are dropped.
    pub(super) nak_sent: bool,
    landing: Landing,
    pub(super) resources: VecDeque<Resource>,
    pub(super) answers: VecDeque<Answer>,
    /// An acknowledgement is owed for everything before `epsn`, since this time.
    pub(super) owed: Option<Time>,
    /// The owed acknowledgement leaves with the next fill.
    pub(super) ack_due: bool,
    established: bool,
    /// When the last new request came.
    pub(super) heard_at: Option<Time>,
    /// Says for which messages no receive is found although there may be one: a fault that somebody wants.
    pub(super) deny_recv: Option<Box<Dice>>,
}

impl Responder {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self {
            epsn: Psn::default(),
            msn: Msn::default(),
            nak_sent: false,
            landing: Landing::new(cap),
            resources: VecDeque::new(),
            answers: VecDeque::new(),
            owed: None,
            ack_due: false,
            established: false,
            heard_at: None,
            deny_recv: None,
        }
    }

    /// Expects `psn` first.
    pub(super) fn start(&mut self, psn: Psn) {
        self.clear();
        self.epsn = psn;
    }

    pub(super) fn expected(&self) -> Psn {
        self.epsn
    }

    /// Forgets everything, without completions.
    pub(super) fn clear(&mut self) {
        self.forget_responses();
        self.resources.clear();
        self.landing.clear();
        self.nak_sent = false;
        self.established = false;
        self.heard_at = None;
        self.msn = Msn::default();
    }

    /// Completes the receive that is taken and those that are posted to the queue pair itself as flushed.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.landing.flush(ctx);
    }

    /// Judges a request's PSN against the expected one. As `rxe_resp.c check_psn()`, RC branch.
    pub(super) fn judge(&mut self, psn: Psn) -> Judgement {
        match psn.distance(self.epsn) {
            0 => {
                self.nak_sent = false;
                Judgement::Accept
            }
            ..0 => Judgement::Repeat,
            1.. if self.nak_sent => Judgement::Drop,
            1.. => {
                self.nak_sent = true;
                Judgement::Nak
            }
        }
    }
}

impl Rc {
    /// Reads a request of the peer.
    pub(super) fn handle_request(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let psn = packet.bth().psn();
        match self.resp.judge(psn) {
            Judgement::Accept => {
                self.resp.heard_at = Some(ctx.now);
                self.execute(ctx, packet);
            }
            Judgement::Repeat => {
                ctx.stats.duplicate_request += 1;
                if self.may_have_executed(packet) {
                    self.resp.repeat(ctx, packet, self.standing.attr.path_mtu.bytes());
                } else {
                    ctx.stats.drop_duplicate += 1;
                }
            }
            Judgement::Nak => {
                ctx.stats.out_of_seq_request += 1;
                ctx.stats.sent_seq_err += 1;
                self.resp.nak(NakCode::PsnSequence);
            }
            Judgement::Drop => ctx.stats.out_of_seq_request += 1,
        }
    }

    fn execute(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        self.report_established(ctx);
        match self.check_and_execute(ctx, packet) {
            Ok(()) => {}
            Err(Refusal::Rnr) => {
                ctx.stats.sent_rnr_err += 1;
                self.resp.nak_sent = true;
                self.resp.rnr(self.standing.attr.min_rnr_timer);
            }
            Err(Refusal::Nak(code, status)) => self.refuse(ctx, code, status),
        }
    }

    /// Ends the connection with a NAK: the receive in use completes with `status`, and if there is none, an event says
    /// what a completion cannot.
    fn refuse(&mut self, ctx: &mut Ctx<'_>, code: NakCode, status: WcStatus) {
        let event = count_refusal(ctx, code);
        self.resp.nak(code);
        if !self.resp.landing.complete_taken(ctx, status) || status == WcStatus::WrFlushErr {
            ctx.effects.events.push(event);
        }
        self.enter_error(ctx);
    }

    fn report_established(&mut self, ctx: &mut Ctx<'_>) {
        if self.standing.state == QpState::Rtr && !self.resp.established {
            self.resp.established = true;
            ctx.effects.events.push(AsyncEvent::CommunicationEstablished { qpn: ctx.qp.qpn() });
        }
    }

    fn check_and_execute(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        if !self.resp.landing.may_follow(packet) {
            return Err(INVALID);
        }
        self.check_allowed(packet)?;
        let mtu = self.standing.attr.path_mtu.bytes();
        self.check_resource(ctx, packet)?;
        if !has_right_length(packet, mtu) {
            return Err(INVALID);
        }
        match packet.info().op {
            Operation::Send => self.resp.execute_send(ctx, packet),
            Operation::Write => self.resp.execute_write(ctx, packet, mtu),
            Operation::ReadRequest => self.resp.execute_read(ctx, packet, mtu),
            Operation::CompareSwap | Operation::FetchAdd => self.resp.execute_atomic(ctx, packet),
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => Err(INVALID),
        }?;
        self.resp.keep_resources(self.standing.attr.max_dest_rd_atomic);
        // READs and atomics are acknowledged by their answers.
        let has_answer = !matches!(packet.info().op, Operation::Send | Operation::Write);
        if packet.bth().ack_req() && !has_answer {
            self.resp.owe(ctx.now);
        }
        Ok(())
    }

    /// Whether a request with an old PSN can be one that was executed before. A PSN alone proves nothing: without this
    /// an old one would reach what the queue pair does not grant.
    fn may_have_executed(&self, packet: &Packet<'_>) -> bool {
        let is_read = packet.info().op == Operation::ReadRequest;
        self.check_allowed(packet).is_ok() && !(is_read && self.standing.attr.max_dest_rd_atomic == 0)
    }

    /// Whether the queue pair's access flags allow the operation. As `rxe_resp.c check_op_valid()`.
    fn check_allowed(&self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let needs = match packet.info().op {
            Operation::Write => AccessFlags::REMOTE_WRITE,
            Operation::ReadRequest => AccessFlags::REMOTE_READ,
            Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
            Operation::Send
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => AccessFlags::empty(),
        };
        if self.standing.attr.qp_access_flags.contains(needs) { Ok(()) } else { Err(INVALID) }
    }

    /// Whether there is a receive for what needs one, and room for what must be remembered. As `rxe_resp.c
    /// check_resource()`.
    fn check_resource(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        let info = packet.info();
        match info.op {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd => {
                let limit = usize::from(self.standing.attr.max_dest_rd_atomic);
                if self.resp.unanswered() < limit { Ok(()) } else { Err(INVALID) }
            }
            Operation::Send if info.is_start() => self.resp.take_recv(ctx),
            Operation::Write if packet.imm().is_some() => self.resp.take_recv(ctx),
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => Ok(()),
        }
    }
}

impl Responder {
    fn take_recv(&mut self, ctx: &mut Ctx<'_>) -> Result<(), Refusal> {
        let is_denied = self.deny_recv.as_mut().is_some_and(|dice| dice.cast());
        if !is_denied && self.landing.take_recv(ctx) { Ok(()) } else { Err(Refusal::Rnr) }
    }

    fn execute_send(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        self.landing.put_send(ctx, packet).map_err(landing_refusal)?;
        if let Some(ieth) = packet.ieth() {
            // As rxe, the receive reports an invalid request; unlike rxe, the peer is told that its key was wrong.
            ctx.mrs
                .invalidate(ctx.qp.pd(), ctx.qp.qpn(), ieth.rkey())
                .map_err(|_| Refusal::Nak(NakCode::RemoteAccess, WcStatus::RemInvReqErr))?;
        }
        self.executed_packet();
        if packet.info().is_end() {
            self.finish(ctx, packet, WcOpcode::Recv, self.landing.received());
        }
        Ok(())
    }

    fn execute_write(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, mtu: u32) -> Result<(), Refusal> {
        let len = self.landing.put_write(ctx, packet, mtu).map_err(landing_refusal)?;
        self.executed_packet();
        if packet.info().is_end() {
            self.finish(ctx, packet, WcOpcode::RecvRdmaWithImm, len);
        }
        Ok(())
    }

    fn execute_read(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, mtu: u32) -> Result<(), Refusal> {
        let Some(reth) = packet.reth() else { return Err(INVALID) };
        let (pd, qpn) = (ctx.qp.pd(), ctx.qp.qpn());
        ctx.mrs
            .open_remote(pd, qpn, reth.rkey(), reth.va(), u64::from(reth.dma_len()), AccessFlags::REMOTE_READ)
            .map_err(access_refusal)?;
        self.msn = self.msn.next();
        let answer = ReadAnswer {
            first_psn: self.epsn,
            packets: packets_of(reth.dma_len(), mtu),
            va: reth.va(),
            rkey: reth.rkey(),
            len: reth.dma_len(),
            msn: self.msn,
            next: 0,
            again: false,
        };
        self.epsn = self.epsn.add(answer.packets);
        self.answer(Answer::Read(answer));
        self.resources.push_back(Resource::Read(answer));
        Ok(())
    }

    fn execute_atomic(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        let Some(eth) = packet.atomic_eth() else { return Err(INVALID) };
        if !eth.va().is_multiple_of(8) {
            return Err(INVALID);
        }
        let (pd, qpn) = (ctx.qp.pd(), ctx.qp.qpn());
        let target = ctx
            .mrs
            .open_remote(pd, qpn, eth.rkey(), eth.va(), 8, AccessFlags::REMOTE_ATOMIC)
            .map_err(access_refusal)?;
        let original = if packet.info().op == Operation::CompareSwap {
            target.compare_swap(eth.compare(), eth.swap_add())
        } else {
            target.fetch_add(eth.swap_add())
        }
        .map_err(|_| NO_MEMORY)?;
        let psn = self.epsn;
        self.executed_packet();
        self.msn = self.msn.next();
        let msn = self.msn;
        self.answer(Answer::Atomic { psn, msn, original, again: false });
        self.resources.push_back(Resource::Atomic { psn, msn, original });
        Ok(())
    }

    fn executed_packet(&mut self) {
        self.epsn = self.epsn.add(1);
    }

    /// A message has come to its end: a receive that it took completes.
    fn finish(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, opcode: WcOpcode, len: u32) {
        self.msn = self.msn.next();
        self.landing.complete(ctx, packet, opcode, len);
    }

    /// Keeps as many requests for repetition as the peer may have outstanding.
    fn keep_resources(&mut self, max: u8) {
        while self.resources.len() > usize::from(max) {
            self.resources.pop_front();
        }
    }
}

/// Counts a NAK that ends the connection; the event that goes with it.
pub(super) fn count_refusal(ctx: &mut Ctx<'_>, code: NakCode) -> AsyncEvent {
    let qpn = ctx.qp.qpn();
    match code {
        NakCode::RemoteAccess => {
            ctx.stats.resp_remote_access_errors += 1;
            AsyncEvent::QpAccessError { qpn }
        }
        NakCode::InvalidRequest | NakCode::PsnSequence | NakCode::InvalidRd => {
            ctx.stats.resp_remote_invalid_request += 1;
            AsyncEvent::QpRequestError { qpn }
        }
        NakCode::RemoteOperational => {
            ctx.stats.resp_remote_operational += 1;
            AsyncEvent::QpFatal { qpn }
        }
    }
}

/// Memory that was registered and is gone. A real adapter pins its pages and never sees this.
const NO_MEMORY: Refusal = Refusal::Nak(NakCode::RemoteOperational, WcStatus::LocProtErr);

/// The answer to a key that does not open the range.
const fn access_refusal(_: AccessFault) -> Refusal {
    NO_ACCESS
}

/// The answer to a packet that cannot be put where its message lands.
const fn landing_refusal(error: LandingError) -> Refusal {
    match error {
        LandingError::Length => INVALID,
        LandingError::TooLong => Refusal::Nak(NakCode::InvalidRequest, WcStatus::LocLenErr),
        LandingError::Access => NO_ACCESS,
        LandingError::Gone => NO_MEMORY,
        LandingError::Receive => Refusal::Nak(NakCode::RemoteOperational, WcStatus::LocProtErr),
    }
}
