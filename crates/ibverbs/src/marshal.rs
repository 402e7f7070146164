//! The kernel's forms of attributes as the connection manager's library reads them, `<rdma/ib_user_verbs.h>` and
//! `<rdma/ib_user_sa.h>`, and C's.

use std::ffi::c_int;

use crate::abi;

/// `struct ib_uverbs_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernAhAttr {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reserved_grh: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
    pub(crate) reserved: u8,
}

/// `struct ib_uverbs_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernQpAttr {
    pub(crate) qp_attr_mask: u32,
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) ah_attr: KernAhAttr,
    pub(crate) alt_ah_attr: KernAhAttr,
    pub(crate) cap: abi::QpCap,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) reserved: [u8; 5],
}

/// `struct ib_user_path_rec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernPathRec {
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid: [u8; 16],
    pub(crate) dlid: u16,
    pub(crate) slid: u16,
    pub(crate) raw_traffic: u32,
    pub(crate) flow_label: u32,
    pub(crate) reversible: u32,
    pub(crate) mtu: u32,
    pub(crate) pkey: u16,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) numb_path: u8,
    pub(crate) sl: u8,
    pub(crate) mtu_selector: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}

/// `struct ibv_sa_path_rec`.
#[repr(C)]
pub(crate) struct PathRec {
    pub(crate) dgid: abi::Gid,
    pub(crate) sgid: abi::Gid,
    pub(crate) dlid: u16,
    pub(crate) slid: u16,
    pub(crate) raw_traffic: c_int,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reversible: c_int,
    pub(crate) numb_path: u8,
    pub(crate) pkey: u16,
    pub(crate) sl: u8,
    pub(crate) mtu_selector: u8,
    pub(crate) mtu: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}

/// Attributes of a queue pair in one of the two forms: what both call alike, and what is each one's own.
macro_rules! qp_attr_of {
    ($($Form:ident)::+, $from:ident, { $($own:tt)* }) => {
        $($Form)::+ {
            qkey: $from.qkey,
            rq_psn: $from.rq_psn,
            sq_psn: $from.sq_psn,
            dest_qp_num: $from.dest_qp_num,
            qp_access_flags: $from.qp_access_flags,
            cap: $from.cap,
            pkey_index: $from.pkey_index,
            alt_pkey_index: $from.alt_pkey_index,
            en_sqd_async_notify: $from.en_sqd_async_notify,
            sq_draining: $from.sq_draining,
            max_rd_atomic: $from.max_rd_atomic,
            max_dest_rd_atomic: $from.max_dest_rd_atomic,
            min_rnr_timer: $from.min_rnr_timer,
            port_num: $from.port_num,
            timeout: $from.timeout,
            retry_cnt: $from.retry_cnt,
            rnr_retry: $from.rnr_retry,
            alt_port_num: $from.alt_port_num,
            alt_timeout: $from.alt_timeout,
            $($own)*
        }
    };
}

/// `ibv_copy_ah_attr_from_kern`.
pub(crate) unsafe extern "C" fn copy_ah_attr_from_kern(to: *mut abi::AhAttr, from: *const KernAhAttr) {
    // SAFETY: the caller gives both.
    unsafe { to.write(ah_attr(&*from)) };
}

/// `ibv_copy_qp_attr_from_kern`. The mask goes back to the program by another way.
pub(crate) unsafe extern "C" fn copy_qp_attr_from_kern(to: *mut abi::QpAttr, from: *const KernQpAttr) {
    // SAFETY: the caller gives the source.
    let k = unsafe { &*from };
    let attr = qp_attr_of!(abi::QpAttr, k, {
        qp_state: k.qp_state.cast_signed(),
        cur_qp_state: k.cur_qp_state.cast_signed(),
        path_mtu: k.path_mtu.cast_signed(),
        path_mig_state: k.path_mig_state.cast_signed(),
        ah_attr: ah_attr(&k.ah_attr),
        alt_ah_attr: ah_attr(&k.alt_ah_attr),
        rate_limit: 0,
    });
    // SAFETY: the caller has room.
    unsafe { to.write(attr) };
}

