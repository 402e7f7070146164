//! `socket`: the kernel's RDMA subsystem is not asked about devices. Where it is there, it tells librdmacm of its own
//! connection manager, whose number ours does not have.

use std::ffi::c_int;

use super::{missing, next};
use crate::answer::{Refused, minus_one};

/// `socket`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    type Socket = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
    // SAFETY: the type as the C library declares it.
    let next = unsafe { next::SOCKET.function::<Socket>() };
    match next {
        _ if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA => {
            minus_one(Refused(libc::EPROTONOSUPPORT))
        }
        // SAFETY: takes numbers.
        Some(next) => unsafe { next(domain, kind, protocol) },
        None => missing(),
    }
}

#[cfg(test)]
const _: () = _ = socket;

const NETLINK_RDMA: c_int = 20;
