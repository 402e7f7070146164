//! Queue pair 1 of each address: what comes for it is passed on to the device that it is for, and what is nobody's is answered.
//!
//! Packets to QPN 1 come to slot 0's socket of a group. Messages of a connection carry the number that our side gave to it, whose
//! upper ten bits are the slot of its device; requests go to who listens to their service. The whole packet goes by a socket pair
//! of the device's own. Some thousands wait if there is no room in it, and what is more is lost, as the network might have lost it:
//! nothing that comes from the network makes the agent wait, or grow without end.
//!
//! After another agent's death it takes a moment until all devices have told what they have. What is nobody's meanwhile waits for
//! that.

mod lines;
mod requests;

use std::collections::{BTreeMap, HashMap, VecDeque, btree_map};
use std::hash::RandomState;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use userdma_link::GsiSender;
use userdma_mgmt::cm::answer_unknown;
use userdma_verbs::{Psn, Time};
use userdma_wire::Pseudo;
use userdma_wire::gsi::{self, PACKET_LEN};
use userdma_wire::mad::MAD_LEN;

use super::bequests::{Bequests, Origin};
use super::door::{Arrived, Door};
use super::routed::{Asker, Routed};
use super::wills::{Dead, Executor};
use crate::desk::Desk;
use crate::gsi::Will;
use crate::mad::{self, Whose};
use crate::message::Bequest;
use crate::registry::{Home, Member, Registry};
use lines::Line;

/// The agent's part in queue pairs 1.
#[derive(Debug, Default)]
pub(super) struct Gsi {
    doors: BTreeMap<(IpAddr, u16), Door>,
    senders: HashMap<IpAddr, GsiSender>,
    devices: BTreeMap<Member, Device>,
    by_slot: HashMap<(IpAddr, u16, u16), Member>,
    registry: Registry,
    routed: Routed,
    wills: Executor,
    bequests: Bequests,
    /// All devices are of one user, whose processes believe each other.
    is_of_one: bool,
    /// What is nobody's as far as is known, and until when it may turn out to be somebody's.
    held: VecDeque<(Time, Arrived)>,
    /// Somebody listens, or takes packets, since those that are held were looked at.
    has_new_taker: bool,
    /// Until then, not everybody may have told what he has.
    early_until: Time,
    /// Packets that wait for room in the lines of all devices.
    waiting: usize,
    chance: RandomState,
    tries: u64,
    psn: Psn,
    /// Packets that were no management datagrams, or found no room; and how many when it was told last.
    dropped: u64,
    told_dropped: u64,
}

#[derive(Debug)]
pub(super) struct Device {
    home: Home,
    slot: u16,
    /// It is in the agent's own process.
    is_own: bool,
    /// It has had its slot since before this agent.
    is_old: bool,
    /// By which packets are passed on.
    frames: Option<Line>,
    wills: BTreeMap<u32, Will>,
}

impl Gsi {
    /// `is_of_one` if all devices are of one user.
    pub(super) fn new(is_of_one: bool) -> Self {
        Self { is_of_one, ..Self::default() }
    }

