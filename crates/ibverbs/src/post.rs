//! Posting lists of work requests, as `ibv_post_send` and `ibv_post_recv` do.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use userdma_host::{Host, call};
use userdma_objects::UdAddr;
use userdma_verbs::{
    AccessFlags, AtomicOp, BindMw, DeviceAttr, LKey, MwType, PostError, QpType, RKey, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, Sge,
};

use crate::abi;
use crate::ah::AhObject;
use crate::answer::{About, INVALID, Refused, UNSUPPORTED, status_of, wrong};
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// `ibv_post_send`. What comes before the first request that is refused has been posted.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut abi::Qp,
    first: *mut abi::SendWr,
    bad_wr: *mut *mut abi::SendWr,
) -> c_int {
    // SAFETY: the caller gives a queue pair that exists.
    let qp = unsafe { QpObject::of(qp) };
    // SAFETY: the caller gives a list of requests whose lists and inline data are there.
    let post = |wr: &abi::SendWr| unsafe { post_one(qp, wr) }.about(|| qp.with_request(wr.wr_id));
    let doorbell = || start(qp);
    // SAFETY: the caller gives a list, and a place for the request that failed.
    unsafe { post_list(qp.host(), first, bad_wr, |wr| wr.next, post, ("post_send", doorbell)) }
}

/// `ibv_post_recv`, as [`post_send`].
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut abi::Qp,
    first: *mut abi::RecvWr,
    bad_wr: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: the caller gives a queue pair that exists.
    let qp = unsafe { QpObject::of(qp) };
    let post = |wr: &abi::RecvWr| {
        let post = |sgl: &[Sge]| {
            Ok(qp.shared.post_recv_unless(&RecvWr { wr_id: wr.wr_id, sgl }, call::is_nested)?)
        };
        // SAFETY: the caller gives a list of requests whose lists are there.
        unsafe { with_sges(wr.sg_list, wr.num_sge, post) }.about(|| qp.with_request(wr.wr_id))
    };
    let doorbell = || {
        if call::is_nested() {
            qp.host().doorbell_from_handler(&qp.shared);
        } else {
            qp.host().doorbell_recv(&qp.shared);
        }
    };
    // SAFETY: the caller gives a list, and a place for the request that failed.
    unsafe { post_list(qp.host(), first, bad_wr, |wr| wr.next, post, ("post_recv", doorbell)) }
}

/// `ibv_post_srq_recv`, as [`post_send`]. Nobody has to be told: who needs a receive looks for it.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut abi::Srq,
    first: *mut abi::RecvWr,
    bad_wr: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: the caller gives a queue that exists.
    let object = unsafe { SrqObject::of(srq) };
    let post = |wr: &abi::RecvWr| {
        let post = |sgl: &[Sge]| {
            Ok(object.srq.post_recv_unless(&RecvWr { wr_id: wr.wr_id, sgl }, call::is_nested)?)
        };
        // SAFETY: the caller gives a list of requests whose lists are there.
        unsafe { with_sges(wr.sg_list, wr.num_sge, post) }.about(|| format!("wr_id {}", wr.wr_id))
    };
    // SAFETY: the caller gives a list, and a place for the request that failed.
    unsafe { post_list(object.host(), first, bad_wr, |wr| wr.next, post, ("post_srq_recv", || ())) }
}

