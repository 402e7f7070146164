//! Queue pair 1 of an address that processes share: what each device tells the agent of its connections, and what it is given.

use std::io;
use std::net::IpAddr;

pub use userdma_mgmt::rdma::{PortRequest, PortSpace, Reservation};
use userdma_wire::gsi::PACKET_LEN;
use userdma_wire::mad::MAD_LEN;

use crate::message::{self, octets};

/// Why a port or a service is not to be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// Somebody has it on this address.
    #[error("somebody has it (EADDRINUSE)")]
    InUse,
    /// Somebody has it, one of both on all addresses; or no port is free; or the address is not the device's.
    #[error("it cannot be had (EADDRNOTAVAIL)")]
    NotAvailable,
    /// The device has as many as it may.
    #[error("the device has {MAX_BOOKED} already (ENOSPC)")]
    TooMany,
    /// There is no such reservation.
    #[error("no such reservation (EINVAL)")]
    Unknown,
    /// A process may have it that has not told the agent yet, which is new: ask again.
    #[error("a process may have it that has not told the agent yet (EAGAIN)")]
    Early,
}

/// What is to be sent for a connection when its process has died without sending it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Will {
    /// Our address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// The management datagram, a DREQ.
    pub mad: [u8; MAD_LEN],
}

/// A packet to queue pair 1 of an address, which the agent has received and passes on to one device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GsiFrame<'a> {
    /// Address and UDP port that it came from.
    pub remote: (IpAddr, u16),
    /// The address that it came to.
    pub local: IpAddr,
    /// Packets that found no room before this one, on the way to the agent's socket or from there: that many are missing.
    pub lost: u32,
    /// From BTH to ICRC.
    pub bytes: &'a [u8],
}

impl<'a> GsiFrame<'a> {
    /// As it is passed on: addresses in the form of IPv6, what was lost, then the packet.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.bytes.len());
        bytes.extend(octets(self.remote.0));
        bytes.extend(self.remote.1.to_be_bytes());
        bytes.extend(octets(self.local));
        bytes.extend(self.lost.to_be_bytes());
        bytes.extend(self.bytes);
        bytes
    }

    /// What was passed on; `None` if it is nothing.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (remote, rest) = message::ip(bytes)?;
        let (port, rest) = message::number(rest)?;
        let (local, rest) = message::ip(rest)?;
        let (lost, bytes) = rest.split_first_chunk()?;
        Some(Self { remote: (remote, port), local, lost: u32::from_be_bytes(*lost), bytes })
    }
}

impl PortError {
    /// As system calls say it.
    pub fn errno(self) -> i32 {
        let errno = match self {
            Self::InUse => rustix::io::Errno::ADDRINUSE,
            Self::NotAvailable => rustix::io::Errno::ADDRNOTAVAIL,
            Self::TooMany => rustix::io::Errno::NOSPC,
            Self::Unknown => rustix::io::Errno::INVAL,
            Self::Early => rustix::io::Errno::AGAIN,
        };
        errno.raw_os_error()
    }
}

impl From<PortError> for io::Error {
    fn from(error: PortError) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}

const HEADER_LEN: usize = 16 + 2 + 16 + 4;
/// Bytes of a frame that is passed on.
pub(crate) const FRAME_LEN: usize = HEADER_LEN + PACKET_LEN;
/// Ports, services and wills of a device, of each.
pub(crate) const MAX_BOOKED: usize = 1 << 14;
