//! Who is connected: addresses and port spaces.

use std::net::SocketAddr;

use userdma_verbs::{Gid, QpType};

/// What ports are counted in. Values of `enum rdma_port_space`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u16)]
pub enum PortSpace {
    /// Datagrams of IP over InfiniBand.
    Ipoib = 0x0002,
    /// Reliable connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any service, as the identifier says.
    Ib = 0x013f,
}

impl PortSpace {
    /// The port space with this number.
    pub fn new(number: u16) -> Option<Self> {
        [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib].into_iter().find(|space| *space as u16 == number)
    }

    /// The service that identifiers of this port space have, whatever was asked for; `None` if that decides. As
    /// `ucma.c ucma_get_qp_type()`.
    pub const fn qp_type(self) -> Option<QpType> {
        match self {
            Self::Tcp => Some(QpType::Rc),
            Self::Udp | Self::Ipoib => Some(QpType::Ud),
            Self::Ib => None,
        }
    }

    /// The service identifier that stands for `port`. As `cma.c rdma_get_service_id()`.
    pub const fn service_id(self, port: u16) -> u64 {
        (self as u64) << 16 | port as u64
    }

    /// The port that such a service identifier stands for.
    pub const fn port_of(service_id: u64) -> u16 {
        // Sixteen bits are left.
        (service_id & 0xffff) as u16
    }
}

/// An address that an identifier is bound to or resolves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Address {
    /// IPv4 or IPv6, `sockaddr_in` or `sockaddr_in6`.
    Ip(SocketAddr),
    /// A GID and a service, `sockaddr_ib`.
    Ib(IbAddress),
}

/// A GID and a service, `sockaddr_ib`. Numbers are in host order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct IbAddress {
    /// Partition.
    pub pkey: u16,
    /// Traffic class and flow label.
    pub flowinfo: u32,
    /// The GID; zero is any.
    pub gid: Gid,
    /// The service.
    pub service_id: u64,
    /// Which bits of the service are meant.
    pub service_mask: u64,
    /// Scope of a link-local GID.
    pub scope_id: u64,
}

impl Address {
    /// The IP address and port, if it has them.
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Ib(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(ip: SocketAddr) -> Self {
        Self::Ip(ip)
    }
}
