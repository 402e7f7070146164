//! The keeper: a process beside the service that has everything which must not close when the service dies.
//!
//! It has the parks, so that every socket of every group stays open and no slot moves, and the lines, so that the next service
//! knows which slots have an owner. It listens under a name of its own; a service that starts takes over what is there, and
//! tells of each change. Without a service it waits until the last owner has gone, and ends.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SocketFlags, accept_with};
use userdma_link::clock::{self, timespec};
use userdma_link::descriptors::Peer;
use userdma_verbs::Time;

use super::note::{KeptSlot, MAX_LEN, Note};
use crate::names::{self, Name};
use crate::{packet, wait};

/// What the process does that a service has started to keep its sockets: it returns when nothing is left to keep.
///
/// # Errors
/// The name of the keeper cannot be taken. That another one is there is none.
pub fn keep() -> io::Result<()> {
    let Some(listener) = names::listen_as(Name::Keeper)? else { return Ok(()) };
    super::raise_descriptor_limit();
    // What ends the terminal of the service does not end this. If it leads a session already, it may stay in that.
    let _ = rustix::process::setsid();
    Keeper { listener, visitors: Vec::new(), service: None, books: BTreeMap::new(), stays_until: soon() }
        .run();
    Ok(())
}

#[derive(Debug)]
struct Keeper {
    listener: OwnedFd,
    /// Those who may want to take over, or only see whether we are here.
    visitors: Vec<OwnedFd>,
    service: Option<OwnedFd>,
    books: BTreeMap<(IpAddr, u16), Kept>,
    /// Until then a service is expected, though there is nothing to keep.
    stays_until: Time,
}

/// A port of an address.
#[derive(Debug, Default)]
struct Kept {
    parks: Vec<OwnedFd>,
    slots: BTreeMap<u16, (KeptSlot, Option<OwnedFd>)>,
}

/// Who has something for us.
#[derive(Debug, Default)]
struct Ready {
    service: bool,
    visitors: Vec<usize>,
}

impl Keeper {
    fn run(mut self) {
        while self.is_needed() {
            let ready = self.wait();
            if ready.service {
                self.hear_service();
            }
            // From the last, so that those who leave move nobody who is still to be heard.
            for at in ready.visitors.into_iter().rev() {
                self.hear_visitor(at);
            }
            self.accept();
            if self.service.is_none() {
                self.forget_dead();
            }
        }
    }

    fn is_needed(&self) -> bool {
        self.service.is_some() || self.lines().next().is_some() || clock::now() < self.stays_until
    }

    fn lines(&self) -> impl Iterator<Item = &OwnedFd> {
        self.books.values().flat_map(|kept| kept.slots.values()).filter_map(|(_, line)| line.as_ref())
    }

    fn wait(&self) -> Ready {
        let heard = std::iter::once(&self.listener).chain(&self.visitors).chain(&self.service);
        let mut fds: Vec<_> = heard.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let heard = fds.len();
        if self.service.is_none() {
            // Only that they hang up counts.
            fds.extend(self.lines().map(|line| PollFd::new(line, PollFlags::empty())));
        }
        let left = self.stays_until.nanos().saturating_sub(clock::now().nanos());
        let limit = (left > 0).then(|| timespec(left));
        // An interruption or an error is an early return.
        let _ = poll(&mut fds, limit.as_ref());
        let is_ready = |at: &usize| !fds[*at].revents().is_empty();
        Ready {
            service: self.service.is_some() && is_ready(&(heard - 1)),
            visitors: (0..self.visitors.len()).filter(|at| is_ready(&(at + 1))).collect(),
        }
    }

    /// Takes in who waits at the door, if it is one of ours.
    fn accept(&mut self) {
        while wait::is_readable(&self.listener) {
            let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
                std::thread::sleep(super::FULL);
                return;
            };
            if Peer::of(&socket).is_ok_and(|peer| peer.uid == names::our_uid()) {
                self.visitors.push(socket);
            }
        }
    }

    /// A visitor takes over, or has gone.
    fn hear_visitor(&mut self, at: usize) {
        let visitor = self.visitors.swap_remove(at);
        if let Some((Note::TakeOver, _)) = hear(&visitor)
            && self.tell_all(&visitor).is_ok()
        {
            (self.service, self.stays_until) = (Some(visitor), Time::ZERO);
        }
    }

    fn hear_service(&mut self) {
        match self.service.as_ref().and_then(hear) {
            Some((note, descriptors)) => self.write_down(note, descriptors),
            None => self.service = None,
        }
    }

    fn write_down(&mut self, note: Note, descriptors: Vec<OwnedFd>) {
        match note {
            Note::Parks { ip, port } if descriptors.is_empty() => drop(self.books.remove(&(ip, port))),
            Note::Parks { ip, port } => self.books.entry((ip, port)).or_default().parks = descriptors,
            Note::Slot { ip, port, slot, kept } => {
                let line = descriptors.into_iter().next();
                self.books.entry((ip, port)).or_default().slots.insert(slot, (kept, line));
            }
            Note::TakeOver | Note::End => {}
        }
    }

    /// Tells a new service what is kept.
    fn tell_all(&self, service: &OwnedFd) -> io::Result<()> {
        for (&(ip, port), Kept { parks, slots }) in &self.books {
            let parks: Vec<_> = parks.iter().map(AsFd::as_fd).collect();
            tell(service, &Note::Parks { ip, port }, &parks)?;
            for (&slot, (kept, line)) in slots {
                let line: Vec<_> = line.iter().map(AsFd::as_fd).collect();
                tell(service, &Note::Slot { ip, port, slot, kept: *kept }, &line)?;
            }
        }
        tell(service, &Note::End, &[])
    }

    /// Owners that have gone keep nothing here any more.
    fn forget_dead(&mut self) {
        let mut lines: Vec<_> =
            self.books.values_mut().flat_map(|kept| kept.slots.values_mut()).map(|(_, line)| line).collect();
        lines.retain(|line| line.is_some());
        for line in lines {
            line.take_if(|line| {
                let mut fds = [PollFd::new(line, PollFlags::empty())];
                poll(&mut fds, Some(&timespec(0))).is_ok_and(|ready| ready > 0)
            });
        }
    }
}

/// The next note; `None` if there will be none.
pub(super) fn hear(socket: &OwnedFd) -> Option<(Note, Vec<OwnedFd>)> {
    let mut room = [0; MAX_LEN];
    let (len, descriptors) = packet::receive(socket, &mut room, RecvFlags::empty()).ok()?;
    Some((Note::decode(&room[..len])?, descriptors))
}

pub(super) fn tell(socket: &OwnedFd, note: &Note, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    packet::send(socket, &note.encode(), descriptors)
}

/// When a service that has started us should be here.
fn soon() -> Time {
    clock::now().plus_nanos(10_000_000_000)
}
