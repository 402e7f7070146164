//! Attributes between C's form and ours. Fields that a mask does not name are not looked at: programs leave rubbish in them.

use std::ffi::c_int;

use userdma_verbs::{
    AccessFlags, AckTimeout, AhAttr, Gid, GlobalRoute, Mtu, Psn, QKey, QpAttr, QpAttrMask as M, QpCap,
    QpState, Qpn, RnrTimer,
};

use crate::abi;
use crate::answer::{Refused, wrong};
use crate::lids::Lids;

/// An address vector. RoCE needs the global route, which follows from a LID if the device has some.
pub(crate) fn ah_attr(c: &abi::AhAttr, lids: Option<Lids>) -> Result<AhAttr, Refused> {
    let grh = match lids {
        Some(lids) if c.is_global == 0 => lids.route(c.dlid)?,
        None if c.is_global == 0 => {
            let allowed = "1 (RoCE needs the GRH with the peer's GID; \
                           `userdma run --lids` is for programs that know LIDs only)";
            return Err(wrong("ah_attr.is_global", 0, allowed));
        }
        Some(_) | None => global_route(&c.grh),
    };
    Ok(AhAttr { grh, sl: c.sl, port_num: c.port_num })
}

fn global_route(c: &abi::GlobalRoute) -> GlobalRoute {
    GlobalRoute {
        dgid: Gid::new(c.dgid.0),
        // Packets have 20 bits, and so does the kernel take no more; UCX sets all 32.
        flow_label: c.flow_label & 0xf_ffff,
        sgid_index: c.sgid_index,
        hop_limit: c.hop_limit,
        traffic_class: c.traffic_class,
    }
}

/// An address vector as C has it; without a route as zeros.
pub(crate) fn c_ah_attr(attr: &AhAttr) -> abi::AhAttr {
    abi::AhAttr {
        grh: abi::GlobalRoute {
            dgid: abi::Gid(attr.grh.dgid.bytes()),
            flow_label: attr.grh.flow_label,
            sgid_index: attr.grh.sgid_index,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
        },
        dlid: 0,
        sl: attr.sl,
        src_path_bits: 0,
        static_rate: 0,
        is_global: u8::from(!attr.grh.dgid.is_zero()),
        port_num: attr.port_num,
    }
}

