//! The agent's books: which slots of which port are in use, where their queue pairs' numbers go on, and the groups.
//!
//! It knows no connections and reads no clock. The books may be lost: processes that have slots hold their locks and parks,
//! and register again.

mod numbers;
mod restore;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;

use userdma_link::{OpenError, shared};
use userdma_verbs::Time;

pub(crate) use self::numbers::{FIRST_INDEX, first_index};
use self::numbers::{INDICES, leap};
use crate::group::Group;
use crate::locks::Locks;
use crate::message::{Place, Refusal};

/// The books of all ports.
#[derive(Debug)]
pub(crate) struct Desk {
    ports: HashMap<(IpAddr, u16), Port>,
    locks: Locks,
    /// Slots of one address that one user gets at most.
    per_user: usize,
}

/// A slot that was given away.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) slot: u16,
    pub(crate) first_index: u16,
    /// Its socket on each address.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Its lock on each address.
    pub(crate) locks: Vec<OwnedFd>,
    /// Addresses whose group has new parks.
    pub(crate) grown: Vec<IpAddr>,
}

/// A port of one address.
#[derive(Debug, Default)]
struct Port {
    /// There is one while a slot is in use.
    group: Option<Group>,
    /// The group is from processes that had it under another agent, and not all may have registered. One of them may know of
    /// sockets that we do not, so it does not grow.
    is_partial: bool,
    /// When the group was closed: sockets of a process that is just ending may still be open.
    closed_at: Option<Time>,
    slots: BTreeMap<u16, Slot>,
}

/// A slot that is in use or was once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    pub(crate) is_used: bool,
    /// Whose it is, also when it is free: who had a socket may have kept a copy, so it goes to nobody else while the group lives.
    pub(crate) user: Option<u32>,
    /// Where the numbers of queue pairs go on.
    pub(crate) next_index: u16,
    /// Peers may still send to queue pairs of a process that died, or of connections that it has just ended; until then others come
    /// first.
    rests_until: Time,
}

/// How a process let go of its slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Its numbers go on with this index.
    InOrder(u16),
    /// The same, but numbers before that belong to connections that are not over yet.
    Resting(u16),
    /// Without a word.
    Dead,
}

impl Desk {
    /// Empty books. A user gets `per_user` slots of an address at most.
    pub(crate) fn new(locks: Locks, per_user: u16) -> Self {
        Self { ports: HashMap::new(), locks, per_user: per_user.into() }
    }

    /// Gives `user` the lowest slot that is free for him on every address of `place`, making groups and sockets as needed.
    pub(crate) fn claim(&mut self, place: &Place, user: u32, now: Time) -> Result<Grant, Refusal> {
        let granted = self.open_groups(place, now).and_then(|()| self.grant(place, user, now));
        if granted.is_err() {
            self.close_unused(place, now);
        }
        granted
    }

    /// Notes a slot that a process has had since before. `groups` are what it holds, for each address; the longer of it and
    /// what is known already is right; the addresses where it is what the process holds are returned. `None`, and nothing is
    /// noted, if another process has the slot.
    pub(crate) fn register(
        &mut self,
        place: &Place,
        slot: u16,
        user: u32,
        groups: Vec<Group>,
    ) -> Option<Vec<IpAddr>> {
        let is_other = |ip: &IpAddr| self.ports.get(&(*ip, place.port)).is_some_and(|port| port.uses(slot));
        if slot == 0 || usize::from(slot) >= Group::MAX_LEN || place.addresses.iter().any(is_other) {
            return None;
        }
        let mut grown = Vec::new();
        for (ip, group) in place.addresses.iter().zip(groups) {
            let port = self.ports.entry((*ip, place.port)).or_default();
            if port.group.as_ref().is_none_or(|known| known.len() < group.len()) {
                port.group = Some(group);
                port.is_partial = true;
                grown.push(*ip);
            }
            // How far its numbers have come is not known; when it ends it says so, or the slot rests.
            port.slots.entry(slot).or_insert(Slot::new(FIRST_INDEX)).take_for(user);
        }
        Some(grown)
    }

    /// Takes a slot back. Of a process that died it is not known how far its numbers came: the slot rests, and they go on half of
    /// all numbers further.
    pub(crate) fn release(&mut self, place: &Place, slot: u16, end: End, now: Time) {
        for ip in &place.addresses {
            let Some(port) = self.ports.get_mut(&(*ip, place.port)) else { continue };
            let Some(entry) = port.slots.get_mut(&slot) else { continue };
            entry.is_used = false;
            let (next_index, rest_ns) = match end {
                End::InOrder(next_index) => (next_index, 0),
                End::Resting(next_index) => (next_index, REST_NS),
                End::Dead => (leap(entry.next_index), REST_NS),
            };
            entry.next_index = next_index.clamp(FIRST_INDEX, INDICES - 1);
            entry.rests_until = now.plus_nanos(rest_ns);
            if let Some(socket) = port.group.as_ref().and_then(|group| group.socket(slot).ok()) {
                // If it is refused, more memory may hold old packets.
                let _ = shared::rest(&socket);
            }
        }
        self.close_unused(place, now);
    }

