//! Shared receive queues of the basic type: for reliable connections, without tag matching.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use userdma_host::Host;
use userdma_objects::Srq;
use userdma_verbs::{SrqAttr, SrqAttrMask, SrqInitAttr};

use crate::abi::{self, Context};
use crate::acks::Acks;
use crate::answer::{INVALID, Refused, UNSUPPORTED, pointer, status};
use crate::context::ContextState;
use crate::devices::lock;
use crate::pd::PdObject;

/// What a `struct ibv_srq` lies in.
#[repr(C)]
pub(crate) struct SrqObject {
    abi: abi::Srq,
    state: Arc<ContextState>,
    pub(crate) srq: Arc<Srq>,
    pub(crate) async_acks: Acks,
}

/// `ibv_create_srq`. What was made is written to the attributes. A limit has no meaning here and is left out.
pub(crate) unsafe extern "C" fn create_srq(pd: *mut abi::Pd, init: *mut abi::SrqInitAttr) -> *mut abi::Srq {
    // SAFETY: the caller gives a domain that exists, and attributes.
    pointer(|| unsafe { create(pd, (*init).srq_context, &mut (*init).attr) })
}

/// `ibv_create_srq_ex`, which the header's function calls for what is not basic.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _: *mut Context,
    init: *mut abi::SrqInitAttrEx,
) -> *mut abi::Srq {
    pointer(|| {
        // SAFETY: the caller gives attributes.
        let init = unsafe { &mut *init };
        let srq_type = if init.comp_mask & MASK_TYPE != 0 { init.srq_type } else { TYPE_BASIC };
        match srq_type {
            TYPE_BASIC => {}
            TYPE_XRC | TYPE_TM => return Err(UNSUPPORTED),
            _ => return Err(INVALID),
        }
        if init.comp_mask & !MASK_TYPE != MASK_PD {
            return Err(INVALID);
        }
        // SAFETY: the attributes name a domain that exists.
        unsafe { create(init.pd, init.srq_context, &mut init.attr) }
    })
}

/// # Safety
/// The domain exists.
unsafe fn create(
    pd: *mut abi::Pd,
    srq_context: *mut c_void,
    attr: &mut abi::SrqAttr,
) -> Result<*mut abi::Srq, Refused> {
    // SAFETY: the caller's promise.
    let domain = unsafe { PdObject::of(pd) };
    let (state, id) = (Arc::clone(&domain.state), domain.id);
    let init = SrqInitAttr { max_wr: attr.max_wr, max_sge: attr.max_sge };
    let srq = state.host().control(move |shard, _| shard.create_srq(id, &init))??;
    *attr = c_attr(&srq.attr());
    let srqn = srq.srqn().get();
    let abi = abi::Srq {
        context: domain.context(),
        srq_context,
        pd,
        handle: srqn,
        mutex: [0; 5],
        cond: [0; 6],
        events_completed: 0,
    };
    let object = SrqObject { abi, state: Arc::clone(&state), srq, async_acks: Acks::default() };
    let object = Box::into_raw(Box::new(object));
    lock(&state.srqs).insert(srqn, object.expose_provenance());
    Ok(object.cast())
}

/// `ibv_modify_srq`: the size, the limit, or both.
pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut abi::Srq,
    attr: *mut abi::SrqAttr,
    mask: c_int,
) -> c_int {
    status(|| {
        let mask = SrqAttrMask::from_bits(mask.cast_unsigned()).ok_or(INVALID)?;
        // SAFETY: the caller gives a queue that exists, and attributes.
        let (object, c) = unsafe { (SrqObject::of(srq), *attr) };
        let attr = SrqAttr { max_wr: c.max_wr, max_sge: c.max_sge, srq_limit: c.srq_limit };
        let srqn = object.srq.srqn();
        object.host().control(move |shard, _| shard.modify_srq(srqn, &attr, mask))??;
        Ok(())
    })
}

/// `ibv_query_srq`.
pub(crate) unsafe extern "C" fn query_srq(srq: *mut abi::Srq, attr: *mut abi::SrqAttr) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { SrqObject::of(srq) };
        let srqn = object.srq.srqn();
        let found = object.host().control(move |shard, _| shard.query_srq(srqn))??;
        // SAFETY: the caller has room for the attributes.
        unsafe { attr.write(c_attr(&found)) };
        Ok(())
    })
}

/// `ibv_destroy_srq`. Waits until all events that were read are acknowledged.
pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut abi::Srq) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { SrqObject::of(srq) };
        let (state, srqn) = (Arc::clone(&object.state), object.srq.srqn());
        let mut table = lock(&state.srqs);
        state.host().control(move |shard, _| shard.destroy_srq(srqn))??;
        table.remove(&srqn.get());
        drop(table);
        object.async_acks.wait();
        // SAFETY: nobody finds it any more, and the caller gives it up.
        drop(unsafe { Box::from_raw(srq.cast::<SrqObject>()) });
        Ok(())
    })
}

/// `ibv_get_srq_num`.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut abi::Srq, number: *mut u32) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists, and room for its number.
        unsafe { number.write(SrqObject::of(srq).srq.srqn().get()) };
        Ok(())
    })
}

impl SrqObject {
    /// # Safety
    /// `srq` was made here and is not destroyed as long as the result is used.
    pub(crate) unsafe fn of<'a>(srq: *mut abi::Srq) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*srq.cast() }
    }

    #[inline]
    pub(crate) fn host(&self) -> &Host {
        self.state.host()
    }
}

fn c_attr(attr: &SrqAttr) -> abi::SrqAttr {
    abi::SrqAttr { max_wr: attr.max_wr, max_sge: attr.max_sge, srq_limit: attr.srq_limit }
}

/// Values of `enum ibv_srq_type`.
const TYPE_BASIC: c_int = 0;
const TYPE_XRC: c_int = 1;
const TYPE_TM: c_int = 2;
/// Values of `enum ibv_srq_init_attr_mask`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 1 << 1;
