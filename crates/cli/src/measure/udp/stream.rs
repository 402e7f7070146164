//! The same packets as WRITEs have, with the same unavoidable work and no more: segmentation and coalescing by the
//! kernel, an ICRC computed and checked, one copy at the receiver, a window, an acknowledgement now and then. No packet is
//! ever sent again and nothing is put in order.

use std::io;
use std::net::SocketAddr;

use userdma_link::{clock, raw};
use userdma_mem::crc32;
use userdma_wire::{FlowIcrc, Pseudo};

use super::{Unconnected, end, receive_count, tell_end};
use crate::failure::Failure;
use crate::measure::Outcome;
use crate::measure::rig::Rig;

/// What both sides must agree upon.
struct Plan<'a> {
    way: &'a Unconnected,
    /// Bytes of payload in a packet.
    payload: usize,
    /// Bytes of a packet: BTH, payload, ICRC.
    packet: usize,
    /// Packets in a send.
    batch: usize,
    /// Packets that may be unacknowledged: 1 MiB of them, or what the receiver's buffer holds.
    window: u64,
    /// Packets to an acknowledgement.
    ack_each: u64,
}

/// How the ICRC is computed and checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::measure) enum Icrc {
    /// Not at all.
    None,
    /// By `crc32fast`.
    Library,
    /// As the device does.
    Device,
}

impl Icrc {
    /// The ICRCs of one direction.
    fn flow(self, from: SocketAddr, to: SocketAddr) -> Option<FlowIcrc> {
        let pseudo = Pseudo::new(from.ip(), to.ip(), from.port(), to.port());
        match self {
            Self::None => None,
            Self::Library => Some(FlowIcrc::new(pseudo)),
            Self::Device => Some(FlowIcrc::with_crc32(pseudo, crc32)),
        }
    }
}

impl<'a> Plan<'a> {
    fn new(rig: &'a Rig, len: usize) -> Self {
        let payload = len.min(rig.setup.payload()).next_multiple_of(4);
        let packet = HEADER + payload + 4;
        let batch = (MAX_SEND / packet).min(MAX_SEGMENTS);
        let room = rig.udp.recv_buffer.min(1 << 20) / packet;
        let window = room.saturating_sub(batch).max(batch) as u64;
        Self { way: &rig.udp.stream, payload, packet, batch, window, ack_each: (window / 4).clamp(1, 32) }
    }
}

/// Sends batches, with a window. What was acknowledged counts.
pub(in crate::measure) fn lead_stream(
    rig: &Rig,
    slice_ns: u64,
    len: usize,
    icrc: Icrc,
) -> Result<Outcome, Failure> {
    let plan = Plan::new(rig, len);
    let Unconnected { socket, ours, peer } = plan.way;
    // A packet is shorter than 2^16 bytes.
    raw::set_segment_size(socket, u16::try_from(plan.packet).unwrap_or(u16::MAX))
        .map_err(|error| Failure::new(format!("this kernel does not cut UDP packets: {error}")))?;
    let mut flow = icrc.flow(*ours, *peer);
    let mut batch = vec![0x5a; plan.batch * plan.packet];
    let (mut sent, mut lost, mut acked) = (0, 0, 0);
    let start = clock::now();
    while clock::now().since(start).as_nanos() < slice_ns.into() {
        // The number stands for the BTH: the device writes one for each packet.
        for (index, packet) in (0_u16..).zip(batch.chunks_exact_mut(plan.packet)) {
            packet[4..12].copy_from_slice(&(sent + u64::from(index)).to_be_bytes());
            if let Some(flow) = &mut flow {
                flow.seal(packet, index);
            }
        }
        socket.send_to(&batch, peer)?;
        sent += plan.batch as u64;
        while sent - acked - lost > plan.window {
            match receive_count(socket)? {
                Some((count, _)) => acked = count,
                None => lost = sent - acked,
            }
        }
    }
    let acked = end(plan.way)?;
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    // Padding is not counted.
    let bytes = acked * plan.payload.min(len) as u64;
    Ok(Outcome { half_trip_us: None, bytes, messages: acked, ns })
}

/// Receives, checks, copies and acknowledges until the other side has enough.
pub(in crate::measure) fn follow_stream(rig: &Rig, len: usize, icrc: Icrc) -> Result<(), Failure> {
    let plan = Plan::new(rig, len);
    let Unconnected { socket, ours, peer } = plan.way;
    raw::set_coalescing(socket)
        .map_err(|error| Failure::new(format!("this kernel does not join UDP packets: {error}")))?;
    let mut flow = icrc.flow(*peer, *ours);
    let mut room = vec![0; 1 << 16];
    let mut target = vec![0; TARGET];
    let (mut count, mut at, mut idle) = (0_u64, 0, 0);
    loop {
        let len = match socket.recv(&mut room) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && idle < 100 => {
                idle += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        idle = 0;
        if len < plan.packet {
            return tell_end(plan.way, count);
        }
        for (index, packet) in (0_u16..).zip(room[..len].chunks_exact(plan.packet)) {
            let (covered, sealed) = packet.split_at(plan.packet - 4);
            if flow.as_mut().is_some_and(|flow| flow.icrc(covered, index).to_le_bytes() != sealed) {
                return Err(Failure::new("a packet of the raw reference has a wrong ICRC"));
            }
            if at + plan.payload > TARGET {
                at = 0;
            }
            target[at..at + plan.payload].copy_from_slice(&covered[HEADER..]);
            at += plan.payload;
            count += 1;
            if count.is_multiple_of(plan.ack_each) {
                socket.send_to(&count.to_be_bytes(), peer)?;
            }
        }
    }
}

/// Bytes of a BTH.
const HEADER: usize = 12;
/// Bytes of a send at most: what one IPv4 packet could hold, some headers less.
const MAX_SEND: usize = 65_000;
/// Packets that every kernel with segmentation cuts out of one send.
const MAX_SEGMENTS: usize = 64;
/// Bytes that the payload is copied to, over and over.
const TARGET: usize = 1 << 20;
