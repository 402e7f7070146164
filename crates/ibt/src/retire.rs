//! How sends of services that nobody answers leave their ring: completed, failed or flushed.

use userdma_objects::WqeRing;
use userdma_verbs::{SendFlags, Wc, WcStatus};

use crate::Ctx;

/// The elements before number `next` have left: those that are signaled complete.
pub(crate) fn complete_sent(ctx: &mut Ctx<'_>, ring: &mut WqeRing, next: u64) {
    while ring.head() < next {
        let Some(wqe) = ring.pop() else { return };
        ctx.qp.retire_sends(1);
        if wqe.flags.contains(SendFlags::SIGNALED) {
            let opcode = wqe.op.opcode().wc_opcode();
            let mut wc = Wc::new(wqe.wr_id, WcStatus::Success, opcode, ctx.qp.qpn());
            wc.byte_len = wqe.len;
            ctx.effects.complete(ctx.send_cq, wc, false);
        }
    }
}

/// The oldest element completes with this error; whether there was one.
pub(crate) fn complete_failed(ctx: &mut Ctx<'_>, ring: &mut WqeRing, status: WcStatus) -> bool {
    let Some(wqe) = ring.pop() else { return false };
    ctx.qp.retire_sends(1);
    let wc = Wc::new(wqe.wr_id, status, wqe.op.opcode().wc_opcode(), ctx.qp.qpn());
    ctx.effects.complete(ctx.send_cq, wc, false);
    true
}
