//! Queue pair 1, the general service interface: management datagrams in and out.
//!
//! It is no queue pair of the table: nobody posts to it, and its number is the same on every device, so packets to it are found
//! only when no queue pair has their number. Received datagrams wait in a bounded line for [`Shard::poll_management`]; those to
//! be sent wait in another, and take their turn with the queue pairs.

use std::collections::VecDeque;
use std::net::IpAddr;

use userdma_mem::{FrameMeta, LinkId, Route, TxBatch};
use userdma_verbs::{AhAttr, Gid, GlobalRoute, Psn, Qpn};
use userdma_wire::gsi::{self, PACKET_LEN, Refused};
use userdma_wire::mad::MAD_LEN;
use userdma_wire::{Packet, Pseudo};

use crate::Shard;

/// A management datagram, as queue pairs 1 exchange them. Addresses are in canonical form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Management {
    /// Who sent it.
    pub from: IpAddr,
    /// The address that it came to: one of ours.
    pub to: IpAddr,
    /// The datagram. Nothing in it was looked at.
    pub mad: [u8; MAD_LEN],
}

/// Why a management datagram was not taken for sending.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagementError {
    /// The device does not have the address.
    #[error("{0} is not an address of the device")]
    NotOurs(IpAddr),
    /// No single host, or one that cannot be reached from the address.
    #[error("{to} cannot be reached from {from}")]
    NoRoute {
        /// Our address.
        from: IpAddr,
        /// The peer's.
        to: IpAddr,
    },
    /// As many as there is room for wait to be sent: it is lost, as the network might have lost it.
    #[error("{MAX_WAITING} management datagrams wait to be sent")]
    Full,
}

/// The lines of queue pair 1.
#[derive(Debug, Default)]
pub(crate) struct Gsi {
    received: VecDeque<Management>,
    sending: VecDeque<(Route, [u8; MAD_LEN])>,
    /// Its turn has been asked for.
    is_ready: bool,
    next_psn: Psn,
}

/// Queue pair 1 in the line of those that may have something to send: the index of its number, which no other has.
pub(crate) const GSI_INDEX: u32 = Qpn::GSI.get();

/// Datagrams that wait, in either direction: as many as a thousand connections that are made at once may need. One is 256 bytes.
const MAX_WAITING: usize = 4096;

impl Shard {
    /// Whether management datagrams have come.
    #[inline]
    pub fn has_management(&self) -> bool {
        !self.gsi.received.is_empty()
    }

    /// The oldest management datagram that has come and was not taken yet.
    pub fn poll_management(&mut self) -> Option<Management> {
        self.gsi.received.pop_front()
    }

    /// Takes a management datagram for sending to queue pair 1 of `to`. Whether it arrives, nobody learns.
    ///
    /// # Errors
    /// It will not be sent.
    pub fn send_management(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), ManagementError> {
        let (from, to) = (from.to_canonical(), to.to_canonical());
        let ours = self.config.gids.iter().position(|gid| gid.local.to_canonical() == from);
        let sgid_index = ours.and_then(|at| u8::try_from(at).ok()).ok_or(ManagementError::NotOurs(from))?;
        let usual = AhAttr::to(Gid::from(to));
        let attr = AhAttr { grh: GlobalRoute { sgid_index, ..usual.grh }, ..usual };
        let route = self.resolve_single(&attr, 0).map_err(|_| ManagementError::NoRoute { from, to })?;
        if self.gsi.sending.len() >= MAX_WAITING {
            return Err(ManagementError::Full);
        }
        self.gsi.sending.push_back((route, *mad));
        self.make_gsi_ready();
        Ok(())
    }

    /// A packet whose number no queue pair has, with a good ICRC.
    #[cold]
    pub(crate) fn handle_stray(&mut self, packet: &Packet<'_>, meta: &FrameMeta) {
        // Nobody connects to a group.
        if packet.bth().qpn() != Qpn::GSI || meta.local.is_multicast() {
            self.stats.drop_qpn += 1;
            return;
        }
        match gsi::mad_of(packet) {
            Ok(_) if self.gsi.received.len() >= MAX_WAITING => self.stats.drop_management += 1,
            Ok(mad) => self.gsi.received.push_back(Management {
                from: meta.remote.to_canonical(),
                to: meta.local.to_canonical(),
                mad: *mad,
            }),
            Err(Refused::Opcode) => self.stats.drop_opcode += 1,
            Err(Refused::PKey) => self.stats.drop_pkey += 1,
            Err(Refused::QKey) => self.stats.qkey_viol_cntr += 1,
            Err(Refused::Length) => self.stats.drop_malformed += 1,
        }
    }

    /// Counts management datagrams that were lost on the way to us, or that nobody took.
    pub fn note_lost_management(&mut self, count: u64) {
        self.stats.drop_management += count;
    }

    /// Queue pair 1 has its turn: fills `batch` with datagrams to one host, and says by which link they go.
    #[cold]
    pub(crate) fn fill_gsi(&mut self, batch: &mut TxBatch) -> Option<LinkId> {
        self.gsi.is_ready = false;
        let link = self.gsi.sending.front().map(|(route, _)| route.link);
        batch.set_max_packets(self.turn_packets(link, None));
        while let Some((route, mad)) = self.gsi.sending.front() {
            let Some((index, room)) = batch.push(route, PACKET_LEN) else { break };
            gsi::write(room, self.gsi.next_psn, mad);
            let pseudo = Pseudo::new(route.local, route.remote, route.local_port, route.remote_port);
            pseudo.seal(room, index);
            self.gsi.next_psn = self.gsi.next_psn.add(1);
            self.stats.sent_pkts += 1;
            self.gsi.sending.pop_front();
        }
        if !self.gsi.sending.is_empty() {
            self.make_gsi_ready();
        }
        batch.route().map(|route| route.link)
    }

    fn make_gsi_ready(&mut self) {
        if !self.gsi.is_ready {
            self.gsi.is_ready = true;
            self.make_index_ready(GSI_INDEX);
        }
    }
}
