//! Contexts: an open device as one user of it sees it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

use userdma_host::{EventQueue, Host};
use userdma_link::guard::GuardedFd;

use crate::abi::{self, Context, ContextOps, VerbsContext};
use crate::answer::{Refused, pointer, status};
use crate::devices::{DeviceObject, OpenDevice};
use crate::lids::Lids;
use crate::{cq, mw, post, qp, query, srq};

/// What a `struct ibv_context` lies in.
#[repr(C)]
struct ContextObject {
    verbs: VerbsContext,
    state: Arc<ContextState>,
}

/// What a context and its objects share; it lives as long as one of them.
pub(crate) struct ContextState {
    device: Arc<OpenDevice>,
    pub(crate) events: Arc<EventQueue>,
    /// Pointers to the completion queues of this context, by number. Held while one is made or ends.
    pub(crate) cqs: Mutex<HashMap<u32, usize>>,
    /// Pointers to the queue pairs of this context, by number. Held while one is made or ends.
    pub(crate) qps: Mutex<HashMap<u32, usize>>,
    /// Pointers to the shared receive queues of this context, by number. Held while one is made or ends.
    pub(crate) srqs: Mutex<HashMap<u32, usize>>,
    /// Stands for the descriptor of a kernel's device, which programs expect to be one.
    command: GuardedFd,
}

impl ContextState {
    pub(crate) fn host(&self) -> &Host {
        &self.device.host
    }

    pub(crate) fn lids(&self) -> Option<Lids> {
        self.device.lids
    }
}

/// `ibv_open_device`.
pub(crate) unsafe extern "C" fn open_device(device: *mut abi::Device) -> *mut Context {
    pointer(|| {
        // SAFETY: the caller gives a device of the list.
        let open = unsafe { DeviceObject::of(device) }.open()?;
        let events = open.host.subscribe_events()?;
        let command = command_descriptor().map_err(|e| Refused(e.raw_os_error().unwrap_or(libc::EMFILE)))?;
        let state = ContextState {
            device: open,
            events,
            cqs: Mutex::default(),
            qps: Mutex::default(),
            srqs: Mutex::default(),
            command: command.into(),
        };
        let object = Box::new(ContextObject { verbs: verbs(device, &state), state: Arc::new(state) });
        let object = Box::into_raw(object);
        // SAFETY: it was allocated in the line above.
        Ok(unsafe { &raw mut (*object).verbs.context })
    })
}

/// What stands for the kernel's device: `/dev/null`, or a socket of nobody's where a program that has changed its root has none.
fn command_descriptor() -> io::Result<OwnedFd> {
    let null = File::options().read(true).write(true).open("/dev/null");
    null.map(OwnedFd::from).or_else(|_| UnixDatagram::unbound().map(OwnedFd::from))
}

/// `ibv_close_device`. Objects that are left keep the device open for themselves.
pub(crate) unsafe extern "C" fn close_device(context: *mut Context) -> c_int {
    status(|| {
        // SAFETY: the caller gives up a context of `open_device`.
        drop(unsafe { Box::from_raw(object(context)) });
        Ok(())
    })
}

/// What a context shares with its objects.
///
/// # Safety
/// `context` comes from [`open_device`] and is not closed as long as the result is used.
pub(crate) unsafe fn state<'a>(context: *mut Context) -> &'a Arc<ContextState> {
    // SAFETY: the caller's promise.
    unsafe { &(*object(context)).state }
}

fn object(context: *mut Context) -> *mut ContextObject {
    context.wrapping_byte_sub(offset_of!(ContextObject, verbs) + offset_of!(VerbsContext, context)).cast()
}

fn verbs(device: *mut abi::Device, state: &ContextState) -> VerbsContext {
    VerbsContext {
        newest: [0; 6],
        query_port: Some(query::query_port_sized),
        none_before_cq: [0; 24],
        create_cq_ex: Some(cq::create_cq_ex),
        private: 0,
        query_device_ex: Some(query::query_device_ex),
        none_before_qp: [0; 5],
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        none_at_end: [0; 3],
        size: size_of::<VerbsContext>(),
        context: Context {
            device,
            ops: OPS,
            cmd_fd: state.command.as_raw_fd(),
            async_fd: state.events.as_fd().as_raw_fd(),
            num_comp_vectors: 1,
            mutex: [0; 5],
            abi_compat: usize::MAX,
        },
    }
}

/// What the header's inline functions call.
const OPS: ContextOps = ContextOps {
    unused_before_mw: [0; 7],
    alloc_mw: Some(mw::alloc_mw),
    bind_mw: Some(mw::bind_mw),
    dealloc_mw: Some(mw::dealloc_mw),
    unused_before_poll: 0,
    poll_cq: Some(cq::poll_cq),
    req_notify_cq: Some(cq::req_notify_cq),
    unused_before_srq: [0; 7],
    post_srq_recv: Some(post::post_srq_recv),
    unused_before_post: [0; 4],
    post_send: Some(post::post_send),
    post_recv: Some(post::post_recv),
    unused_at_end: [0; 5],
};
