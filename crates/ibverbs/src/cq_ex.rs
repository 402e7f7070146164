//! Extended completion queues: completions one by one, field by field.

use std::ffi::c_int;

use userdma_verbs::WcStatus;

use crate::abi::{self, CqEx};
use crate::answer::{INVALID, Refused, status};
use crate::cq::{CqObject, NOTHING, imm_data};

/// The structure that programs see, for a queue.
pub(crate) fn face(cq: abi::Cq) -> CqEx {
    CqEx {
        cq,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_zero),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_zero_byte),
        none: [0; 5],
    }
}

unsafe extern "C" fn start_poll(cq: *mut CqEx, attr: *const u32) -> c_int {
    // SAFETY: the caller gives attributes, which are a mask of what follows.
    if !attr.is_null() && unsafe { attr.read() } != 0 {
        let Refused(errno) = INVALID;
        return errno;
    }
    // SAFETY: as here.
    unsafe { next_poll(cq) }
}

/// Moves to the next completion; `ENOENT` if there is none.
unsafe extern "C" fn next_poll(cq: *mut CqEx) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue that exists.
        let object = unsafe { CqObject::of(cq.cast()) };
        let mut wc = [NOTHING];
        if !object.prepare()? || object.take(&mut wc) == 0 {
            return Err(Refused(if object.cq.is_used_up() { libc::EOVERFLOW } else { libc::ENOENT }));
        }
        let [wc] = wc;
        // SAFETY: no other thread polls the queue in this way at the same time, by the rules of the verbs.
        unsafe {
            object.current.get().write(wc);
            (*cq).status = wc.status as c_int;
            (*cq).wr_id = wc.wr_id;
        }
        if wc.status != WcStatus::Success {
            object.tell(&[wc]);
        }
        Ok(())
    })
}

/// Nothing is held between the calls.
unsafe extern "C" fn end_poll(_: *mut CqEx) {}

macro_rules! read {
    ($($name:ident: $type:ty = |$wc:ident| $value:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut CqEx) -> $type {
            // SAFETY: the caller gives a queue that exists and that no other thread polls.
            let $wc = unsafe { &*CqObject::of(cq.cast()).current.get() };
            $value
        }
    )* };
}
read! {
    read_opcode: c_int = |wc| wc.opcode as c_int;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_imm_data: u32 = |wc| imm_data(wc);
    read_qp_num: u32 = |wc| wc.qpn.get();
    read_src_qp: u32 = |wc| wc.src_qp.get();
    read_sl: u8 = |wc| wc.sl;
    read_wc_flags: u32 = |wc| wc.flags.bits();
}

/// Ethernet has no LIDs.
unsafe extern "C" fn read_zero(_: *mut CqEx) -> u32 {
    0
}

unsafe extern "C" fn read_zero_byte(_: *mut CqEx) -> u8 {
    0
}
