//! Sockets that stay open whoever dies: they wait as a message in a socket pair, and everybody holds the end where it waits.
//!
//! A descriptor that was sent but not received is open as long as the socket that it waits in. So a process that holds one end
//! of a few pairs keeps a group of a thousand sockets alive, takes out copies of those that it needs by looking at the
//! message, and no single death closes one. A park never changes: a larger one takes its place, and the old one
//! goes when everybody has the new one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use crate::packet::{self, MAX_DESCRIPTORS};

/// Up to 253 sockets. A clone is the same park.
#[derive(Debug)]
pub(crate) struct Park {
    end: OwnedFd,
    len: usize,
}

impl Park {
    /// Sockets in a park at most.
    pub(crate) const CAPACITY: usize = MAX_DESCRIPTORS;

    /// Parks sockets.
    pub(crate) fn new(sockets: &[OwnedFd]) -> io::Result<Self> {
        let (end, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        packet::send(&other, &[0], &descriptors)?;
        Ok(Self { end, len: sockets.len() })
    }

    /// The park whose end another process has sent.
    pub(crate) fn from_end(end: OwnedFd) -> io::Result<Self> {
        let len = look(&end)?.len();
        Ok(Self { end, len })
    }

    /// How many sockets are in it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What keeps it.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Copies of all the sockets, for a moment.
    pub(crate) fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        look(&self.end)
    }

    /// A copy of one socket.
    pub(crate) fn socket(&self, at: usize) -> io::Result<OwnedFd> {
        take(look(&self.end)?, at)
    }

    /// A copy of the socket of `slot` from the parks of a group, of which `ends` are all, in order.
    pub(crate) fn socket_among(ends: &[OwnedFd], slot: u16) -> io::Result<OwnedFd> {
        let (park, at) = (usize::from(slot) / Self::CAPACITY, usize::from(slot) % Self::CAPACITY);
        let end = ends.get(park).ok_or(io::ErrorKind::NotFound)?;
        take(look(end)?, at)
    }
}

fn take(mut all: Vec<OwnedFd>, at: usize) -> io::Result<OwnedFd> {
    if at >= all.len() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(all.swap_remove(at))
}

fn look(end: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let (_, sockets) = packet::receive(end, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    Ok(sockets)
}
