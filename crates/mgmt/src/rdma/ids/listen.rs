//! Listening, and who listens to what.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use userdma_verbs::QpType;
use userdma_wire::mad::cm::IpHeader;

use super::Ids;
use crate::cm::{ListenId, PortId};
use crate::rdma::entry::{Entry, State};
use crate::rdma::system::System;
use crate::rdma::{Address, CmError, CmId, PortSpace};

/// Who listens, by service.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// Those who listen to a service; the newest is asked first.
    ids: HashMap<u64, Vec<CmId>>,
    /// Identifiers on one place share its listening below. As `cm.c ib_cm_insert_listen()`.
    shares: HashMap<Place, Share>,
}

/// A service on an address of a device, or on all.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Place {
    service_id: u64,
    on: Option<(PortId, IpAddr)>,
}

/// What the machine is to be asked for an identifier that listens: to pass on requests for a service.
#[must_use]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listening {
    /// The service.
    pub service_id: u64,
    /// One address; `None` stands for all.
    pub on: Option<IpAddr>,
    /// The devices.
    pub ports: Vec<PortId>,
}

#[derive(Debug)]
struct Share {
    listen: ListenId,
    users: u32,
}

impl Ids {
    /// Takes requests for the address and port from now on: each becomes an event with a new identifier. As
    /// `cma.c rdma_listen()`.
    ///
    /// What comes back is to be asked of the machine, which may take its time: each device that it agrees for is told by
    /// [`Ids::note_listening`], and if it does not, [`Ids::give_up_listening`] ends all.
    ///
    /// # Errors
    /// It is neither new nor bound, or somebody listens there.
    pub fn listen(&mut self, system: &mut impl System, id: CmId) -> Result<Listening, CmError> {
        if self.entry(id)?.state == State::Idle {
            self.bind(system, id, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        }
        let entry = self.entry(id)?;
        entry.check(entry.state == State::AddrBound, "listen", "a new or bound identifier")?;
        let Some(Address::Ip(src)) = entry.src else {
            return Err(CmError::Unsupported("listening on a GID"));
        };
        if entry.reuse_address {
            entry.held.iter().try_for_each(|held| system.begin_listening(held.port, held.reservation))?;
        }
        let place = place_of(entry, src);
        let ports = entry.held.iter().map(|held| held.port).collect();
        self.listeners.share(&mut self.cm, &place)?;
        self.listeners.ids.entry(place.service_id).or_default().push(id);
        self.entry_mut(id)?.state = State::Listen;
        Ok(Listening { service_id: place.service_id, on: place.on.map(|(_, ip)| ip), ports })
    }

    /// The machine passes requests on that come to `port`. `false` if the identifier listens no longer, so that nobody will end it.
    pub fn note_listening(&mut self, id: CmId, port: PortId) -> bool {
        let Some(entry) = self.table.get_mut(&id).filter(|entry| entry.state == State::Listen) else {
            return false;
        };
        let Some(held) = entry.held.iter_mut().find(|held| held.port == port) else { return false };
        held.listens = true;
        true
    }

    /// The machine has refused: the identifier is bound as before.
    pub fn give_up_listening(&mut self, system: &mut impl System, id: CmId) {
        let Some(entry) = self.table.get(&id).filter(|entry| entry.state == State::Listen).cloned() else {
            return;
        };
        self.stop_listening(system, id, &entry);
        if let Some(entry) = self.table.get_mut(&id) {
            entry.state = State::AddrBound;
            entry.held.iter_mut().for_each(|held| held.listens = false);
        }
    }

    /// Ends what [`Ids::listen`] has begun.
    pub(super) fn stop_listening(&mut self, system: &mut impl System, id: CmId, entry: &Entry) {
        let Some(Address::Ip(src)) = entry.src else { return };
        let place = place_of(entry, src);
        for held in entry.held.iter().filter(|held| held.listens) {
            system.unlisten(held.port, place.service_id, place.on.map(|(_, ip)| ip));
        }
        self.listeners.unshare(&mut self.cm, &place);
        self.listeners.forget(id, place.service_id);
    }

    /// A device has gone, with who listened on it. Those who listen on all devices go on.
    pub(super) fn forget_listeners_of(&mut self, port: PortId) {
        self.listeners.shares.retain(|place, _| place.on.is_none_or(|(own, _)| own != port));
        let is_there = |id: &CmId| {
            self.table.get(id).is_some_and(|entry| entry.state == State::Listen && entry.port != Some(port))
        };
        self.listeners.ids.retain(|_, ids| {
            ids.retain(is_there);
            !ids.is_empty()
        });
    }

    /// Who is meant by a request that came to `port`. As `cma.c cma_find_listener()`, `cma_ib_check_req_qp_type()`.
    pub(super) fn find_listener(
        &self,
        port: PortId,
        service_id: u64,
        header: &IpHeader,
        qp_type: QpType,
    ) -> Option<CmId> {
        let ids = self.listeners.ids.get(&service_id)?;
        let is_meant = |id: &&CmId| {
            let entry = self.table.get(id);
            entry.is_some_and(|entry| is_meant(entry, port, header))
        };
        let id = ids.iter().rev().find(is_meant).copied()?;
        self.table.get(&id).filter(|entry| entry.qp_type == qp_type).map(|_| id)
    }
}

impl Listeners {
    /// An identifier listens to a service no longer.
    fn forget(&mut self, id: CmId, service_id: u64) {
        if let Some(ids) = self.ids.get_mut(&service_id) {
            ids.retain(|&listener| listener != id);
            if ids.is_empty() {
                self.ids.remove(&service_id);
            }
        }
    }

    fn share(&mut self, cm: &mut crate::cm::Cm, place: &Place) -> Result<(), CmError> {
        if let Some(share) = self.shares.get_mut(place) {
            share.users += 1;
            return Ok(());
        }
        let taken = CmError::PortTaken(PortSpace::port_of(place.service_id));
        let listen = cm.listen(place.service_id, u64::MAX, place.on).map_err(|_| taken)?;
        self.shares.insert(*place, Share { listen, users: 1 });
        Ok(())
    }

    fn unshare(&mut self, cm: &mut crate::cm::Cm, place: &Place) {
        let Some(share) = self.shares.get_mut(place) else { return };
        share.users -= 1;
        if share.users == 0 {
            cm.unlisten(share.listen);
            self.shares.remove(place);
        }
    }
}

fn place_of(entry: &Entry, src: SocketAddr) -> Place {
    let on = entry.port.map(|port| (port, src.ip().to_canonical()));
    Place { service_id: entry.space.service_id(src.port()), on }
}

/// Whether a listener is meant by a request. As `cma.c cma_match_private_data()`.
fn is_meant(entry: &Entry, port: PortId, header: &IpHeader) -> bool {
    let Some(Address::Ip(src)) = entry.src else { return false };
    let is_same_family = src.is_ipv4() == header.destination.is_ipv4();
    match entry.port {
        None => !entry.is_af_only(&src.into()) || is_same_family,
        Some(own) => own == port && src.ip().to_canonical() == header.destination.to_canonical(),
    }
}
