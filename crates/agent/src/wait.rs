//! Waiting for descriptors.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A duration for the kernel.
pub(crate) fn timespec(ns: u64) -> Timespec {
    // At most 2^64 ns, which are less than 2^63 s; the remainder is below 10^9.
    Timespec { tv_sec: (ns / 1_000_000_000).cast_signed(), tv_nsec: (ns % 1_000_000_000).cast_signed() }
}

/// Waits until something can be read or has ended, for `ns` at most; whether it can. Signals do not end it early.
pub(crate) fn until_readable(socket: &impl AsFd, ns: u64) -> bool {
    let end = userdma_link::clock::now().plus_nanos(ns);
    loop {
        let left = end.nanos().saturating_sub(userdma_link::clock::now().nanos());
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(left))) {
            Err(rustix::io::Errno::INTR) if left > 0 => {}
            other => return other.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Whether something can be read now, or has ended.
pub(crate) fn is_readable(socket: &impl AsFd) -> bool {
    until_readable(socket, 0)
}