/// `ibv_copy_path_rec_from_kern`.
pub(crate) unsafe extern "C" fn copy_path_rec_from_kern(to: *mut PathRec, from: *const KernPathRec) {
    // SAFETY: the caller gives the source.
    let k = unsafe { &*from };
    let record = PathRec {
        dgid: abi::Gid(k.dgid),
        sgid: abi::Gid(k.sgid),
        dlid: k.dlid,
        slid: k.slid,
        raw_traffic: k.raw_traffic.cast_signed(),
        flow_label: k.flow_label,
        hop_limit: k.hop_limit,
        traffic_class: k.traffic_class,
        reversible: k.reversible.cast_signed(),
        numb_path: k.numb_path,
        pkey: k.pkey,
        sl: k.sl,
        mtu_selector: k.mtu_selector,
        // A code of five values.
        mtu: k.mtu.to_le_bytes()[0],
        rate_selector: k.rate_selector,
        rate: k.rate,
        packet_life_time_selector: k.packet_life_time_selector,
        packet_life_time: k.packet_life_time,
        preference: k.preference,
    };
    // SAFETY: the caller has room.
    unsafe { to.write(record) };
}

/// `ibv_copy_path_rec_to_kern`.
pub(crate) unsafe extern "C" fn copy_path_rec_to_kern(to: *mut KernPathRec, from: *const PathRec) {
    // SAFETY: the caller gives the source.
    let record = unsafe { &*from };
    let k = KernPathRec {
        dgid: record.dgid.0,
        sgid: record.sgid.0,
        dlid: record.dlid,
        slid: record.slid,
        raw_traffic: record.raw_traffic.cast_unsigned(),
        flow_label: record.flow_label,
        reversible: record.reversible.cast_unsigned(),
        mtu: record.mtu.into(),
        pkey: record.pkey,
        hop_limit: record.hop_limit,
        traffic_class: record.traffic_class,
        numb_path: record.numb_path,
        sl: record.sl,
        mtu_selector: record.mtu_selector,
        rate_selector: record.rate_selector,
        rate: record.rate,
        packet_life_time_selector: record.packet_life_time_selector,
        packet_life_time: record.packet_life_time,
        preference: record.preference,
    };
    // SAFETY: the caller has room.
    unsafe { to.write(k) };
}

fn ah_attr(k: &KernAhAttr) -> abi::AhAttr {
    abi::AhAttr {
        grh: abi::GlobalRoute {
            dgid: abi::Gid(k.dgid),
            flow_label: k.flow_label,
            sgid_index: k.sgid_index,
            hop_limit: k.hop_limit,
            traffic_class: k.traffic_class,
        },
        dlid: k.dlid,
        sl: k.sl,
        src_path_bits: k.src_path_bits,
        static_rate: k.static_rate,
        is_global: k.is_global,
        port_num: k.port_num,
    }
}

/// The kernel's form of an address vector.
pub(crate) fn kern_ah_attr(c: &abi::AhAttr) -> KernAhAttr {
    KernAhAttr {
        dgid: c.grh.dgid.0,
        flow_label: c.grh.flow_label,
        sgid_index: c.grh.sgid_index,
        hop_limit: c.grh.hop_limit,
        traffic_class: c.grh.traffic_class,
        reserved_grh: 0,
        dlid: c.dlid,
        sl: c.sl,
        src_path_bits: c.src_path_bits,
        static_rate: c.static_rate,
        is_global: c.is_global,
        port_num: c.port_num,
        reserved: 0,
    }
}

/// The kernel's form of attributes, of which `mask` says which count.
pub(crate) fn kern_qp_attr(c: &abi::QpAttr, mask: u32) -> KernQpAttr {
    qp_attr_of!(KernQpAttr, c, {
        qp_attr_mask: mask,
        qp_state: c.qp_state.cast_unsigned(),
        cur_qp_state: c.cur_qp_state.cast_unsigned(),
        path_mtu: c.path_mtu.cast_unsigned(),
        path_mig_state: c.path_mig_state.cast_unsigned(),
        ah_attr: kern_ah_attr(&c.ah_attr),
        alt_ah_attr: kern_ah_attr(&c.alt_ah_attr),
        reserved: [0; 5],
    })
}
