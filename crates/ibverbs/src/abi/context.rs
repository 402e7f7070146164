//! Devices and contexts, with the tables that inline functions of the header call.

use std::ffi::{c_char, c_int, c_void};

use super::{
    Cq, CqEx, CqInitAttrEx, DeviceAttrEx, Mw, MwBind, Pd, PortAttr, Qp, QpInitAttrEx, RecvWr, SendWr, Srq,
    SrqInitAttrEx, Wc,
};

/// `struct ibv_device`.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

/// `struct ibv_context_ops`.
#[repr(C)]
pub(crate) struct ContextOps {
    pub(crate) unused_before_mw: [usize; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    pub(crate) bind_mw: Option<unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> c_int>,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    pub(crate) unused_before_poll: usize,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub(crate) unused_before_srq: [usize; 7],
    pub(crate) post_srq_recv: Option<unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub(crate) unused_before_post: [usize; 4],
    pub(crate) post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub(crate) post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub(crate) unused_at_end: [usize; 5],
}

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: [u64; 5],
    /// All ones: this context lies in a [`VerbsContext`].
    pub(crate) abi_compat: usize,
}

/// `struct verbs_context`, in the form of rdma-core 64: it grows at its start, so that older programs see the end that
/// they know. Operations that are not there are null, which the header's functions answer with `EOPNOTSUPP`.
#[repr(C)]
pub(crate) struct VerbsContext {
    /// `free_buf` to `alloc_dmah`, of releases after 56.
    pub(crate) newest: [usize; 6],
    pub(crate) query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int>,
    /// `advise_mr` to `query_rt_values`.
    pub(crate) none_before_cq: [usize; 24],
    pub(crate) create_cq_ex: Option<unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx>,
    pub(crate) private: usize,
    pub(crate) query_device_ex:
        Option<unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int>,
    /// `ibv_destroy_flow` to `open_qp`.
    pub(crate) none_before_qp: [usize; 5],
    pub(crate) create_qp_ex: Option<unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp>,
    pub(crate) get_srq_num: Option<unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int>,
    pub(crate) create_srq_ex: Option<unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq>,
    /// `open_xrcd` to a placeholder.
    pub(crate) none_at_end: [usize; 3],
    /// Bytes of this structure.
    pub(crate) size: usize,
    pub(crate) context: Context,
}
