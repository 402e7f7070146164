//! Listening, and who listens to what.

use std::collections::{BTreeSet, HashMap, hash_map};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use userdma_verbs::QpType;
use userdma_wire::mad::cm::IpHeader;

use super::Ids;
use crate::cm::{ListenId, PortId};
use crate::rdma::entry::{Entry, State};
use crate::rdma::system::System;
use crate::rdma::{Address, CmError, CmId, PortSpace};

/// Who listens.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// Identifiers on one place share its listening below. As `cm.c ib_cm_insert_listen()`.
    shares: HashMap<Place, Share>,
    /// Those who listen on all devices.
    on_all: BTreeSet<CmId>,
    /// How often somebody began to.
    begun: u64,
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
    /// Who listens there, and the how-manieth each was.
    ids: Vec<(u64, CmId)>,
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
        self.listeners.share(&mut self.cm, &place, id)?;
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
        self.listeners.unshare(&mut self.cm, &place, id);
    }

    /// A device has gone, with who listened on it. Those who listen on all devices go on.
    pub(super) fn forget_listeners_of(&mut self, port: PortId) {
        self.listeners.shares.retain(|place, _| place.on.is_none_or(|(own, _)| own != port));
    }

    /// Who is meant by a request that came to `port`: the newest of those on its address and those on all. As
    /// `cma.c cma_find_listener()`, `cma_match_private_data()`, `cma_ib_check_req_qp_type()`.
    pub(super) fn find_listener(
        &self,
        port: PortId,
        service_id: u64,
        header: &IpHeader,
        qp_type: QpType,
    ) -> Option<CmId> {
        let here = Some((port, header.destination.to_canonical()));
        let shares = [here, None].map(|on| self.listeners.shares.get(&Place { service_id, on }));
        let ids = shares.into_iter().flatten().flat_map(|share| &share.ids);
        let entries = ids.filter_map(|&(nth, id)| Some((nth, id, self.table.get(&id)?)));
        let meant = entries.filter(|(.., entry)| takes_family(entry, header.destination));
        let (_, id, entry) = meant.max_by_key(|&(nth, ..)| nth)?;
        (entry.qp_type == qp_type).then_some(id)
    }
}

impl Listeners {
    fn share(&mut self, cm: &mut crate::cm::Cm, place: &Place, id: CmId) -> Result<(), CmError> {
        let share = match self.shares.entry(*place) {
            hash_map::Entry::Occupied(share) => share.into_mut(),
            hash_map::Entry::Vacant(free) => {
                let taken = CmError::PortTaken(PortSpace::port_of(place.service_id));
                let listen = cm.listen(place.service_id, u64::MAX, place.on).map_err(|_| taken)?;
                free.insert(Share { listen, ids: Vec::new() })
            }
        };
        self.begun += 1;
        share.ids.push((self.begun, id));
        if place.on.is_none() {
            self.on_all.insert(id);
        }
        Ok(())
    }

    fn unshare(&mut self, cm: &mut crate::cm::Cm, place: &Place, id: CmId) {
        self.on_all.remove(&id);
        let Some(share) = self.shares.get_mut(place) else { return };
        share.ids.retain(|&(_, other)| other != id);
        if share.ids.is_empty() {
            cm.unlisten(share.listen);
            self.shares.remove(place);
        }
    }

    /// Those who listen on all devices.
    pub(super) fn on_all(&self) -> &BTreeSet<CmId> {
        &self.on_all
    }
}

fn place_of(entry: &Entry, src: SocketAddr) -> Place {
    let on = entry.port.map(|port| (port, src.ip().to_canonical()));
    Place { service_id: entry.space.service_id(src.port()), on }
}

/// Whether a listener on this address, or on all, takes requests of the family that `destination` is written in.
fn takes_family(entry: &Entry, destination: IpAddr) -> bool {
    let Some(Address::Ip(src)) = entry.src else { return false };
    entry.port.is_some() || !entry.is_af_only(&src.into()) || src.is_ipv4() == destination.is_ipv4()
}
