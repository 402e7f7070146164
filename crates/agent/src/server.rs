//! The agent: one for each network namespace and user, in a thread of the process that was first; or a [service](crate::service)
//! for all users.
//!
//! It hands out slots and sockets, and takes slots back when their connections end. If it dies, the processes notice, one of
//! them takes its name and its part, and the others register again; nothing that is connected is touched.

mod answers;
mod bequests;
mod door;
mod gsi;
mod outbox;
mod routed;
mod service;
mod wills;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::Builder;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SocketFlags, accept_with};
use userdma_link::clock::{self, timespec};
use userdma_link::descriptors::{Peer, spawn_apart};
use userdma_verbs::Time;

use self::gsi::{Device, Gsi};
use self::outbox::Outbox;
use crate::desk::{Desk, End, Grant, LAST_SLOT};
use crate::group::Group;
use crate::locks::Locks;
use crate::message::{MAX_LEN, Place, Refusal, Reply, Request};
use crate::names;
use crate::packet;
use crate::park::Park;
use crate::registry::{Home, Member};
use crate::service::{Service, ServiceEvent};

/// Starts an agent that listens on `listener`, which has its name.
pub(crate) fn start(listener: OwnedFd) -> io::Result<()> {
    let builder = Builder::new().name("userdma agent".to_owned()).stack_size(STACK_BYTES);
    let user = names::our_uid();
    // It ends by itself, or with the process.
    spawn_apart(builder, vec![listener], move |kept| {
        names::stay(user);
        if let Some(listener) = kept.into_iter().next() {
            Agent::new(listener, Desk::new(Locks::Names, LAST_SLOT), None).run();
        }
    })
    .map(drop)
}

#[derive(Debug)]
pub(crate) struct Agent {
    listener: OwnedFd,
    clients: Vec<Client>,
    desk: Desk,
    /// What makes it a service, if it is one.
    service: Option<Service>,
    gsi: Gsi,
    next_member: u64,
    /// The process has no more descriptors: who waits at the door does so until then.
    is_full_until: Time,
}

/// A connection: a device of some process.
#[derive(Debug)]
struct Client {
    member: Member,
    /// It is in our own process.
    is_own: bool,
    socket: OwnedFd,
    peer: Peer,
    holds: Option<Held>,
    /// Answers for which there was no room yet.
    answers: Outbox,
    /// It has gone, or broken the rules.
    is_over: bool,
}

/// A slot that a client has.
#[derive(Clone, Debug)]
struct Held {
    place: Place,
    slot: u16,
    /// The address whose usual port was taken, so that the client fell back on this one.
    taken: Option<IpAddr>,
}

impl Agent {
    pub(crate) fn new(listener: OwnedFd, desk: Desk, service: Option<Service>) -> Self {
        let gsi = Gsi::new(service.is_none());
        let (clients, is_full_until) = (Vec::new(), Time::ZERO);
        Self { listener, clients, desk, service, gsi, next_member: 0, is_full_until }
    }

