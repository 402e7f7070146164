//! Queue pairs.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use userdma_host::Host;
use userdma_objects::QpShared;
use userdma_verbs::{CreateQpError, QpAttrMask, QpInitAttr, QpType};

use crate::abi::{self, Context};
use crate::acks::Acks;
use crate::answer::{About, INVALID, Refused, UNSUPPORTED, pointer, status, wrong};
use crate::context::ContextState;
use crate::convert::{c_cap, c_qp_attr, cap, qp_attr};
use crate::cq::CqObject;
use crate::devices::lock;
use crate::pd::PdObject;
use crate::srq::SrqObject;
use crate::wr::{self, Builder};

/// What a `struct ibv_qp` and a `struct ibv_qp_ex` lie in.
#[repr(C)]
pub(crate) struct QpObject {
    /// Programs read and write it, and so do calls, at any time.
    pub(crate) abi: UnsafeCell<abi::QpEx>,
    state: Arc<ContextState>,
    pub(crate) shared: Arc<QpShared>,
    /// As it was made.
    init: abi::QpInitAttr,
    /// Whether the program asked for the extended posts.
    is_extended: bool,
    pub(crate) async_acks: Acks,
    /// Whether it was told that requests are flushed.
    pub(crate) is_flush_told: AtomicBool,
    /// What has been said since `wr_start`; whoever holds the structure's mutex owns it.
    pub(crate) builder: UnsafeCell<Builder>,
}

/// `ibv_create_qp`. What was made is written to `init.cap`.
pub(crate) unsafe extern "C" fn create_qp(pd: *mut abi::Pd, init: *mut abi::QpInitAttr) -> *mut abi::Qp {
    pointer(|| {
        // SAFETY: the caller gives a domain that exists, and attributes whose queues exist.
        unsafe {
            let qp = create(pd, *init, None)?;
            (*init).cap = (*qp).init.cap;
            Ok(qp.cast())
        }
    })
}

/// `ibv_create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(_: *mut Context, attr: *mut abi::QpInitAttrEx) -> *mut abi::Qp {
    pointer(|| {
        // SAFETY: the caller gives attributes.
        let ex = unsafe { &mut *attr };
        if ex.comp_mask & MASK_PD == 0 {
            return Err(wrong(
                "comp_mask",
                format_args!("{:#x}", ex.comp_mask),
                "one with IBV_QP_INIT_ATTR_PD",
            ));
        }
        let has_flags = ex.comp_mask & MASK_CREATE_FLAGS != 0 && ex.create_flags != 0;
        if ex.comp_mask & !(MASK_PD | MASK_CREATE_FLAGS | MASK_SEND_OPS) != 0 || has_flags {
            return Err(UNSUPPORTED);
        }
        let send_ops = (ex.comp_mask & MASK_SEND_OPS != 0).then_some(ex.send_ops_flags);
        let init = abi::QpInitAttr {
            qp_context: ex.qp_context,
            send_cq: ex.send_cq,
            recv_cq: ex.recv_cq,
            srq: ex.srq,
            cap: ex.cap,
            qp_type: ex.qp_type,
            sq_sig_all: ex.sq_sig_all,
        };
        // SAFETY: the attributes name a domain and queues that exist.
        unsafe {
            let qp = create(ex.pd, init, send_ops)?;
            ex.cap = (*qp).init.cap;
            Ok(qp.cast())
        }
    })
}

/// `ibv_qp_to_qp_ex`.
pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut abi::Qp) -> *mut abi::QpEx {
    // SAFETY: the caller gives a queue pair that exists.
    if unsafe { QpObject::of(qp) }.is_extended { qp.cast() } else { std::ptr::null_mut() }
}

/// # Safety
/// The domain and the queues exist.
unsafe fn create(
    pd: *mut abi::Pd,
    mut init: abi::QpInitAttr,
    send_ops: Option<u64>,
) -> Result<*mut QpObject, Refused> {
    let qp_type = service(&init)?;
    if send_ops.is_some_and(|ops| ops & !wr::send_ops(qp_type) != 0) {
        return Err(UNSUPPORTED);
    }
    if init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(CreateQpError::NoObject("completion queue").into());
    }
    // SAFETY: the caller's promise.
    let (domain, send, recv) =
        unsafe { (PdObject::of(pd), CqObject::of(init.send_cq), CqObject::of(init.recv_cq)) };
    let state = Arc::clone(&domain.state);
    if !state.host().is_same(send.host()) || !state.host().is_same(recv.host()) {
        return Err(INVALID.because(|| "the domain, send_cq and recv_cq are of different devices".to_owned()));
    }
    // SAFETY: the caller's promise.
    let srq = (!init.srq.is_null()).then(|| unsafe { SrqObject::of(init.srq) });
    if srq.is_some_and(|srq| !state.host().is_same(srq.host())) {
        return Err(INVALID);
    }
    let srqn = srq.map(|srq| srq.srq.srqn());
    let wanted = QpInitAttr { qp_type, cap: cap(&init.cap), sq_sig_all: init.sq_sig_all != 0 };
    let shared = state.host().create_qp(domain.id, wanted, send.cq.number(), recv.cq.number(), srqn)??;
    init.cap = c_cap(&shared.cap());
    let qpn = shared.qpn().get();
    let object = QpObject {
        abi: UnsafeCell::new(wr::face(plain(domain.context(), pd, &init, qpn))),
        state: Arc::clone(&state),
        shared,
        init,
        is_extended: send_ops.is_some(),
        async_acks: Acks::default(),
        is_flush_told: AtomicBool::new(false),
        builder: UnsafeCell::default(),
    };
    let object = Box::into_raw(Box::new(object));
    lock(&state.qps).insert(qpn, object.expose_provenance());
    Ok(object)
}

