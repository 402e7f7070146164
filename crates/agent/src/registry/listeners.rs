//! Who listens to which service.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Home, Member, Services};
use crate::gsi::{MAX_BOOKED, PortError};

/// The listeners of each address.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    of: HashMap<(IpAddr, u16), Vec<Listener>>,
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    member: Member,
    service: Services,
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
        let all = || keys.iter().filter_map(|key| self.of.get(key)).flatten();
        if all().any(|other| other.member != member && other.service.meets(service)) {
            return Err(PortError::InUse);
        }
        if all().filter(|own| own.member == member).count() >= MAX_BOOKED {
            return Err(PortError::TooMany);
        }
        for key in keys {
            let listeners = self.of.entry(key).or_default();
            match listeners.iter_mut().find(|own| own.member == member && own.service == service) {
                Some(own) => own.count += 1,
                None => listeners.push(Listener { member, service, count: 1 }),
            }
        }
        Ok(())
    }

    pub(super) fn unlisten(&mut self, member: Member, home: &Home, service: Services, on: Option<IpAddr>) {
        let service = service.normal();
        for key in keys(home, on).unwrap_or_default() {
            let Some(listeners) = self.of.get_mut(&key) else { continue };
            for own in listeners.iter_mut().filter(|own| own.member == member && own.service == service) {
                own.count -= 1;
            }
            listeners.retain(|listener| listener.count > 0);
            if listeners.is_empty() {
                self.of.remove(&key);
            }
        }
    }

    pub(super) fn find(&self, ip: IpAddr, udp_port: u16, service_id: u64) -> Option<Member> {
        let wanted = Services { id: service_id, mask: u64::MAX };
        let listeners = self.of.get(&(ip, udp_port))?;
        listeners.iter().find(|listener| listener.service.meets(wanted)).map(|listener| listener.member)
    }

    pub(super) fn forget(&mut self, member: Member) {
        self.of.retain(|_, listeners| {
            listeners.retain(|listener| listener.member != member);
            !listeners.is_empty()
        });
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
