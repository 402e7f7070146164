//! What the kernel does for datagrams: cut super-packets into segments, join segments into super-packets.

use std::os::fd::BorrowedFd;

use super::UdpConfig;
use super::options::set;

/// Whether a transmit socket can take several packets in one send. Nothing is changed on it.
pub(super) fn segmentation(fd: BorrowedFd<'_>, config: &UdpConfig) -> bool {
    // Size 0 is "no segmentation unless a send asks for it": a kernel that knows the option accepts it.
    config.segmentation && set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Turns joining on for a receive socket, where the kernel has it.
pub(super) fn coalescing(fd: BorrowedFd<'_>, config: &UdpConfig) -> bool {
    config.coalescing && set(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}
