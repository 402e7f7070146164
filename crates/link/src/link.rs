//! A link of any kind: one `match`, no trait object.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use userdma_mem::{Frame, LinkCaps, LinkId, Route, TxBatch};
use userdma_verbs::{Qpn, Time};

use crate::{Backlog, OpenError, RecvReport, SendReport, UdpLink};

/// One way for packets in and out.
#[derive(Debug)]
pub enum Link {
    /// RoCE v2 over UDP sockets.
    Udp(UdpLink),
}

impl Link {
    /// Its index in the device's table.
    pub fn id(&self) -> LinkId {
        match self {
            Self::Udp(link) => link.id(),
        }
    }

    /// What it can do now; it may come to less after a send (see [`SendReport::caps_changed`]).
    pub fn caps(&self) -> LinkCaps {
        match self {
            Self::Udp(link) => link.caps(),
        }
    }

    /// Sends batches: see [`UdpLink::send`].
    pub fn send(&mut self, now: Time, batches: &mut [TxBatch]) -> SendReport {
        match self {
            Self::Udp(link) => link.send(now, batches),
        }
    }

    /// Receives packets: see [`UdpLink::recv`].
    pub fn recv(&mut self, now: Time, sink: &mut impl FnMut(Frame<'_>)) -> RecvReport {
        match self {
            Self::Udp(link) => link.recv(now, sink),
        }
    }

    /// Joins a group: see [`UdpLink::join`].
    ///
    /// # Errors
    /// As there.
    pub fn join(&mut self, group: IpAddr) -> Result<(), OpenError> {
        match self {
            Self::Udp(link) => link.join(group),
        }
    }

    /// Leaves a group: see [`UdpLink::leave`].
    pub fn leave(&mut self, group: IpAddr) -> bool {
        match self {
            Self::Udp(link) => link.leave(group),
        }
    }

    /// What becomes readable when a datagram to a group arrives: see [`UdpLink::groups`].
    pub fn groups(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Udp(link) => link.groups(),
        }
    }

    /// A packet that somebody else has received for us: see [`UdpLink::inject`].
    pub fn inject(
        &mut self,
        now: Time,
        bytes: &[u8],
        remote: (IpAddr, u16),
        sink: &mut impl FnMut(Frame<'_>),
    ) {
        match self {
            Self::Udp(link) => link.inject(now, bytes, remote, sink),
        }
    }

    /// How full the receiver of a packet is: see [`UdpLink::backlog`].
    pub fn backlog(&mut self, now: Time, route: &Route, dest_qpn: Qpn) -> Option<Backlog> {
        match self {
            Self::Udp(link) => link.backlog(now, route, dest_qpn),
        }
    }

    /// Whether [`Link::recv`] looks at the time that it is given.
    pub fn needs_time(&self) -> bool {
        match self {
            Self::Udp(link) => link.needs_time(),
        }
    }

    /// Whether the link has gone down (`true`) or come back (`false`) since this was asked last.
    pub fn poll_down(&mut self, now: Time) -> Option<bool> {
        match self {
            Self::Udp(link) => link.poll_down(now),
        }
    }

    /// When [`Link::recv`] should be called even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        match self {
            Self::Udp(link) => link.next_deadline(),
        }
    }
}

impl AsFd for Link {
    /// What becomes readable when packets arrive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(link) => link.as_fd(),
        }
    }
}

/// Whether something is queued at a socket, a packet or an error. Never waits. If it cannot be told, something may be.
pub fn is_readable(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_is_readable_from_the_packet_on_until_it_is_taken() {
        let socket = UdpSocket::bind("127.0.22.4:0").unwrap();
        assert!(!is_readable(&socket));
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.peek(&mut [0; 1]).unwrap();
        assert!(is_readable(&socket));
        socket.recv(&mut [0; 1]).unwrap();
        assert!(!is_readable(&socket));
    }
}