/// Posts the requests of a list one by one, and tells the device if there was one. Writes the first that is refused to
/// `bad_wr`, and returns why.
///
/// # Safety
/// The list's requests and the place exist.
#[inline]
unsafe fn post_list<W>(
    host: &Host,
    first: *mut W,
    bad_wr: *mut *mut W,
    next: fn(&W) -> *mut W,
    post: impl Fn(&W) -> Result<(), Refused>,
    (name, doorbell): (&'static str, impl FnOnce()),
) -> c_int {
    let mut wr = first;
    let errno = status_of(name, || {
        host.check()?;
        let mut result = Ok(());
        // SAFETY: the caller's promise.
        while let Some(request) = unsafe { wr.as_ref() } {
            result = post(request);
            if result.is_err() {
                break;
            }
            wr = next(request);
        }
        if wr != first {
            doorbell();
        }
        result
    });
    if errno != 0 {
        // SAFETY: the caller's promise.
        unsafe { bad_wr.write(wr) };
    }
    errno
}

/// # Safety
/// The request's list, its inline data and what it names exist.
unsafe fn post_one(qp: &QpObject, wr: &abi::SendWr) -> Result<(), Refused> {
    let flags = SendFlags::from_bits(wr.send_flags)
        .ok_or_else(|| wrong("send_flags", format_args!("{:#x}", wr.send_flags), "0 to 0xf"))?;
    // SAFETY: the caller's promise.
    let op = unsafe { operation(wr) }?;
    // SAFETY: the caller's promise.
    let addr = unsafe { addr(qp, wr) }?;
    let wr_id = wr.wr_id;
    if flags.contains(SendFlags::INLINE) {
        let put = |inline: &[u8]| post(qp, &SendWr { wr_id, op, flags, sgl: &[], inline }, addr.as_ref());
        // SAFETY: the caller's promise.
        unsafe { with_inline(wr.sg_list, wr.num_sge, qp.shared.cap().max_inline_data, put) }
    } else {
        let put = |sgl: &[Sge]| post(qp, &SendWr { wr_id, op, flags, sgl, inline: &[] }, addr.as_ref());
        // SAFETY: the caller's promise.
        unsafe { with_sges(wr.sg_list, wr.num_sge, put) }
    }?;
    if let SendOp::BindMw(bind) = op {
        // SAFETY: `operation` has looked at the window; the bind gives it its new key.
        unsafe { (*wr.bind_mw).rkey = bind.rkey.get() };
    }
    Ok(())
}

/// Posts a request, to `addr` if it is a datagram, unless it would wait for what it has interrupted.
#[inline]
pub(crate) fn post(qp: &QpObject, wr: &SendWr<'_>, addr: Option<&UdAddr>) -> Result<(), Refused> {
    Ok(match addr {
        None => qp.shared.post_send_unless(wr, call::is_nested),
        Some(addr) => qp.shared.post_datagram_unless(wr, addr, call::is_nested),
    }?)
}

/// Starts what was posted, or has it started if this call has interrupted another.
#[inline]
pub(crate) fn start(qp: &QpObject) {
    if call::is_nested() {
        qp.host().doorbell_from_handler(&qp.shared);
    } else {
        qp.host().doorbell_send(&qp.shared);
    }
}

/// Whom a request is for, if the queue pair is one of datagrams.
///
/// # Safety
/// Its address handle is null or exists.
#[inline]
unsafe fn addr(qp: &QpObject, wr: &abi::SendWr) -> Result<Option<UdAddr>, Refused> {
    if qp.shared.qp_type() != QpType::Ud {
        return Ok(None);
    }
    let ah = std::ptr::with_exposed_provenance(usize::try_from(wr.remote_addr).map_err(|_| INVALID)?);
    let [a, b, c, d, e, f, g, h] = wr.rkey_or_compare.to_ne_bytes();
    let (qpn, qkey) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
    // SAFETY: the caller's promise.
    unsafe { AhObject::addr(ah, qpn, qkey, qp.host()) }.map(Some)
}

/// What a request asks for. The opcodes are those of `enum ibv_wr_opcode`.
///
/// # Safety
/// The window and the region of a bind exist.
unsafe fn operation(wr: &abi::SendWr) -> Result<SendOp, Refused> {
    let [a, b, c, d, ..] = wr.rkey_or_compare.to_ne_bytes();
    let rdma = RemoteAddr { addr: wr.remote_addr, rkey: RKey::new(u32::from_ne_bytes([a, b, c, d])) };
    let atomic = RemoteAddr { addr: wr.remote_addr, rkey: RKey::new(wr.atomic_rkey) };
    let imm = u32::from_be(wr.imm_data);
    Ok(match wr.opcode {
        0 => SendOp::Write(rdma),
        1 => SendOp::WriteWithImm(rdma, imm),
        2 => SendOp::Send,
        3 => SendOp::SendWithImm(imm),
        4 => SendOp::Read(rdma),
        5 => SendOp::Atomic(atomic, AtomicOp::CompareSwap { compare: wr.rkey_or_compare, swap: wr.swap }),
        6 => SendOp::Atomic(atomic, AtomicOp::FetchAdd { add: wr.rkey_or_compare }),
        7 => SendOp::LocalInv(RKey::new(wr.imm_data)),
        // SAFETY: the caller's promise.
        8 => SendOp::BindMw(unsafe { bind(wr.bind_mw, wr.bind_rkey, &wr.bind_info) }?),
        9 => SendOp::SendWithInv(RKey::new(wr.imm_data)),
        _ => return Err(UNSUPPORTED),
    })
}

/// # Safety
/// The window and the region are null or exist.
pub(crate) unsafe fn bind(mw: *mut abi::Mw, rkey: u32, info: &abi::BindMwInfo) -> Result<BindMw, Refused> {
    if mw.is_null() || info.mr.is_null() {
        return Err(INVALID.because(|| "bind_mw: mw or mr is null".to_owned()));
    }
    // SAFETY: the caller's promise.
    let (mw_type, current, lkey) = unsafe { ((*mw).mw_type, (*mw).rkey, (*info.mr).lkey) };
    if mw_type != MwType::Type2 as c_int {
        return Err(INVALID);
    }
    Ok(BindMw {
        mw: RKey::new(current),
        rkey: RKey::new(rkey),
        mr: LKey::new(lkey),
        addr: info.addr,
        length: info.length,
        // Programs set the right of local work requests, which a window has nothing to do with, as adapters know.
        access: AccessFlags::from_bits_retain(info.mw_access_flags).difference(AccessFlags::LOCAL_WRITE),
    })
}

/// Lets `post` have a list as the device wants it.
///
/// # Safety
/// There are `num` elements at `list`.
unsafe fn with_sges(
    list: *const abi::Sge,
    num: c_int,
    post: impl FnOnce(&[Sge]) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let num = usize::try_from(num).map_err(|_| wrong("num_sge", num, "0 or more"))?;
    match num {
        0 => post(&[]),
        // SAFETY: the caller's promise.
        1 => post(&[sge(unsafe { &*list })]),
        2..=MAX_SGE => {
            let mut sges = [Sge::default(); MAX_SGE];
            for (place, to) in sges[..num].iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *to = sge(unsafe { &*list.add(place) });
            }
            post(&sges[..num])
        }
        _ => Err(PostError::TooManySge { num, max: DeviceAttr::LIMITS.max_sge }.into()),
    }
}

