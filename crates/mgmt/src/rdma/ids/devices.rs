//! Devices that come and go while somebody listens on all of them.

use super::Ids;
use crate::cm::PortId;
use crate::rdma::entry::{Entry, Held, State};
use crate::rdma::system::{PortRequest, System};
use crate::rdma::{Address, CmError, CmId};

impl Ids {
    /// Whether somebody listens on all devices.
    pub fn listens_on_all(&self) -> bool {
        self.table.values().any(is_on_all)
    }

    /// Whoever listens on all devices listens on those that have appeared since the last call, too, unless the port is taken
    /// there. As `cma.c cma_add_one()` with `cma_listen_on_dev()`.
    pub fn listen_on_new_devices(&mut self, system: &mut impl System) {
        let known = std::mem::replace(&mut self.known_devices, system.devices().len());
        let new: Vec<_> = system.devices().iter().skip(known).map(|&(port, _)| port).collect();
        if new.is_empty() {
            return;
        }
        let mut listeners: Vec<_> =
            self.table.iter().filter(|(_, entry)| is_on_all(entry)).map(|(&id, _)| id).collect();
        listeners.sort_unstable();
        for id in listeners {
            for &port in &new {
                // One that has the port of its own has it from `bind`; where others have it, it stays theirs.
                if let Ok(Some(held)) = self.listen_also_on(system, id, port) {
                    self.table.entry(id).and_modify(|entry| entry.held.push(held));
                }
            }
        }
    }

    /// The reservation, if the listener has none there.
    fn listen_also_on(
        &mut self,
        system: &mut impl System,
        id: CmId,
        port: PortId,
    ) -> Result<Option<Held>, CmError> {
        let entry = self.entry(id)?;
        let Some(Address::Ip(src)) = entry.src else { return Ok(None) };
        if entry.held.iter().any(|held| held.port == port) {
            return Ok(None);
        }
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
        let begun = if request.reuse_address { system.begin_listening(port, reservation) } else { Ok(()) };
        begun
            .and_then(|()| system.listen(port, service_id, None))
            .inspect_err(|_| system.release(port, reservation))?;
        Ok(Some(Held { port, reservation }))
    }
}

/// Whether it listens on all devices.
fn is_on_all(entry: &Entry) -> bool {
    entry.port.is_none() && entry.state == State::Listen
}
