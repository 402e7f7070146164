//! The responder's answers: queued in the order of the requests, sent as resumable pieces.
//!
//! READ and atomic responses and NAKs wait in a queue; acknowledgements do not. One acknowledgement covers everything
//! before the expected PSN, so it is enough to remember that one is owed; it leaves after the queue, together with the
//! next request or when the device says that no reply is coming.

use userdma_verbs::{AccessFlags, Msn, Psn, QpState, RKey, RnrTimer, Time};
use userdma_wire::{Aeth, AtomicAckEth, Bth, NakCode, Opcode, Operation, Packet, Syndrome, packet_len};

use super::responder::{Resource, Responder, count_refusal};
use super::{Rc, credits};
use crate::segment::{packets_of, payload_of};
use crate::{Ctx, Fill, Out};

/// A READ that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAnswer {
    pub(super) first_psn: Psn,
    pub(super) packets: u32,
    pub(super) va: u64,
    pub(super) rkey: RKey,
    pub(super) len: u32,
    pub(super) msn: Msn,
    /// The packet that is sent next.
    pub(super) next: u32,
    /// It answers a request that was executed before.
    pub(super) again: bool,
}

/// An answer that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Read(ReadAnswer),
    Atomic { psn: Psn, msn: Msn, original: u64, again: bool },
    Nak { psn: Psn, msn: Msn, syndrome: Syndrome },
}

impl Answer {
    const fn is_again(&self) -> bool {
        match self {
            Self::Read(ReadAnswer { again, .. }) | Self::Atomic { again, .. } => *again,
            Self::Nak { .. } => false,
        }
    }
}

/// A READ whose answer cannot go on at this PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenRead {
    psn: Psn,
    msn: Msn,
    code: NakCode,
}

/// Answers that may wait beyond what the peer may have outstanding: NAKs and repetitions.
const SPARE_ANSWERS: usize = 8;

impl Responder {
    /// Queues an answer. It acknowledges every request before it, so nothing is owed besides.
    pub(super) fn answer(&mut self, answer: Answer) {
        self.owed = None;
        self.ack_due = false;
        self.answers.push_back(answer);
    }

    pub(super) fn nak(&mut self, code: NakCode) {
        self.refuse_next(Syndrome::Nak(code));
    }

    pub(super) fn rnr(&mut self, timer: RnrTimer) {
        self.refuse_next(Syndrome::Rnr { timer });
    }

    /// Refuses the packet that is expected. A refusal that still waits at the end of the queue, behind a long READ, has
    /// nothing to say any more; and a peer that sends on all the same cannot lengthen the queue.
    fn refuse_next(&mut self, syndrome: Syndrome) {
        if matches!(self.answers.back(), Some(Answer::Nak { .. })) {
            self.answers.pop_back();
        }
        self.answer(Answer::Nak { psn: self.epsn, msn: self.msn, syndrome });
    }

    /// Owes an acknowledgement of everything before the expected PSN.
    pub(super) fn owe(&mut self, now: Time) {
        self.owed.get_or_insert(now);
    }

    pub(super) fn ack_owed_since(&self) -> Option<Time> {
        self.owed
    }

    /// Whether answers wait that nothing holds back.
    pub(super) fn has_responses(&self) -> bool {
        !self.answers.is_empty() || self.ack_due
    }

    /// READs and atomics whose answers have not all been sent. Repetitions do not count: the peer may have asked for
    /// them and for new ones besides, since it knows that the first answers were lost only when it asks again.
    pub(super) fn unanswered(&self) -> usize {
        self.answers.iter().filter(|a| !matches!(a, Answer::Nak { .. }) && !a.is_again()).count()
    }

    /// Queues a repetition before the answers to new requests, and behind earlier repetitions: the peer takes them in
    /// the order of its requests only.
    fn answer_again(&mut self, answer: Answer) {
        let place = self.answers.iter().take_while(|a| a.is_again()).count();
        self.answers.insert(place, answer);
    }

    /// What is executed is acknowledged at once though the queue pair ends: an adapter did so before the program could know. An
    /// answer that has not left does not leave any more, nor what would come behind it.
    pub(super) fn end(&mut self) {
        let owed = self.owed.filter(|_| self.answers.is_empty());
        self.forget_responses();
        self.owed = owed;
        self.ack_due = owed.is_some();
    }

    pub(super) fn forget_responses(&mut self) {
        self.answers.clear();
        self.owed = None;
        self.ack_due = false;
    }

