//! A program that sends single packets to a responder and reads what comes back.
//!
//! It is the peer of one reliable connection as far as the responder can see: its queue pair is [`OWN_QPN`], its
//! first PSN [`PSN`], the path MTU [`MTU`]. What it sends may be wrong in any way but one: the ICRC is right unless
//! the row says otherwise.

mod answer;
mod doc;
mod request;
mod rows;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use userdma_wire::{Packet, Pseudo, ROCE_V2_PORT};

pub use answer::{Answer, Outcome};
pub use doc::{DocRow, parse as parse_doc};
pub use request::{Ext, Request};
pub use rows::{Row, Step, rows};

/// The queue pair that the requests come from.
pub const OWN_QPN: u32 = 0x1234;
/// The queue pair that asks whether the responder has seen everything before.
pub const FENCE_QPN: u32 = 0x5678;
/// The PSN of the first right request.
pub const PSN: u32 = 0x2000;
/// The path MTU of the connection, bytes.
pub const MTU: usize = 1024;

/// A responder's queue pair and its memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    /// The queue pair.
    pub qpn: u32,
    /// First address of a region that may be read, written and used for atomics, 4 KiB at least.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
    /// Its length, bytes.
    pub len: u64,
}

/// How the prober finds out that nothing more is coming.
#[derive(Clone, Copy, Debug)]
pub enum Quiet {
    /// Nothing came for this long.
    For(Duration),
    /// A WRITE to this queue pair of the same responder, sent afterwards, was acknowledged. It is connected to
    /// [`FENCE_QPN`]; the responder answers in the order in which it owes.
    Fence(Target),
}

/// The socket of the prober.
#[derive(Debug)]
pub struct Prober {
    socket: UdpSocket,
    to: SocketAddr,
    pseudo: Pseudo,
    quiet: Quiet,
    fence_psn: u32,
}

impl Prober {
    /// A prober at `own` for the responder at `peer`, both on UDP port 4791. IPv4: an identification that the
    /// socket does not show would spoil the ICRC, so it is made to be 0.
    pub fn new(own: IpAddr, peer: IpAddr, quiet: Quiet) -> io::Result<Self> {
        let socket = UdpSocket::bind((own, ROCE_V2_PORT))?;
        if own.is_ipv4() {
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        }
        let pseudo = Pseudo::new(own, peer, ROCE_V2_PORT, ROCE_V2_PORT);
        Ok(Self { socket, to: (peer, ROCE_V2_PORT).into(), pseudo, quiet, fence_psn: PSN })
    }

    /// Sends the packets of a row and says what came of it: the answers, and whether the queue pair still lives.
    ///
    /// A WRITE 40 PSNs ahead finds that out: a queue pair that lives reports the gap (unless it reported one already
    /// and waits for it to be filled), one in error is silent.
    pub fn run(&mut self, row: &Row, target: &Target) -> io::Result<Outcome> {
        let mut answers = Vec::new();
        for step in &row.steps {
            match step {
                Step::Send(request) => self.send(&request.encode(target))?,
                Step::Settle => answers.extend(self.collect()?),
            }
        }
        answers.extend(self.collect()?);
        self.send(&Request::write(PSN + 40, 0, b"alive?..").encode(target))?;
        let lives = !self.collect()?.is_empty();
        Ok(Outcome { answers, lives })
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        let mut packet = packet.to_vec();
        // The last four bytes say what to change in the right ICRC: nothing, as a rule.
        let covered = packet.len() - 4;
        let icrc = self.pseudo.icrc(&packet[..covered], 0).to_le_bytes();
        for (byte, right) in packet[covered..].iter_mut().zip(icrc) {
            *byte ^= right;
        }
        self.socket.send_to(&packet, self.to).map(|_| ())
    }

    /// What came until it is quiet.
    fn collect(&mut self) -> io::Result<Vec<Answer>> {
        let (patience, fence) = match self.quiet {
            Quiet::For(time) => (time, None),
            Quiet::Fence(fence) => {
                let request = Request::write(self.fence_psn, 0, b"fence...");
                self.fence_psn += 1;
                self.send(&request.encode(&fence))?;
                (Duration::from_secs(10), Some(request.psn))
            }
        };
        self.socket.set_read_timeout(Some(patience))?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 1 << 14];
        loop {
            let len = match self.socket.recv(&mut buffer) {
                Ok(len) => len,
                Err(e) if e.kind() == ErrorKind::WouldBlock && fence.is_none() => return Ok(answers),
                Err(e) => return Err(e),
            };
            let Ok(packet) = Packet::parse(&buffer[..len]) else { continue };
            if packet.bth().qpn().get() == OWN_QPN {
                answers.push(Answer::of(&packet, PSN));
            } else if Some(packet.bth().psn().get()) == fence {
                return Ok(answers);
            }
        }
    }
}
