//! Devices that come and go while somebody listens on all of them.

use super::{Ids, Listening};
use crate::cm::PortId;
use crate::rdma::entry::{Entry, Held, State};
use crate::rdma::system::{PortRequest, System};
use crate::rdma::{Address, CmError, CmId};

impl Ids {
    /// Whether somebody listens on all devices.
    pub fn listens_on_all(&self) -> bool {
        !self.listeners.on_all().is_empty()
    }

    /// Whoever listens on all devices, with each device that has appeared since the last call: there it is to listen, too, by
    /// [`Ids::listen_also`]. As `cma.c cma_add_one()`.
    pub fn poll_new_devices(&mut self, system: &impl System) -> Vec<(CmId, PortId)> {
        let known = std::mem::replace(&mut self.known_devices, system.devices().len());
        let new: Vec<_> = system.devices().iter().skip(known).map(|&(port, _)| port).collect();
        self.listeners.on_all().iter().flat_map(|&id| new.iter().map(move |&port| (id, port))).collect()
    }

    /// Takes the port of a listener on a device that has appeared. What comes back is to be asked of the machine, as after
    /// [`Ids::listen`]; nothing if it has the port from `bind`, or listens no longer. As `cma.c cma_listen_on_dev()`.
    ///
    /// # Errors
    /// The device cannot be opened, or others have the port there. The listener goes on elsewhere.
    pub fn listen_also(
        &mut self,
        system: &mut impl System,
        id: CmId,
        port: PortId,
    ) -> Result<Option<Listening>, CmError> {
        let entry = self.entry(id)?;
        let has_it = entry.held.iter().any(|held| held.port == port);
        let Some(Address::Ip(src)) = entry.src.filter(|_| is_on_all(entry) && !has_it) else {
            return Ok(None);
        };
        let service_id = entry.space.service_id(src.port());
        let request = PortRequest {
            space: entry.space,
            port: src.port(),
            address: super::bind::any(src.ip()),
            reuse_address: entry.reuse_address,
            af_only: entry.is_af_only(&src.into()),
        };
        self.open(system, port)?;
        let reservation = system.reserve(port, &request)?.id;
        if request.reuse_address
            && let Err(error) = system.begin_listening(port, reservation)
        {
            system.release(port, reservation);
            return Err(error);
        }
        self.entry_mut(id)?.held.push(Held { port, reservation, listens: false });
        Ok(Some(Listening { service_id, on: None, ports: vec![port] }))
    }

    /// The machine has refused what [`Ids::listen_also`] wanted: the port goes back.
    pub fn give_up_listening_also(&mut self, system: &mut impl System, id: CmId, port: PortId) {
        let held = self.table.get_mut(&id).map(|entry| &mut entry.held);
        let given_back =
            held.into_iter().flat_map(|held| held.extract_if(.., |held| held.port == port && !held.listens));
        for held in given_back {
            system.release(held.port, held.reservation);
        }
    }
}

/// Whether it listens on all devices.
fn is_on_all(entry: &Entry) -> bool {
    entry.port.is_none() && entry.state == State::Listen
}
