//! The host at the other end: a socket that sends and receives management datagrams.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use userdma_link::GsiSender;
use userdma_verbs::Psn;
use userdma_wire::gsi::{self, PACKET_LEN};
use userdma_wire::mad::MAD_LEN;
use userdma_wire::{IcrcCheck, Packet, Pseudo};

use super::Other;

/// A host that is no device.
pub(crate) struct Peer {
    socket: UdpSocket,
    sender: GsiSender,
    to: IpAddr,
    psn: Cell<Psn>,
}

type Mad = [u8; MAD_LEN];

impl Peer {
    /// A host at one address that talks to another.
    pub(crate) fn new(at: &str, to: &str) -> Self {
        let socket = UdpSocket::bind((at, 4791)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sender = GsiSender::open(at.parse().unwrap()).unwrap();
        Self { socket, sender, to: to.parse().unwrap(), psn: Cell::default() }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.sender.local().0
    }

    /// A packet with a datagram.
    pub(crate) fn packet(&self, mad: &Mad) -> [u8; PACKET_LEN] {
        let mut room = [0; PACKET_LEN];
        gsi::write(&mut room, self.psn.get(), mad);
        self.psn.set(self.psn.get().add(1));
        let (local, port) = self.sender.local();
        Pseudo::new(local, self.to, port, 4791).seal(&mut room, 0);
        room
    }

    pub(crate) fn send(&self, mad: &Mad) {
        self.send_bytes(&self.packet(mad));
    }

    pub(crate) fn send_bytes(&self, packet: &[u8]) {
        self.sender.send((self.to, 4791), packet).unwrap();
    }

    /// Sends until the other process has got it: some are lost while there is a crowd.
    pub(crate) fn send_until_taken(&self, mad: &Mad, other: &mut Other) {
        loop {
            self.send(mad);
            if other.try_frame(mad) {
                return;
            }
        }
    }

    /// The next datagram, with a right ICRC.
    pub(crate) fn recv(&self) -> Mad {
        let mut room = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut room).expect("a datagram");
        let packet = Packet::parse(&room[..len]).unwrap();
        let flow = Pseudo::new(from.ip(), self.address(), from.port(), 4791);
        assert_eq!(flow.verify(&packet, 0), IcrcCheck::Good);
        assert_eq!(from.ip(), self.to);
        *gsi::mad_of(&packet).unwrap()
    }

    /// Receives until this one comes.
    pub(crate) fn recv_until(&self, mad: &Mad) {
        while self.recv() != *mad {}
    }

    /// Takes what has come out of the socket.
    pub(crate) fn forget_answers(&self) {
        self.socket.set_nonblocking(true).unwrap();
        while self.socket.recv(&mut [0; 2048]).is_ok() {}
        self.socket.set_nonblocking(false).unwrap();
    }
}

/// A message of the communication manager: attribute and the first words of its body.
fn message(attribute: u8, words: &[u32]) -> Mad {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = attribute;
    for (at, word) in words.iter().enumerate() {
        mad[24 + 4 * at..][..4].copy_from_slice(&word.to_be_bytes());
    }
    mad
}

pub(crate) fn attribute(mad: &Mad) -> u8 {
    mad[17]
}

pub(crate) fn words(mad: &Mad) -> [u32; 2] {
    [24, 28].map(|at| u32::from_be_bytes(*mad[at..].first_chunk().unwrap()))
}

pub(crate) fn req(comm_id: u32, service: u32) -> Mad {
    message(0x10, &[comm_id, 0, 0, service])
}

pub(crate) fn rej(comm_id: u32) -> Mad {
    message(0x12, &[0, comm_id, 8])
}

pub(crate) fn rep(from: u32, to: u32) -> Mad {
    message(0x13, &[from, to])
}

pub(crate) fn dreq(from: u32, to: u32) -> Mad {
    message(0x15, &[from, to])
}

pub(crate) fn drep(from: u32, to: u32) -> Mad {
    message(0x16, &[from, to])
}
