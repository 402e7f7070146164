//! The sockets of whoever receives for queue pair 1 of an address that processes share.
//!
//! Packets to QPN 1 come to slot 0's socket of the group. They are few and short, and come one by one. What is sent leaves by a
//! socket that numbers IPv4 packets from 0, as every transmit socket of a link does.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::UdpConfig;
use super::options::{self, Role};
use super::socket::{Local, OpenError};

/// Receives what comes for slot 0 of a group.
#[derive(Debug)]
pub struct GsiReceiver {
    socket: UdpSocket,
    /// Packets that had no room in it, as far as they were told.
    lost: u32,
}

/// Sends packets to queue pairs 1 from an address.
#[derive(Debug)]
pub struct GsiSender {
    socket: UdpSocket,
    ip: IpAddr,
    port: u16,
}

impl GsiReceiver {
    /// Takes over a copy of slot 0's socket. What waits in it stays.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(member: OwnedFd) -> io::Result<Self> {
        let socket = UdpSocket::from(member);
        socket.set_nonblocking(true)?;
        options::set_buffers(&socket, Role::Receive, BUFFER)?;
        // What was lost before is nobody's of us.
        let lost = options::drops(socket.as_fd())?;
        Ok(Self { socket, lost })
    }

    /// The next packet: its length and who has sent it; `None` if there is none. One that is longer than `room` is cut.
    pub fn recv(&self, room: &mut [u8]) -> Option<(usize, (IpAddr, u16))> {
        loop {
            match self.socket.recv_from(room) {
                Ok((len, from)) => return Some((len, (from.ip().to_canonical(), from.port()))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

impl GsiReceiver {
    /// Packets that found no room in the socket, since this was asked last.
    pub fn lost(&mut self) -> u32 {
        // The kernel refuses only who asks for less than it tells.
        let now = options::drops(self.socket.as_fd()).unwrap_or(self.lost);
        now.wrapping_sub(std::mem::replace(&mut self.lost, now))
    }
}

impl AsFd for GsiReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl GsiSender {
    /// Opens a socket on a port of the kernel's choice.
    ///
    /// # Errors
    /// The address is not this machine's, or the kernel refuses an option.
    pub fn open(ip: IpAddr) -> Result<Self, OpenError> {
        let ip = ip.to_canonical();
        let local = Local::unicast(ip, 0)?;
        let socket = local.plain_socket(Role::Transmit, 0, &UdpConfig::default())?;
        socket.bind(&local.at(0).into()).map_err(|error| local.bind_error(0, error))?;
        // Nobody reads it.
        options::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
            .map_err(|error| local.io(0, "buffer size", error))?;
        let port = local.port_of(&socket)?;
        Ok(Self { socket: UdpSocket::from(OwnedFd::from(socket)), ip, port })
    }

    /// Address and port that packets come from.
    pub fn local(&self) -> (IpAddr, u16) {
        (self.ip, self.port)
    }

    /// Sends one packet, with IPv4 identification 0; never waits.
    ///
    /// # Errors
    /// It did not leave.
    pub fn send(&self, to: (IpAddr, u16), packet: &[u8]) -> io::Result<()> {
        self.socket.send_to(packet, to).map(drop)
    }
}

/// Bytes for packets that wait: some five thousand, each of which the kernel counts as 768. Without privileges it grants no more than
/// `net.core.rmem_max`, by default 208 KiB and twice that for its overhead: some five hundred.
const BUFFER: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::shared;

    #[test]
    fn what_came_before_the_receiver_is_still_there() {
        for ip in ["127.42.1.1", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
            let member = shared::bind_member(ip, 14_701).unwrap();
            let sender = GsiSender::open(ip).unwrap();
            sender.send((ip, 14_701), b"early").unwrap();
            let receiver = GsiReceiver::new(member).unwrap();
            let mut room = [0; 3];
            assert_eq!(receiver.recv(&mut room), Some((3, sender.local())), "cut");
            assert_eq!((&room, receiver.recv(&mut [0; 9])), (b"ear", None));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let ip = "127.71.1.1".parse().unwrap();
        let member = shared::bind_member(ip, 14_701).unwrap();
        let sender = GsiSender::open(ip).unwrap();
        let mut receiver = GsiReceiver::new(member).unwrap();
        let sent = 20_000;
        for _ in 0..sent {
            sender.send((ip, 14_701), &[0; 292]).unwrap();
        }
        let lost = receiver.lost();
        let mut came = 0;
        while receiver.recv(&mut [0; 300]).is_some() {
            came += 1;
        }
        assert_eq!(came + lost, sent);
        // Twice what an unprivileged process gets of the kernel's default.
        assert!(lost > 0 && came > 500, "{came} came");
        assert_eq!(receiver.lost(), 0, "each is told once");
    }
}
