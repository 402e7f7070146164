//! Objects: what programs hold pointers to. They read fields, and call what `QpEx` and `CqEx` hold.

use std::ffi::{c_int, c_void};

use super::{Context, Sge};

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
    pub(crate) handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct Mw {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) mw_type: c_int,
}

/// `struct ibv_ah`.
#[repr(C)]
pub(crate) struct Ah {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
    /// Completion queues on it.
    pub(crate) refcnt: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompChannel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: [u64; 5],
    pub(crate) cond: [u64; 6],
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

type Read<T> = Option<unsafe extern "C" fn(*mut CqEx) -> T>;

/// `struct ibv_cq_ex`.
#[repr(C)]
pub(crate) struct CqEx {
    pub(crate) cq: Cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: c_int,
    pub(crate) wr_id: u64,
    pub(crate) start_poll: Option<unsafe extern "C" fn(*mut CqEx, *const u32) -> c_int>,
    pub(crate) next_poll: Read<c_int>,
    pub(crate) end_poll: Read<()>,
    pub(crate) read_opcode: Read<c_int>,
    pub(crate) read_vendor_err: Read<u32>,
    pub(crate) read_byte_len: Read<u32>,
    pub(crate) read_imm_data: Read<u32>,
    pub(crate) read_qp_num: Read<u32>,
    pub(crate) read_src_qp: Read<u32>,
    pub(crate) read_wc_flags: Read<u32>,
    pub(crate) read_slid: Read<u32>,
    pub(crate) read_sl: Read<u8>,
    pub(crate) read_dlid_path_bits: Read<u8>,
    /// Time stamps, VLANs, tags: not there, and refused when the queue is made.
    pub(crate) none: [usize; 5],
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: c_int,
    pub(crate) qp_type: c_int,
    /// A `pthread_mutex_t`, held from `wr_start` to `wr_complete`.
    pub(crate) mutex: [u64; 5],
    pub(crate) cond: [u64; 6],
    pub(crate) events_completed: u32,
}

/// `struct ibv_srq`.
#[repr(C)]
pub(crate) struct Srq {
    pub(crate) context: *mut Context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) handle: u32,
    pub(crate) mutex: [u64; 5],
    pub(crate) cond: [u64; 6],
    pub(crate) events_completed: u32,
}

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DataBuf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
pub(crate) struct QpEx {
    pub(crate) qp_base: Qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: u32,
    pub(crate) wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub(crate) wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    pub(crate) wr_bind_mw: Option<unsafe extern "C" fn(*mut QpEx, *mut Mw, u32, *const super::BindMwInfo)>,
    pub(crate) wr_local_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_rdma_read: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub(crate) wr_rdma_write: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub(crate) wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub(crate) wr_send: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub(crate) wr_send_imm: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub(crate) wr_send_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    /// `wr_send_tso`: of a service that is not there.
    pub(crate) none_before_ud_addr: usize,
    pub(crate) wr_set_ud_addr: Option<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
    /// `wr_set_xrc_srqn`, too.
    pub(crate) none_before_inline: usize,
    pub(crate) wr_set_inline_data: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
    pub(crate) wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
    pub(crate) wr_set_sge: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub(crate) wr_set_sge_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub(crate) wr_start: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub(crate) wr_complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
    pub(crate) wr_abort: Option<unsafe extern "C" fn(*mut QpEx)>,
    /// `wr_atomic_write`, and `wr_flush` of later releases.
    pub(crate) none_at_end: [usize; 2],
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    /// A pointer to the queue, or the port's number.
    pub(crate) element: usize,
    pub(crate) event_type: c_int,
}