    /// What is known of a slot that is in use or was once.
    pub(crate) fn slot(&self, ip: IpAddr, port: u16, slot: u16) -> Option<&Slot> {
        self.ports.get(&(ip, port))?.slots.get(&slot)
    }

    /// The group of an address.
    pub(crate) fn group(&self, ip: IpAddr, port: u16) -> Option<&Group> {
        self.ports.get(&(ip, port))?.group.as_ref()
    }

    /// The groups, with the addresses and ports that they are on.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (IpAddr, u16, &Group)> {
        self.ports.iter().filter_map(|((ip, port), books)| Some((*ip, *port, books.group.as_ref()?)))
    }

    fn open_groups(&mut self, place: &Place, now: Time) -> Result<(), Refusal> {
        for ip in &place.addresses {
            if self.group(*ip, place.port).is_some() {
                continue;
            }
            match Group::create(*ip, place.port) {
                Ok(group) => {
                    let port = self.ports.entry((*ip, place.port)).or_default();
                    (port.group, port.is_partial, port.closed_at) = (Some(group), false, None);
                }
                // It may be the group of processes that are about to register.
                Err(OpenError::AddrInUse { .. })
                    if self.is_closing(*ip, place.port, now) || self.has_strangers(*ip, place.port, None) =>
                {
                    return Err(Refusal::Early);
                }
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok(())
    }

    /// Whether the group of a port was closed just now.
    fn is_closing(&self, ip: IpAddr, port: u16, now: Time) -> bool {
        let closed_at = self.ports.get(&(ip, port)).and_then(|books| books.closed_at);
        closed_at.is_some_and(|at| now < at.plus_nanos(CLOSING_NS))
    }

    /// Whether somebody has the lock of a slot that is free by the books: a process that has not registered yet. The lock of
    /// `ours` is with us.
    fn has_strangers(&self, ip: IpAddr, port: u16, ours: Option<u16>) -> bool {
        let books = self.ports.get(&(ip, port));
        let is_known = |slot: u16| ours == Some(slot) || books.is_some_and(|books| books.uses(slot));
        let mut unknown = (FIRST_SLOT..=LAST_SLOT).filter(|slot| !is_known(*slot));
        unknown.any(|slot| self.locks.is_locked(ip, port, slot))
    }

    /// Whether processes have slots there that they have not told of: those that the last agent's death has left.
    pub(crate) fn awaits(&self, place: &Place) -> bool {
        let has_group =
            |ip: IpAddr| self.ports.get(&(ip, place.port)).is_some_and(|port| port.group.is_some());
        // Cheaper than a look at every slot, and nearly always the end of it.
        let is_bound = |ip: IpAddr| {
            UdpSocket::bind((ip, place.port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        let mut unknown = place.addresses.iter().filter(|ip| !has_group(**ip));
        unknown.any(|ip| is_bound(*ip) && self.has_strangers(*ip, place.port, None))
    }

    /// Sees to it that the group of an address may grow for `slot`, whose lock is with us.
    fn check_whole(&mut self, ip: IpAddr, port: u16, slot: u16) -> Result<(), Refusal> {
        if self.ports.get(&(ip, port)).is_some_and(|books| books.is_partial) {
            if self.has_strangers(ip, port, Some(slot)) {
                return Err(Refusal::Early);
            }
            self.ports.entry((ip, port)).or_default().is_partial = false;
        }
        Ok(())
    }

    fn grant(&mut self, place: &Place, user: u32, now: Time) -> Result<Grant, Refusal> {
        let (slot, locks) = self.lock_free(place, user, now)?.ok_or_else(|| self.no_slot(place, user))?;
        let mut grant =
            Grant { slot, first_index: FIRST_INDEX, sockets: Vec::new(), locks, grown: Vec::new() };
        for ip in &place.addresses {
            if self.group(*ip, place.port).is_some_and(|group| group.len() <= usize::from(slot)) {
                self.check_whole(*ip, place.port, slot)?;
            }
            let port = self.ports.entry((*ip, place.port)).or_default();
            let Some(group) = &mut port.group else { return Err(Refusal::Other("no group".to_owned())) };
            if group.reach(slot).map_err(refusal)? {
                grant.grown.push(*ip);
            }
            grant.sockets.push(group.socket(slot).map_err(refusal)?);
            let entry = port.slots.get(&slot).copied().unwrap_or_else(|| Slot::new(first_index(now)));
            grant.first_index = grant.first_index.max(entry.next_index);
        }
        for ip in &place.addresses {
            let port = self.ports.entry((*ip, place.port)).or_default();
            let used =
                Slot { is_used: true, user: Some(user), next_index: grant.first_index, rests_until: now };
            port.slots.insert(slot, used);
        }
        Ok(grant)
    }

    /// The lowest slot that nobody has on any address, the user's as far as it was used before, and its locks. Rather one that
    /// rests than none: then the one that has rested longest. A process that has not registered yet keeps its slot by the lock.
    fn lock_free(
        &mut self,
        place: &Place,
        user: u32,
        now: Time,
    ) -> Result<Option<(u16, Vec<OwnedFd>)>, Refusal> {
        let may_have_more: Vec<_> =
            place.addresses.iter().map(|ip| !self.has_all(*ip, place.port, user)).collect();
        let is_free = |ports: &HashMap<(IpAddr, u16), Port>, (ip, more): (&IpAddr, &bool), slot: u16| {
            let entry = ports.get(&(*ip, place.port)).and_then(|port| port.slots.get(&slot));
            match entry {
                Some(entry) if entry.user == Some(user) => !entry.is_used,
                Some(entry) => *more && entry.user.is_none(),
                None => *more,
            }
        };
        let mut slots: Vec<_> = (FIRST_SLOT..=LAST_SLOT).collect();
        slots.sort_by_cached_key(|slot| self.rests_until(place, *slot).max(now));
        for slot in slots {
            let mut addresses = place.addresses.iter().zip(&may_have_more);
            if !addresses.all(|address| is_free(&self.ports, address, slot)) {
                continue;
            }
            let locks = place.addresses.iter().map(|ip| self.locks.lock(*ip, place.port, slot));
            let locks: Option<Vec<_>> =
                locks.collect::<Result<_, _>>().map_err(|error| Refusal::Other(format!("lock: {error}")))?;
            if let Some(locks) = locks {
                return Ok(Some((slot, locks)));
            }
        }
        Ok(None)
    }

    /// When a slot has rested on every address.
    fn rests_until(&self, place: &Place, slot: u16) -> Time {
        let entries = place.addresses.iter().filter_map(|ip| self.slot(*ip, place.port, slot));
        entries.map(|entry| entry.rests_until).max().unwrap_or(Time::ZERO)
    }

    /// Whether every slot of an address is the user's that he may have, in use or not.
    fn has_all(&self, ip: IpAddr, port: u16, user: u32) -> bool {
        let slots = self.ports.get(&(ip, port)).map(|port| port.slots.values());
        slots.is_some_and(|slots| slots.filter(|slot| slot.user == Some(user)).count() >= self.per_user)
    }

    fn no_slot(&self, place: &Place, user: u32) -> Refusal {
        match place.addresses.iter().find(|ip| self.has_all(**ip, place.port, user)) {
            Some(ip) if self.per_user < usize::from(LAST_SLOT) => Refusal::Other(format!(
                "{ip}: user {user} has {} devices already, as many as the service gives to one user",
                self.per_user
            )),
            Some(_) | None => Refusal::NoSlot(place.addresses[0]),
        }
    }

    /// Closes the groups in which no slot is in use; the numbers are remembered.
    fn close_unused(&mut self, place: &Place, now: Time) {
        for ip in &place.addresses {
            if let Some(port) = self.ports.get_mut(&(*ip, place.port))
                && !port.slots.values().any(|slot| slot.is_used)
                && port.group.take().is_some()
            {
                port.closed_at = Some(now);
                port.slots.values_mut().for_each(|slot| slot.user = None);
            }
        }
    }
}

impl Port {
    fn uses(&self, slot: u16) -> bool {
        self.slots.get(&slot).is_some_and(|slot| slot.is_used)
    }
}

impl Slot {
    const fn new(next_index: u16) -> Self {
        Self { is_used: false, user: None, next_index, rests_until: Time::ZERO }
    }

    fn take_for(&mut self, user: u32) {
        (self.is_used, self.user) = (true, Some(user));
    }
}

fn refusal(error: OpenError) -> Refusal {
    match error {
        OpenError::AddrInUse { ip, .. } => Refusal::Taken(ip),
        OpenError::AddrNotAvailable { ip } => Refusal::NotLocal(ip),
        OpenError::NotUnicast { .. } | OpenError::Io { .. } | _ => Refusal::Other(error.to_string()),
    }
}

/// Slot 0 is nobody's process: QPN 0 and 1 are in it. 1023 has the multicast QPN.
const FIRST_SLOT: u16 = 1;
pub(crate) const LAST_SLOT: u16 = 1022;
/// How long the sockets of a process may take to close.
const CLOSING_NS: u64 = 1_000_000_000;
/// Longer than a peer sends again with the usual timeout and retries; and than its wills need to be heard (7 s) and any connection
/// then stays in timewait (20 s).
const REST_NS: u64 = 30_000_000_000;

#[cfg(test)]
mod tests;
