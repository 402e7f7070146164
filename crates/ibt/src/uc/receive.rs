//! The receiving side: packets are judged by their PSN and their place in a message, checked and executed; nothing is answered.
//!
//! The checks come in the sequence of the kernel's `rxe_resp.c rxe_receiver()`. What fails one is dropped with the rest of its
//! message. The receive that a dropped SEND had taken is used for the next message that needs one.

use userdma_verbs::{AccessFlags, AsyncEvent, Psn, QpAttr, QpCap, QpState, WcOpcode, WcStatus};
use userdma_wire::{Operation, Packet};

use crate::Ctx;
use crate::landing::{Landing, LandingError, has_right_length};

/// What the receiver does with a packet, judged by its PSN and whether it begins a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Judgement {
    /// It begins a message; one that is under way is given up.
    Begin,
    /// It follows the packet before.
    Continue,
    /// It belongs to a message of which packets are missing.
    Missing,
    /// It was there before, or comes too late.
    Old,
}

/// Why a message is not executed any further.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// There is no receive for it.
    NoReceive,
    /// It is wrong, or asks for what is not granted.
    Wrong,
    /// A fault of our own: the queue pair ends, and the receive completes with this.
    Fatal(WcStatus),
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The PSN that follows the last packet that was accepted.
    epsn: Psn,
    landing: Landing,
    established: bool,
}

impl Receiver {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self { epsn: Psn::default(), landing: Landing::new(cap), established: false }
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
        self.landing.clear();
        self.established = false;
    }

    /// Completes the receive that is taken and those that are posted as flushed.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.landing.flush(ctx);
    }

    /// The receive that is taken completes in error.
    pub(super) fn fail(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        self.landing.complete_taken(ctx, status);
    }

    /// Reads a packet of the peer. `Err` if the queue pair must go to ERR: the receive itself is wrong.
    pub(super) fn handle_packet(
        &mut self,
        ctx: &mut Ctx<'_>,
        state: QpState,
        attr: &QpAttr,
        packet: &Packet<'_>,
    ) -> Result<(), WcStatus> {
        match self.judge(packet) {
            Judgement::Begin => self.landing.abandon(),
            Judgement::Continue => {}
            Judgement::Missing => {
                ctx.stats.out_of_seq_request += 1;
                self.landing.abandon();
                return Ok(());
            }
            Judgement::Old => {
                ctx.stats.duplicate_request += 1;
                return Ok(());
            }
        }
        self.epsn = packet.bth().psn().add(1);
        self.report_established(ctx, state);
        self.execute(ctx, attr, packet).or_else(|refusal| self.refuse(ctx, refusal))
    }

    /// Judges a packet. As `rxe_resp.c check_psn()` and `check_op_seq()`, UC branches, but for two things: what the network
    /// repeats or delays is not taken for new, and a packet that begins a message within another one is not dropped.
    fn judge(&self, packet: &Packet<'_>) -> Judgement {
        let distance = packet.bth().psn().distance(self.epsn);
        if (-MAX_AGE..0).contains(&distance) {
            Judgement::Old
        } else if packet.info().is_start() {
            Judgement::Begin
        } else if distance == 0 && self.landing.may_follow(packet) {
            Judgement::Continue
        } else {
            Judgement::Missing
        }
    }

    fn refuse(&mut self, ctx: &mut Ctx<'_>, refusal: Refusal) -> Result<(), WcStatus> {
        self.landing.abandon();
        match refusal {
            Refusal::NoReceive => ctx.stats.drop_no_receive += 1,
            Refusal::Wrong => ctx.stats.drop_refused += 1,
            Refusal::Fatal(status) => return Err(status),
        }
        Ok(())
    }

    fn report_established(&mut self, ctx: &mut Ctx<'_>, state: QpState) {
        if state == QpState::Rtr && !self.established {
            self.established = true;
            ctx.effects.events.push(AsyncEvent::CommunicationEstablished { qpn: ctx.qp.qpn() });
        }
    }

    fn execute(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, packet: &Packet<'_>) -> Result<(), Refusal> {
        let (info, mtu) = (packet.info(), attr.path_mtu.bytes());
        let is_write = info.op == Operation::Write;
        if is_write && !attr.qp_access_flags.contains(AccessFlags::REMOTE_WRITE) {
            return Err(Refusal::Wrong);
        }
        let needs_receive = if is_write { packet.imm().is_some() } else { info.is_start() };
        if needs_receive && !self.landing.retake_recv(ctx) {
            return Err(Refusal::NoReceive);
        }
        if !has_right_length(packet, mtu) {
            return Err(Refusal::Wrong);
        }
        let (opcode, len) = if is_write {
            (WcOpcode::RecvRdmaWithImm, self.landing.put_write(ctx, packet, mtu).map_err(refusal)?)
        } else {
            self.landing.put_send(ctx, packet).map_err(refusal)?;
            (WcOpcode::Recv, self.landing.received())
        };
        // A WRITE without immediate data leaves the receive alone that an abandoned message may have taken.
        if info.is_end() && (!is_write || packet.imm().is_some()) {
            self.landing.complete(ctx, packet, opcode, len);
        }
        Ok(())
    }
}

/// What a packet that cannot be put where its message lands means for the message. As `rxe_resp.c rxe_receiver()`: a receive that
/// leads nowhere ends the queue pair, everything else the message.
const fn refusal(error: LandingError) -> Refusal {
    match error {
        LandingError::Length | LandingError::TooLong | LandingError::Access | LandingError::Gone => {
            Refusal::Wrong
        }
        LandingError::Receive => Refusal::Fatal(WcStatus::LocProtErr),
    }
}

/// PSNs that a packet may lie behind the expected one to be taken for old; one that lies further behind is new, after a loss of
/// nearly all PSNs that there are. No network delays a packet by so many others.
const MAX_AGE: i32 = 1 << 16;
