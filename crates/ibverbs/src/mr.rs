//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use userdma_mem::Region;
use userdma_objects::{MrKeys, PdId};
use userdma_verbs::{AccessFlags, LKey};

use crate::abi;
use crate::answer::{About, Refused, pointer, status};
use crate::context::ContextState;
use crate::pd::PdObject;

/// What a `struct ibv_mr` lies in.
#[repr(C)]
struct MrObject {
    abi: abi::Mr,
    state: Arc<ContextState>,
    range: Range,
}

/// What is registered, and how.
#[derive(Clone, Copy)]
struct Range {
    pd: PdId,
    addr: *mut c_void,
    length: usize,
    /// The address that work requests count from; the memory's own if `None`.
    iova: Option<u64>,
    access: c_uint,
}

/// `ibv_reg_mr`.
pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the caller gives a domain that exists, and memory that peers may reach as `access` says.
    unsafe { register(pd, addr, length, None, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova`, which the header calls for rights that it knows when it compiles.
pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: as `reg_mr`.
    unsafe { register(pd, addr, length, Some(iova), access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova2`.
pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut abi::Mr {
    // SAFETY: as `reg_mr`.
    unsafe { register(pd, addr, length, Some(iova), access) }
}

/// # Safety
/// `pd` exists; the memory may be read and changed by the device and by peers until the region ends.
unsafe fn register(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
) -> *mut abi::Mr {
    pointer(|| {
        // SAFETY: the caller's promise.
        let domain = unsafe { PdObject::of(pd) };
        let state = Arc::clone(&domain.state);
        let range = Range { pd: domain.id, addr, length, iova, access };
        // SAFETY: the caller's promise.
        let keys = unsafe { range.register(&state) }?;
        let mut abi = abi::Mr { context: domain.context(), pd, addr, length, handle: 0, lkey: 0, rkey: 0 };
        abi.set_keys(keys);
        Ok(Box::into_raw(Box::new(MrObject { abi, state, range })).cast())
    })
}

/// `ibv_dereg_mr`.
pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut abi::Mr) -> c_int {
    status(|| {
        let mr = mr.cast::<MrObject>();
        // SAFETY: the caller gives a region that exists.
        let (state, lkey) = unsafe { (&(*mr).state, LKey::new((*mr).abi.lkey)) };
        state
            .host()
            .control(move |shard, _| shard.dereg_mr(lkey).map(drop))?
            .about(|| format!("MR lkey {lkey}"))?;
        // SAFETY: the caller gives it up.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}

/// `ibv_rereg_mr`: 0, or a code that says whether the region is still valid, with `errno` set. The keys stay. If it fails, the
/// region is as it was.
pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut abi::Mr,
    flags: c_int,
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let errno = status(|| {
        // SAFETY: the caller gives a region that exists, and whatever `flags` says.
        unsafe { change(mr.cast(), flags, pd, addr, length, access.cast_unsigned()) }
    });
    if errno == 0 {
        return 0;
    }
    crate::answer::set_errno(Refused(errno));
    ERR_INPUT
}

/// # Safety
/// `mr` exists; as [`register`] for what `flags` names. Programs read the structure at any time: it is reached by pointer only.
unsafe fn change(
    mr: *mut MrObject,
    flags: c_int,
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Result<(), Refused> {
    if flags == 0 || flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) != 0 {
        return Err(crate::answer::wrong("flags", flags, "IBV_REREG_MR_CHANGE_* (1 to 7)"));
    }
    // SAFETY: the caller's promise.
    let (state, mut range, lkey) = unsafe { (&(*mr).state, (*mr).range, LKey::new((*mr).abi.lkey)) };
    if flags & CHANGE_TRANSLATION != 0 {
        range = Range { addr, length, iova: None, ..range };
    }
    if flags & CHANGE_PD != 0 {
        // SAFETY: the caller gives a domain that exists.
        range.pd = unsafe { PdObject::of(pd) }.id;
    }
    if flags & CHANGE_ACCESS != 0 {
        range.access = access;
    }
    // SAFETY: the caller's promise.
    let (region, iova) = unsafe { range.region() };
    // Touches the pages while others drive. The device proves it again, and says what is wrong.
    let rights = AccessFlags::from_bits_retain(range.access);
    let _ = region.probe(rights.is_writing());
    let domain = range.pd;
    state.host().control(move |shard, _| shard.rereg_mr(lkey, domain, region, iova, rights))???;
    // SAFETY: calls that change a region exclude each other, by the rules of the verbs.
    unsafe {
        (*mr).range = range;
        ((*mr).abi.addr, (*mr).abi.length) = (range.addr, range.length);
        if flags & CHANGE_PD != 0 {
            (*mr).abi.pd = pd;
        }
    }
    Ok(())
}

impl Range {
    /// # Safety
    /// The memory may be read and changed by the device and by peers until the registration ends.
    unsafe fn register(&self, state: &ContextState) -> Result<MrKeys, Refused> {
        // SAFETY: the caller's promise.
        let (region, iova) = unsafe { self.region() };
        let access = AccessFlags::from_bits_retain(self.access);
        Ok(state.host().reg_mr(self.pd, region, iova, access)??)
    }

    /// The memory, and the address that work requests count from.
    ///
    /// # Safety
    /// As [`Range::register`].
    unsafe fn region(&self) -> (Region, u64) {
        // SAFETY: the caller's promise; C programs hold no Rust references to it.
        let region = unsafe { Region::from_raw(self.addr.cast(), self.length) };
        let iova = self.iova.unwrap_or_else(|| region.addr());
        (region, iova)
    }
}

impl abi::Mr {
    fn set_keys(&mut self, keys: MrKeys) {
        (self.lkey, self.rkey, self.handle) = (keys.lkey.get(), keys.rkey.get(), keys.lkey.get());
    }
}

const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;
/// `IBV_REREG_MR_ERR_INPUT`: the old region is valid.
const ERR_INPUT: c_int = -1;
