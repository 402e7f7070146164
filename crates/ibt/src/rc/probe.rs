//! The probe: what the requester does if nothing comes back, long before the ACK timer.
//!
//! Primer. A loss is seen by what follows it: the responder reports the gap. That fails if nothing follows, if the report is
//! lost, or if what is sent again is lost, since a gap is reported once until it is filled. Then all is silent. After some
//! round trips of silence two packets are sent again: the *oldest* without an answer and the *last* one with data. Whatever
//! happened, the responder must say something. It lacks the oldest: it takes it, acknowledges it, and reports what is missing
//! between the two. It has the oldest and lacks some later one: it reports that. It has everything: it acknowledges again.
//!
//! A probe is no retry and no loss, and there are two in one silence. What they do not end is the ACK timer's.

use userdma_objects::Wqe;
use userdma_verbs::{AckTimeout, Psn, QpAttr, SendOp, Time};

use super::requester::Requester;
use crate::data::Step;
use crate::{Ctx, Fill, Out};

/// What of a probe is still to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Probe {
    /// The oldest packet without an answer, then the last.
    Both,
    /// The last packet with data.
    Last,
}

/// When to probe, and how far a probe has come.
#[derive(Debug)]
pub(super) struct Silence {
    /// When an answer is overdue; `Time::NEVER` if none is expected, or the ACK timer alone waits for it.
    pub(super) overdue_at: Time,
    /// A probe that is to be sent now.
    due: Option<Probe>,
    /// Probes since something came back.
    probes: u8,
}

impl Default for Silence {
    fn default() -> Self {
        Self { overdue_at: Time::NEVER, due: None, probes: 0 }
    }
}

impl Silence {
    /// No answer is expected now. The probes that this silence has had still count.
    pub(super) fn stop(&mut self) {
        self.overdue_at = Time::NEVER;
        self.due = None;
    }

    /// Something came back: what is silent from now on is another silence.
    #[inline]
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(super) fn is_probe_due(&self) -> bool {
        self.due.is_some()
    }
}

impl Requester {
    /// A packet that asks for an answer leaves. With an infinite ACK timeout nothing is ever sent again unasked.
    #[inline]
    pub(super) fn expect_answer(&mut self, now: Time, attr: &QpAttr) {
        if !self.next_psn.is_before(self.max_psn) {
            self.round_trip.begin(self.next_psn, now);
        }
        if self.silence.overdue_at == Time::NEVER && self.silence.probes < MAX_PROBES {
            self.listen(now, attr);
        }
    }

    /// The silence begins now.
    #[inline]
    pub(super) fn listen(&mut self, now: Time, attr: &QpAttr) {
        if attr.timeout != AckTimeout::default() {
            self.silence.overdue_at = now.plus_nanos(self.round_trip.patience_ns());
        }
    }

    /// Whether something under way has asked for an answer.
    #[inline]
    pub(super) fn awaits_answer(&self) -> bool {
        // A READ counts as many PSNs, and asks.
        u32::try_from(self.next_psn.distance(self.una_psn)).is_ok_and(|open| open > self.since_ack_req)
    }

    /// If the silence has been too long: has a probe sent, and listens again for twice as long.
    #[cold]
    pub(super) fn handle_silence(&mut self, ctx: &mut Ctx<'_>) {
        if self.silence.overdue_at > ctx.now {
            return;
        }
        self.silence.overdue_at = Time::NEVER;
        if self.rnr_until.is_some() || self.next_psn == self.una_psn {
            return;
        }
        ctx.stats.sent_probes += 1;
        self.silence.probes += 1;
        self.silence.due = Some(Probe::Both);
        // Nobody could tell which of two was answered.
        self.round_trip.give_up();
        if self.silence.probes < MAX_PROBES {
            self.silence.overdue_at = ctx.now.plus_nanos(self.round_trip.patience_ns().saturating_mul(2));
        }
    }

    /// Appends the packets of a probe that is due. They take no part of the window, as they are there already.
    #[cold]
    pub(super) fn fill_probe(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>) -> Fill {
        if self.silence.due == Some(Probe::Both) {
            let number = self.ring.head();
            let oldest = SentPacket { number, index: self.mark(number).acked, psn: self.una_psn };
            if self.send_again(ctx, out, oldest) == Fill::More {
                return Fill::More;
            }
            self.silence.due = Some(Probe::Last);
        }
        if let Some(last) = self.last_with_data()
            && self.una_psn.is_before(last.psn)
            && self.send_again(ctx, out, last) == Fill::More
        {
            return Fill::More;
        }
        self.silence.due = None;
        Fill::Done
    }

    /// The last packet of a SEND or WRITE that is under way. A READ is left out: its answer may be long, and is itself a
    /// sign of life.
    fn last_with_data(&self) -> Option<SentPacket> {
        let (mut number, mut end) = (self.next, self.next_packet);
        loop {
            let is_data = self.ring.wqe(number).is_some_and(has_data);
            if let Some(index) = end.checked_sub(1).filter(|_| is_data) {
                return Some(SentPacket { number, index, psn: self.mark(number).first_psn.add(index) });
            }
            number = number.checked_sub(1).filter(|&number| number >= self.ring.head())?;
            end = self.mark(number).packets;
        }
    }

    /// Appends a packet that was sent before; the sending position stays. One that cannot be read any more is left out: the
    /// ACK timer will find that.
    fn send_again(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, sent: SentPacket) -> Fill {
        let Some(&wqe) = self.ring.wqe(sent.number) else { return Fill::Done };
        let here = (self.next, self.next_packet, self.next_psn, self.cursor);
        self.stand_at(sent.number, sent.index, out.mtu());
        self.next_psn = sent.psn;
        let step = self.put(ctx, out, &wqe);
        (self.next, self.next_packet, self.next_psn, self.cursor) = here;
        match step {
            Step::Batch => Fill::More,
            Step::Sent | Step::Fault(_) => Fill::Done,
        }
    }
}

/// A packet that is under way.
struct SentPacket {
    /// Of which element.
    number: u64,
    /// Which of the element's packets.
    index: u32,
    psn: Psn,
}

const fn has_data(wqe: &Wqe) -> bool {
    match wqe.op {
        SendOp::Send
        | SendOp::SendWithImm(_)
        | SendOp::SendWithInv(_)
        | SendOp::Write(_)
        | SendOp::WriteWithImm(..) => true,
        SendOp::Read(_) | SendOp::Atomic(..) | SendOp::LocalInv(_) | SendOp::BindMw(_) => false,
    }
}

/// Probes of one silence.
const MAX_PROBES: u8 = 2;
