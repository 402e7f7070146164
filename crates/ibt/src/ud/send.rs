//! The sending side: elements become packets in posting order, one each, and complete when they have left.

use userdma_mem::{LinkId, Route, TxBatch, crc32};
use userdma_objects::{SgCursor, UdAddr, WqeRef, WqeRing, gather};
use userdma_verbs::{PKey, QKey, QpAttr, QpCap, Qpn, SendFlags, SendOp, WcStatus};
use userdma_wire::{Bth, Deth, FlowIcrc, Opcode, Pseudo, packet_len};

use crate::data::{Missing, copy_inline};
use crate::departures::Departures;
use crate::pace::pace_cost;
use crate::{Ctx, Out, Path};

/// The sending side of a queue pair.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) departures: Departures,
    /// Where the last datagram went: most go to the same place as the one before.
    path: Option<Path>,
}

/// Why a fill has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stop {
    /// There is nothing to send now.
    Idle,
    /// The next datagram needs a batch of its own.
    Batch,
}

/// What became of one datagram.
enum Step {
    /// It is filled, or nobody will ever see it.
    Sent,
    /// It needs another batch.
    Batch,
    /// It cannot be sent.
    Fault(WcStatus),
}

/// What may be sent to one destination in one fill.
struct Grant {
    route: Route,
    qpn: Qpn,
    left: u32,
    spent: u32,
}

impl Sender {
    pub(super) fn new(cap: &QpCap) -> Self {
        let cap = QpCap { max_send_wr: cap.max_send_wr.max(1), ..*cap };
        Self { departures: Departures::new(WqeRing::of_datagrams(&cap)), path: None }
    }

    /// The link that the last datagram went by.
    pub(super) fn link(&self) -> LinkId {
        self.path.as_ref().map(|path| path.route.link).unwrap_or_default()
    }

    /// Whether a fill would do something.
    pub(super) fn can_send(&self) -> bool {
        self.departures.has_next() && self.departures.paced_until.is_none()
    }

    /// Appends packets to the batch, all of them for one queue pair.
    pub(super) fn fill(&mut self, ctx: &mut Ctx<'_>, attr: &QpAttr, batch: &mut TxBatch) -> Stop {
        self.departures.paced_until = None;
        let mut grant: Option<Grant> = None;
        let stop = loop {
            if self.departures.fault.is_some() {
                break Stop::Idle;
            }
            let Some(&to) = self.departures.ring.addr(self.departures.next) else { break Stop::Idle };
            if grant.as_ref().is_some_and(|grant| !grant.is_for(&to)) {
                break Stop::Batch;
            }
            let grant = grant.get_or_insert_with(|| Grant::new(ctx, &to));
            if grant.left == 0 {
                break Stop::Idle;
            }
            match self.send(ctx, attr, batch, &to, grant) {
                Step::Sent => self.departures.next += 1,
                Step::Batch => break Stop::Batch,
                Step::Fault(status) => self.departures.fault = Some(status),
            }
        };
        if let Some(grant) = grant {
            self.settle_grant(ctx, &grant, stop);
        }
        stop
    }

    /// Pays for what was sent, and asks for more if that was too little.
    fn settle_grant(&mut self, ctx: &mut Ctx<'_>, grant: &Grant, stop: Stop) {
        ctx.paces.spend(&grant.route, grant.qpn, grant.spent);
        if grant.left == 0 && stop == Stop::Idle && self.can_send() {
            let next = self.departures.ring.wqe(self.departures.next);
            let cost = next.map_or(0, |wqe| pace_cost(wqe.len));
            self.departures.paced_until = Some(ctx.paces.ask(ctx.now, &grant.route, grant.qpn, cost));
        }
    }

    fn send(
        &mut self,
        ctx: &mut Ctx<'_>,
        attr: &QpAttr,
        batch: &mut TxBatch,
        to: &UdAddr,
        grant: &mut Grant,
    ) -> Step {
        let Some(&wqe) = self.departures.ring.wqe(self.departures.next) else {
            return Step::Fault(WcStatus::LocQpOpErr);
        };
        if to.ah.pd != ctx.qp.pd() {
            return Step::Fault(WcStatus::LocQpOpErr);
        }
        if wqe.len > to.ah.mtu.bytes() {
            // As `rxe_req.c rxe_requester()`, which has it from the standard: no packet, and no error.
            ctx.stats.send_too_long += 1;
            self.departures.next_psn = self.departures.next_psn.add(1);
            return Step::Sent;
        }
        let step = self.put(ctx, attr, batch, to);
        if matches!(step, Step::Sent) {
            grant.spend(pace_cost(wqe.len));
            self.departures.next_psn = self.departures.next_psn.add(1);
        }
        step
    }