pub(crate) fn cap(c: &abi::QpCap) -> QpCap {
    QpCap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

pub(crate) fn c_cap(cap: &QpCap) -> abi::QpCap {
    abi::QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// What a modify is to set.
pub(crate) fn qp_attr(c: &abi::QpAttr, mask: c_int, lids: Option<Lids>) -> Result<(QpAttr, M), Refused> {
    let mask = M::from_bits(mask.cast_unsigned()).ok_or_else(|| {
        wrong("attr_mask", format_args!("{mask:#x}"), "what IBV_QP_STATE to IBV_QP_DEST_QPN name")
    })?;
    let mut attr = QpAttr::default();
    let set = |flag| mask.contains(flag);
    if set(M::STATE) {
        attr.qp_state = qp_state(c.qp_state)?;
    }
    if set(M::CUR_STATE) {
        attr.cur_qp_state = qp_state(c.cur_qp_state)?;
    }
    if set(M::PATH_MTU) {
        attr.path_mtu = Mtu::from_code(c.path_mtu.cast_unsigned()).ok_or_else(|| {
            wrong("path_mtu", c.path_mtu, "IBV_MTU_256 to IBV_MTU_4096 (1 to 5, not the number of bytes)")
        })?;
    }
    if set(M::AV) {
        attr.ah_attr = ah_attr(&c.ah_attr, lids)?;
    }
    if set(M::MIN_RNR_TIMER) {
        attr.min_rnr_timer = RnrTimer::new(c.min_rnr_timer)
            .ok_or_else(|| wrong("min_rnr_timer", c.min_rnr_timer, "0 to 31"))?;
    }
    if set(M::TIMEOUT) {
        attr.timeout = AckTimeout::new(c.timeout).ok_or_else(|| wrong("timeout", c.timeout, "0 to 31"))?;
    }
    // These take any number; the device looks at what the mask names.
    attr.qkey = QKey::new(c.qkey);
    attr.rq_psn = Psn::new(c.rq_psn);
    attr.sq_psn = Psn::new(c.sq_psn);
    attr.dest_qp_num = Qpn::new(c.dest_qp_num);
    attr.qp_access_flags = AccessFlags::from_bits_retain(c.qp_access_flags);
    attr.cap = cap(&c.cap);
    attr.pkey_index = c.pkey_index;
    attr.en_sqd_async_notify = c.en_sqd_async_notify != 0;
    attr.max_rd_atomic = c.max_rd_atomic;
    attr.max_dest_rd_atomic = c.max_dest_rd_atomic;
    attr.port_num = c.port_num;
    attr.retry_cnt = c.retry_cnt;
    attr.rnr_retry = c.rnr_retry;
    Ok((attr, mask))
}

/// What a query tells.
pub(crate) fn c_qp_attr(attr: &QpAttr) -> abi::QpAttr {
    abi::QpAttr {
        qp_state: attr.qp_state as c_int,
        cur_qp_state: attr.qp_state as c_int,
        path_mtu: attr.path_mtu as c_int,
        path_mig_state: 0,
        qkey: attr.qkey.get(),
        rq_psn: attr.rq_psn.get(),
        sq_psn: attr.sq_psn.get(),
        dest_qp_num: attr.dest_qp_num.get(),
        qp_access_flags: attr.qp_access_flags.bits(),
        cap: c_cap(&attr.cap),
        ah_attr: c_ah_attr(&attr.ah_attr),
        alt_ah_attr: c_ah_attr(&AhAttr::default()),
        pkey_index: attr.pkey_index,
        alt_pkey_index: 0,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer.code(),
        port_num: attr.port_num,
        timeout: attr.timeout.exponent(),
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    }
}

fn qp_state(number: c_int) -> Result<QpState, Refused> {
    const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];
    ALL.into_iter().find(|state| *state as c_int == number).ok_or_else(|| wrong("qp_state", number, "0 to 6"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use userdma_host::DeviceSpec;

    use super::*;
    use crate::answer::INVALID;

    fn attr() -> abi::QpAttr {
        let mut attr = c_qp_attr(&QpAttr::default());
        (attr.qp_state, attr.path_mtu, attr.min_rnr_timer, attr.timeout) = (99, 99, 99, 99);
        attr
    }

    #[test]
    fn only_what_the_mask_names_is_looked_at() {
        let port = (M::PORT | M::PKEY_INDEX).bits().cast_signed();
        assert_eq!(qp_attr(&attr(), port, None).unwrap().0.port_num, 1);
        for named in [M::STATE, M::PATH_MTU, M::MIN_RNR_TIMER, M::TIMEOUT, M::AV] {
            assert_eq!(qp_attr(&attr(), named.bits().cast_signed(), None).unwrap_err(), INVALID, "{named:?}");
        }
        assert_eq!(qp_attr(&attr(), 1 << 25, None).unwrap_err(), INVALID, "the limit of a rate is not there");
    }

    #[test]
    fn an_address_vector_needs_its_global_route_or_a_lid_that_leads_to_one() {
        let route = GlobalRoute { dgid: Gid::new([7; 16]), sgid_index: 1, ..GlobalRoute::default() };
        let av = AhAttr { grh: route, sl: 3, port_num: 1 };
        let mut c = c_ah_attr(&av);
        assert_eq!(ah_attr(&c, None), Ok(av));
        (c.is_global, c.dlid) = (0, 0x0405);
        assert_eq!(ah_attr(&c, None), Err(INVALID));
        let spec = DeviceSpec { lids: true, ..DeviceSpec::new(String::new(), vec![[10, 1, 2, 3].into()]) };
        let lids = Lids::of(&spec);
        let found = ah_attr(&c, lids).unwrap();
        assert_eq!((found.grh.dgid, found.sl), (Gid::from(Ipv4Addr::new(10, 1, 4, 5)), 3));
        c.is_global = 1;
        assert_eq!(ah_attr(&c, lids), Ok(av), "with a GRH the LID is not looked at");
    }
}
