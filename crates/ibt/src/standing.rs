//! What the machines of all services have: the state of a queue pair, its attributes, and the event that ends draining.

use userdma_verbs::{AsyncEvent, QpAttr, QpAttrMask, QpCap, QpState};

use crate::Ctx;
use crate::attr::copy_attr;

/// How a queue pair stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) state: QpState,
    pub(crate) attr: QpAttr,
    /// SQD was entered and its event is still to be reported.
    drain_event: bool,
}

impl Standing {
    /// In RESET, with these sizes.
    pub(crate) fn new(cap: &QpCap) -> Self {
        let attr = QpAttr { cap: *cap, ..QpAttr::default() };
        Self { state: QpState::Reset, attr, drain_event: false }
    }

    /// Whether packets of peers are taken.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Takes over the attributes that `mask` names.
    pub(crate) fn adopt(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        copy_attr(&mut self.attr, attr, mask);
    }

    /// Goes to the state of a modify, which is neither RESET nor ERR. In SQD the end of draining is reported if `attr` asks.
    pub(crate) fn go(&mut self, ctx: &Ctx<'_>, to: QpState, attr: &QpAttr) {
        self.drain_event = to == QpState::Sqd && attr.en_sqd_async_notify;
        self.set_state(ctx, to);
    }

    pub(crate) fn set_state(&mut self, ctx: &Ctx<'_>, state: QpState) {
        self.state = state;
        ctx.qp.set_state(state);
    }

    /// Reports the end of draining, if that is what is waited for.
    pub(crate) fn report_drained(&mut self, ctx: &mut Ctx<'_>, is_drained: impl FnOnce() -> bool) {
        if self.drain_event && self.state == QpState::Sqd && is_drained() {
            self.drain_event = false;
            ctx.effects.events.push(AsyncEvent::SqDrained { qpn: ctx.qp.qpn() });
        }
    }

    /// Goes to ERR; whether it comes from elsewhere. When everything is flushed then, [`Ctx::report_last_wqe`] is due.
    pub(crate) fn fail(&mut self, ctx: &Ctx<'_>) -> bool {
        let was_there = self.state == QpState::Err;
        self.set_state(ctx, QpState::Err);
        !was_there
    }

    /// Goes to RESET and forgets everything but the sizes; what is posted is forgotten, too, and windows are unbound.
    pub(crate) fn reset(&mut self, ctx: &mut Ctx<'_>) {
        self.set_state(ctx, QpState::Reset);
        ctx.qp.clear();
        ctx.mrs.unbind_all(ctx.qp.qpn());
        self.drain_event = false;
        self.attr = QpAttr { cap: self.attr.cap, ..QpAttr::default() };
    }

    /// The attributes as a query gives them, but for the PSNs.
    pub(crate) fn query(&self) -> QpAttr {
        QpAttr { qp_state: self.state, cur_qp_state: self.state, ..self.attr }
    }
}
