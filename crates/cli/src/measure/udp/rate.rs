//! Small packets, as many as possible, [`BATCH`] in a system call and none joined: what UDP does without GSO.

use std::io::{self, IoSlice};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use userdma_link::clock;

use super::{PAUSE, end, receive_count, tell_end};
use crate::failure::Failure;
use crate::measure::Outcome;
use crate::measure::pingpong::Patience;
use crate::measure::rig::Rig;

/// Sends packets as long as those of WRITEs of 8 bytes, at most [`WINDOW`] unacknowledged. What was acknowledged counts.
pub(in crate::measure) fn lead_rate(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    let way = &rig.udp.lone;
    way.socket.set_nonblocking(true)?;
    let peer = SocketAddrAny::from(way.peer);
    let packet = [0x5a; PACKET];
    let pieces = [IoSlice::new(&packet)];
    let (mut sent, mut acked, mut lost) = (0, 0, 0);
    let start = clock::now();
    while clock::now().since(start).as_nanos() < slice_ns.into() {
        let mut controls: [_; BATCH] = std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut messages: Vec<_> =
            controls.iter_mut().map(|control| MMsgHdr::new_with_addr(&peer, &pieces, control)).collect();
        match sendmmsg(&way.socket, &mut messages, SendFlags::empty()) {
            Ok(count) => sent += count as u64,
            // A full send buffer: packets that nobody has taken.
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let waits = clock::now();
        while sent - acked - lost > WINDOW {
            match receive_count(&way.socket)? {
                Some((count, _)) => acked = count,
                None if clock::now().since(waits) > PAUSE => lost = sent - acked,
                None => {}
            }
        }
    }
    way.socket.set_nonblocking(false)?;
    way.socket.set_read_timeout(Some(PAUSE))?;
    let acked = end(way)?;
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: None, bytes: acked * 8, messages: acked, ns })
}

/// Counts them, and tells the count now and then; it spins.
pub(in crate::measure) fn follow_rate(rig: &Rig) -> Result<(), Failure> {
    let way = &rig.udp.lone;
    way.socket.set_nonblocking(true)?;
    let mut room = [0; PACKET];
    let mut count = 0_u64;
    let mut patience = Patience::default();
    loop {
        match way.socket.recv(&mut room) {
            Ok(PACKET) => count += 1,
            Ok(_) => return tell_end(way, count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                patience.turn()?;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        patience = Patience::default();
        if count.is_multiple_of(ACK_EACH) {
            way.socket.send_to(&count.to_be_bytes(), way.peer)?;
        }
    }
}

/// Packets in a system call.
const BATCH: usize = 32;
/// Bytes: BTH, RETH, payload, ICRC.
const PACKET: usize = 12 + 16 + 8 + 4;
/// Packets that may be unacknowledged; they fit the smallest usual buffer.
const WINDOW: u64 = 256 - BATCH as u64;
const ACK_EACH: u64 = 64;
