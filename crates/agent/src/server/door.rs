//! Where packets to queue pair 1 of an address come in: slot 0's socket of its group.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use userdma_link::GsiReceiver;
use userdma_verbs::Qpn;
use userdma_wire::gsi::{self, PACKET_LEN};
use userdma_wire::mad::MAD_LEN;
use userdma_wire::{IcrcCheck, Packet, Pseudo};

use crate::group::Group;

/// The door of an address.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) ip: IpAddr,
    pub(super) udp_port: u16,
    receiver: GsiReceiver,
}

/// A packet with a management datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) remote: (IpAddr, u16),
    pub(super) local: (IpAddr, u16),
    /// Packets that found no room in the socket before it, or behind it.
    pub(super) lost: u32,
    pub(super) bytes: [u8; PACKET_LEN],
    pub(super) mad: [u8; MAD_LEN],
}

impl Door {
    /// Opens the door of a group. What has come before is still there.
    pub(super) fn open(ip: IpAddr, udp_port: u16, group: &Group) -> io::Result<Self> {
        let member = group.socket(0).map_err(io::Error::other)?;
        Ok(Self { ip, udp_port, receiver: GsiReceiver::new(member)? })
    }

    /// Takes in a bounded number of packets; how many were none with a management datagram, or found no room.
    pub(super) fn take(&mut self, into: &mut Vec<Arrived>) -> u64 {
        let mut room = [0; PACKET_LEN + 1];
        let mut dropped = 0;
        let before = into.len();
        for _ in 0..PACKETS_AT_ONCE {
            let Some((len, remote)) = self.receiver.recv(&mut room) else { break };
            match Arrived::read(&room[..len], remote, (self.ip, self.udp_port)) {
                Some(arrived) => into.push(arrived),
                None => dropped += 1,
            }
        }
        if let Some(first) = into.get_mut(before) {
            first.lost = self.receiver.lost();
            dropped += u64::from(first.lost);
        }
        dropped
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Arrived {
    /// What a packet holds; `None` if it is no management datagram, or damaged.
    fn read(bytes: &[u8], remote: (IpAddr, u16), local: (IpAddr, u16)) -> Option<Self> {
        let whole = <&[u8; PACKET_LEN]>::try_from(bytes).ok()?;
        let packet = Packet::parse(whole).ok().filter(|packet| packet.bth().qpn() == Qpn::GSI)?;
        let flow = Pseudo::new(remote.0, local.0, remote.1, local.1);
        if flow.verify(&packet, 0) == IcrcCheck::Bad {
            return None;
        }
        let mad = *gsi::mad_of(&packet).ok()?;
        Some(Self { remote, local, lost: 0, bytes: *whole, mad })
    }
}

/// Packets that are taken from each address before the agent turns to something else.
const PACKETS_AT_ONCE: usize = 64;
