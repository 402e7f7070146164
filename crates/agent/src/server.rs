//! The agent: one for each network namespace and user, in a thread of the process that was first.
//!
//! It hands out slots and sockets, and takes slots back when their connections end. If it dies, the processes notice, one of
//! them takes its name and its part, and the others register again; nothing that is connected is touched.

mod bequests;
mod door;
mod gsi;
mod routed;
mod wills;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::Builder;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SocketFlags, accept_with};
use userdma_link::clock;
use userdma_link::descriptors::{Peer, spawn_apart};

use self::gsi::{Device, Gsi};
use crate::desk::{Desk, Grant};
use crate::group::Group;
use crate::message::{GsiRequest, MAX_LEN, Place, Refusal, Reply, Request};
use crate::park::Park;
use crate::registry::{Home, Member};
use crate::wait::timespec;
use crate::{names, packet};

/// Starts an agent that listens on `listener`, which has its name.
pub(crate) fn start(listener: OwnedFd) -> io::Result<()> {
    let builder = Builder::new().name("userdma agent".to_owned()).stack_size(STACK_BYTES);
    // It ends by itself, or with the process.
    spawn_apart(builder, vec![listener], |kept| {
        if let Some(listener) = kept.into_iter().next() {
            Agent::new(listener).run();
        }
    })
    .map(drop)
}

#[derive(Debug)]
struct Agent {
    listener: OwnedFd,
    clients: Vec<Client>,
    desk: Desk,
    gsi: Gsi,
    next_member: u64,
}

/// A connection: a device of some process.
#[derive(Debug)]
struct Client {
    member: Member,
    /// It is in our own process.
    is_own: bool,
    socket: OwnedFd,
    holds: Option<Held>,
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
    fn new(listener: OwnedFd) -> Self {
        Self { listener, clients: Vec::new(), desk: Desk::default(), gsi: Gsi::new(true), next_member: 0 }
    }

    /// Serves until nobody has been there for a while.
    fn run(mut self) {
        let mut idle_since = clock::now();
        loop {
            if self.clients.is_empty() && clock::now().nanos() - idle_since.nanos() >= IDLE_NS {
                // Who connects in this moment is cut off, and starts another.
                return;
            }
            let ready = self.wait();
            if !self.clients.is_empty() {
                idle_since = clock::now();
            }
            for at in ready {
                self.serve(at);
            }
            self.gsi.work(clock::now());
            self.tell_deputy();
            self.clients.retain(|client| !client.is_over);
            self.accept();
        }
    }