    /// Answers a request that was executed before: SENDs and WRITEs by an acknowledgement, READs by their data,
    /// atomics by the value of the first time. As `rxe_resp.c duplicate_request()`.
    pub(super) fn repeat(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, mtu: u32) {
        match packet.info().op {
            Operation::Send | Operation::Write => self.owe(ctx.now),
            Operation::ReadRequest => self.repeat_read(ctx, packet, mtu),
            Operation::CompareSwap | Operation::FetchAdd => self.repeat_atomic(ctx, packet.bth().psn()),
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => {}
        }
    }

    /// A READ is executed again from the memory as it is now. If it asks for the rest of one that is remembered, the
    /// answer goes on where that one's packets would: a kernel peer takes nothing but a Middle or Last there.
    fn repeat_read(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, mtu: u32) {
        let (psn, Some(reth)) = (packet.bth().psn(), packet.reth()) else { return };
        let packets = packets_of(reth.dma_len(), mtu);
        if self.will_answer(psn) {
            return;
        }
        let ends_in_past = psn.add(packets - 1).is_before(self.epsn) && u64::from(reth.dma_len()) <= 1 << 31;
        if !ends_in_past || self.answers.len() >= self.resources.len() + SPARE_ANSWERS {
            ctx.stats.drop_duplicate += 1;
            return;
        }
        let remembered = self.resources.iter().find_map(|resource| match resource {
            Resource::Read(read) => continuation(read, psn, reth.va(), reth.rkey(), reth.dma_len(), mtu),
            Resource::Atomic { .. } => None,
        });
        let answer = remembered.unwrap_or(ReadAnswer {
            first_psn: psn,
            packets,
            va: reth.va(),
            rkey: reth.rkey(),
            len: reth.dma_len(),
            msn: self.msn,
            next: 0,
            again: true,
        });
        self.answer_again(Answer::Read(answer));
    }

    fn repeat_atomic(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        if self.will_answer(psn) {
            return;
        }
        let stored = self.resources.iter().find_map(|resource| match resource {
            Resource::Atomic { psn: of, msn, original } if *of == psn => {
                Some(Answer::Atomic { psn, msn: *msn, original: *original, again: true })
            }
            Resource::Atomic { .. } | Resource::Read(_) => None,
        });
        match stored {
            Some(answer) if self.answers.len() < self.resources.len() + SPARE_ANSWERS => {
                self.answer_again(answer);
            }
            Some(_) | None => ctx.stats.drop_duplicate += 1,
        }
    }

    /// Whether the packet that answers `psn` is still to be sent anyway.
    fn will_answer(&self, psn: Psn) -> bool {
        self.answers.iter().any(|answer| match answer {
            Answer::Read(read) => {
                let ahead = psn.distance(read.first_psn.add(read.next));
                u32::try_from(ahead).is_ok_and(|ahead| ahead < read.packets - read.next)
            }
            Answer::Atomic { psn: of, .. } => *of == psn,
            Answer::Nak { .. } => false,
        })
    }

    /// Appends queued answers to the batch. `Err` if a READ cannot go on.
    pub(super) fn fill(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>) -> Result<Fill, BrokenRead> {
        while let Some(answer) = self.answers.front_mut() {
            let sent = match answer {
                Answer::Read(read) => match send_read_packet(ctx, out, read) {
                    Ok(true) if read.next + 1 < read.packets => {
                        read.next += 1;
                        continue;
                    }
                    Ok(sent) => sent,
                    // Most likely a packet that the network kept until after the key had ended: the peer has its data.
                    Err(_) if read.again => {
                        ctx.stats.drop_duplicate += 1;
                        true
                    }
                    Err(code) => {
                        return Err(BrokenRead { psn: read.first_psn.add(read.next), msn: read.msn, code });
                    }
                },
                Answer::Atomic { psn, msn, original, .. } => send_atomic_ack(out, *psn, *msn, *original),
                Answer::Nak { psn, msn, syndrome } => {
                    let bth = out.bth(Opcode::RcAcknowledge, *psn);
                    put_acknowledge(&bth, &Aeth::new(*syndrome, *msn), out)
                }
            };
            if !sent {
                return Ok(Fill::More);
            }
            self.answers.pop_front();
        }
        Ok(Fill::Done)
    }

