//! What plain UDP sockets do: the bounds that a RoCE v2 device over UDP can be held against.
//!
//! [`PingPong`] is the fastest way there is for eight bytes. [`lead_stream`] moves the same packets as 1 MiB WRITEs with
//! the same unavoidable work, and no more: segmentation and coalescing by the kernel, an ICRC computed and checked, one
//! copy at the receiver, a window, an acknowledgement now and then. No packet is ever sent again and nothing is put in
//! order.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use userdma_link::{clock, raw};
use userdma_wire::Pseudo;

use super::Outcome;
use super::pingpong::{self, Patience};
use super::rig::Rig;
use crate::failure::Failure;

/// A side's UDP sockets.
#[derive(Debug)]
pub(super) struct UdpSockets {
    /// Connected to the other side's; does not block.
    pub(super) pingpong: UdpSocket,
    /// Not connected, as a device's must not be; it blocks, for 50 ms at most.
    pub(super) stream: UdpSocket,
    pub(super) peer: SocketAddr,
    ours: SocketAddr,
}

impl UdpSockets {
    /// Sockets on `address`, connected to those whose ports `exchange` brings for our own.
    pub(super) fn open(
        ours: std::net::IpAddr,
        peer: std::net::IpAddr,
        exchange: impl FnOnce([u16; 2]) -> io::Result<[u16; 2]>,
    ) -> io::Result<Self> {
        let (pingpong, stream) = (UdpSocket::bind((ours, 0))?, UdpSocket::bind((ours, 0))?);
        let theirs = exchange([pingpong.local_addr()?.port(), stream.local_addr()?.port()])?;
        pingpong.connect((peer, theirs[0]))?;
        pingpong.set_nonblocking(true)?;
        stream.set_read_timeout(Some(PAUSE))?;
        // As large as it gets; loss is noticed.
        let _ = socket2::SockRef::from(&stream).set_recv_buffer_size(4 << 20);
        let ours = stream.local_addr()?;
        Ok(Self { pingpong, stream, peer: (peer, theirs[1]).into(), ours })
    }
}

/// Eight bytes over connected UDP sockets, both sides spinning.
#[derive(Debug)]
pub(super) struct PingPong<'a>(&'a UdpSocket);

impl<'a> PingPong<'a> {
    pub(super) fn new(rig: &'a Rig) -> Self {
        Self(&rig.udp.pingpong)
    }
}

impl pingpong::PingPong for PingPong<'_> {
    fn send(&mut self, value: u64) -> Result<(), Failure> {
        self.0.send(&value.to_ne_bytes())?;
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        let mut patience = Patience::default();
        loop {
            match self.0.recv(&mut bytes) {
                Ok(8) => return Ok(u64::from_ne_bytes(bytes)),
                Ok(len) => return Err(Failure::new(format!("a datagram of {len} bytes"))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => patience.turn()?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Sends batches of [`BATCH`] packets, at most [`WINDOW`] unacknowledged. What was acknowledged counts.
pub(super) fn lead_stream(rig: &Rig, slice_ns: u64) -> Result<Outcome, Failure> {
    let (socket, peer) = (&rig.udp.stream, rig.udp.peer);
    raw::set_segment_size(socket, PACKET_LEN)
        .map_err(|error| Failure::new(format!("this kernel does not cut UDP packets: {error}")))?;
    let pseudo = Pseudo::new(rig.udp.ours.ip(), peer.ip(), rig.udp.ours.port(), peer.port());
    let mut batch = vec![0x5a; BATCH * PACKET];
    let (mut sent, mut lost, mut acked) = (0, 0, 0);
    let start = clock::now();
    while clock::now().since(start).as_nanos() < slice_ns.into() {
        // The first bytes of a packet stand for its BTH: the device writes one for each.
        for (index, packet) in (0_u16..).zip(batch.chunks_exact_mut(PACKET)) {
            packet[8..16].copy_from_slice(&(sent + u64::from(index)).to_be_bytes());
            pseudo.seal(packet, index);
        }
        socket.send_to(&batch, peer)?;
        sent += BATCH as u64;
        while sent - acked - lost > WINDOW {
            match receive_count(socket)? {
                Some((count, _)) => acked = count,
                None => lost = sent - acked,
            }
        }
    }
    let acked = end_stream(socket, peer)?;
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: None, bytes: acked * PAYLOAD as u64, messages: acked, ns })
}

/// Receives, checks, copies and acknowledges until the other side has enough.
pub(super) fn follow_stream(rig: &Rig) -> Result<(), Failure> {
    let (socket, peer) = (&rig.udp.stream, rig.udp.peer);
    raw::set_coalescing(socket)
        .map_err(|error| Failure::new(format!("this kernel does not join UDP packets: {error}")))?;
    let pseudo = Pseudo::new(peer.ip(), rig.udp.ours.ip(), peer.port(), rig.udp.ours.port());
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
        if len < PACKET {
            socket.send_to(&[&count.to_be_bytes()[..], &[1]].concat(), peer)?;
            return Ok(());
        }
        for (index, packet) in (0_u16..).zip(room[..len].chunks_exact(PACKET)) {
            let (covered, icrc) = packet.split_at(PACKET - 4);
            if pseudo.icrc(covered, index).to_le_bytes() != icrc {
                return Err(Failure::new("a packet of the raw reference has a wrong ICRC"));
            }
            target[at..at + PAYLOAD].copy_from_slice(&covered[HEADER..]);
            at = (at + PAYLOAD) % TARGET;
            count += 1;
            if count.is_multiple_of(ACK_EACH) {
                socket.send_to(&count.to_be_bytes(), peer)?;
            }
        }
    }
}

/// Says that it is over, and waits for the last count; what is under way arrives before.
fn end_stream(socket: &UdpSocket, peer: SocketAddr) -> Result<u64, Failure> {
    for _ in 0..40 {
        socket.send_to(&[0], peer)?;
        while let Some((count, is_last)) = receive_count(socket)? {
            if is_last {
                return Ok(count);
            }
        }
    }
    Err(Failure::new("the receiver of the raw reference does not answer"))
}

/// A count of received packets, and whether it is the last; `None` after a pause without any.
fn receive_count(socket: &UdpSocket) -> Result<Option<(u64, bool)>, Failure> {
    let mut bytes = [0; 9];
    match socket.recv(&mut bytes) {
        Ok(len @ (8 | 9)) => {
            let [count @ .., _] = bytes;
            Ok(Some((u64::from_be_bytes(count), len == 9)))
        }
        Ok(len) => Err(Failure::new(format!("an acknowledgement of {len} bytes"))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Bytes of a BTH.
const HEADER: usize = 12;
const PAYLOAD: usize = 4096;
/// Bytes of a packet: BTH, payload, ICRC.
const PACKET: usize = PACKET_LEN as usize;
const PACKET_LEN: u16 = 12 + 4096 + 4;
/// Packets in a send.
const BATCH: usize = 15;
/// Packets that may be unacknowledged: 1 MiB.
const WINDOW: u64 = 256 - BATCH as u64;
/// Packets to an acknowledgement.
const ACK_EACH: u64 = 32;
/// Bytes that the payload is copied to, over and over.
const TARGET: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(50);