fn plain(context: *mut Context, pd: *mut abi::Pd, init: &abi::QpInitAttr, qpn: u32) -> abi::Qp {
    abi::Qp {
        context,
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: qpn,
        qp_num: qpn,
        state: 0,
        qp_type: init.qp_type,
        mutex: [0; 5],
        cond: [0; 6],
        events_completed: 0,
    }
}

/// The service that is asked for: connections and datagrams are what there is.
fn service(init: &abi::QpInitAttr) -> Result<QpType, Refused> {
    const RC: c_int = QpType::Rc as c_int;
    const UC: c_int = QpType::Uc as c_int;
    const UD: c_int = QpType::Ud as c_int;
    const XRC_SEND: c_int = QpType::XrcSend as c_int;
    const XRC_RECV: c_int = QpType::XrcRecv as c_int;
    match init.qp_type {
        RC => Ok(QpType::Rc),
        UC => Ok(QpType::Uc),
        UD => Ok(QpType::Ud),
        RAW_PACKET | XRC_SEND | XRC_RECV | DRIVER => Err(UNSUPPORTED),
        _ => Err(wrong("qp_type", init.qp_type, "IBV_QPT_RC (2), _UC (3) or _UD (4)")),
    }
}

/// `ibv_modify_qp`.
pub(crate) unsafe extern "C" fn modify_qp(qp: *mut abi::Qp, attr: *mut abi::QpAttr, mask: c_int) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue pair that exists, and attributes.
        let (object, given) = unsafe { (QpObject::of(qp), &*attr) };
        let (qpn, from) = (object.shared.qpn(), object.shared.state());
        let read = qp_attr(given, mask, object.state.lids());
        let (attr, mask) = read.about(|| format!("QP {qpn}"))?;
        object.host().modify_qp(qpn, &attr, mask)?.about(|| {
            let to = if mask.contains(QpAttrMask::STATE) { attr.qp_state } else { from };
            format!("QP {qpn}: {from:?} to {to:?}")
        })?;
        // SAFETY: programs read the state; calls that change it exclude each other, by the rules of the verbs.
        unsafe { (*qp).state = object.shared.state() as c_int };
        object.tell_state(from);
        Ok(())
    })
}

/// `ibv_query_qp`.
pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut abi::Qp,
    attr: *mut abi::QpAttr,
    _mask: c_int,
    init: *mut abi::QpInitAttr,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue pair that exists.
        let object = unsafe { QpObject::of(qp) };
        let qpn = object.shared.qpn();
        let found = object.host().control(move |shard, _| shard.query_qp(qpn))??;
        // SAFETY: the caller has room for both; for the state as in `modify_qp`.
        unsafe {
            attr.write(c_qp_attr(&found));
            init.write(object.init);
            (*qp).state = found.qp_state as c_int;
        }
        Ok(())
    })
}

/// `ibv_destroy_qp`. Waits until all events that were read are acknowledged.
pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut abi::Qp) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue pair that exists.
        let object = unsafe { QpObject::of(qp) };
        let (state, qpn) = (Arc::clone(&object.state), object.shared.qpn());
        let mut table = lock(&state.qps);
        state.host().destroy_qp(qpn)?.about(|| format!("QP {qpn}"))?;
        table.remove(&qpn.get());
        drop(table);
        object.async_acks.wait();
        // SAFETY: nobody finds it any more, and the caller gives it up.
        drop(unsafe { Box::from_raw(qp.cast::<QpObject>()) });
        Ok(())
    })
}

/// `ibv_query_qp_data_in_order`: data arrives in the order of its packets, but a packet's bytes in any.
pub(crate) unsafe extern "C" fn query_qp_data_in_order(_: *mut abi::Qp, _: c_int, _: u32) -> c_int {
    0
}

impl QpObject {
    /// # Safety
    /// `qp` was made here and is not destroyed as long as the result is used.
    pub(crate) unsafe fn of<'a>(qp: *mut abi::Qp) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*qp.cast() }
    }

    #[inline]
    pub(crate) fn host(&self) -> &Host {
        self.state.host()
    }
}

const MASK_PD: u32 = 1;
const MASK_CREATE_FLAGS: u32 = 1 << 2;
const MASK_SEND_OPS: u32 = 1 << 6;
/// `IBV_QPT_RAW_PACKET`.
const RAW_PACKET: c_int = 8;
/// `IBV_QPT_DRIVER`.
const DRIVER: c_int = 0xff;
