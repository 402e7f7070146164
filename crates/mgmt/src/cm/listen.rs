//! Who listens to which services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Failure, ListenId, PortId};

/// A listener: services whose ids are `service_id` where `mask` has ones, on one address or on all.
#[derive(Clone, Copy, Debug)]
struct Listener {
    service_id: u64,
    mask: u64,
    on: Option<(PortId, IpAddr)>,
}

impl Listener {
    fn hears(&self, service_id: u64, port: PortId, address: IpAddr) -> bool {
        service_id & self.mask == self.service_id && self.on.is_none_or(|on| on == (port, address))
    }

    /// Whether some service on some address is both one's and the other's, and neither is the more special.
    fn collides(&self, other: &Self) -> bool {
        self.on == other.on && (self.service_id ^ other.service_id) & self.mask & other.mask == 0
    }
}

/// The listeners of a process.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: BTreeMap<ListenId, Listener>,
    /// Those of exactly one service, which almost all are.
    exact: BTreeMap<u64, Vec<ListenId>>,
    /// The others.
    masked: Vec<ListenId>,
    last: u32,
}

impl Listeners {
    pub(super) fn add(
        &mut self,
        service_id: u64,
        mask: u64,
        on: Option<(PortId, IpAddr)>,
    ) -> Result<ListenId, Failure> {
        let mask = if mask == 0 { u64::MAX } else { mask };
        let listener = Listener { service_id: service_id & mask, mask, on };
        if self.all.values().any(|other| listener.collides(other)) {
            return Err(Failure::InUse);
        }
        // After four billion listeners numbers come again; none of the first will be left.
        self.last = self.last.wrapping_add(1);
        let id = ListenId(self.last);
        self.all.insert(id, listener);
        if mask == u64::MAX {
            self.exact.entry(service_id).or_default().push(id);
        } else {
            self.masked.push(id);
        }
        Ok(id)
    }

    /// Whether there was one.
    pub(super) fn remove(&mut self, id: ListenId) -> bool {
        let Some(listener) = self.all.remove(&id) else { return false };
        self.masked.retain(|&other| other != id);
        if let Some(ids) = self.exact.get_mut(&listener.service_id) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.exact.remove(&listener.service_id);
            }
        }
        true
    }

    /// Who hears a request for a service that came to an address. One that listens on that address only comes before
    /// one that listens on all, and one service before many.
    pub(super) fn find(&self, service_id: u64, port: PortId, address: IpAddr) -> Option<ListenId> {
        let exact = self.exact.get(&service_id).map(Vec::as_slice).unwrap_or_default();
        let hears = |id: &&ListenId| self.all.get(id).is_some_and(|l| l.hears(service_id, port, address));
        let is_wide = |id: &&ListenId| self.all.get(id).is_none_or(|listener| listener.on.is_none());
        let best = |ids: &[ListenId]| ids.iter().filter(hears).min_by_key(is_wide).copied();
        best(exact).or_else(|| best(&self.masked))
    }

    /// Those on an address of this port.
    pub(super) fn of_port(&self, port: PortId) -> Vec<ListenId> {
        let is_there = |listener: &Listener| listener.on.is_some_and(|(on, _)| on == port);
        self.all.iter().filter(|(_, listener)| is_there(listener)).map(|(&id, _)| id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PORT: PortId = PortId(1);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

    #[test]
    fn the_more_special_listener_hears() {
        let mut all = Listeners::default();
        let many = all.add(0x0106_0000, 0xffff_0000, None).unwrap();
        let here = all.add(0x0106_0007, u64::MAX, Some((PORT, HERE))).unwrap();
        let wide = all.add(0x0111_0007, 0, None).unwrap();
        let there = all.add(0x0111_0007, 0, Some((PORT, THERE))).unwrap();
        assert_eq!(all.find(0x0106_0007, PORT, HERE), Some(here));
        assert_eq!(all.find(0x0106_0007, PORT, THERE), Some(many));
        assert_eq!(all.find(0x0106_0007, PortId(2), HERE), Some(many));
        assert_eq!(all.find(0x0106_0008, PORT, HERE), Some(many));
        assert_eq!(all.find(0x0111_0007, PORT, HERE), Some(wide));
        assert_eq!(all.find(0x0111_0007, PORT, THERE), Some(there));
        assert_eq!(all.find(0x0111_0008, PORT, HERE), None);
        assert_eq!(all.of_port(PORT), [here, there]);
        assert!(all.remove(here) && !all.remove(here));
        assert_eq!(all.find(0x0106_0007, PORT, HERE), Some(many));
        assert!(all.remove(wide) && all.remove(many) && all.remove(there));
        assert_eq!(all.find(0x0106_0007, PORT, HERE), None);
        assert_eq!((all.len(), all.exact.len(), all.masked.len()), (0, 0, 0));
    }

    #[test]
    fn a_service_is_listened_to_once_on_an_address() {
        let mut all = Listeners::default();
        all.add(0x0106_0007, 0, Some((PORT, HERE))).unwrap();
        assert_eq!(all.add(0x0106_0007, 0, Some((PORT, HERE))), Err(Failure::InUse));
        assert_eq!(all.add(0x0106_0000, 0xffff_0000, Some((PORT, HERE))), Err(Failure::InUse));
        all.add(0x0106_0008, 0, Some((PORT, HERE))).unwrap();
        all.add(0x0106_0007, 0, Some((PORT, THERE))).unwrap();
        all.add(0x0106_0007, 0, None).unwrap();
        assert_eq!(all.add(0x0106_0007, 0, None), Err(Failure::InUse));
    }
}
