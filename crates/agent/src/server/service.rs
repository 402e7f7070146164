//! What the agent does only as a service for all users.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use userdma_link::clock;
use userdma_link::descriptors::Peer;

use super::{Agent, Client, Held};
use crate::desk::End;
use crate::message::{Place, Refusal, Reply};
use crate::names;
use crate::service::{MAX_CONNECTIONS, Service, ServiceEvent};

impl Agent {
    /// What a service does beside serving: slots whose owner is dead go back, and the keeper is there.
    pub(super) fn look_after_service(&mut self) {
        let Some(service) = &mut self.service else { return };
        for (ip, port, slot) in service.dead(&self.desk) {
            service.tell(&ServiceEvent::Lost { address: ip, slot });
            let place = Place { port, addresses: vec![ip] };
            self.desk.release(&place, slot, End::Dead, clock::now());
            service.keep(&self.desk, &place, slot);
        }
        service.look_after_keeper(&self.desk);
    }

    pub(super) fn tell(&mut self, event: impl FnOnce() -> ServiceEvent) {
        if let Some(service) = &mut self.service {
            service.tell(&event());
        }
    }

    /// Whether somebody is one of ours: of our user, or of any who has not too many connections.
    pub(super) fn may_enter(&mut self, peer: Peer) -> bool {
        if self.service.is_none() {
            return peer.uid == names::our_uid();
        }
        let connections = self.clients.iter().filter(|client| client.peer.uid == peer.uid).count();
        if connections >= MAX_CONNECTIONS {
            self.tell(|| ServiceEvent::Crowded(peer));
            return false;
        }
        true
    }

    /// Whether a service hears a claim of this user.
    pub(super) fn admit(&self, user: u32, place: &Place) -> Result<(), Refusal> {
        let Some(service) = &self.service else { return Ok(()) };
        let held = self
            .clients
            .iter()
            .filter(|client| client.peer.uid == user)
            .filter_map(|client| client.holds.as_ref());
        service.admit(user, place, held.map(|held| held.place.addresses.len()).sum())
    }

    /// A device that was there before the service was started shows its locks, and goes on.
    pub(super) fn resume(&mut self, at: usize, held: Held, locks: &[OwnedFd]) {
        let peer = self.clients[at].peer;
        let (slot, addresses) = (held.slot, held.place.addresses.clone());
        let is_owner = |service: &Service| service.is_owner(&self.desk, &held.place, slot, locks);
        if !self.service.as_ref().is_some_and(is_owner) {
            self.tell(|| ServiceEvent::Unknown { peer, slot });
            return self.end(at, End::Dead);
        }
        self.keep(&held.place, slot);
        self.clients[at].holds = Some(held);
        self.join(at, true);
        self.tell(|| ServiceEvent::Resumed { peer, slot, addresses });
        if self.send(at, &Reply::Registered, &[]).is_err() {
            self.end(at, End::Dead);
        }
    }

    /// Sees to it that a slot outlives the service.
    pub(super) fn keep(&mut self, place: &Place, slot: u16) {
        if let Some(service) = &mut self.service {
            service.keep(&self.desk, place, slot);
        }
    }

    /// Gives a client the socket of another slot of the same user, if there is one.
    pub(super) fn hand_neighbor(&self, at: usize, address: u8, slot: u16) {
        let Client { peer, holds: Some(Held { place, .. }), .. } = &self.clients[at] else { return };
        let ip = place.addresses.get(usize::from(address));
        let is_own = |ip: &&IpAddr| {
            let slot = self.desk.slot(**ip, place.port, slot);
            slot.is_some_and(|slot| slot.is_used && slot.user == Some(peer.uid))
        };
        let group = ip.filter(is_own).and_then(|ip| self.desk.group(*ip, place.port));
        let socket = group.and_then(|group| group.socket(slot).ok());
        let socket: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
        // If there is no room for the answer, nobody waits for it.
        let _ = self.send(at, &Reply::Neighbor { address, slot }, &socket);
    }
}
