//! Who has which port and who listens to which service, on each address.
//!
//! An address is a host of its own, so the same port of two addresses may belong to two processes. What is on all addresses of a
//! device is on each of them here. The rules of conflicts are those of the kernel's `cma.c cma_check_port()`.
//!
//! It knows no connections and reads no clock: the agent keeps one for all, and a device that has no agent keeps its own.

mod listeners;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use self::listeners::Listeners;
use crate::gsi::{MAX_BOOKED, PortError, PortRequest, PortSpace};

/// A device, by a number that no other has.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Member(pub u64);

/// The addresses of a device, and the UDP port that it has on them: others on another are not reached by the same packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Home {
    /// The UDP port.
    pub udp_port: u16,
    /// The addresses, in canonical form.
    pub addresses: Vec<IpAddr>,
}

/// The books.
#[derive(Debug, Default)]
pub struct Registry {
    ports: HashMap<PortKey, Vec<Owner>>,
    /// What each device has reserved, by the device's number for it.
    reserved: BTreeMap<(Member, u32), Vec<PortKey>>,
    /// How many each device has reserved.
    counts: HashMap<Member, usize>,
    listeners: Listeners,
}

/// A port of one address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct PortKey {
    ip: IpAddr,
    udp_port: u16,
    space: PortSpace,
    port: u16,
}

/// Somebody who has a port of an address.
#[derive(Clone, Copy, Debug)]
struct Owner {
    member: Member,
    id: u32,
    /// He has it on all addresses.
    is_wildcard: bool,
    reuse: bool,
    listens: bool,
}

impl Registry {
    /// Reserves a port under the number `id`; which it is. `random` says where the search for a free one begins.
    ///
    /// # Errors
    /// Nothing is reserved.
    pub fn reserve(
        &mut self,
        member: Member,
        home: &Home,
        id: u32,
        request: &PortRequest,
        random: u32,
    ) -> Result<u16, PortError> {
        let addresses = covered(home, request).ok_or(PortError::NotAvailable)?;
        if self.count_of(member) >= MAX_BOOKED {
            return Err(PortError::TooMany);
        }
        if self.reserved.contains_key(&(member, id)) {
            return Err(PortError::Unknown);
        }
        let keys = |port: u16| -> Vec<PortKey> {
            let key = |ip: &IpAddr| PortKey { ip: *ip, udp_port: home.udp_port, space: request.space, port };
            addresses.iter().map(key).collect()
        };
        let owner = Owner {
            member,
            id,
            is_wildcard: request.address.is_unspecified(),
            reuse: request.reuse_address,
            listens: false,
        };
        let port = match request.port {
            0 => self.free_port(random, keys).ok_or(PortError::NotAvailable)?,
            port => port,
        };
        if request.port != 0 {
            self.check(&keys(port), &owner, request.reuse_address)?;
        }
        self.enter(owner, keys(port));
        Ok(port)
    }

    /// Enters what a device has reserved under another agent: nobody else can have it by right.
    pub fn restore(&mut self, member: Member, home: &Home, id: u32, request: &PortRequest, listens: bool) {
        let Some(addresses) = covered(home, request) else { return };
        let key = |ip: &IpAddr| PortKey {
            ip: *ip,
            udp_port: home.udp_port,
            space: request.space,
            port: request.port,
        };
        let owner = Owner {
            member,
            id,
            is_wildcard: request.address.is_unspecified(),
            reuse: request.reuse_address,
            listens,
        };
        if self.count_of(member) < MAX_BOOKED && !self.reserved.contains_key(&(member, id)) {
            self.enter(owner, addresses.iter().map(key).collect());
        }
    }

    /// Whoever has reserved the port wants to listen there: others that share it may not be there then. As the kernel's `cma.c
    /// cma_bind_listen()`.
    ///
    /// # Errors
    /// It does not listen.
    pub fn begin_listening(&mut self, member: Member, id: u32) -> Result<(), PortError> {
        let keys = self.reserved.get(&(member, id)).ok_or(PortError::Unknown)?.clone();
        let own = keys.first().and_then(|key| self.ports.get(key));
        let own = own.and_then(|owners| owners.iter().find(|owner| owner.is(member, id)));
        let own = *own.ok_or(PortError::Unknown)?;
        self.check(&keys, &own, false)?;
        self.set_listens(member, id, true);
        Ok(())
    }

    /// Takes [`Registry::begin_listening`] back: others may share the port again.
    pub fn end_listening(&mut self, member: Member, id: u32) {
        self.set_listens(member, id, false);
    }

    fn set_listens(&mut self, member: Member, id: u32, listens: bool) {
        for key in self.reserved.get(&(member, id)).into_iter().flatten() {
            let owners = self.ports.get_mut(key).into_iter().flatten();
            owners.filter(|owner| owner.is(member, id)).for_each(|owner| owner.listens = listens);
        }
    }

