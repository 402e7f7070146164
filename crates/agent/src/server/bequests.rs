//! Wills of the devices in the agent's own process: they would end with it, so another process, the deputy, keeps them as well, and
//! tells the next agent.

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
        self.pending = if deputy.is_some() { wills.collect() } else { BTreeMap::new() };
    }

    /// A will of a device in our process has changed.
    pub(super) fn note(&mut self, member: Member, comm_id: u32, origin: Origin) {
        if self.deputy.is_some() {
            self.pending.insert((member, comm_id), origin);
        }
    }

    /// What the deputy is told next.
    pub(super) fn next(&self) -> Option<((Member, u32), Origin)> {
        self.pending.first_key_value().map(|(will, origin)| (*will, *origin))
    }

    /// It has been told.
    pub(super) fn told(&mut self) {
        self.pending.pop_first();
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

/// Wills of an agent's process: some 400 bytes each.
const MAX_LEFT: usize = 1 << 16;