    /// What there is to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.doors.values().map(AsFd::as_fd)
    }

    /// When [`Gsi::work`] has something to do, if nothing comes before.
    pub(super) fn deadline(&self) -> Option<Time> {
        let held = self.held.iter().map(|(until, _)| *until);
        let bequests = self.bequests.are_left().then_some(self.early_until);
        held.chain(bequests).chain(self.wills.deadline()).min()
    }

    /// Opens the doors of new groups, and closes those of groups that are no more: a socket that stays open would keep the port.
    pub(super) fn follow(&mut self, desk: &Desk) {
        self.doors.retain(|&(ip, udp_port), _| desk.group(ip, udp_port).is_some());
        for (ip, udp_port, group) in desk.groups() {
            let btree_map::Entry::Vacant(place) = self.doors.entry((ip, udp_port)) else { continue };
            match Door::open(ip, udp_port, group) {
                Ok(door) => drop(place.insert(door)),
                Err(error) => tracing::warn!(%ip, %error, "nobody receives for queue pair 1"),
            }
        }
    }

    /// A device has a slot.
    pub(super) fn join(&mut self, member: Member, device: Device, now: Time) {
        if device.is_old {
            self.early_until = now.plus_nanos(EARLY_NS);
        }
        for ip in &device.home.addresses {
            self.by_slot.insert((*ip, device.home.udp_port, device.slot), member);
        }
        self.devices.insert(member, device);
        if self.bequests.deputy().is_none() {
            self.appoint();
        }
    }

    /// Chooses who keeps all wills but its own as well, so that they outlive us and, if it dies in the same moment, their device.
    /// Only processes of one user do that for each other.
    fn appoint(&mut self) {
        let Self { devices, bequests, .. } = self;
        let others = devices.iter().filter(|(_, device)| self.is_of_one && !device.is_own);
        let deputy = others.map(|(member, _)| *member).next();
        let left = devices.iter().filter(|(member, _)| deputy != Some(**member));
        let wills = left.flat_map(|(member, device)| {
            device.wills.iter().map(|(comm_id, will)| ((*member, *comm_id), device.origin(will)))
        });
        bequests.appoint(deputy, wills);
    }

    /// The deputy, if there is something to tell it.
    pub(super) fn deputy_to_tell(&self) -> Option<Member> {
        self.bequests.next().and(self.bequests.deputy())
    }

    /// What the deputy is told next, and who that is.
    pub(super) fn next_bequest(&self) -> Option<(Member, Bequest)> {
        let deputy = self.bequests.deputy()?;
        let ((member, comm_id), Origin { address, udp_port, slot }) = self.bequests.next()?;
        let will = self.devices.get(&member).and_then(|device| device.wills.get(&comm_id)).copied();
        let is_void = will.is_none();
        // Of one that is void only the names count.
        let will = will.unwrap_or(Will { from: address, to: address, mad: [0; MAD_LEN] });
        Some((deputy, Bequest { udp_port, slot, comm_id, will, is_void }))
    }

    pub(super) fn bequest_told(&mut self, is_void: bool) {
        self.bequests.told(is_void);
    }

    /// Opens the wills that were left by the process of the agent before.
    fn judge_bequests(&mut self, now: Time) {
        let Self { bequests, devices, by_slot, wills, .. } = self;
        let is_old = |left: &Bequest| {
            let member = by_slot.get(&(left.will.from, left.udp_port, left.slot));
            member.and_then(|member| devices.get(member)).map(|device| device.is_old)
        };
        for Bequest { udp_port, comm_id, will, .. } in bequests.take_of_dead(is_old) {
            wills.open(Dead { local: will.from, udp_port, comm_id }, will, now);
        }
    }

    /// A device has gone: its wills are opened.
    pub(super) fn leave(&mut self, member: Member, now: Time) {
        let Some(device) = self.devices.remove(&member) else { return };
        self.waiting -= device.waiting();
        for ip in &device.home.addresses {
            let place = (*ip, device.home.udp_port, device.slot);
            if self.by_slot.get(&place) == Some(&member) {
                self.by_slot.remove(&place);
            }
        }
        self.registry.forget(member);
        self.routed.forget(member);
        for comm_id in device.wills.keys() {
            self.bequests.revoke(member, *comm_id);
        }
        for (comm_id, will) in device.wills {
            let dead = Dead { local: will.from, udp_port: device.home.udp_port, comm_id };
            self.wills.open(dead, will, now);
        }
        if self.bequests.deputy() == Some(member) {
            self.appoint();
        }
    }

    /// Takes in what has come, and sends what is due: a bounded part of it.
    pub(super) fn work(&mut self, now: Time) {
        self.flush_lines();
        // Before what has come after them.
        let has_new_taker = std::mem::take(&mut self.has_new_taker);
        if has_new_taker || self.held.iter().any(|(until, _)| *until <= now) {
            self.retry_held(now);
        }
        let mut came = Vec::new();
        for door in self.doors.values_mut() {
            self.dropped += door.take(&mut came);
        }
        came.iter().for_each(|arrived| self.pass_on(arrived, now));
        if now >= self.early_until {
            self.judge_bequests(now);
        }
        for _ in 0..WILLS_AT_ONCE {
            let Some((will, udp_port)) = self.wills.next(now) else { break };
            self.send(will.from, (will.to, udp_port), &will.mad);
        }
        if self.dropped > 2 * self.told_dropped {
            tracing::warn!(dropped = self.dropped, "packets to queue pair 1 were nobody's, or found no room");
            self.told_dropped = self.dropped;
        }
        let Self { senders, wills, doors, .. } = self;
        let has_door = |ip: IpAddr| doors.range((ip, 0)..=(ip, u16::MAX)).next().is_some();
        senders.retain(|&ip, _| has_door(ip) || wills.is_from(ip));
    }

    #[cfg(test)]
    pub(super) fn is_to_retry(&self) -> bool {
        self.has_new_taker
    }

    fn retry_held(&mut self, now: Time) {
        for (until, arrived) in std::mem::take(&mut self.held) {
            self.deliver(&arrived, until, now);
        }
    }

    /// Passes a packet on. What is nobody's is answered; but a request to a service only after a while in which somebody may begin
    /// to listen, and nothing before everybody has told what he has.
    fn pass_on(&mut self, arrived: &Arrived, now: Time) {
        let (local, udp_port) = arrived.local;
        let grace_ns = match mad::whose(&arrived.mad) {
            Whose::Ended { ours: comm_id, .. } => {
                self.wills.settle(&Dead { local, udp_port, comm_id });
                0
            }
            Whose::Service { .. } => GRACE_NS,
            Whose::Connection { .. } | Whose::Other => 0,
        };
        self.deliver(arrived, self.early_until.max(now.plus_nanos(grace_ns)), now);
    }

    fn deliver(&mut self, arrived: &Arrived, until: Time, now: Time) {
        let is_early = now < self.early_until;
        match self.find(arrived, now) {
            Some(member) if self.takes_frames(member) => self.hand_over(member, arrived),
            Some(_) | None if now < until && self.held.len() < MAX_HELD => {
                self.held.push_back((until, *arrived));
            }
            Some(_) | None if is_early => self.dropped += 1,
            Some(_) | None => self.answer(arrived),
        }
    }

    fn answer(&mut self, arrived: &Arrived) {
        if let Some(answer) = answer_unknown(&arrived.mad) {
            let (local, udp_port) = arrived.local;
            self.send(local, (arrived.remote.0, udp_port), &answer);
        }
    }

    /// The device that a packet is for.
    fn find(&mut self, arrived: &Arrived, now: Time) -> Option<Member> {
        let (local, udp_port) = arrived.local;
        let asker = |comm_id| Asker { remote: arrived.remote.0, local, udp_port, comm_id };
        match mad::whose(&arrived.mad) {
            Whose::Service { service_id, theirs } => {
                let asker = asker(theirs);
                let known = self.routed.of_request(&asker, service_id, now);
                let member = known.or_else(|| self.registry.listener(local, udp_port, service_id))?;
                self.routed.note(asker, service_id, member, now);
                Some(member)
            }
            Whose::Connection { ours: 0, theirs } | Whose::Ended { ours: 0, theirs } => {
                self.routed.of_asker(&asker(theirs), now)
            }
            Whose::Connection { ours, .. } | Whose::Ended { ours, .. } => {
                self.by_slot.get(&(local, udp_port, mad::slot_of(ours))).copied()
            }
            Whose::Other => None,
        }
    }

    /// Whether a device has told by which way it takes packets.
    fn takes_frames(&self, member: Member) -> bool {
        self.devices.get(&member).is_some_and(|device| device.frames.is_some())
    }

    /// Sends a management datagram; one that does not leave is lost.
    fn send(&mut self, from: IpAddr, to: (IpAddr, u16), mad: &[u8; MAD_LEN]) {
        if let std::collections::hash_map::Entry::Vacant(place) = self.senders.entry(from) {
            match GsiSender::open(from) {
                Ok(sender) => {
                    place.insert(sender);
                }
                Err(error) => return tracing::warn!(%error, "no socket to send management datagrams"),
            }
        }
        let Some(sender) = self.senders.get(&from) else { return };
        let mut room = [0; PACKET_LEN];
        gsi::write(&mut room, self.psn, mad);
        self.psn = self.psn.add(1);
        let (local, local_port) = sender.local();
        Pseudo::new(local, to.0, local_port, to.1).seal(&mut room, 0);
        let _ = sender.send(to, &room);
    }
}

impl Device {
    /// A device with a slot; `is_own` if it is in the agent's own process, `is_old` if it has had the slot since before this agent.
    pub(super) fn new(home: Home, slot: u16, is_own: bool, is_old: bool) -> Self {
        Self { home, slot, is_own, is_old, frames: None, wills: BTreeMap::new() }
    }

    fn origin(&self, will: &Will) -> Origin {
        Origin { address: will.from, udp_port: self.home.udp_port, slot: self.slot }
    }
}

/// Wills that are sent before the agent turns to something else.
const WILLS_AT_ONCE: usize = 64;
/// Packets that wait for devices to tell what they have, or to listen.
const MAX_HELD: usize = 2048;
/// How long a request to a service waits for somebody who listens. A program may say that it listens just before it does, as
/// perftest's servers with `-R`; in a kernel that takes microseconds, here two messages to the agent and back.
const GRACE_NS: u64 = 100_000_000;
/// How long after a device has told a new agent of its slot others may follow.
const EARLY_NS: u64 = 500_000_000;
