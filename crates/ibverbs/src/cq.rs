//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use userdma_host::{Host, call};
use userdma_objects::{Arm, Cq};
use userdma_verbs::{DeviceAttr, Qpn, Wc, WcFlags, WcOpcode, WcStatus};

use crate::abi::{self, Context, CqEx};
use crate::acks::Acks;
use crate::answer::{About, Refused, UNSUPPORTED, number, pointer, status, wrong};
use crate::channel::{comp_channel, count_users};
use crate::context::{self, ContextState};
use crate::devices::lock;
use crate::explain;
use crate::query::int;

/// What a `struct ibv_cq` and a `struct ibv_cq_ex` lie in.
#[repr(C)]
pub(crate) struct CqObject {
    /// Programs read and write it, and so do calls, at any time.
    pub(crate) abi: UnsafeCell<CqEx>,
    state: Arc<ContextState>,
    pub(crate) cq: Arc<Cq>,
    pub(crate) comp_acks: Acks,
    pub(crate) async_acks: Acks,
    /// The completion that `start_poll` and `next_poll` stand at.
    pub(crate) current: UnsafeCell<Wc>,
}

/// `ibv_create_cq`.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
    comp_vector: c_int,
) -> *mut abi::Cq {
    pointer(|| {
        let cqe = u32::try_from(cqe).map_err(|_| wrong("cqe", cqe, "1 or more"))?;
        if comp_vector != 0 {
            return Err(wrong("comp_vector", comp_vector, "0"));
        }
        // SAFETY: the caller gives an open context, and a channel of it or none.
        unsafe { create(context, cqe, cq_context, channel) }.map(<*mut CqEx>::cast)
    })
}

/// `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut Context,
    init: *mut abi::CqInitAttrEx,
) -> *mut CqEx {
    pointer(|| {
        // SAFETY: the caller gives attributes.
        let init = unsafe { &*init };
        let flags = if init.comp_mask & MASK_FLAGS != 0 { init.flags } else { 0 };
        if init.comp_vector != 0 {
            return Err(wrong("comp_vector", init.comp_vector, "0"));
        }
        if init.comp_mask & !MASK_FLAGS != 0
            || flags & !SINGLE_THREADED != 0
            || init.wc_flags & !WC_FIELDS != 0
        {
            return Err(UNSUPPORTED);
        }
        // SAFETY: the caller gives an open context, and a channel of it or none.
        unsafe { create(context, init.cqe, init.cq_context, init.channel) }
    })
}

/// # Safety
/// `context` is open, `channel` null or one of its channels.
unsafe fn create(
    context: *mut Context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
) -> Result<*mut CqEx, Refused> {
    // SAFETY: the caller's promise.
    let state = Arc::clone(unsafe { context::state(context) });
    // SAFETY: the caller's promise.
    let comp_channel = unsafe { comp_channel(channel) };
    let cq = state.host().control(move |shard, _| shard.create_cq(cqe, comp_channel))??;
    let number = cq.number();
    let plain = abi::Cq {
        context,
        channel,
        cq_context,
        handle: number,
        cqe: int(cq.capacity()),
        mutex: [0; 5],
        cond: [0; 6],
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let object = CqObject {
        abi: UnsafeCell::new(crate::cq_ex::face(plain)),
        state: Arc::clone(&state),
        cq,
        comp_acks: Acks::default(),
        async_acks: Acks::default(),
        current: UnsafeCell::new(NOTHING),
    };
    let object = Box::into_raw(Box::new(object));
    let mut table = lock(&state.cqs);
    table.insert(number, object.expose_provenance());
    // SAFETY: the channel exists, and the lock is held.
    unsafe { count_users(channel, 1) };
    Ok(object.cast())
}

/// `ibv_destroy_cq`. Waits until all events that were read are acknowledged; others are forgotten.
pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut abi::Cq) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { CqObject::of(cq) };
        let (state, number) = (Arc::clone(&object.state), object.cq.number());
        let mut table = lock(&state.cqs);
        state.host().control(move |shard, _| shard.destroy_cq(number))?.about(|| format!("CQ {number}"))?;
        table.remove(&number);
        // SAFETY: the channel exists as long as a queue is on it, and the lock is held.
        unsafe { count_users((*cq).channel, -1) };
        drop(table);
        object.comp_acks.wait();
        object.async_acks.wait();
        // SAFETY: nobody finds it any more, and the caller gives it up.
        drop(unsafe { Box::from_raw(cq.cast::<CqObject>()) });
        Ok(())
    })
}

/// `ibv_resize_cq`. A queue grows, and does not become smaller: it may be larger than asked for. Less than it holds at this moment
/// is refused, as by the kernel's `rxe_cq.c rxe_cq_chk_attr()`.
pub(crate) unsafe extern "C" fn resize_cq(cq: *mut abi::Cq, cqe: c_int) -> c_int {
    status(|| {
        if !(1..=int(DeviceAttr::LIMITS.max_cqe)).contains(&cqe) {
            return Err(wrong("cqe", cqe, "1 to max_cqe of the device"));
        }
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { CqObject::of(cq) };
        // What was posted completes first, as far as it can: an adapter would have sent it by now. Whoever drives takes calls before
        // posts, so those are sent when he takes the second.
        for _ in 0..2 {
            object.host().control(|_, _| ())?;
        }
        if cqe.cast_unsigned() < object.cq.len() {
            let held = object.cq.len();
            return Err(wrong("cqe", cqe, &format!("what the queue holds at this moment, {held}, or more")));
        }
        object.cq.grow(cqe.cast_unsigned());
        // SAFETY: programs read the size; calls that change it exclude each other, by the rules of the verbs.
        unsafe { (*cq).cqe = int(object.cq.capacity()) };
        Ok(())
    })
}