    /// Waits until somebody connects, says something or goes; who of those who are connected it is.
    fn wait(&self) -> Vec<usize> {
        let sockets = self.clients.iter().map(|client| &client.socket);
        let mut fds: Vec<_> = std::iter::once(&self.listener)
            .chain(sockets)
            .map(AsFd::as_fd)
            .chain(self.gsi.fds())
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let idle = self.clients.is_empty().then_some(IDLE_NS / 4);
        let due = self.gsi.deadline().map(|due| due.nanos().saturating_sub(clock::now().nanos()));
        let limit = idle.into_iter().chain(due).min().map(timespec);
        // An interruption or an error is an early return.
        let _ = poll(&mut fds, limit.as_ref());
        let is_ready = |(at, fd): (usize, &PollFd<'_>)| (!fd.revents().is_empty()).then_some(at);
        fds[1..=self.clients.len()].iter().enumerate().filter_map(is_ready).collect()
    }

    /// Takes in who waits at the door, if it is one of ours.
    fn accept(&mut self) {
        while crate::wait::is_readable(&self.listener) {
            let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
                // No more descriptors, say: whoever waits does so until there are some.
                std::thread::sleep(FULL);
                return;
            };
            if let Ok(peer) = Peer::of(&socket)
                && peer.uid == names::our_uid()
            {
                let is_own = u32::try_from(peer.pid).is_ok_and(|pid| pid == std::process::id());
                self.next_member += 1;
                let member = Member(self.next_member);
                self.clients.push(Client { member, is_own, socket, holds: None, is_over: false });
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
                Ok(_) | Err(_) => return self.end(at, None),
            };
        match Request::decode(&room[..len]) {
            Some(Request::Claim { place, fallback }) if self.clients[at].holds.is_none() => {
                self.claim(at, place, fallback);
            }
            Some(Request::Register { place, slot, taken, parks }) if self.clients[at].holds.is_none() => {
                self.register(at, Held { place, slot, taken }, &parks, descriptors);
            }
            Some(Request::Release { next_index }) => self.end(at, (next_index > 0).then_some(next_index)),
            Some(Request::Gsi(request)) if self.clients[at].holds.is_some() => {
                self.handle_gsi(at, request, descriptors);
            }
            Some(Request::Claim { .. } | Request::Register { .. } | Request::Gsi(_)) | None => {
                self.end(at, None);
            }
        }
    }

    fn claim(&mut self, at: usize, place: Place, fallback: Option<u16>) {
        let now = clock::now();
        let other = fallback.map(|port| Place { port, ..place.clone() });
        let usual = match other.as_ref().and_then(|other| self.taken_for(other)) {
            Some(ip) => Err(Refusal::Taken(ip)),
            // Whether those who come are to follow them, they will tell.
            None if other.as_ref().is_some_and(|other| self.desk.awaits(other)) => Err(Refusal::Early),
            None => self.desk.claim(&place, now),
        };
        let (claimed, place, taken) = match (usual, other) {
            (Err(Refusal::Taken(ip)), Some(other)) => (self.desk.claim(&other, now), other, Some(ip)),
            (usual, _) => (usual, place, None),
        };
        match claimed {
            Ok(grant) => self.hand_out(at, place, taken, &grant),
            // It asks again on another connection, or goes.
            Err(refusal) => {
                let _ = self.send(at, &Reply::Refused(refusal), &[]);
            }
        }
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
        self.join(at, false);
        let sent = self.send_all_parks(at, &place).and_then(|()| self.send(at, &reply, &descriptors));
        if sent.is_err() {
            // It has gone without ever having had the slot.
            self.end(at, Some(grant.first_index));
        }
    }

    fn register(&mut self, at: usize, held: Held, parks: &[u8], ends: Vec<OwnedFd>) {
        let place = held.place.clone();
        let Some(groups) = groups(&place, parks, ends) else { return self.end(at, None) };
        let Some(grown) = self.desk.register(&place, held.slot, groups) else { return self.end(at, None) };
        for ip in grown {
            self.tell_parks(ip, place.port);
        }
        self.clients[at].holds = Some(held);
        self.join(at, true);
        // What others hold may be longer.
        let sent = self.send_all_parks(at, &place).and_then(|()| self.send(at, &Reply::Registered, &[]));
        if sent.is_err() {
            self.end(at, None);
        }
    }

    /// Sends an address's parks to everybody who has a slot there.
    fn tell_parks(&mut self, ip: IpAddr, port: u16) {
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

    /// Has another process keep the wills of our own. If there is no room for one, it is told with the next turn.
    fn tell_deputy(&mut self) {
        while let Some((deputy, bequest)) = self.gsi.next_bequest() {
            let client = self.clients.iter().find(|client| client.member == deputy);
            let Some(client) = client else { return };
            let bytes = Reply::Keep(bequest).encode();
            match packet::send_now(&client.socket, &bytes, &[]) {
                Ok(true) => self.gsi.bequest_told(),
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn handle_gsi(&mut self, at: usize, request: GsiRequest, descriptors: Vec<OwnedFd>) {
        let member = self.clients[at].member;
        if let Some(reply) = self.gsi.handle(member, request, descriptors, clock::now()) {
            // If it does not listen, whoever has asked there does not wait for ever.
            let _ = self.send(at, &Reply::Gsi(reply), &[]);
        }
    }

    /// A client has gone, or has to.
    fn end(&mut self, at: usize, next_index: Option<u16>) {
        let client = &mut self.clients[at];
        client.is_over = true;
        if let Some(Held { place, slot, .. }) = client.holds.take() {
            self.gsi.leave(client.member, clock::now());
            self.desk.release(&place, slot, next_index, clock::now());
            self.gsi.follow(&self.desk);
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
/// How long the agent does nothing if it can take in nobody.
const FULL: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 256 << 10;
