//! What plain UDP sockets do: the bounds that a RoCE v2 device over UDP can be held against.

mod pingpong;
mod rate;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt;

use crate::failure::Failure;

pub(super) use pingpong::PingPong;
pub(super) use rate::{follow_rate, lead_rate};
pub(super) use stream::{Icrc, follow_stream, lead_stream};

/// A side's UDP sockets.
#[derive(Debug)]
pub(super) struct UdpSockets {
    /// Connected to the other side's.
    connected: UdpSocket,
    /// Not connected, as a device's must not be: for packets that go alone.
    lone: Unconnected,
    /// Not connected, for packets that are cut and joined by the kernel; it blocks, for 50 ms at most.
    stream: Unconnected,
    /// Bytes that the kernel grants for received packets.
    recv_buffer: usize,
}

/// A socket that is told with each packet where it goes.
#[derive(Debug)]
struct Unconnected {
    socket: UdpSocket,
    ours: SocketAddr,
    peer: SocketAddr,
}

impl UdpSockets {
    /// Sockets on `ours`, connected to those whose ports `exchange` brings for our own.
    pub(super) fn open(
        ours: IpAddr,
        peer: IpAddr,
        recv_buffer: Option<usize>,
        exchange: impl FnOnce([u16; 3]) -> io::Result<[u16; 3]>,
    ) -> io::Result<Self> {
        let bind = || UdpSocket::bind((ours, 0));
        let sockets = [bind()?, bind()?, bind()?];
        let mut ports = [0; 3];
        for (port, socket) in ports.iter_mut().zip(&sockets) {
            set_recv_buffer(socket, recv_buffer.unwrap_or(LARGE_BUFFER));
            *port = socket.local_addr()?.port();
        }
        let theirs = exchange(ports)?;
        let [connected, lone, stream] = sockets;
        connected.connect((peer, theirs[0]))?;
        stream.set_read_timeout(Some(PAUSE))?;
        // The kernel tells twice what it grants: it counts its own overhead.
        let recv_buffer = sockopt::socket_recv_buffer_size(&stream)? / 2;
        let at = |socket, index: usize| Unconnected {
            socket,
            ours: (ours, ports[index]).into(),
            peer: (peer, theirs[index]).into(),
        };
        Ok(Self { connected, lone: at(lone, 1), stream: at(stream, 2), recv_buffer })
    }
}

/// As a device asks for it: beyond the system's limit, which takes a privilege, else within.
fn set_recv_buffer(socket: &UdpSocket, bytes: usize) {
    let forced = sockopt::set_socket_recv_buffer_size_force(socket, bytes);
    // What it came to is asked for; loss is noticed.
    let _ = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes));
}

/// A count of received packets, and whether it is the last; `None` if there is none (for as long as the socket waits).
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

/// Says that it is over, and waits for the last count; what is under way arrives before. The socket waits 50 ms.
fn end(Unconnected { socket, peer, .. }: &Unconnected) -> Result<u64, Failure> {
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

/// The last count, in answer to [`end`].
fn tell_end(Unconnected { socket, peer, .. }: &Unconnected, count: u64) -> Result<(), Failure> {
    socket.send_to(&[&count.to_be_bytes()[..], &[1]].concat(), peer)?;
    Ok(())
}

/// What a device asks for.
const LARGE_BUFFER: usize = 4 << 20;
const PAUSE: Duration = Duration::from_millis(50);