    /// Writes the packet of the next element.
    fn put(&mut self, ctx: &Ctx<'_>, attr: &QpAttr, batch: &mut TxBatch, to: &UdAddr) -> Step {
        let Some(element) = self.departures.ring.get(self.departures.next) else {
            return Step::Fault(WcStatus::LocQpOpErr);
        };
        let (opcode, imm) = match element.wqe.op {
            SendOp::Send => (Opcode::UdSendOnly, None),
            SendOp::SendWithImm(imm) => (Opcode::UdSendOnlyImm, Some(imm)),
            SendOp::SendWithInv(_)
            | SendOp::Write(_)
            | SendOp::WriteWithImm(..)
            | SendOp::Read(_)
            | SendOp::Atomic(..)
            | SendOp::LocalInv(_)
            | SendOp::BindMw(_) => return Step::Fault(WcStatus::LocQpOpErr),
        };
        let mut bth = Bth::new(opcode, to.remote_qpn, self.departures.next_psn, PKey::DEFAULT);
        bth.set_solicited(element.wqe.flags.contains(SendFlags::SOLICITED));
        let deth = Deth::new(qkey(to.remote_qkey, attr.qkey), ctx.qp.qpn());
        let len = element.wqe.len as usize;
        let size = packet_len(opcode, len);
        let before = batch.count();
        let mut out = Out { path: path_to(&mut self.path, &to.ah.route), attr, batch, before };
        let Some(place) = out.push(size) else { return Step::Batch };
        let filled = place.fill(
            &bth,
            len,
            |writer| match imm {
                Some(imm) => writer.deth(&deth).imm(imm),
                None => writer.deth(&deth),
            },
            |payload, crc| copy_payload(ctx, element, payload, crc),
        );
        if filled.is_err() {
            batch.pop(size);
            return Step::Fault(WcStatus::LocProtErr);
        }
        Step::Sent
    }

    /// Forgets every element.
    pub(super) fn clear(&mut self) {
        self.departures.clear();
        self.path = None;
    }
}

impl Grant {
    fn new(ctx: &mut Ctx<'_>, to: &UdAddr) -> Self {
        let (route, qpn) = (to.ah.route, to.remote_qpn);
        Self { route, qpn, left: ctx.paces.budget(ctx.now, &route, qpn), spent: 0 }
    }

    fn is_for(&self, to: &UdAddr) -> bool {
        self.qpn == to.remote_qpn && self.route == to.ah.route
    }

    fn spend(&mut self, cost: u32) {
        self.left = self.left.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost);
    }
}

/// The path by `route`: that of the datagram before, or a new one.
fn path_to<'a>(last: &'a mut Option<Path>, route: &Route) -> &'a mut Path {
    if last.as_ref().is_some_and(|path| path.route != *route) {
        *last = None;
    }
    last.get_or_insert_with(|| {
        let pseudo = Pseudo::new(route.local, route.remote, route.local_port, route.remote_port);
        Path { route: *route, icrc: FlowIcrc::with_crc32(pseudo, crc32) }
    })
}

/// The key that is sent: the one that the request names, or the queue pair's own if that has its top bit set. Such keys are for
/// those to give out who may set them.
fn qkey(requested: QKey, own: QKey) -> QKey {
    if requested.get() & CONTROLLED != 0 { own } else { requested }
}

fn copy_payload(
    ctx: &Ctx<'_>,
    element: WqeRef<'_>,
    payload: &mut [u8],
    crc: Option<&mut u32>,
) -> Result<(), Missing> {
    if !element.wqe.flags.contains(SendFlags::INLINE) {
        let mut cursor = SgCursor::default();
        return gather(ctx.mrs, ctx.qp.pd(), element.sgl, &mut cursor, payload, crc).map_err(|_| Missing);
    }
    copy_inline(element.inline, 0, payload, crc)
}

/// The top bit of a queue key.
const CONTROLLED: u32 = 1 << 31;
