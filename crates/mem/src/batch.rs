//! What goes out by one send call: packets of equal size to one destination.

use std::net::IpAddr;

use crate::{LinkCaps, LinkId};

/// Where a batch goes: a route that a link resolved when the connection was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Route {
    /// The link.
    pub link: LinkId,
    /// Our address: the source that the ICRC covers.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Scope of a link-local IPv6 address; 0 otherwise.
    pub scope_id: u32,
    /// Which of the link's transmit sockets.
    pub socket: u8,
    /// That socket's UDP port, which the ICRC covers.
    pub local_port: u16,
    /// The peer's UDP port: 4791 unless private.
    pub remote_port: u16,
    /// Type of service or traffic class, ECN bits included.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
}

/// Packets of one size (the last may be shorter) to one destination, in one piece of memory.
///
/// How many there may be is the link's limit: 64 or 128 where the kernel segments, else 1. The memory is allocated once.
///
/// A packet's index in the batch is also its IPv4 identification: the kernel numbers the segments of a
/// super-packet from 0, and a single packet of an unconnected socket gets 0.
#[derive(Debug)]
pub struct TxBatch {
    bytes: Box<[u8]>,
    len: usize,
    segment: usize,
    count: usize,
    closed: bool,
    max_packets: usize,
    route: Option<Route>,
}

impl TxBatch {
    /// An empty batch for a link with these limits.
    pub fn new(caps: &LinkCaps) -> Self {
        Self {
            bytes: vec![0; caps.max_batch_bytes].into_boxed_slice(),
            len: 0,
            segment: 0,
            count: 0,
            closed: false,
            max_packets: caps.max_batch_packets,
            route: None,
        }
    }

    /// Forgets the packets; the memory stays.
    pub fn clear(&mut self) {
        (self.len, self.segment, self.count, self.closed, self.route) = (0, 0, 0, false, None);
    }

    /// Takes new limits of the link (it stopped segmenting, say). Only on an empty batch.
    pub fn set_max_packets(&mut self, max_packets: usize) {
        debug_assert!(self.is_empty());
        self.max_packets = max_packets.max(1);
    }

    /// Whether a packet of `size` bytes to `route` can join: same route, not longer than the first, nothing
    /// shorter before it, and room.
    pub fn fits(&self, route: &Route, size: usize) -> bool {
        self.has_room(size) && (self.count == 0 || self.route.as_ref() == Some(route))
    }

    fn has_room(&self, size: usize) -> bool {
        let joins = || !self.closed && self.count < self.max_packets && size <= self.segment;
        size > 0 && size <= self.bytes.len() - self.len && (self.count == 0 || joins())
    }

    /// Room for a packet of `size` bytes: its index and its bytes (with any contents), or `None` if it does not fit.
    ///
    /// A packet shorter than the first closes the batch: a super-packet's segments are equal but for the last.
    pub fn push(&mut self, route: &Route, size: usize) -> Option<(u16, &mut [u8])> {
        if !self.fits(route, size) {
            return None;
        }
        if self.count == 0 {
            self.segment = size;
            self.route = Some(*route);
        }
        Some(self.append(size))
    }

    /// As [`TxBatch::push`] to the route that the batch has.
    pub fn push_more(&mut self, size: usize) -> Option<(u16, &mut [u8])> {
        (self.count > 0 && self.has_room(size)).then(|| self.append(size))
    }

    fn append(&mut self, size: usize) -> (u16, &mut [u8]) {
        self.closed = size < self.segment;
        let start = self.len;
        self.len += size;
        self.count += 1;
        // A batch of 65,507 bytes holds no more packets than an index can count.
        let index = u16::try_from(self.count - 1).unwrap_or(u16::MAX);
        (index, &mut self.bytes[start..start + size])
    }

    /// Takes back the last packet, of `size` bytes, which could not be filled. Does nothing on an empty batch.
    pub fn pop(&mut self, size: usize) {
        let Some(before) = self.count.checked_sub(1) else { return };
        // All before the last have the full size, so the size is known; `size` says that the caller knows it too.
        debug_assert_eq!(self.len - before * self.segment, size);
        if before == 0 {
            return self.clear();
        }
        (self.len, self.count, self.closed) = (before * self.segment, before, false);
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of packets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Size of every packet but the last.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// All packets, one after another.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The packets one by one.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes().chunks(self.segment.max(1))
    }

    /// The destination; `None` if empty.
    pub fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }
}

#[cfg(test)]
mod tests;
