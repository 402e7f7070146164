//! What the kernel does for datagrams: cut super-packets into segments, coalesce segments into super-packets.

use std::io;
use std::os::fd::BorrowedFd;

use super::UdpConfig;
use super::options::set;

/// Whether a transmit socket can take several packets in one send. Nothing is changed on it.
pub(super) fn segmentation(fd: BorrowedFd<'_>, config: &UdpConfig) -> bool {
    // Size 0 is "no segmentation unless a send asks for it": a kernel that knows the option accepts it.
    config.segmentation && set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Turns coalescing on for a receive socket, where the kernel has it; or off, if that is asked for, since whoever had the
/// socket before may have turned it on.
pub(super) fn coalescing(fd: BorrowedFd<'_>, config: &UdpConfig) -> bool {
    set_coalescing(fd, config.coalescing).is_ok() && config.coalescing
}

/// Turns coalescing on or off for a receive socket.
pub(super) fn set_coalescing(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, on.into())
}
