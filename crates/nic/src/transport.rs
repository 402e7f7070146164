//! The machine of a queue pair, whatever its service is.

use userdma_ibt::{Ctx, Fill, Path, Rc, Uc, Ud};
use userdma_mem::{FrameMeta, LinkId, TxBatch};
use userdma_verbs::dice::Dice;
use userdma_verbs::{QpAttr, QpAttrMask, QpInitAttr, QpState, QpType, Time};
use userdma_wire::{Packet, Service};

/// The machine of a queue pair.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is in the box of its queue pair")]
pub(crate) enum Transport {
    /// A reliable connection.
    Rc(Rc),
    /// An unreliable connection.
    Uc(Uc),
    /// Unreliable datagrams.
    Ud(Ud),
}

/// One call of the machine, whichever it is.
macro_rules! each {
    ($transport:expr, $machine:ident => $call:expr) => {
        match $transport {
            Transport::Rc($machine) => $call,
            Transport::Uc($machine) => $call,
            Transport::Ud($machine) => $call,
        }
    };
}

impl Transport {
    /// A machine in RESET; `None` if there is none for this service.
    pub(crate) fn new(init: &QpInitAttr) -> Option<Self> {
        match init.qp_type {
            QpType::Rc => Some(Self::Rc(Rc::new(&init.cap))),
            QpType::Uc => Some(Self::Uc(Uc::new(&init.cap))),
            QpType::Ud => Some(Self::Ud(Ud::new(&init.cap))),
            QpType::XrcSend | QpType::XrcRecv => None,
        }
    }

    /// As [`Rc::set_recv_fault`]; no other service has an answer for want of a receive.
    pub(crate) fn set_recv_fault(&mut self, dice: Dice) {
        match self {
            Self::Rc(machine) => machine.set_recv_fault(dice),
            Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    /// The service of the packets that it takes.
    pub(crate) fn service(&self) -> Service {
        match self {
            Self::Rc(_) => Service::Rc,
            Self::Uc(_) => Service::Uc,
            Self::Ud(_) => Service::Ud,
        }
    }

    /// The state.
    pub(crate) fn state(&self) -> QpState {
        each!(self, machine => machine.state())
    }

    /// The attributes as a query gives them.
    pub(crate) fn attr(&self) -> QpAttr {
        each!(self, machine => machine.attr())
    }

    /// Where a connection's packets go, from RTR on.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Rc(rc) => rc.path(),
            Self::Uc(uc) => uc.path(),
            Self::Ud(_) => None,
        }
    }

    /// The link that the next packets are likely to go by.
    #[inline]
    pub(crate) fn link(&self) -> Option<LinkId> {
        match self {
            Self::Rc(_) | Self::Uc(_) => self.path().map(|path| path.route.link),
            Self::Ud(ud) => Some(ud.link()),
        }
    }

    /// As [`Rc::modify`].
    pub(crate) fn modify(
        &mut self,
        ctx: &mut Ctx<'_>,
        to: QpState,
        attr: &QpAttr,
        mask: QpAttrMask,
        path: Option<Path>,
    ) {
        match self {
            Self::Rc(rc) => rc.modify(ctx, to, attr, mask, path),
            Self::Uc(uc) => uc.modify(ctx, to, attr, mask, path),
            Self::Ud(ud) => ud.modify(ctx, to, attr, mask),
        }
    }

    /// A packet for this queue pair arrived: everything that the device can judge is right.
    #[inline]
    pub(crate) fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, meta: &FrameMeta) {
        match self {
            Self::Rc(rc) => rc.handle_packet(ctx, packet),
            Self::Uc(uc) => uc.handle_packet(ctx, packet),
            Self::Ud(ud) => ud.handle_packet(ctx, packet, meta),
        }
    }

    /// As [`Rc::fill`].
    #[inline]
    pub(crate) fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch, acks: bool) -> Fill {
        match self {
            Self::Rc(rc) => rc.fill(ctx, batch, acks),
            Self::Uc(uc) => uc.fill(ctx, batch),
            Self::Ud(ud) => ud.fill(ctx, batch),
        }
    }

    /// As [`Rc::has_work`].
    #[inline]
    pub(crate) fn has_work(&self, ctx: &Ctx<'_>) -> bool {
        match self {
            Self::Rc(rc) => rc.has_work(ctx),
            Self::Uc(uc) => uc.has_work(),
            Self::Ud(ud) => ud.has_work(),
        }
    }

    /// As [`Rc::is_window_blocked`].
    #[inline]
    pub(crate) fn is_window_blocked(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.is_window_blocked(),
            Self::Uc(_) => false,
            Self::Ud(_) => false,
        }
    }

    /// Whether packets were filled whose requests complete once they have left ([`Transport::handle_sent`]).
    #[inline]
    pub(crate) fn awaits_sending(&self) -> bool {
        match self {
            Self::Rc(_) => false,
            Self::Uc(uc) => uc.awaits_sending(),
            Self::Ud(ud) => ud.awaits_sending(),
        }
    }

    /// What was filled has left.
    pub(crate) fn handle_sent(&mut self, ctx: &mut Ctx<'_>) {
        match self {
            Self::Rc(_) => {}
            Self::Uc(uc) => uc.handle_sent(ctx),
            Self::Ud(ud) => ud.handle_sent(ctx),
        }
    }

    /// Whether the last fill stopped because it was too fast for the destination, and asked for more.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        match self {
            Self::Rc(_) => false,
            Self::Uc(uc) => uc.is_paced(),
            Self::Ud(ud) => ud.is_paced(),
        }
    }

    /// Whether the peer answers: acknowledgements and a window.
    #[inline]
    pub(crate) const fn is_reliable(&self) -> bool {
        matches!(self, Self::Rc(_))
    }

    /// When the machine must be called, as [`Rc::deadline`], and since when an acknowledgement is owed: asked for together
    /// after every touch.
    #[inline]
    pub(crate) fn due(&self) -> (Option<Time>, Option<Time>) {
        match self {
            Self::Rc(rc) => (rc.deadline(), rc.ack_owed_since()),
            Self::Uc(uc) => (uc.deadline(), None),
            Self::Ud(ud) => (ud.deadline(), None),
        }
    }

    /// As [`Rc::ack_owed_since`].
    #[inline]
    pub(crate) fn ack_owed_since(&self) -> Option<Time> {
        self.due().1
    }

    /// As [`Rc::deadline`].
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due().0
    }

    /// As [`Rc::handle_timeout`].
    pub(crate) fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        match self {
            Self::Rc(rc) => rc.handle_timeout(ctx),
            Self::Uc(uc) => uc.handle_timeout(ctx),
            Self::Ud(ud) => ud.handle_timeout(ctx),
        }
    }
}