    /// Gives a port back. One that is not there is nothing.
    pub fn release(&mut self, member: Member, id: u32) {
        let Some(keys) = self.reserved.remove(&(member, id)) else { return };
        if let Some(count) = self.counts.get_mut(&member) {
            *count -= 1;
        }
        for key in keys {
            if let Some(owners) = self.ports.get_mut(&key) {
                owners.retain(|owner| !owner.is(member, id));
                if owners.is_empty() {
                    self.ports.remove(&key);
                }
            }
        }
    }

    /// Listens to the services whose numbers, under `mask`, are `service_id`, on one address or all. The same twice is counted.
    ///
    /// # Errors
    /// Another device listens to one of them on one of the addresses.
    pub fn listen(
        &mut self,
        member: Member,
        home: &Home,
        service: Services,
        on: Option<IpAddr>,
    ) -> Result<(), PortError> {
        self.listeners.listen(member, home, service, on)
    }

    /// Ends what [`Registry::listen`] began. What is not there is nothing.
    pub fn unlisten(&mut self, member: Member, home: &Home, service: Services, on: Option<IpAddr>) {
        self.listeners.unlisten(member, home, service, on);
    }

    /// Who listens to a service on an address.
    pub fn listener(&self, ip: IpAddr, udp_port: u16, service_id: u64) -> Option<Member> {
        self.listeners.find(ip, udp_port, service_id)
    }

    /// A device has gone.
    pub fn forget(&mut self, member: Member) {
        let own: Vec<u32> = self.of(member).collect();
        own.into_iter().for_each(|id| self.release(member, id));
        self.counts.remove(&member);
        self.listeners.forget(member);
    }

    fn of(&self, member: Member) -> impl Iterator<Item = u32> {
        self.reserved.range((member, 0)..=(member, u32::MAX)).map(|((_, id), _)| *id)
    }

    fn count_of(&self, member: Member) -> usize {
        self.counts.get(&member).copied().unwrap_or(0)
    }

    /// Whether others leave room on each of `keys`.
    fn check(&self, keys: &[PortKey], wanted: &Owner, reuse: bool) -> Result<(), PortError> {
        let owners = keys.iter().filter_map(|key| self.ports.get(key)).flatten();
        for owner in owners.filter(|owner| !owner.is(wanted.member, wanted.id)) {
            if !owner.listens && reuse && owner.reuse {
                continue;
            }
            let is_wildcard = wanted.is_wildcard || owner.is_wildcard;
            return Err(if is_wildcard { PortError::NotAvailable } else { PortError::InUse });
        }
        Ok(())
    }

    /// A port that nobody has on any of the addresses.
    fn free_port(&self, random: u32, keys: impl Fn(u16) -> Vec<PortKey>) -> Option<u16> {
        let begin = random % EPHEMERAL_COUNT;
        let ports = (0..EPHEMERAL_COUNT).map(|nth| FIRST_EPHEMERAL + (begin + nth) % EPHEMERAL_COUNT);
        let mut ports = ports.filter_map(|port| u16::try_from(port).ok());
        ports.find(|port| keys(*port).iter().all(|key| !self.ports.contains_key(key)))
    }

    fn enter(&mut self, owner: Owner, keys: Vec<PortKey>) {
        for key in &keys {
            self.ports.entry(*key).or_default().push(owner);
        }
        self.reserved.insert((owner.member, owner.id), keys);
        *self.counts.entry(owner.member).or_default() += 1;
    }
}

/// Services that somebody listens to: those whose numbers are `id` under `mask`. In order, those of one mask are together.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Services {
    /// The bits of the number that count.
    pub mask: u64,
    /// The number.
    pub id: u64,
}

impl Owner {
    fn is(&self, member: Member, id: u32) -> bool {
        self.member == member && self.id == id
    }
}

/// The addresses that a request is for; `None` if the device has none of them.
fn covered(home: &Home, request: &PortRequest) -> Option<Vec<IpAddr>> {
    let address = request.address.to_canonical();
    let is_covered = |ip: &&IpAddr| match address {
        _ if !address.is_unspecified() => **ip == address,
        IpAddr::V4(_) => ip.is_ipv4(),
        IpAddr::V6(_) => ip.is_ipv6() || !request.af_only,
    };
    let covered: Vec<_> = home.addresses.iter().filter(is_covered).copied().collect();
    (!covered.is_empty()).then_some(covered)
}

/// The ports that Linux gives out by itself, unless configured otherwise.
const FIRST_EPHEMERAL: u32 = 32_768;
const EPHEMERAL_COUNT: u32 = 60_999 - FIRST_EPHEMERAL + 1;