/// `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut abi::Cq, solicited_only: c_int) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { CqObject::of(cq) };
        let arm = if solicited_only == 0 { Arm::Any } else { Arm::Solicited };
        Ok(object.host().req_notify(&object.cq, arm)?)
    })
}

/// `ibv_poll_cq`: how many completions there are, or a negative number if the queue has overflowed or the device has failed.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut abi::Cq, num_entries: c_int, wc: *mut abi::Wc) -> c_int {
    number(|| {
        let room =
            usize::try_from(num_entries).map_err(|_| wrong("num_entries", num_entries, "0 or more"))?;
        // SAFETY: the caller gives a queue that exists, and room for so many completions.
        unsafe { CqObject::of(cq).poll(wc, room) }
    })
}

impl CqObject {
    /// # Safety
    /// `cq` was made here and is not destroyed as long as the result is used.
    pub(crate) unsafe fn of<'a>(cq: *mut abi::Cq) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*cq.cast() }
    }

    pub(crate) fn host(&self) -> &Host {
        self.state.host()
    }

    /// Whether there are completions to take, after driving the device if there were none.
    #[inline]
    pub(crate) fn prepare(&self) -> Result<bool, Refused> {
        let host = self.host();
        let is_ready = if call::is_nested() {
            host.prepare_poll_from_handler(&self.cq)
        } else {
            host.prepare_poll(&self.cq)
        };
        Ok(is_ready?)
    }

    /// Takes completions, unless it would wait for what it has interrupted.
    #[inline]
    pub(crate) fn take(&self, out: &mut [Wc]) -> usize {
        self.cq.poll_unless(out, call::is_nested)
    }

    /// # Safety
    /// There is room for `room` completions at `out`.
    #[inline]
    unsafe fn poll(&self, out: *mut abi::Wc, room: usize) -> Result<c_int, Refused> {
        if !self.prepare()? {
            return if self.cq.is_used_up() {
                Err(Refused(libc::EOVERFLOW).because(|| {
                    let (number, cqe) = (self.cq.number(), self.cq.capacity());
                    format!("CQ {number}: more completions than its {cqe} places came, and were lost")
                }))
            } else {
                Ok(0)
            };
        }
        let (mut taken, mut failed) = (0, false);
        while taken < room {
            let mut some = [NOTHING; AT_ONCE];
            let wanted = AT_ONCE.min(room - taken);
            let count = self.take(&mut some[..wanted]);
            for (place, wc) in some[..count].iter().enumerate() {
                // SAFETY: the place is less than `room`.
                unsafe { out.add(taken + place).write(completion(wc)) };
                failed |= wc.status != WcStatus::Success;
            }
            if failed {
                self.tell(&some[..count]);
                failed = false;
            }
            taken += count;
            if count < wanted {
                break;
            }
        }
        // At most `room`, which was a number of C's.
        Ok(c_int::try_from(taken).unwrap_or(c_int::MAX))
    }

    /// Tells of those that ended in error.
    #[cold]
    pub(crate) fn tell(&self, wcs: &[Wc]) {
        let failed = wcs.iter().filter(|wc| wc.status != WcStatus::Success);
        failed.for_each(|wc| explain::tell_completion(&self.state, wc));
    }
}

/// A completion as C has it.
fn completion(wc: &Wc) -> abi::Wc {
    abi::Wc {
        wr_id: wc.wr_id,
        status: wc.status as c_int,
        opcode: wc.opcode as c_int,
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        imm_data: imm_data(wc),
        qp_num: wc.qpn.get(),
        src_qp: wc.src_qp.get(),
        wc_flags: wc.flags.bits(),
        pkey_index: 0,
        slid: 0,
        sl: wc.sl,
        dlid_path_bits: 0,
    }
}

/// Immediate data in network order, or the key that was invalidated, which take the same place.
pub(crate) fn imm_data(wc: &Wc) -> u32 {
    if wc.flags.contains(WcFlags::WITH_INV) { wc.invalidated_rkey.get() } else { wc.imm_data.to_be() }
}

/// A completion that says nothing.
pub(crate) const NOTHING: Wc = Wc::new(0, WcStatus::Success, WcOpcode::Send, Qpn::new(0));
/// Completions taken from the queue at once.
const AT_ONCE: usize = 16;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const MASK_FLAGS: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const SINGLE_THREADED: u32 = 1;
/// `IBV_WC_EX_WITH_BYTE_LEN` to `DLID_PATH_BITS`: what every completion has.
const WC_FIELDS: u64 = 0x7f;
