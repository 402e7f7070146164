//! Legal transitions between the states of a queue pair, and the attributes that each needs.

use QpAttrMask as M;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

use crate::{QpAttrMask, QpState, QpType};

/// A legal transition: what must and what may be set with it, besides `STATE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transition {
    /// Attributes that must be in the mask.
    pub required: QpAttrMask,
    /// Attributes that may be.
    pub optional: QpAttrMask,
}

impl Transition {
    /// The transition of a queue pair of this service from `from` to `to`, or `None` if there is none.
    pub const fn of(qp_type: QpType, from: QpState, to: QpState) -> Option<Self> {
        match qp_type {
            QpType::Rc => Self::rc(from, to),
            QpType::Uc => Self::uc(from, to),
            QpType::Ud => Self::ud(from, to),
            QpType::XrcSend | QpType::XrcRecv => None,
        }
    }

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

    /// The transition of an unreliable connection from `from` to `to`, or `None` if there is none. As the kernel's
    /// `core/verbs.c qp_state_table`, `IB_QPT_UC` columns.
    pub const fn uc(from: QpState, to: QpState) -> Option<Self> {
        let (required, optional) = match (from, to) {
            (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (M::empty(), M::empty()),
            (Reset, Init) => (RC_INIT, M::empty()),
            (Init, Init) => (M::empty(), RC_INIT),
            (Init, Rtr) => (UC_RTR, M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX)),
            (Rtr, Rts) => (M::SQ_PSN, UC_RTS_OPTIONAL),
            (Rts | Sqd, Rts) => (M::empty(), UC_RTS_OPTIONAL),
            (Rts, Sqd) => (M::empty(), M::EN_SQD_ASYNC_NOTIFY),
            (Sqd, Sqd) => (M::empty(), UC_SQD_OPTIONAL),
            (Sqe, Rts) => (M::empty(), M::CUR_STATE.union(M::ACCESS_FLAGS)),
            (Reset | Init | Rtr | Rts | Sqd | Sqe | Err, _) => return None,
        };
        Some(Self { required, optional })
    }

    /// The transition of a datagram queue pair from `from` to `to`, or `None` if there is none. As the kernel's
    /// `core/verbs.c qp_state_table`, `IB_QPT_UD` columns.
    pub const fn ud(from: QpState, to: QpState) -> Option<Self> {
        const KEYS: M = M::PKEY_INDEX.union(M::QKEY);
        const QKEY: M = M::CUR_STATE.union(M::QKEY);
        let (required, optional) = match (from, to) {
            (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (M::empty(), M::empty()),
            (Reset, Init) => (KEYS.union(M::PORT), M::empty()),
            (Init, Init) => (M::empty(), KEYS.union(M::PORT)),
            (Init, Rtr) | (Sqd, Sqd) => (M::empty(), KEYS),
            (Rtr, Rts) => (M::SQ_PSN, QKEY),
            (Rts | Sqd | Sqe, Rts) => (M::empty(), QKEY),
            (Rts, Sqd) => (M::empty(), M::EN_SQD_ASYNC_NOTIFY),
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
const UC_RTR: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
const UC_RTS_OPTIONAL: M = M::CUR_STATE.union(M::ALT_PATH).union(M::ACCESS_FLAGS).union(M::PATH_MIG_STATE);
const UC_SQD_OPTIONAL: M =
    M::AV.union(M::ALT_PATH).union(M::ACCESS_FLAGS).union(M::PKEY_INDEX).union(M::PATH_MIG_STATE);

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
    fn a_datagram_qp_needs_its_key_and_no_peer() {
        assert_eq!(Transition::ud(Reset, Init).unwrap().required, M::PKEY_INDEX | M::PORT | M::QKEY);
        let rtr = Transition::ud(Init, Rtr).unwrap();
        assert!(rtr.required.is_empty() && !rtr.optional.intersects(M::AV | M::DEST_QPN | M::PATH_MTU));
        assert_eq!(Transition::ud(Rtr, Rts).unwrap().required, M::SQ_PSN);
        assert_eq!(Transition::ud(Sqe, Rts).unwrap().optional, M::CUR_STATE | M::QKEY);
        assert!(Transition::ud(Rts, Sqe).is_none(), "only the device goes there");
        assert!(Transition::ud(Err, Rts).is_none());
    }

    #[test]
    fn every_state_may_go_to_reset_and_every_one_but_reset_to_err() {
        for from in [Reset, Init, Rtr, Rts, Sqd, Sqe, Err] {
            let nothing = Transition { required: M::empty(), optional: M::empty() };
            for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
                assert_eq!(Transition::of(qp_type, from, Reset), Some(nothing));
                assert_eq!(Transition::of(qp_type, from, Err), (from != Reset).then_some(nothing));
            }
        }
    }

    #[test]
    fn a_uc_qp_needs_nothing_that_acknowledgements_would() {
        let (rtr, rts) = (Transition::uc(Init, Rtr).unwrap(), Transition::uc(Rtr, Rts).unwrap());
        assert_eq!(rtr.required, M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN);
        assert_eq!(rts.required, M::SQ_PSN);
        let of_rc = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MIN_RNR_TIMER | M::MAX_QP_RD_ATOMIC;
        for (from, to) in [(Init, Rtr), (Rtr, Rts), (Rts, Rts), (Sqd, Rts), (Sqd, Sqd), (Sqe, Rts)] {
            let all = Transition::uc(from, to).unwrap();
            assert!(
                !(all.required | all.optional).intersects(of_rc | M::MAX_DEST_RD_ATOMIC),
                "{from:?} {to:?}"
            );
        }
    }

    #[test]
    fn a_send_error_can_be_left_for_rts_by_a_uc_qp_alone() {
        assert!(Transition::rc(Sqe, Rts).is_none());
        assert_eq!(Transition::uc(Sqe, Rts).unwrap().optional, M::CUR_STATE | M::ACCESS_FLAGS);
        assert!(Transition::uc(Rts, Sqe).is_none(), "only the device goes there");
    }
}
