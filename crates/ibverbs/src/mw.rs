//! Memory windows of type 2, which are bound by work requests.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_verbs::{ObjectError, RKey};

use crate::abi;
use crate::answer::{Refused, UNSUPPORTED, pointer, status};
use crate::context::ContextState;
use crate::pd::PdObject;

/// What a `struct ibv_mw` lies in.
#[repr(C)]
struct MwObject {
    abi: abi::Mw,
    state: Arc<ContextState>,
}

/// `ibv_alloc_mw`. Windows of type 1 are not there.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut abi::Pd, mw_type: c_int) -> *mut abi::Mw {
    pointer(|| {
        if mw_type != TYPE_2 {
            return Err(UNSUPPORTED);
        }
        // SAFETY: the caller gives a domain that exists.
        let domain = unsafe { PdObject::of(pd) };
        let (state, id) = (Arc::clone(&domain.state), domain.id);
        let rkey = state.host().control(move |shard, _| shard.alloc_mw(id))??.get();
        let abi = abi::Mw { context: domain.context(), pd, rkey, handle: rkey, mw_type };
        Ok(Box::into_raw(Box::new(MwObject { abi, state })).cast())
    })
}

/// `ibv_bind_mw`, which is for windows of type 1.
pub(crate) unsafe extern "C" fn bind_mw(_: *mut abi::Qp, _: *mut abi::Mw, _: *mut abi::MwBind) -> c_int {
    let Refused(errno) = UNSUPPORTED;
    errno
}

/// `ibv_dealloc_mw`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut abi::Mw) -> c_int {
    status(|| {
        let mw = mw.cast::<MwObject>();
        // SAFETY: the caller gives a window that exists. Binds write its structure, which is reached by pointer only.
        let (state, rkey) = unsafe { (&(*mw).state, RKey::new((*mw).abi.rkey)) };
        state.host().control(move |shard, _| {
            // The structure has the key of the last bind that was posted. If that one failed the window has another low byte.
            let others = (0..=u8::MAX).map(|variant| rkey.with_variant(variant));
            let mut keys = std::iter::once(rkey).chain(others);
            if keys.any(|key| shard.dealloc_mw(key).is_ok()) {
                Ok(())
            } else {
                Err(ObjectError::NoObject("memory window"))
            }
        })??;
        // SAFETY: the caller gives it up.
        drop(unsafe { Box::from_raw(mw) });
        Ok(())
    })
}

/// `IBV_MW_TYPE_2`.
const TYPE_2: c_int = 2;
