//! The machine of a queue pair, whatever its service is.

use userdma_ibt::{Ctx, Fill, Path, Rc};
use userdma_mem::TxBatch;
use userdma_verbs::{QpAttr, QpAttrMask, QpInitAttr, QpState, QpType, Time};
use userdma_wire::{Packet, Service};

/// The machine of a queue pair.
#[derive(Debug)]
pub(crate) enum Transport {
    /// A reliable connection.
    Rc(Rc),
}

/// One call of the machine, whichever it is.
macro_rules! each {
    ($transport:expr, $machine:ident => $call:expr) => {
        match $transport {
            Transport::Rc($machine) => $call,
        }
    };
}

impl Transport {
    /// A machine in RESET; `None` if there is none for this service.
    pub(crate) fn new(init: &QpInitAttr) -> Option<Self> {
        match init.qp_type {
            QpType::Rc => Some(Self::Rc(Rc::new(&init.cap))),
            QpType::Uc | QpType::Ud | QpType::XrcSend | QpType::XrcRecv => None,
        }
    }

    /// The service of the packets that it takes.
    pub(crate) fn service(&self) -> Service {
        match self {
            Self::Rc(_) => Service::Rc,
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
        each!(self, machine => machine.path())
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
        each!(self, machine => machine.modify(ctx, to, attr, mask, path));
    }

    /// A packet for this queue pair arrived: everything that the device can judge is right.
    #[inline]
    pub(crate) fn handle_packet(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        each!(self, machine => machine.handle_packet(ctx, packet));
    }

    /// As [`Rc::fill`].
    #[inline]
    pub(crate) fn fill(&mut self, ctx: &mut Ctx<'_>, batch: &mut TxBatch, acks: bool) -> Fill {
        each!(self, machine => machine.fill(ctx, batch, acks))
    }

    /// As [`Rc::has_work`].
    #[inline]
    pub(crate) fn has_work(&self, ctx: &Ctx<'_>) -> bool {
        each!(self, machine => machine.has_work(ctx))
    }

    /// As [`Rc::is_window_blocked`].
    #[inline]
    pub(crate) fn is_window_blocked(&self) -> bool {
        each!(self, machine => machine.is_window_blocked())
    }

    /// Whether packets were filled whose requests complete once they have left ([`Transport::handle_sent`]).
    #[inline]
    pub(crate) fn awaits_sending(&self) -> bool {
        match self {
            Self::Rc(_) => false,
        }
    }

    /// What was filled has left.
    pub(crate) fn handle_sent(&mut self, _ctx: &mut Ctx<'_>) {
        match self {
            Self::Rc(_) => {}
        }
    }

    /// Whether the last fill stopped because it was too fast for the destination, and asked for more.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        match self {
            Self::Rc(_) => false,
        }
    }

    /// As [`Rc::ack_owed_since`].
    #[inline]
    pub(crate) fn ack_owed_since(&self) -> Option<Time> {
        each!(self, machine => machine.ack_owed_since())
    }

    /// As [`Rc::deadline`].
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        each!(self, machine => machine.deadline())
    }

    /// As [`Rc::handle_timeout`].
    pub(crate) fn handle_timeout(&mut self, ctx: &mut Ctx<'_>) {
        each!(self, machine => machine.handle_timeout(ctx));
    }
}
