//! The books of a service, as the next one finds them.

use std::net::IpAddr;

use userdma_verbs::Time;

use super::numbers::{FIRST_INDEX, INDICES};
use super::{Desk, REST_NS, Slot};
use crate::group::Group;
use crate::locks::{Line, Locks};
use crate::service::note::KeptSlot;

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

    /// Notes a slot as the keeper has it. One whose owner has died since is in use, too, and has no `line`: the service finds
    /// out. Since when one is free is not known, so it rests.
    pub(crate) fn restore_slot(
        &mut self,
        (ip, port, slot): (IpAddr, u16, u16),
        kept: KeptSlot,
        line: Option<Line>,
        now: Time,
    ) {
        let (is_used, user) = (kept.far_inode != 0, Some(kept.user));
        let next_index = kept.next_index.clamp(FIRST_INDEX, INDICES - 1);
        let entry = Slot { is_used, user, next_index, rests_until: now.plus_nanos(REST_NS) };
        self.ports.entry((ip, port)).or_default().slots.insert(slot, entry);
        if let (Locks::Lines(lines), Some(line)) = (&mut self.locks, line.filter(|_| is_used)) {
            lines.insert((ip, port, slot), line);
        }
    }
}
