//! The books of a service, as the next one finds them.

use std::net::IpAddr;

use userdma_verbs::Time;

use super::{Desk, FIRST_INDEX, INDICES, Slot};
use crate::group::Group;
use crate::locks::{Line, Locks};

impl Desk {
    /// What says who has a slot.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The slots that are in use, by address, port and number.
    pub(crate) fn used(&self) -> impl Iterator<Item = (IpAddr, u16, u16)> {
        let slots = |(&(ip, port), books): (&(IpAddr, u16), &super::Port)| {
            let used = books.slots.iter().filter(|(_, slot)| slot.is_used);
            used.map(|(&slot, _)| (ip, port, slot)).collect::<Vec<_>>()
        };
        self.ports.iter().flat_map(slots)
    }

    /// Notes the group that an address and port have.
    pub(crate) fn restore_group(&mut self, at: (IpAddr, u16), group: Group) {
        self.ports.entry(at).or_default().group = Some(group);
    }

    /// Notes a slot of a user; one with `owner` is in use. The owner's line may be missing: he has died.
    pub(crate) fn restore_slot(
        &mut self,
        (ip, port, slot): (IpAddr, u16, u16),
        user: u32,
        next_index: u16,
        owner: Option<Option<Line>>,
    ) {
        let next_index = next_index.clamp(FIRST_INDEX, INDICES - 1);
        let entry = Slot { is_used: owner.is_some(), user: Some(user), next_index, rests_until: Time::ZERO };
        self.ports.entry((ip, port)).or_default().slots.insert(slot, entry);
        if let (Locks::Lines(lines), Some(Some(line))) = (&mut self.locks, owner) {
            lines.insert((ip, port, slot), line);
        }
    }
}
