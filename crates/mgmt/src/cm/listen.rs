//! Who listens to which services.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Failure, ListenId, PortId};

/// A listener: services whose ids are `service_id` where `mask` has ones, on one address or on all.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Listener {
    on: Option<(PortId, IpAddr)>,
    mask: u64,
    service_id: u64,
}

/// The listeners of a process. No two hear the same service on one address, and none two on all: so each kind of mask is asked
/// for one listener, however many there are.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: BTreeMap<ListenId, Listener>,
    ids: BTreeMap<Listener, ListenId>,
    /// The masks that there are, and how many listeners have each. Almost all have all ones.
    masks: BTreeMap<u64, usize>,
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
        if self.masks.keys().any(|&of| self.collides(&listener, of)) {
            return Err(Failure::InUse);
        }
        // After four billion listeners numbers come again; none of the first will be left.
        self.last = self.last.wrapping_add(1);
        let id = ListenId(self.last);
        self.all.insert(id, listener);
        self.ids.insert(listener, id);
        *self.masks.entry(mask).or_default() += 1;
        Ok(id)
    }

    /// Whether there was one.
    pub(super) fn remove(&mut self, id: ListenId) -> bool {
        let Some(listener) = self.all.remove(&id) else { return false };
        self.ids.remove(&listener);
        if let Some(count) = self.masks.get_mut(&listener.mask) {
            *count -= 1;
            if *count == 0 {
                self.masks.remove(&listener.mask);
            }
        }
        true
    }

    /// Who hears a request for a service that came to an address. One service comes before many, and among these one that
    /// listens on that address only before one that listens on all.
    pub(super) fn find(&self, service_id: u64, port: PortId, address: IpAddr) -> Option<ListenId> {
        let hears = |mask, on| self.ids.get(&Listener { on, mask, service_id: service_id & mask }).copied();
        let here = Some((port, address));
        let many = |on| self.masks.keys().find_map(|&mask| hears(mask, on));
        hears(u64::MAX, here).or_else(|| hears(u64::MAX, None)).or_else(|| many(here)).or_else(|| many(None))
    }

    /// Those on an address of this port.
    pub(super) fn of_port(&self, port: PortId) -> impl Iterator<Item = ListenId> {
        let end = |address, bits| Listener { on: Some((port, address)), mask: bits, service_id: bits };
        // IPv4 comes before IPv6.
        let first = end(Ipv4Addr::UNSPECIFIED.into(), 0);
        let last = end(Ipv6Addr::from(u128::MAX).into(), u64::MAX);
        self.ids.range(first..=last).map(|(_, &id)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether on the same address one with this mask hears a service that `new` would hear, too.
    fn collides(&self, new: &Listener, mask: u64) -> bool {
        let of = |services| Listener { on: new.on, mask, service_id: services & mask };
        // The bits that are free in `new`, all zeros and all ones: one listener only, if there are none.
        let mut near = self.ids.range(of(new.service_id)..=of(new.service_id | !new.mask));
        near.any(|(other, _)| (new.service_id ^ other.service_id) & new.mask & mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use userdma_verbs::dice::Stream;

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
        assert_eq!(all.of_port(PORT).collect::<Vec<_>>(), [here, there]);
        assert_eq!(all.of_port(PortId(PORT.0 + 1)).next(), None);
        assert!(all.remove(here) && !all.remove(here));
        assert_eq!(all.find(0x0106_0007, PORT, HERE), Some(many));
        assert!(all.remove(wide) && all.remove(many) && all.remove(there));
        assert_eq!(all.find(0x0106_0007, PORT, HERE), None);
        assert_eq!((all.len(), all.ids.len(), all.masks.len()), (0, 0, 0));
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

    /// Against the plain rule, for masks that lie in each other and across each other.
    #[test]
    fn a_collision_is_found_whatever_the_masks() {
        const MASKS: [u64; 6] = [u64::MAX, 0xf0, 0x0f, 0x3c, 0xff, 0x81];
        let mut stream = Stream::new(7, 0);
        for _ in 0..200 {
            let (mut all, mut plain) = (Listeners::default(), Vec::new());
            for _ in 0..30 {
                let mask = MASKS[usize::try_from(stream.next() % 6).unwrap()];
                let service = stream.next() & 0xff & mask;
                let on = [None, Some((PORT, HERE))][usize::try_from(stream.next() % 2).unwrap()];
                let meets = |&(other, its, there): &(u64, u64, Option<(PortId, IpAddr)>)| {
                    there == on && (service ^ other) & mask & its == 0
                };
                let is_free = !plain.iter().any(meets);
                assert_eq!(all.add(service, mask, on).is_ok(), is_free, "{service:#x} {mask:#x} {plain:x?}");
                if is_free {
                    plain.push((service, mask, on));
                }
            }
            for service in 0..=0xff {
                let is_heard = plain.iter().any(|&(id, mask, _)| service & mask == id);
                assert_eq!(all.find(service, PORT, HERE).is_some(), is_heard);
            }
        }
    }
}
