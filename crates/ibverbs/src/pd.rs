//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_objects::PdId;

use crate::abi::{self, Context};
use crate::answer::{Refused, pointer, status};
use crate::context::{self, ContextState};

/// What a `struct ibv_pd` lies in.
#[repr(C)]
pub(crate) struct PdObject {
    abi: abi::Pd,
    pub(crate) state: Arc<ContextState>,
    pub(crate) id: PdId,
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