    /// Appends the owed acknowledgement, once the queue is empty, if `release`.
    pub(super) fn fill_ack(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, release: bool) -> Fill {
        if !self.answers.is_empty() || self.owed.is_none() || !(release || self.ack_due) {
            return Fill::Done;
        }
        // Receives that others may take are nothing to count on.
        let syndrome = match ctx.qp.srq() {
            None => Syndrome::Ack { credits: credits::encode(ctx.qp.recv_count()) },
            Some(_) => Syndrome::ACK,
        };
        let aeth = Aeth::new(syndrome, self.msn);
        if !put_acknowledge(&out.bth(Opcode::RcAcknowledge, self.epsn.sub(1)), &aeth, out) {
            self.ack_due = true;
            return Fill::More;
        }
        ctx.stats.sent_acks += 1;
        self.owed = None;
        self.ack_due = false;
        Fill::Done
    }
}

impl Rc {
    /// The memory of a READ went away while it was being answered: the answer ends in a NAK, and so does the connection.
    pub(super) fn fail_read(&mut self, ctx: &mut Ctx<'_>, broken: BrokenRead) {
        let nak = Answer::Nak { psn: broken.psn, msn: broken.msn, syndrome: Syndrome::Nak(broken.code) };
        self.resp.forget_responses();
        self.resp.answer(nak);
        if self.standing.state != QpState::Err {
            let event = count_refusal(ctx, broken.code);
            ctx.effects.events.push(event);
            self.enter_error(ctx);
        }
    }
}

/// The rest of a remembered READ that a repeated request asks for, if it does.
fn continuation(read: &ReadAnswer, psn: Psn, va: u64, rkey: RKey, len: u32, mtu: u32) -> Option<ReadAnswer> {
    let skipped = u32::try_from(psn.distance(read.first_psn)).ok().filter(|&n| n < read.packets)?;
    let offset = skipped * mtu;
    let agrees =
        rkey == read.rkey && va == read.va.wrapping_add(u64::from(offset)) && len <= read.len - offset;
    // A request for less than the rest ends earlier: its own last packet is a Last.
    agrees.then(|| ReadAnswer {
        next: skipped,
        packets: skipped + packets_of(len, mtu),
        len: offset + len,
        again: true,
        ..*read
    })
}

/// Appends one packet of a READ's answer; false if it needs a new batch.
fn send_read_packet(ctx: &mut Ctx<'_>, out: &mut Out<'_>, read: &ReadAnswer) -> Result<bool, NakCode> {
    let opcode = match (read.next == 0, read.next + 1 == read.packets) {
        (true, true) => Opcode::RcReadResponseOnly,
        (true, false) => Opcode::RcReadResponseFirst,
        (false, true) => Opcode::RcReadResponseLast,
        (false, false) => Opcode::RcReadResponseMiddle,
    };
    let payload_len = payload_of(read.len, out.mtu(), read.next);
    let size = packet_len(opcode, payload_len as usize);
    if !out.fits(size) {
        return Ok(false);
    }
    let offset = u64::from(read.next) * u64::from(out.mtu());
    let memory = ctx
        .mrs
        .open_remote(
            ctx.qp.pd(),
            ctx.qp.qpn(),
            read.rkey,
            read.va.wrapping_add(offset),
            u64::from(payload_len),
            AccessFlags::REMOTE_READ,
        )
        .map_err(|_| NakCode::RemoteAccess)?;
    let bth = out.bth(opcode, read.first_psn.add(read.next));
    let Some(place) = out.push(size) else { return Ok(false) };
    let aeth = (opcode != Opcode::RcReadResponseMiddle).then(|| Aeth::new(Syndrome::ACK, read.msn));
    let filled = place.fill(
        &bth,
        payload_len as usize,
        |writer| match &aeth {
            Some(aeth) => writer.aeth(aeth),
            None => writer,
        },
        |payload, crc| memory.read_crc(0, payload, crc),
    );
    if filled.is_err() {
        out.batch.pop(size);
        return Err(NakCode::RemoteOperational);
    }
    Ok(true)
}

fn send_atomic_ack(out: &mut Out<'_>, psn: Psn, msn: Msn, original: u64) -> bool {
    let opcode = Opcode::RcAtomicAcknowledge;
    let bth = out.bth(opcode, psn);
    let Some(mut place) = out.push(packet_len(opcode, 0)) else { return false };
    place
        .writer(&bth)
        .aeth(&Aeth::new(Syndrome::ACK, msn))
        .atomic_ack_eth(&AtomicAckEth::new(original))
        .finish();
    place.seal();
    true
}

/// Appends an ACK or NAK; false if it needs a new batch.
fn put_acknowledge(bth: &Bth, aeth: &Aeth, out: &mut Out<'_>) -> bool {
    let Some(mut place) = out.push(packet_len(Opcode::RcAcknowledge, 0)) else { return false };
    place.writer(bth).aeth(aeth).finish();
    place.seal();
    true
}
