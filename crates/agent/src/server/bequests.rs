//! Wills are with the agent, and would end with it: those of its own process, and those of one that dies in the same moment. So
//! another process, the deputy, keeps them as well, all but its own, and tells the next agent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::message::Bequest;
use crate::names;
use crate::registry::Member;

/// The device whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) address: IpAddr,
    pub(super) udp_port: u16,
    pub(super) slot: u16,
}

/// What the deputy is told, and what deputies of an agent before have told.
#[derive(Debug, Default)]
pub(super) struct Bequests {
    deputy: Option<Member>,
    /// Wills, by device and connection, whose present state the deputy is yet to be told; and where its device is.
    pending: BTreeMap<(Member, u32), Origin>,
    /// What the deputy keeps, by the same.
    told: BTreeMap<(Member, u32), Origin>,
    /// What was left by devices that may be dead.
    left: Vec<Bequest>,
}

impl Bequests {
    /// Who keeps wills for us.
    pub(super) fn deputy(&self) -> Option<Member> {
        self.deputy
    }

    /// Somebody else keeps them from now on; `wills` are all that there are.
    pub(super) fn appoint(
        &mut self,
        deputy: Option<Member>,
        wills: impl Iterator<Item = ((Member, u32), Origin)>,
    ) {
        self.deputy = deputy;
        self.told.clear();
        self.pending = if deputy.is_some() { wills.collect() } else { BTreeMap::new() };
    }

    /// A device has a will, or another one.
    pub(super) fn note(&mut self, member: Member, comm_id: u32, origin: Origin) {
        if self.deputy.is_some_and(|deputy| deputy != member) {
            self.pending.insert((member, comm_id), origin);
        }
    }

    /// A will counts no longer. If the deputy was never told of it, he need not know.
    pub(super) fn revoke(&mut self, member: Member, comm_id: u32) {
        let will = (member, comm_id);
        match self.told.get(&will) {
            Some(origin) => drop(self.pending.insert(will, *origin)),
            None => drop(self.pending.remove(&will)),
        }
    }

    /// What the deputy is told next.
    pub(super) fn next(&self) -> Option<((Member, u32), Origin)> {
        self.pending.first_key_value().map(|(will, origin)| (*will, *origin))
    }

    /// It has been told: that there is such a will, or (`is_void`) that there is none any more.
    pub(super) fn told(&mut self, is_void: bool) {
        let Some((will, origin)) = self.pending.pop_first() else { return };
        if is_void {
            self.told.remove(&will);
        } else {
            self.told.insert(will, origin);
        }
    }

    /// A deputy of the agent before tells what it was told.
    pub(super) fn inherit(&mut self, bequest: Bequest) {
        if self.left.len() < MAX_LEFT {
            self.left.push(bequest);
        }
    }

    /// Whether there is something to judge.
    pub(super) fn are_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// What the dead have left. `is_old` says of the device that has a slot whether it has had it since before us; `None` if none
    /// that we know has it.
    pub(super) fn take_of_dead(&mut self, is_old: impl Fn(&Bequest) -> Option<bool>) -> Vec<Bequest> {
        let is_dead = |bequest: &Bequest| match is_old(bequest) {
            Some(is_old) => !is_old,
            // Nobody has the lock of a slot whose process has died.
            None => !matches!(names::lock_slot(bequest.will.from, bequest.udp_port, bequest.slot), Ok(None)),
        };
        std::mem::take(&mut self.left).into_iter().filter(is_dead).collect()
    }
}

/// Wills that a deputy has kept: some 400 bytes each.
const MAX_LEFT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin =
        Origin { address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), udp_port: 4791, slot: 1 };
    const OURS: Member = Member(1);

    fn with_deputy() -> Bequests {
        let mut bequests = Bequests::default();
        bequests.appoint(Some(Member(2)), std::iter::empty());
        bequests
    }

    #[test]
    fn connections_that_come_and_go_while_the_deputy_is_stopped_leave_nothing() {
        let mut bequests = with_deputy();
        for comm_id in 0..100 {
            bequests.note(OURS, comm_id, ORIGIN);
            bequests.revoke(OURS, comm_id);
        }
        assert!(bequests.next().is_none());
    }

    #[test]
    fn a_deputy_that_was_told_learns_that_it_counts_no_longer() {
        let mut bequests = with_deputy();
        bequests.note(OURS, 5, ORIGIN);
        bequests.told(false);
        assert!(bequests.next().is_none());
        bequests.revoke(OURS, 5);
        assert_eq!(bequests.next().unwrap().0, (OURS, 5));
        bequests.told(true);
        bequests.revoke(OURS, 5);
        assert!(bequests.next().is_none() && bequests.told.is_empty());
        // Another one does not know of it.
        bequests.note(OURS, 6, ORIGIN);
        bequests.told(false);
        bequests.appoint(Some(Member(3)), std::iter::empty());
        bequests.revoke(OURS, 6);
        assert!(bequests.next().is_none());
    }
}
