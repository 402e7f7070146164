//! Work requests and completions.

use std::ffi::{c_int, c_uint};

use super::{Mr, Mw};

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindMwInfo {
    pub(crate) mr: *mut Mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
pub(crate) struct MwBind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) bind_info: BindMwInfo,
}

/// `struct ibv_send_wr`. Its unions are laid out as what connections use of them.
#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    /// Immediate data in network order, or the key to invalidate.
    pub(crate) imm_data: u32,
    /// `rdma.remote_addr`, `atomic.remote_addr`, or `ud.ah`.
    pub(crate) remote_addr: u64,
    /// `rdma.rkey`, or `atomic.compare_add`, of which it is the first half; or `ud.remote_qpn` and `ud.remote_qkey`.
    pub(crate) rkey_or_compare: u64,
    pub(crate) swap: u64,
    pub(crate) atomic_rkey: u32,
    /// The end of the union, which is aligned to 8.
    pub(crate) union_end: u32,
    pub(crate) xrc_srqn: u32,
    pub(crate) bind_mw: *mut Mw,
    pub(crate) bind_rkey: u32,
    pub(crate) bind_info: BindMwInfo,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut RecvWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network order, or the key that was invalidated.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
