//! Attributes of a queue pair, set by name.

use userdma_verbs::{QpAttr, QpAttrMask};

/// Copies the attributes that `mask` names.
pub(crate) fn copy_attr(to: &mut QpAttr, from: &QpAttr, mask: QpAttrMask) {
    macro_rules! copy {
        ($($flag:ident => $($field:ident),+;)*) => {
            $(if mask.contains(QpAttrMask::$flag) { $(to.$field = from.$field;)+ })*
        };
    }
    copy! {
        EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
        ACCESS_FLAGS => qp_access_flags;
        PKEY_INDEX => pkey_index;
        PORT => port_num;
        QKEY => qkey;
        AV => ah_attr;
        PATH_MTU => path_mtu;
        TIMEOUT => timeout;
        RETRY_CNT => retry_cnt;
        RNR_RETRY => rnr_retry;
        RQ_PSN => rq_psn;
        MAX_QP_RD_ATOMIC => max_rd_atomic;
        MIN_RNR_TIMER => min_rnr_timer;
        SQ_PSN => sq_psn;
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        DEST_QPN => dest_qp_num;
    }
}
