//! Two socket options for programs that measure plain UDP sockets beside a link: the references of a benchmark, which must
//! not go through what they are compared with.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// From now on what is sent is cut into datagrams of `bytes` bytes each (the last may be shorter).
///
/// # Errors
/// The kernel has no segmentation for UDP, or not of this size.
pub fn set_segment_size(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::UDP_SEGMENT, bytes.into())
}

/// From now on one receive may bring several datagrams of one size, one after the other.
///
/// # Errors
/// The kernel has no coalescing for UDP.
pub fn set_coalescing(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::UDP_GRO, 1)
}

fn set(socket: &impl AsFd, option: i32, value: i32) -> io::Result<()> {
    const LEN: libc::socklen_t = 4;
    const _: () = assert!(size_of::<i32>() == LEN as usize);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is an `i32` that outlives the call, and `LEN` is its size.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_UDP, option, (&raw const value).cast(), LEN) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_long_send_arrives_as_several_datagrams_or_as_one_piece() {
        let sender = UdpSocket::bind("127.0.22.2:0").unwrap();
        if set_segment_size(&sender, 100).is_err() {
            return; // A kernel without it has nothing to measure.
        }
        let receiver = UdpSocket::bind("127.0.22.3:0").unwrap();
        let target = receiver.local_addr().unwrap();
        sender.send_to(&[7; 250], target).unwrap();
        let mut room = [0; 1000];
        let lengths = [(); 3].map(|()| receiver.recv(&mut room).unwrap());
        assert_eq!(lengths, [100, 100, 50]);
        set_coalescing(&receiver).unwrap();
        sender.send_to(&[7; 250], target).unwrap();
        assert_eq!(receiver.recv(&mut room).unwrap(), 250);
    }
}
