//! Who listens to which service.

use std::collections::{BTreeMap, HashMap, btree_map};
use std::net::IpAddr;

use super::{Home, Member, Services};
use crate::gsi::{MAX_BOOKED, PortError};

/// The listeners of each address.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    of: HashMap<(IpAddr, u16), Address>,
}

/// The listeners of an address. No two devices listen to the same service.
#[derive(Debug, Default)]
struct Address {
    listeners: BTreeMap<Services, Listener>,
    /// The masks that there are, and how many listeners have each: one or two.
    masks: BTreeMap<u64, usize>,
    /// How many each device has.
    counts: BTreeMap<Member, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    member: Member,
    /// How often he has said so.
    count: usize,
}

impl Listeners {
    pub(super) fn listen(
        &mut self,
        member: Member,
        home: &Home,
        service: Services,
        on: Option<IpAddr>,
    ) -> Result<(), PortError> {
        let service = service.normal();
        let keys = keys(home, on)?;
        let all = || keys.iter().filter_map(|key| self.of.get(key));
        if all().any(|address| address.is_taken(member, service)) {
            return Err(PortError::InUse);
        }
        if all().filter_map(|address| address.counts.get(&member)).sum::<usize>() >= MAX_BOOKED {
            return Err(PortError::TooMany);
        }
        for key in keys {
            self.of.entry(key).or_default().add(member, service);
        }
        Ok(())
    }

    pub(super) fn unlisten(&mut self, member: Member, home: &Home, service: Services, on: Option<IpAddr>) {
        let service = service.normal();
        for key in keys(home, on).unwrap_or_default() {
            let Some(address) = self.of.get_mut(&key) else { continue };
            let Some(own) = address.listeners.get_mut(&service).filter(|own| own.member == member) else {
                continue;
            };
            own.count -= 1;
            if own.count == 0 {
                address.remove(service);
            }
            if address.listeners.is_empty() {
                self.of.remove(&key);
            }
        }
    }

    pub(super) fn find(&self, ip: IpAddr, udp_port: u16, service_id: u64) -> Option<Member> {
        let address = self.of.get(&(ip, udp_port))?;
        let hears = |&mask: &u64| address.listeners.get(&Services { mask, id: service_id & mask });
        address.masks.keys().find_map(hears).map(|listener| listener.member)
    }

    pub(super) fn forget(&mut self, member: Member) {
        self.of.retain(|_, address| {
            if address.counts.contains_key(&member) {
                let own = address.listeners.iter().filter(|(_, listener)| listener.member == member);
                let own: Vec<_> = own.map(|(service, _)| *service).collect();
                own.into_iter().for_each(|service| address.remove(service));
            }
            !address.listeners.is_empty()
        });
    }
}

impl Address {
    /// Whether a device other than `member` listens to one of these services.
    fn is_taken(&self, member: Member, service: Services) -> bool {
        self.masks.keys().any(|&mask| {
            // The bits that are free in `service`, all zeros and all ones: one listener only, if there are none.
            let of = |id: u64| Services { mask, id: id & mask };
            let mut near = self.listeners.range(of(service.id)..=of(service.id | !service.mask));
            near.any(|(other, listener)| listener.member != member && other.meets(service))
        })
    }

    fn add(&mut self, member: Member, service: Services) {
        let listener = self.listeners.entry(service).or_insert(Listener { member, count: 0 });
        listener.count += 1;
        if listener.count == 1 {
            *self.masks.entry(service.mask).or_default() += 1;
            *self.counts.entry(member).or_default() += 1;
        }
    }

    fn remove(&mut self, service: Services) {
        if let Some(listener) = self.listeners.remove(&service) {
            decrement(&mut self.masks, service.mask);
            decrement(&mut self.counts, listener.member);
        }
    }
}

/// One less; what is zero is not kept.
fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let btree_map::Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Services {
    /// Without the bits that do not count.
    fn normal(self) -> Self {
        Self { id: self.id & self.mask, mask: self.mask }
    }

    /// Whether a service may be both, as the kernel's `cm.c cm_insert_listen()` asks.
    fn meets(self, other: Self) -> bool {
        (self.id ^ other.id) & self.mask & other.mask == 0
    }
}

fn keys(home: &Home, on: Option<IpAddr>) -> Result<Vec<(IpAddr, u16)>, PortError> {
    let on = on.map(|ip| ip.to_canonical());
    let chosen = home.addresses.iter().filter(|ip| on.is_none_or(|on| on == **ip));
    let keys: Vec<_> = chosen.map(|ip| (*ip, home.udp_port)).collect();
    if keys.is_empty() { Err(PortError::NotAvailable) } else { Ok(keys) }
}
