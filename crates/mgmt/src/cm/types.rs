//! Names of things, and what goes in and out.

use std::fmt;
use std::net::IpAddr;

use userdma_verbs::Qpn;
use userdma_wire::mad::MAD_LEN;

/// A device's port, as whoever owns the [`super::Cm`] numbers them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortId(pub u32);

/// A connection, or a question for datagrams: its local communication id. The upper ten bits are its device's slot, so
/// that whoever shares the address with others knows whose it is; it is never 0.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(pub u32);

impl ConnId {
    /// Low bits that count within a slot.
    pub const INDEX_BITS: u32 = 22;
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnId({:#010x})", self.0)
    }
}

/// A listener.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ListenId(pub u32);

/// A datagram that came to queue pair 1.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The port it came to.
    pub port: PortId,
    /// Who sent it: an IPv4 address where its GID is IPv4-mapped.
    pub from: IpAddr,
    /// The port's address that it was sent to.
    pub to: IpAddr,
    /// Its payload; whatever it is.
    pub mad: &'a [u8],
}

/// A datagram to be sent from queue pair 1 to queue pair 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outgoing {
    /// The port to send from.
    pub port: PortId,
    /// The port's address.
    pub from: IpAddr,
    /// Where to.
    pub to: IpAddr,
    /// What.
    pub mad: [u8; MAD_LEN],
}

/// A queue pair of ours whose number is guarded now, or no longer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NumberChange {
    /// The queue pair's device.
    pub port: PortId,
    /// Its number, as whoever connected it says.
    pub qpn: Qpn,
    /// Whether a connection of it is not over yet.
    pub is_guarded: bool,
}

/// Who talks to whom: the same for every message of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Peer {
    pub(super) port: PortId,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
}

impl Peer {
    pub(super) fn send(&self, mad: [u8; MAD_LEN]) -> Outgoing {
        Outgoing { port: self.port, from: self.local, to: self.remote, mad }
    }
}
