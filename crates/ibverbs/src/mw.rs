//! Memory windows: those of type 2 are bound by work requests, those of type 1 by a call, which posts one.

use std::ffi::c_int;
use std::sync::Arc;

use userdma_verbs::{AccessFlags, BindMw, LKey, MwType, ObjectError, RKey, SendFlags, SendOp, SendWr};

use crate::abi;
use crate::answer::{INVALID, Refused, pointer, status};
use crate::context::ContextState;
use crate::pd::PdObject;
use crate::post::{post, start};
use crate::qp::QpObject;

/// What a `struct ibv_mw` lies in.
#[repr(C)]
struct MwObject {
    abi: abi::Mw,
    state: Arc<ContextState>,
}

/// `ibv_alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut abi::Pd, mw_type: c_int) -> *mut abi::Mw {
    pointer(|| {
        let kind = match mw_type {
            TYPE_1 => MwType::Type1,
            TYPE_2 => MwType::Type2,
            _ => return Err(INVALID),
        };
        // SAFETY: the caller gives a domain that exists.
        let domain = unsafe { PdObject::of(pd) };
        let (state, id) = (Arc::clone(&domain.state), domain.id);
        let rkey = state.host().control(move |shard, _| shard.alloc_mw_of_type(id, kind))??.get();
        let abi = abi::Mw { context: domain.context(), pd, rkey, handle: rkey, mw_type };
        Ok(Box::into_raw(Box::new(MwObject { abi, state })).cast())
    })
}

/// `ibv_bind_mw`, for windows of type 1: posts the bind, and gives the structure the key that the window gets by it. As the C
/// provider's `mlx5/verbs.c mlx5_bind_mw()`.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut abi::Qp, mw: *mut abi::Mw, bind: *mut abi::MwBind) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue pair, a window and a bind, whose region exists or is null.
        let (object, bind, mut op) = unsafe { (QpObject::of(qp), &*bind, type_1(mw, &(*bind).bind_info)?) };
        // What the header's `ibv_inc_rkey` does.
        let [.., variant] = op.mw.get().to_be_bytes();
        op.rkey = op.mw.with_variant(variant.wrapping_add(1));
        let flags = SendFlags::from_bits(bind.send_flags).ok_or(INVALID)?;
        let (wr_id, op, rkey) = (bind.wr_id, SendOp::BindMw(op), op.rkey.get());
        object.host().check()?;
        post(object, &SendWr { wr_id, op, flags, sgl: &[], inline: &[] }, None)?;
        start(object);
        // SAFETY: as above.
        unsafe { (*mw).rkey = rkey };
        Ok(())
    })
}

/// The bind of a window of type 1, without a new key.
///
/// # Safety
/// The window exists, and the region if there is one.
unsafe fn type_1(mw: *mut abi::Mw, info: &abi::BindMwInfo) -> Result<BindMw, Refused> {
    let access = AccessFlags::from_bits_retain(info.mw_access_flags);
    // SAFETY: the caller's promise.
    let (mw_type, pd, current) = unsafe { ((*mw).mw_type, (*mw).pd, RKey::new((*mw).rkey)) };
    let is_empty = info.length == 0;
    if mw_type != TYPE_1 || access.contains(AccessFlags::ZERO_BASED) || (info.mr.is_null() && !is_empty) {
        return Err(INVALID);
    }
    let mr = if info.mr.is_null() {
        LKey::new(0)
    } else {
        // SAFETY: the caller's promise.
        let (lkey, domain) = unsafe { ((*info.mr).lkey, (*info.mr).pd) };
        if domain != pd {
            return Err(Refused(libc::EPERM));
        }
        LKey::new(lkey)
    };
    let access = access.difference(AccessFlags::LOCAL_WRITE);
    Ok(BindMw { mw: current, rkey: current, mr, addr: info.addr, length: info.length, access })
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

/// `IBV_MW_TYPE_1`.
const TYPE_1: c_int = 1;
/// `IBV_MW_TYPE_2`.
const TYPE_2: c_int = 2;
