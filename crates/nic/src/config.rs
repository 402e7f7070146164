//! What a device is made of: its addresses, its links, its limits.

use std::net::IpAddr;

use userdma_ibt::Window;
use userdma_mem::{LinkCaps, LinkId};
use userdma_verbs::{Gid, Qpn};

/// An entry of the GID table: an address of ours and how packets leave from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// The link that the address belongs to.
    pub link: LinkId,
    /// The address: the GID's.
    pub local: IpAddr,
    /// Scope of a link-local IPv6 address; 0 otherwise.
    pub scope_id: u32,
    /// UDP ports of the link's transmit sockets, by socket number.
    pub tx_ports: [u16; 8],
    /// The UDP port that packets to us arrive at: 4791 unless private.
    pub port: u16,
}

/// How a device is made.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Seed of everything random in the device: keys, jitter.
    pub seed: u64,
    /// The upper ten bits of the device's QPNs: 0 ..= 1022.
    pub slot: u16,
    /// The lower 14 bits of the first queue pair's QPN: 2 ..= 16383. They go on from there, and come round.
    pub first_index: u16,
    /// The GID table; index 0 is the default.
    pub gids: Vec<GidEntry>,
    /// The links, by [`LinkId`].
    pub links: Vec<LinkCaps>,
    /// The UDP port of peers: 4791 unless private.
    pub peer_port: u16,
    /// Bytes that may be under way to one destination socket, at most.
    pub max_window: u32,
    /// How long an owed acknowledgement may wait for something to travel with, in nanoseconds.
    pub ack_delay_ns: u64,
}

impl Default for ShardConfig {
    /// No addresses and no links; the standard's port; the usual window and acknowledgement delay.
    fn default() -> Self {
        Self {
            seed: 0,
            slot: 1,
            first_index: 2,
            gids: Vec::new(),
            links: Vec::new(),
            peer_port: userdma_wire::ROCE_V2_PORT,
            max_window: Window::MAX,
            ack_delay_ns: 10_000,
        }
    }
}

/// Bits of a QPN that are the index; the rest is the slot.
pub(crate) const INDEX_BITS: u32 = Qpn::INDEX_BITS;
/// Mask of the index in a QPN.
pub(crate) const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Queue pairs that a slot has numbers for.
pub(crate) const MAX_QPS: usize = 1 << INDEX_BITS;

/// A place in one of the device's tables as a number. Tables are bounded by the device's limits, far below 2^32.
pub(crate) fn table_index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
