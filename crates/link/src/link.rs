//! A link of any kind: one `match`, no trait object.

use std::os::fd::{AsFd, BorrowedFd};

use userdma_mem::{Frame, LinkCaps, LinkId, TxBatch};
use userdma_verbs::Time;

use crate::{RecvReport, SendReport, UdpLink};

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

    /// Whether [`Link::recv`] looks at the time that it is given.
    pub fn needs_time(&self) -> bool {
        match self {
            Self::Udp(link) => link.needs_time(),
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
