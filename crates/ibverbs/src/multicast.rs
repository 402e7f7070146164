//! Groups of datagrams.

use std::ffi::c_int;

use userdma_verbs::Gid;

use crate::abi;
use crate::answer::{About, INVALID, status};
use crate::qp::QpObject;

/// `ibv_attach_mcast`. A LID means nothing over Ethernet. What is attached stays so, and that is no error: as
/// `uverbs_cmd.c ib_uverbs_attach_mcast()`.
pub(crate) unsafe extern "C" fn attach(qp: *mut abi::Qp, gid: *const abi::Gid, _lid: u16) -> c_int {
    status(|| {
        // SAFETY: the caller gives a queue pair that exists, and a GID.
        let (object, group) = unsafe { (QpObject::of(qp), group(gid)) };
        let qpn = object.shared.qpn();
        object.host().attach_multicast(qpn, group)?.about(|| format!("QP {qpn}"))
    })
}

/// `ibv_detach_mcast`. As `uverbs_cmd.c ib_uverbs_detach_mcast()`: what is not attached is `EINVAL`.
pub(crate) unsafe extern "C" fn detach(qp: *mut abi::Qp, gid: *const abi::Gid, _lid: u16) -> c_int {
    status(|| {
        // SAFETY: as above.
        let (object, group) = unsafe { (QpObject::of(qp), group(gid)) };
        let qpn = object.shared.qpn();
        let detached = object.host().detach_multicast(qpn, group)?;
        detached.map_err(|error| INVALID.because(|| format!("QP {qpn}: {error}")))
    })
}

/// # Safety
/// There are 16 bytes, which need not be aligned.
unsafe fn group(gid: *const abi::Gid) -> Gid {
    // SAFETY: the caller's promise.
    Gid::new(unsafe { gid.cast::<[u8; 16]>().read_unaligned() })
}
