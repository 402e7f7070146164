//! The extended way to post: `ibv_wr_start`, one call for each request and its data, `ibv_wr_complete`.
//!
//! What is said in between is collected, checked as it comes, and posted at the end: all of it, or nothing if something was
//! wrong or has no room. The structure's mutex is held meanwhile, as other providers do.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use userdma_objects::UdAddr;
use userdma_verbs::{AtomicOp, PostError, QpCap, QpType, RKey, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::abi::{self, BindMwInfo, DataBuf, QpEx};
use crate::ah::AhObject;
use crate::answer::{INVALID, Refused, status};
use crate::post::{bind, post, sge, start};
use crate::qp::QpObject;

/// What has been said since `wr_start`. Its memory is kept for the next time.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first thing that was wrong.
    wrong: Option<&'static str>,
}

#[derive(Debug)]
struct Request {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    sges: Range<usize>,
    inline: Range<usize>,
    /// Whom it is for, if it is a datagram.
    addr: Option<UdAddr>,
}

/// The structure that programs see, for a queue pair.
pub(crate) fn face(qp: abi::Qp) -> QpEx {
    QpEx {
        qp_base: qp,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        none_before_ud_addr: 0,
        wr_set_ud_addr: Some(wr_set_ud_addr),
        none_before_inline: 0,
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        none_at_end: [0; 2],
    }
}

unsafe extern "C" fn wr_start(qp: *mut QpEx) {
    // SAFETY: the structure's mutex was made of zeros, which is an unlocked one; it stays in place.
    unsafe { libc::pthread_mutex_lock(mutex(qp)) };
    // SAFETY: the mutex is held from here on.
    unsafe { builder(qp) }.clear();
}

unsafe extern "C" fn wr_complete(qp: *mut QpEx) -> c_int {
    let errno = status(|| {
        // SAFETY: the caller has called `wr_start`, and holds the mutex.
        let (object, builder) = unsafe { (QpObject::of(qp.cast()), builder(qp)) };
        builder.post(object)
    });
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_unlock(mutex(qp)) };
    errno
}

unsafe extern "C" fn wr_abort(qp: *mut QpEx) {
    // SAFETY: the caller has called `wr_start`, and holds the mutex.
    unsafe { libc::pthread_mutex_unlock(mutex(qp)) };
}

unsafe extern "C" fn wr_send(qp: *mut QpEx) {
    // SAFETY: as all of these: between `wr_start` and `wr_complete`.
    unsafe { add(qp, SendOp::Send) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut QpEx, imm_data: u32) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::SendWithImm(u32::from_be(imm_data))) };
}

unsafe extern "C" fn wr_send_inv(qp: *mut QpEx, rkey: u32) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::SendWithInv(RKey::new(rkey))) };
}

