//! Queue pair types, states, and the attribute masks of their transitions.

use bitflags::bitflags;

use QpAttrMask as M;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// The transport service of a queue pair. Values of `enum ibv_qp_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum QpType {
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// The initiating side of an extended reliable connection.
    XrcSend = 9,
    /// The target side of an extended reliable connection.
    XrcRecv = 10,
}

/// The state of a queue pair. Values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum QpState {
    /// Created; nothing may be posted.
    #[default]
    Reset = 0,
    /// Receives may be posted; nothing is received.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains, then rests.
    Sqd = 4,
    /// A send failed on an unreliable service; receives go on.
    Sqe = 5,
    /// Everything posted is flushed.
    Err = 6,
}

bitflags! {
    /// Which attributes a modify sets. Values of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct QpAttrMask: u32 {
        /// `qp_state`.
        const STATE = 1 << 0;
        /// `cur_qp_state`.
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`.
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `port_num`.
        const PORT = 1 << 5;
        /// `qkey`.
        const QKEY = 1 << 6;
        /// `ah_attr`.
        const AV = 1 << 7;
        /// `path_mtu`.
        const PATH_MTU = 1 << 8;
        /// `timeout`.
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_ah_attr` and its companions.
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`.
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`.
        const CAP = 1 << 19;
        /// `dest_qp_num`.
        const DEST_QPN = 1 << 20;
    }
}

/// A legal transition: what must and what may be set with it, besides `STATE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transition {
    /// Attributes that must be in the mask.
    pub required: QpAttrMask,
    /// Attributes that may be.
    pub optional: QpAttrMask,
}

impl Transition {
    /// The transition of a reliable connection from `from` to `to`, or `None` if there is none.
    ///
    /// Any state may go to RESET, and any but RESET to ERR. As the kernel's `core/verbs.c qp_state_table`,
    /// `IB_QPT_RC` columns; the row of SQE is left out, since a reliable connection goes from a send error to ERR.
    pub const fn rc(from: QpState, to: QpState) -> Option<Self> {
        let (required, optional) = match (from, to) {
            (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (M::empty(), M::empty()),
            (Reset, Init) => (RC_INIT, M::empty()),
            (Init, Init) => (M::empty(), RC_INIT),
            (Init, Rtr) => (RC_RTR, M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX)),
            (Rtr, Rts) => (RC_RTS, RC_RTS_OPTIONAL),
            (Rts, Rts) => (M::empty(), RC_RTS_OPTIONAL),
            (Rts, Sqd) => (M::empty(), M::EN_SQD_ASYNC_NOTIFY),
            (Sqd, Rts) => (M::empty(), RC_RTS_OPTIONAL),
            (Sqd, Sqd) => (M::empty(), RC_SQD_OPTIONAL),
            (Reset | Init | Rtr | Rts | Sqd | Sqe | Err, _) => return None,
        };
        Some(Self { required, optional })
    }
}

const RC_INIT: M = M::PKEY_INDEX.union(M::PORT).union(M::ACCESS_FLAGS);
const RC_RTR: M = M::AV
    .union(M::PATH_MTU)
    .union(M::DEST_QPN)
    .union(M::RQ_PSN)
    .union(M::MAX_DEST_RD_ATOMIC)
    .union(M::MIN_RNR_TIMER);
const RC_RTS: M =
    M::TIMEOUT.union(M::RETRY_CNT).union(M::RNR_RETRY).union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC);
const RC_RTS_OPTIONAL: M =
    M::CUR_STATE.union(M::ALT_PATH).union(M::ACCESS_FLAGS).union(M::MIN_RNR_TIMER).union(M::PATH_MIG_STATE);
const RC_SQD_OPTIONAL: M = RC_RTS_OPTIONAL
    .difference(M::CUR_STATE)
    .union(M::PORT)
    .union(M::AV)
    .union(M::TIMEOUT)
    .union(M::RETRY_CNT)
    .union(M::RNR_RETRY)
    .union(M::MAX_QP_RD_ATOMIC)
    .union(M::PKEY_INDEX)
    .union(M::MAX_DEST_RD_ATOMIC);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rc_qp_walks_up_one_state_at_a_time() {
        assert!(Transition::rc(Reset, Rtr).is_none());
        assert!(Transition::rc(Init, Rts).is_none());
        assert!(Transition::rc(Rtr, Rtr).is_none());
        assert!(Transition::rc(Err, Init).is_none());
        assert!(Transition::rc(Init, Rtr).is_some_and(|t| t.required.contains(M::DEST_QPN | M::AV)));
    }

    #[test]
    fn every_state_may_go_to_reset_and_every_one_but_reset_to_err() {
        for from in [Reset, Init, Rtr, Rts, Sqd, Sqe, Err] {
            let nothing = Transition { required: M::empty(), optional: M::empty() };
            assert_eq!(Transition::rc(from, Reset), Some(nothing));
            assert_eq!(Transition::rc(from, Err), (from != Reset).then_some(nothing));
        }
    }
}