/// Lets `post` have the bytes of a list.
///
/// # Safety
/// There are `num` elements at `list`, and the memory that they name.
unsafe fn with_inline(
    list: *const abi::Sge,
    num: c_int,
    max: u32,
    post: impl FnOnce(&[u8]) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let num = usize::try_from(num).map_err(|_| wrong("num_sge", num, "0 or more"))?;
    let mut bytes = [const { MaybeUninit::<u8>::uninit() }; MAX_INLINE];
    let mut len = 0_usize;
    for place in 0..num {
        // SAFETY: the caller's promise.
        let element = unsafe { &*list.add(place) };
        let more = element.length as usize;
        let Some(to) = bytes.get_mut(len..len.saturating_add(more)) else {
            return Err(PostError::InlineTooLong { len: len.saturating_add(more), max }.into());
        };
        let from =
            std::ptr::with_exposed_provenance::<u8>(usize::try_from(element.addr).map_err(|_| INVALID)?);
        // SAFETY: the caller's promise for the source; `to` has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast(), more) };
        len += more;
    }
    // SAFETY: the first `len` bytes were written above.
    post(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) })
}

/// An element of a list.
pub(crate) fn sge(c: &abi::Sge) -> Sge {
    Sge { addr: c.addr, length: c.length, lkey: LKey::new(c.lkey) }
}

/// Elements of a list that any queue takes.
pub(crate) const MAX_SGE: usize = DeviceAttr::LIMITS.max_sge as usize;
/// Bytes that any queue takes inline.
pub(crate) const MAX_INLINE: usize = DeviceAttr::LIMITS.max_inline_data as usize;
