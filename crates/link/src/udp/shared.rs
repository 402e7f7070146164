//! A port that several processes share: a group of sockets on one address and port, among which the kernel chooses by the
//! destination queue pair of a packet.
//!
//! The upper ten bits of a QPN are its *slot*, and the socket that was bound as the n-th of the group gets the packets of slot
//! n. A socket that closes moves the last one of the group into its place, so no member may close while the group is in
//! use: whoever makes a group sees to that. All members belong to one user, as the kernel lets nobody else in.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use socket2::Socket;

use super::UdpConfig;
use super::options::{self, Role};
use super::socket::{Local, OpenError};

/// Whether `ip` and `port` can be had alone, that is, nobody has them, not even a group of ours.
///
/// # Errors
/// Somebody has it, or the address is not this machine's.
pub fn check_port_free(ip: IpAddr, port: u16) -> Result<(), OpenError> {
    let local = Local::unicast(ip, 0)?;
    let socket = local.plain_socket(Role::Receive, port, &UdpConfig::default())?;
    socket.bind(&local.at(port).into()).map_err(|error| local.bind_error(port, error))
}

/// The next member of the group on `ip` and `port`, or the first. What it receives waits in the smallest buffer there is,
/// until a link takes it over: [`UdpLink::open_member`](crate::UdpLink::open_member).
///
/// # Errors
/// Somebody has the port who does not share it with us, or the address is not this machine's.
pub fn bind_member(ip: IpAddr, port: u16) -> Result<OwnedFd, OpenError> {
    let local = Local::unicast(ip, 0)?;
    let socket = local.plain_socket(Role::Receive, port, &UdpConfig::default())?;
    socket.set_reuse_port(true).map_err(|error| local.io(port, "SO_REUSEPORT", error))?;
    rest(&socket).map_err(|error| local.io(port, "buffer size", error))?;
    socket.bind(&local.at(port).into()).map_err(|error| local.bind_error(port, error))?;
    Ok(socket.into())
}

/// Makes a member's buffer as small as it gets, for the time in which nobody reads it.
///
/// # Errors
/// What the kernel says.
pub fn rest(member: &impl AsFd) -> io::Result<()> {
    options::set(member.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
}

/// From now on the group of `member` steers by slot; members that come later are steered to as well. A packet to a slot that has
/// no member goes to any, and a packet that is too short for a slot to slot 0.
///
/// # Errors
/// What the kernel says.
pub fn steer_by_slot(member: &impl AsFd) -> io::Result<()> {
    let mut program = SLOT_OF_DESTINATION;
    let filter = libc::sock_fprog { len: PROGRAM_LEN, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `filter` and the instructions that it points to, as many as it says; both outlive the call.
    let result = unsafe {
        libc::setsockopt(
            member.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            FILTER_LEN,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a member over: drops what has waited in it for whoever had it before.
pub(super) fn take_over(member: &Socket) -> io::Result<()> {
    member.set_nonblocking(true)?;
    let mut room = [0u8; 1];
    // More than ever wait: the smallest buffer holds a few packets. Whoever floods the socket must not hold us here.
    for _ in 0..MAX_STALE {
        // SAFETY: the kernel writes one byte at most into `room`, which outlives the call.
        let came = unsafe {
            libc::recv(member.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT)
        };
        if came < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
            break;
        }
    }
    Ok(())
}

/// Bytes 4 to 7 of the packet (a reserved byte and the destination QPN), their upper ten bits of 24.
const SLOT_OF_DESTINATION: [libc::sock_filter; 4] = [
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 14),
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x3ff),
    instruction(libc::BPF_RET | BPF_A, 0),
];
const PROGRAM_LEN: u16 = 4;
const _: () = assert!(PROGRAM_LEN as usize == SLOT_OF_DESTINATION.len());
const FILTER_LEN: libc::socklen_t = 16;
const _: () = assert!(FILTER_LEN as usize == size_of::<libc::sock_fprog>());
/// "Return the accumulator."
const BPF_A: u32 = 0x10;
const MAX_STALE: usize = 100_000;

const fn instruction(code: u32, k: u32) -> libc::sock_filter {
    // Codes have 16 bits.
    libc::sock_filter { code: (code & 0xffff) as u16, jt: 0, jf: 0, k }
}
