//! What arrives from a link, and what a link can do.

use std::net::IpAddr;

/// Which link of the device: its index in the device's table.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct LinkId(pub u8);

/// A received packet: the transport's bytes (BTH to ICRC on RoCE v2) and what the socket knows about them.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// BTH up to and including the ICRC.
    pub bytes: &'a [u8],
    /// Where it came from.
    pub meta: FrameMeta,
}

/// What the socket knows of a received packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameMeta {
    /// The link it came in by.
    pub link: LinkId,
    /// The sender's address.
    pub remote: IpAddr,
    /// The sender's UDP port.
    pub remote_port: u16,
    /// Our address that it was sent to.
    pub local: IpAddr,
    /// Our UDP port that it was sent to.
    pub local_port: u16,
    /// Type of service or traffic class; the low two bits are ECN. While packets come alone and cannot be marked, most have that
    /// of an earlier one.
    pub traffic_class: u8,
    /// Its place in the super-packet that the kernel made of several: 0 for the first or only one.
    pub segment: u16,
}

/// What a link can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkCaps {
    /// Bytes of a batch: 1 ..= 65,507 on IPv4.
    pub max_batch_bytes: usize,
    /// Packets of a batch: 1 where the kernel cannot segment.
    pub max_batch_packets: usize,
    /// Bytes that the link carries above its own header: its MTU.
    pub mtu: u32,
}
