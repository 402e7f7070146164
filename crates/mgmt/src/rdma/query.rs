//! What can be asked of an identifier, and set.

use std::fmt;

use userdma_verbs::{Gid, Mtu, PKey};

use crate::rdma::Address;

/// An identifier, as `rdma_cm_id`: a listener, a connection, or one that is to be. Numbers are not given twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CmId(pub(crate) u32);

impl CmId {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CmId({})", self.0)
    }
}

/// What can be set. Options of `rdma_set_option`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CmOption {
    /// Traffic class of the path.
    Tos(u8),
    /// Whether several identifiers that do not listen may have one port.
    ReuseAddr(bool),
    /// Whether a wildcard of IPv6 leaves IPv4 alone.
    AfOnly(bool),
    /// ACK timeout of the queue pair, 4.096 µs · 2^value: 0 ..= 31, 0 is never.
    AckTimeout(u8),
}

/// What is known about an identifier.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query {
    /// What it is bound to.
    pub src: Option<Address>,
    /// The peer.
    pub dst: Option<Address>,
    /// The device, by its place in the list of devices; its port is 1 then, else 0.
    pub device: Option<usize>,
    /// GIDs of both, zero without a device or an address.
    pub sgid: Gid,
    /// See `sgid`.
    pub dgid: Gid,
    /// The path, once the route is resolved or the connection was asked for.
    pub path: Option<PathRecord>,
    /// The service identifiers that stand for the ports of `src` and `dst`.
    pub src_service_id: u64,
    /// See `src_service_id`.
    pub dst_service_id: u64,
}

/// A path, as the kernel makes it up where there is no subnet administrator. As `cma.c cma_resolve_iboe_route()`. It is
/// reversible, and its MTU, rate and lifetime are exact.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PathRecord {
    /// From.
    pub sgid: Gid,
    /// To.
    pub dgid: Gid,
    /// Flow label: 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level: 0 ..= 7.
    pub sl: u8,
    /// Partition.
    pub pkey: PKey,
    /// Path MTU.
    pub mtu: Mtu,
    /// Rate, as `enum ibv_rate`.
    pub rate: u8,
    /// How long a packet may be under way, 4.096 µs · 2^value.
    pub packet_life_time: u8,
}
