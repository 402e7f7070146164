//! Waiting for descriptors.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use userdma_link::clock::{self, timespec};

/// Waits until something can be read or has ended, for `ns` at most; whether it can. Signals do not end it early.
pub(crate) fn until_readable(socket: &impl AsFd, ns: u64) -> bool {
    until(socket, PollFlags::IN, ns)
}

/// Waits until something can be written or its reader has gone, in the same way.
pub(crate) fn until_writable(socket: &impl AsFd, ns: u64) -> bool {
    until(socket, PollFlags::OUT, ns)
}

fn until(socket: &impl AsFd, what: PollFlags, ns: u64) -> bool {
    let end = clock::now().plus_nanos(ns);
    loop {
        let left = end.nanos().saturating_sub(clock::now().nanos());
        let mut fds = [PollFd::new(socket, what)];
        match poll(&mut fds, Some(&timespec(left))) {
            Err(rustix::io::Errno::INTR) if left > 0 => {}
            other => return other.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Whether a socket has much room: of a Unix socket, no more than a quarter of what it may hold is on its way.
pub(crate) fn is_writable(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut fds, Some(&timespec(0))).is_ok_and(|ready| ready > 0) && fds[0].revents() == PollFlags::OUT
}

/// Whether something can be read now, or has ended.
pub(crate) fn is_readable(socket: &impl AsFd) -> bool {
    until_readable(socket, 0)
}
