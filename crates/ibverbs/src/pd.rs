//! Protection domains and address vectors.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_nic::AhId;
use userdma_objects::PdId;

use crate::abi::{self, Context};
use crate::answer::{Refused, pointer, status};
use crate::context::{self, ContextState};
use crate::convert::ah_attr;

/// What a `struct ibv_pd` lies in.
#[repr(C)]
pub(crate) struct PdObject {
    abi: abi::Pd,
    pub(crate) state: Arc<ContextState>,
    pub(crate) id: PdId,
}

/// What a `struct ibv_ah` lies in.
#[repr(C)]
struct AhObject {
    abi: abi::Ah,
    state: Arc<ContextState>,
    id: AhId,
}

impl PdObject {
    /// # Safety
    /// `pd` comes from [`alloc_pd`] and is not deallocated as long as the result is used.
    pub(crate) unsafe fn of<'a>(pd: *mut abi::Pd) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*pd.cast() }
    }

    pub(crate) fn context(&self) -> *mut Context {
        self.abi.context
    }
}

/// `ibv_alloc_pd`.
pub(crate) unsafe extern "C" fn alloc_pd(context: *mut Context) -> *mut abi::Pd {
    pointer(|| {
        // SAFETY: the caller gives an open context.
        let state = Arc::clone(unsafe { context::state(context) });
        let id = state.host().control(|shard, _| shard.alloc_pd())?.ok_or(Refused(libc::ENOMEM))?;
        let object = PdObject { abi: abi::Pd { context, handle: id.0 }, state, id };
        Ok(Box::into_raw(Box::new(object)).cast())
    })
}

/// `ibv_dealloc_pd`.
pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut abi::Pd) -> c_int {
    status(|| {
        // SAFETY: the caller gives a domain that exists.
        let PdObject { state, id, .. } = unsafe { PdObject::of(pd) };
        let id = *id;
        state.host().control(move |shard, _| shard.dealloc_pd(id))??;
        // SAFETY: nothing is in it any more, and the caller gives it up.
        drop(unsafe { Box::from_raw(pd.cast::<PdObject>()) });
        Ok(())
    })
}

/// `ibv_create_ah`.
pub(crate) unsafe extern "C" fn create_ah(pd: *mut abi::Pd, attr: *mut abi::AhAttr) -> *mut abi::Ah {
    pointer(|| {
        // SAFETY: the caller gives a domain that exists, and attributes.
        let (domain, attr) = unsafe { (PdObject::of(pd), ah_attr(&*attr)?) };
        let (state, id) = (Arc::clone(&domain.state), domain.id);
        let ah = state.host().control(move |shard, _| shard.create_ah(id, &attr))??;
        let object = AhObject { abi: abi::Ah { context: domain.context(), pd, handle: ah.0 }, state, id: ah };
        Ok(Box::into_raw(Box::new(object)).cast())
    })
}

/// `ibv_destroy_ah`.
pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut abi::Ah) -> c_int {
    status(|| {
        let ah = ah.cast::<AhObject>();
        // SAFETY: the caller gives an address vector that exists.
        let AhObject { state, id, .. } = unsafe { &*ah };
        let id = *id;
        state.host().control(move |shard, _| shard.destroy_ah(id))??;
        // SAFETY: the caller gives it up.
        drop(unsafe { Box::from_raw(ah) });
        Ok(())
    })
}