unsafe extern "C" fn wr_local_inv(qp: *mut QpEx, rkey: u32) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::LocalInv(RKey::new(rkey))) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut QpEx, rkey: u32, addr: u64) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::Read(remote(rkey, addr))) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut QpEx, rkey: u32, addr: u64) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::Write(remote(rkey, addr))) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut QpEx, rkey: u32, addr: u64, imm_data: u32) {
    // SAFETY: as `wr_send`.
    unsafe { add(qp, SendOp::WriteWithImm(remote(rkey, addr), u32::from_be(imm_data))) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut QpEx, rkey: u32, addr: u64, compare: u64, swap: u64) {
    // SAFETY: as `wr_send`.
    unsafe { add_atomic(qp, remote(rkey, addr), AtomicOp::CompareSwap { compare, swap }) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut QpEx, rkey: u32, addr: u64, add: u64) {
    // SAFETY: as `wr_send`.
    unsafe { add_atomic(qp, remote(rkey, addr), AtomicOp::FetchAdd { add }) };
}

unsafe extern "C" fn wr_bind_mw(qp: *mut QpEx, mw: *mut abi::Mw, rkey: u32, info: *const BindMwInfo) {
    // SAFETY: as `wr_send`; the caller gives a window and its region.
    unsafe {
        match bind(mw, rkey, &*info) {
            Ok(bind) => {
                add(qp, SendOp::BindMw(bind));
                (*mw).rkey = rkey;
            }
            Err(_) => builder(qp).refuse("bind_mw: mw or mr is null"),
        }
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut QpEx, ah: *mut abi::Ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: as `wr_send`; the caller gives a handle that exists.
    unsafe {
        let addr = AhObject::addr(ah, remote_qpn, remote_qkey, QpObject::of(qp.cast()).host());
        builder(qp).set_addr(addr);
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut QpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as `wr_send`.
    unsafe { set_sges(qp, std::iter::once(sge(&abi::Sge { addr, length, lkey }))) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut QpEx, num_sge: usize, list: *const abi::Sge) {
    // SAFETY: as `wr_send`; there are `num_sge` elements.
    unsafe { set_sges(qp, (0..num_sge).map(|place| sge(&*list.add(place)))) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut QpEx, addr: *mut c_void, length: usize) {
    // SAFETY: as `wr_send`; there are `length` bytes.
    unsafe { set_inline(qp, std::iter::once(DataBuf { addr, length })) };
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut QpEx, num_buf: usize, list: *const DataBuf) {
    // SAFETY: as `wr_send`; there are `num_buf` buffers.
    unsafe { set_inline(qp, (0..num_buf).map(|place| *list.add(place))) };
}

fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr { addr, rkey: RKey::new(rkey) }
}

/// # Safety
/// `qp` exists, and the thread holds its mutex.
unsafe fn add(qp: *mut QpEx, op: SendOp) {
    // SAFETY: the caller's promise.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: the caller's promise.
    unsafe { builder(qp) }.add(wr_id, flags, op);
}

/// # Safety
/// As [`add`].
unsafe fn add_atomic(qp: *mut QpEx, remote: RemoteAddr, op: AtomicOp) {
    // SAFETY: the caller's promise.
    unsafe {
        if !remote.addr.is_multiple_of(8) {
            builder(qp).refuse("an atomic's remote address is not a multiple of 8");
        }
        add(qp, SendOp::Atomic(remote, op));
    }
}

/// # Safety
/// As [`add`].
unsafe fn set_sges(qp: *mut QpEx, list: impl Iterator<Item = Sge>) {
    // SAFETY: the caller's promise.
    let (object, builder) = unsafe { (QpObject::of(qp.cast()), builder(qp)) };
    builder.set_sges(list, &object.shared.cap());
}

/// # Safety
/// As [`add`]; the buffers exist.
unsafe fn set_inline(qp: *mut QpEx, list: impl Iterator<Item = DataBuf>) {
    // SAFETY: the caller's promise.
    let (object, builder) = unsafe { (QpObject::of(qp.cast()), builder(qp)) };
    // SAFETY: the caller's promise.
    unsafe { builder.set_inline(list, &object.shared.cap()) };
}

fn mutex(qp: *mut QpEx) -> *mut libc::pthread_mutex_t {
    // SAFETY: only the address is computed; the queue pair exists.
    unsafe { (&raw mut (*qp).qp_base.mutex).cast() }
}

/// # Safety
/// `qp` exists, and the thread holds its mutex as long as it uses the result.
unsafe fn builder<'a>(qp: *mut QpEx) -> &'a mut Builder {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*qp.cast::<QpObject>()).builder.get() }
}

impl Builder {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.wrong = None;
    }

    fn refuse(&mut self, why: &'static str) {
        self.wrong.get_or_insert(why);
    }

    fn add(&mut self, wr_id: u64, flags: u32, op: SendOp) {
        // Whether data is inline, the calls that set it say.
        let Some(flags) = SendFlags::from_bits(flags).map(|flags| flags.difference(SendFlags::INLINE)) else {
            return self.refuse("wr_flags has bits that are no flags");
        };
        let (sges, inline) = (self.sges.len()..self.sges.len(), self.inline.len()..self.inline.len());
        self.requests.push(Request { wr_id, op, flags, sges, inline, addr: None });
    }

    /// Says whom the last request is for.
    fn set_addr(&mut self, addr: Result<UdAddr, Refused>) {
        match (self.requests.last_mut(), addr) {
            (Some(request), Ok(addr)) => request.addr = Some(addr),
            (_, Err(_)) => self.refuse("an address vector is not one of this device"),
            (None, Ok(_)) => self.refuse(NO_REQUEST),
        }
    }

    /// Gives the last request its list.
    fn set_sges(&mut self, list: impl Iterator<Item = Sge>, cap: &QpCap) {
        let Some(request) = self.requests.last_mut() else { return self.refuse(NO_REQUEST) };
        let start = self.sges.len();
        self.sges.extend(list);
        request.sges = start..self.sges.len();
        let is_atomic = matches!(request.op, SendOp::Atomic(..));
        let length: u64 = self.sges[start..].iter().map(|sge| u64::from(sge.length)).sum();
        if request.sges.len() > cap.max_send_sge as usize || (is_atomic && length != 8) {
            self.refuse(
                "more scatter/gather elements than max_send_sge, or an atomic with other than 8 bytes",
            );
        }
    }

    /// Gives the last request its data.
    ///
    /// # Safety
    /// The buffers exist.
    unsafe fn set_inline(&mut self, list: impl Iterator<Item = DataBuf>, cap: &QpCap) {
        let Some(request) = self.requests.last_mut() else { return self.refuse(NO_REQUEST) };
        let start = self.inline.len();
        for DataBuf { addr, length } in list {
            if (self.inline.len() - start).saturating_add(length) > cap.max_inline_data as usize {
                return self.refuse("more inline data than max_inline_data");
            }
            self.inline.reserve(length);
            // SAFETY: the caller's promise for the source; the room was reserved, and is counted once it is filled.
            unsafe {
                let end = self.inline.as_mut_ptr().add(self.inline.len());
                std::ptr::copy_nonoverlapping(addr.cast::<u8>(), end, length);
                self.inline.set_len(self.inline.len() + length);
            }
        }
        request.inline = start..self.inline.len();
        request.flags |= SendFlags::INLINE;
    }

    /// Posts everything, or nothing.
    fn post(&self, qp: &QpObject) -> Result<(), Refused> {
        if let Some(why) = self.wrong {
            return Err(INVALID.because(|| why.to_owned()));
        }
        qp.host().check()?;
        let room = qp.shared.cap().max_send_wr.saturating_sub(qp.shared.outstanding_sends());
        if self.requests.len() > room as usize {
            return Err(PostError::QueueFull { max: qp.shared.cap().max_send_wr }.into());
        }
        let posted = self.requests.iter().try_for_each(|request| {
            let (sgl, inline) = (&self.sges[request.sges.clone()], &self.inline[request.inline.clone()]);
            let &Request { wr_id, op, flags, .. } = request;
            post(qp, &SendWr { wr_id, op, flags, sgl, inline }, request.addr.as_ref())
        });
        if !self.requests.is_empty() {
            start(qp);
        }
        posted
    }
}

const NO_REQUEST: &str = "data was set before an operation";
/// `enum ibv_qp_create_send_ops_flags`: what a queue pair of this service can post in this way.
pub(crate) const fn send_ops(qp_type: QpType) -> u64 {
    const WRITE: u64 = 0b11;
    const SEND: u64 = 0b11 << 2;
    const READ_AND_ATOMICS: u64 = 0b111 << 4;
    const LOCAL_INV_AND_BIND_MW: u64 = 0b11 << 7;
    const SEND_WITH_INV: u64 = 1 << 9;
    match qp_type {
        QpType::Rc => WRITE | SEND | READ_AND_ATOMICS | LOCAL_INV_AND_BIND_MW | SEND_WITH_INV,
        QpType::Uc => WRITE | SEND | LOCAL_INV_AND_BIND_MW,
        QpType::Ud => SEND,
        QpType::XrcSend | QpType::XrcRecv => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: QpCap =
        QpCap { max_send_wr: 4, max_recv_wr: 0, max_send_sge: 2, max_recv_sge: 0, max_inline_data: 8 };

    #[test]
    fn requests_have_the_data_that_was_set_last() {
        let mut b = Builder::default();
        b.add(1, SendFlags::SIGNALED.bits(), SendOp::Send);
        b.set_sges([Sge { length: 3, ..Sge::default() }; 2].into_iter(), &CAP);
        b.add(2, 0, SendOp::Send);
        let bytes = *b"inline";
        let buffer = DataBuf { addr: bytes.as_ptr().cast_mut().cast(), length: bytes.len() };
        // SAFETY: the bytes are there.
        unsafe { b.set_inline(std::iter::once(buffer), &CAP) };
        assert_eq!((b.requests[0].sges.clone(), b.requests[1].sges.clone()), (0..2, 2..2));
        assert_eq!((b.requests[1].inline.clone(), b.inline.as_slice()), (0..6, b"inline".as_slice()));
        assert!(b.requests[1].flags.contains(SendFlags::INLINE) && b.wrong.is_none());
    }

    #[test]
    fn what_the_queue_does_not_take_is_refused_before_anything_is_posted() {
        let wrong = |say: &dyn Fn(&mut Builder)| {
            let mut b = Builder::default();
            b.add(1, 0, SendOp::Atomic(remote(1, 8), AtomicOp::FetchAdd { add: 1 }));
            say(&mut b);
            b.wrong
        };
        let one = Sge { length: 8, ..Sge::default() };
        assert_eq!(wrong(&|b| b.set_sges([one].into_iter(), &CAP)), None);
        assert_eq!(
            wrong(&|b| b.set_sges([one; 2].into_iter(), &CAP)).map(|why| why.contains("8 bytes")),
            Some(true)
        );
        assert_eq!(wrong(&|b| b.add(2, 1 << 9, SendOp::Send)).map(|why| why.contains("flags")), Some(true));
        let none = DataBuf { addr: std::ptr::null_mut(), length: 9 };
        // SAFETY: it is too long and not looked at.
        let too_long = wrong(&|b| unsafe { b.set_inline(std::iter::once(none), &CAP) });
        assert_eq!(too_long, Some("more inline data than max_inline_data"));
        let byte = [7_u8];
        let byte = DataBuf { addr: byte.as_ptr().cast_mut().cast(), length: byte.len() };
        let endless = DataBuf { length: usize::MAX, ..none };
        // SAFETY: the first is there, the second is too long and not looked at.
        let sum_wraps = wrong(&|b| unsafe { b.set_inline([byte, endless].into_iter(), &CAP) });
        assert_eq!(sum_wraps, Some("more inline data than max_inline_data"));
    }
}
