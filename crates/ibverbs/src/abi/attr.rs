//! Attributes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{CompChannel, Cq, Pd, Srq};

/// `union ibv_gid`: 16 bytes in network order.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// `struct ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    /// In network order, as the next.
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct ibv_device_attr_ex`.
#[repr(C)]
pub(crate) struct DeviceAttrEx {
    pub(crate) orig_attr: DeviceAttr,
    pub(crate) comp_mask: u32,
    pub(crate) odp_caps: [u64; 3],
    pub(crate) completion_timestamp_mask: u64,
    pub(crate) hca_core_clock: u64,
    pub(crate) device_cap_flags_ex: u64,
    /// `tso_caps` to `xrc_odp_caps`: capabilities that are not there.
    pub(crate) none: [u32; 27],
    pub(crate) phys_port_cnt_ex: u32,
}

/// `struct ibv_port_attr`.
#[repr(C)]
pub(crate) struct PortAttr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// `struct ibv_gid_entry`.
#[repr(C)]
pub(crate) struct GidEntry {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// `struct ibv_global_route`.
#[repr(C)]
pub(crate) struct GlobalRoute {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
pub(crate) struct AhAttr {
    pub(crate) grh: GlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_qp_init_attr_ex`. Its first fields are those of [`QpInitAttr`], without that one's padding at the end.
#[repr(C)]
pub(crate) struct QpInitAttrEx {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut c_void,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    /// `struct ibv_rx_hash_conf`.
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QpCap,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
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
    pub(crate) rate_limit: u32,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
pub(crate) struct CqInitAttrEx {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut CompChannel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut Pd,
}

/// `struct ibv_srq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SrqInitAttr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
}

/// `struct ibv_srq_init_attr_ex`. Its first fields are those of [`SrqInitAttr`], without that one's padding at the end.
#[repr(C)]
pub(crate) struct SrqInitAttrEx {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: SrqAttr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_int,
    pub(crate) pd: *mut Pd,
    pub(crate) xrcd: *mut c_void,
    pub(crate) cq: *mut Cq,
    /// `struct ibv_tm_cap`.
    pub(crate) tm_cap: [u32; 2],
}