    /// Serves until nobody has been there for a while; a service until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut idle_since = clock::now();
        // Who connects in this moment is cut off, and starts another.
        while !self.is_done(idle_since) {
            let ready = self.wait();
            if !self.clients.is_empty() {
                idle_since = clock::now();
            }
            for at in ready {
                self.serve(at);
            }
            self.gsi.work(clock::now());
            self.flush_answers();
            self.tell_deputy();
            self.clients.retain(|client| !client.is_over);
            self.accept();
            self.look_after_service();
        }
        let devices = self.clients.iter().filter(|client| client.holds.is_some()).count();
        self.tell(|| ServiceEvent::Stopping { devices });
    }

    fn is_done(&self, idle_since: Time) -> bool {
        match &self.service {
            Some(service) => service.is_stopped(),
            None => self.clients.is_empty() && clock::now().nanos() - idle_since.nanos() >= IDLE_NS,
        }
    }

    /// Waits until somebody connects, says something or goes; who of those who are connected it is.
    fn wait(&self) -> Vec<usize> {
        let (read, hang_up) =
            self.service.as_ref().map(|service| service.descriptors(&self.desk)).unwrap_or_default();
        let deputy = self.gsi.deputy_to_tell();
        let clients = self.clients.iter().map(|client| {
            let has_more = deputy == Some(client.member) || !client.answers.is_empty();
            let writes = if has_more { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(&client.socket, PollFlags::IN | writes)
        });
        let read = self.gsi.fds().chain(read).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let write = self.gsi.full_lines().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
        let full_ns = self.is_full_until.nanos().saturating_sub(clock::now().nanos());
        let knocks = if full_ns == 0 { PollFlags::IN } else { PollFlags::empty() };
        let listener = std::iter::once(PollFd::new(&self.listener, knocks));
        let fds = listener.chain(clients).chain(read).chain(write);
        let hang_up = hang_up.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty()));
        let mut fds: Vec<_> = fds.chain(hang_up).collect();
        let limit = match &self.service {
            Some(service) => service.limit_ns(),
            None => self.clients.is_empty().then_some(IDLE_NS / 4),
        };
        let due = self.gsi.deadline().map(|due| due.nanos().saturating_sub(clock::now().nanos()));
        let full = (full_ns > 0).then_some(full_ns);
        let limit = limit.into_iter().chain(due).chain(full).min();
        // An interruption or an error is an early return.
        let _ = poll(&mut fds, limit.map(timespec).as_ref());
        let is_ready = |(at, fd): (usize, &PollFd<'_>)| {
            let is_ready = fd.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
            is_ready.then_some(at)
        };
        fds[1..=self.clients.len()].iter().enumerate().filter_map(is_ready).collect()
    }

    /// Takes in who waits at the door, if it is one of ours.
    fn accept(&mut self) {
        while clock::now() >= self.is_full_until && crate::wait::is_readable(&self.listener) {
            let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
                // No more descriptors, say. Those who are there are served meanwhile.
                self.is_full_until = clock::now().plus_nanos(FULL_NS);
                return;
            };
            if let Ok(peer) = Peer::of(&socket)
                && self.may_enter(peer)
            {
                // A service has no devices of its own.
                let is_own = u32::try_from(peer.pid).is_ok_and(|pid| pid == std::process::id());
                self.next_member += 1;
                let member = Member(self.next_member);
                let answers = Outbox::default();
                self.clients.push(Client {
                    member,
                    is_own,
                    socket,
                    peer,
                    holds: None,
                    answers,
                    is_over: false,
                });
            }
        }
    }

    /// Handles what a client says, or that it has gone.
    fn serve(&mut self, at: usize) {
        let mut room = [0; MAX_LEN];
        let (len, descriptors) =
            match packet::receive(&self.clients[at].socket, &mut room, RecvFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok((len, descriptors)) if len > 0 => (len, descriptors),
                Ok(_) | Err(_) => return self.end(at, End::Dead),
            };
        let peer = self.clients[at].peer;
        match Request::decode(&room[..len]) {
            Some(Request::Claim { place, fallback }) if self.clients[at].holds.is_none() => {
                self.claim(at, place, fallback);
            }
            Some(Request::Register { place, slot, taken, parks }) if self.clients[at].holds.is_none() => {
                self.register(at, Held { place, slot, taken }, &parks, descriptors);
            }
            Some(Request::Release { next_index: 0, .. }) => self.end(at, End::Dead),
            Some(Request::Release { next_index, rests: false }) => self.end(at, End::InOrder(next_index)),
            Some(Request::Release { next_index, rests: true }) => self.end(at, End::Resting(next_index)),
            Some(Request::Neighbor { address, slot }) => self.hand_neighbor(at, address, slot),
            Some(Request::Gsi(request)) if self.clients[at].holds.is_some() => {
                self.handle_gsi(at, request, descriptors);
            }
            Some(Request::Claim { .. } | Request::Register { .. } | Request::Gsi(_)) | None => {
                self.tell(|| ServiceEvent::Wrong(peer));
                self.end(at, End::Dead);
            }
        }
    }

    fn claim(&mut self, at: usize, place: Place, fallback: Option<u16>) {
        let now = clock::now();
        let peer = self.clients[at].peer;
        // A service has the usual port and no other.
        let fallback = fallback.filter(|_| self.service.is_none());
        let other = fallback.map(|port| Place { port, ..place.clone() });
        if let Err(refusal) = self.admit(peer.uid, &place) {
            return self.refuse(at, refusal);
        }
        let usual = match other.as_ref().and_then(|other| self.taken_for(other)) {
            Some(ip) => Err(Refusal::Taken(ip)),
            // Whether those who come are to follow them, they will tell.
            None if other.as_ref().is_some_and(|other| self.desk.awaits(other)) => Err(Refusal::Early),
            None => self.desk.claim(&place, peer.uid, now),
        };
        let (claimed, place, taken) = match (usual, other) {
            (Err(Refusal::Taken(ip)), Some(other)) => {
                (self.desk.claim(&other, peer.uid, now), other, Some(ip))
            }
            (usual, _) => (usual, place, None),
        };
        match claimed {
            Ok(grant) => self.hand_out(at, place, taken, &grant),
            Err(refusal) => self.refuse(at, refusal),
        }
    }

    fn refuse(&mut self, at: usize, refusal: Refusal) {
        let peer = self.clients[at].peer;
        // Those who come too early come again.
        if refusal != Refusal::Early {
            self.tell(|| ServiceEvent::Refused { peer, why: refusal.to_string() });
        }
        // It asks again on another connection, or goes.
        let _ = self.send(at, &Reply::Refused(refusal), &[]);
    }

    /// The address that made somebody who is there fall back on `other`, and so is to make those fall back who come later: all
    /// of a user's processes on an address are to find each other, whoever leaves the usual port meanwhile.
    fn taken_for(&self, other: &Place) -> Option<IpAddr> {
        let held = self.clients.iter().filter_map(|client| client.holds.as_ref());
        let mut fallen = held.filter(|held| {
            held.place.port == other.port
                && held.place.addresses.iter().any(|ip| other.addresses.contains(ip))
        });
        fallen.find_map(|held| held.taken)
    }

    /// Gives a client its slot, after everybody has what keeps the slot's socket alive.
    fn hand_out(&mut self, at: usize, place: Place, taken: Option<IpAddr>, grant: &Grant) {
        for ip in &grant.grown {
            self.tell_parks(*ip, place.port);
        }
        let reply = Reply::Granted { slot: grant.slot, first_index: grant.first_index, taken };
        let descriptors: Vec<_> = grant.sockets.iter().chain(&grant.locks).map(AsFd::as_fd).collect();
        self.clients[at].holds = Some(Held { place: place.clone(), slot: grant.slot, taken });
        self.keep(&place, grant.slot);
        let peer = self.clients[at].peer;
        self.tell(|| ServiceEvent::Opened { peer, slot: grant.slot, addresses: place.addresses.clone() });
        self.join(at, false);
        let sent = self.send_all_parks(at, &place).and_then(|()| self.send(at, &reply, &descriptors));
        if sent.is_err() {
            // It has gone without ever having had the slot.
            self.end(at, End::InOrder(grant.first_index));
        }
    }

    fn register(&mut self, at: usize, held: Held, parks: &[u8], ends: Vec<OwnedFd>) {
        let place = held.place.clone();
        if self.service.is_some() {
            return self.resume(at, held, &ends);
        }
        let Some(groups) = groups(&place, parks, ends) else { return self.end(at, End::Dead) };
        let Some(grown) = self.desk.register(&place, held.slot, self.clients[at].peer.uid, groups) else {
            return self.end(at, End::Dead);
        };
        for ip in grown {
            self.tell_parks(ip, place.port);
        }
        self.clients[at].holds = Some(held);
        self.join(at, true);
        // What others hold may be longer.
        let sent = self.send_all_parks(at, &place).and_then(|()| self.send(at, &Reply::Registered, &[]));
        if sent.is_err() {
            self.end(at, End::Dead);
        }
    }

    /// Sends an address's parks to everybody who has a slot there. A service's stay with it.
    fn tell_parks(&mut self, ip: IpAddr, port: u16) {
        if self.service.is_some() {
            return;
        }
        for at in 0..self.clients.len() {
            let place = self.clients[at].holds.as_ref().map(|held| &held.place);
            let index = place.filter(|place| place.port == port);
            let index = index.and_then(|place| place.addresses.iter().position(|own| *own == ip));
            if let Some(index) = index {
                // A stopped process whose socket is full keeps what it has; the others keep the rest.
                let _ = self.send_parks(at, ip, port, index);
            }
        }
    }

    fn send_all_parks(&mut self, at: usize, place: &Place) -> io::Result<()> {
        if self.service.is_some() {
            return Ok(());
        }
        let mut each = place.addresses.iter().enumerate();
        each.try_for_each(|(index, ip)| self.send_parks(at, *ip, place.port, index))
    }

    fn send_parks(&self, at: usize, ip: IpAddr, port: u16, index: usize) -> io::Result<()> {
        let group = self.desk.group(ip, port).ok_or(io::ErrorKind::NotFound)?;
        let ends: Vec<_> = group.parks().iter().map(Park::end).collect();
        // 32 addresses at most.
        self.send(at, &Reply::Parks { address: u8::try_from(index).unwrap_or(u8::MAX) }, &ends)
    }

    fn send(&self, at: usize, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        packet::send(&self.clients[at].socket, &reply.encode(), descriptors)
    }

    /// A client has a slot: what comes for queue pair 1 of its addresses is received from now on.
    fn join(&mut self, at: usize, is_old: bool) {
        let client = &self.clients[at];
        if let Some(Held { place, slot, .. }) = &client.holds {
            let home = Home { udp_port: place.port, addresses: place.addresses.clone() };
            let device = Device::new(home, *slot, client.is_own, is_old);
            self.gsi.join(client.member, device, clock::now());
        }
        self.gsi.follow(&self.desk);
    }

    /// A client has gone, or has to.
    fn end(&mut self, at: usize, end: End) {
        let client = &mut self.clients[at];
        client.is_over = true;
        if let Some(Held { place, slot, .. }) = client.holds.take() {
            let (peer, member) = (client.peer, client.member);
            self.gsi.leave(member, clock::now());
            self.desk.release(&place, slot, end, clock::now());
            self.gsi.follow(&self.desk);
            self.keep(&place, slot);
            self.tell(|| ServiceEvent::Closed { peer, slot, in_order: end != End::Dead });
        }
    }
}

/// The groups of the addresses of `place`, of whose parks `ends` has as many as `counts` says.
fn groups(place: &Place, counts: &[u8], ends: Vec<OwnedFd>) -> Option<Vec<Group>> {
    let mut ends = ends.into_iter();
    let mut groups = Vec::new();
    for (ip, count) in place.addresses.iter().zip(counts) {
        let own: Vec<_> = ends.by_ref().take(usize::from(*count)).collect();
        if own.len() != usize::from(*count) || own.is_empty() {
            return None;
        }
        groups.push(Group::from_ends(*ip, place.port, own).ok()?);
    }
    Some(groups)
}

/// Without anybody for so long, the agent leaves; with it go the numbers where queue pairs went on.
const IDLE_NS: u64 = 20_000_000_000;
/// How long nobody is taken in after it was not possible.
const FULL_NS: u64 = 10_000_000;
const STACK_BYTES: usize = 256 << 10;
