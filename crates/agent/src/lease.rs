//! A slot of ours, and the thread that keeps it: it sleeps until the agent says something or dies, or the device closes.
//!
//! The thread has descriptors of its own, so that neither a program that closes what it does not know nor a forked child
//! that outlives the process spoils anything.

mod gsi;
mod registrar;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use userdma_link::clock;
use userdma_link::descriptors::{Peer, spawn_apart};
use userdma_link::guard::GuardedFd;

use self::gsi::Clerk;
use self::registrar::Registrar;
use crate::client::{self, Granted};
use crate::message::{Place, Reply, Request};
use crate::names::{self, Name};
use crate::neighbor::{self, Answerer, Neighbor};
use crate::packet;
use crate::service::find;
use crate::wait;

/// A slot on a port that processes share. It goes back when this is dropped, or when the process ends. The links on its sockets must
/// be dropped before: as long as one is open, and no other process has a slot, the port is taken.
#[derive(Debug)]
pub struct Lease {
    bell: GuardedFd,
    /// To the thread, for those who want sockets from the parks.
    line: Arc<Mutex<GuardedFd>>,
    /// What [`Lease::set_end`] noted; 0 as long as nothing is.
    end: Arc<AtomicU16>,
    registrar: Arc<Registrar>,
    /// Wakes the thread when there is something to tell.
    news: GuardedFd,
    thread: Option<JoinHandle<()>>,
    /// The process whose slot it is; a forked child has a copy that means nothing.
    pid: u32,
}

impl Lease {
    /// Keeps what was granted; the slot's sockets are returned.
    pub(crate) fn keep(place: Place, granted: Granted) -> io::Result<(Self, Vec<OwnedFd>)> {
        let Granted { agent, who, slot, taken, sockets, locks, parks, .. } = granted;
        let bell = GuardedFd::from(eventfd(0, EventfdFlags::CLOEXEC)?);
        let end = Arc::new(AtomicU16::new(0));
        let counts = Counts { locks: locks.len(), parks: parks.iter().map(Vec::len).collect() };
        let (line, far_end) = neighbor::line()?;
        let (news, far_news) = neighbor::line()?;
        let registrar = Arc::new(Registrar::default());
        registrar.note_agent(is_ours(&agent));
        let clerk = Arc::clone(&registrar);
        let keep = [agent, bell.as_fd().try_clone_to_owned()?, far_end, far_news]
            .into_iter()
            .chain(locks)
            .chain(parks.into_iter().flatten());
        let builder = Builder::new().name(format!("userdma slot {slot}")).stack_size(STACK_BYTES);
        let (at_end, user) = (Arc::clone(&end), names::our_uid());
        let thread = spawn_apart(builder, keep.collect(), move |kept| {
            names::stay(user);
            if let Some(keeper) = Keeper::new((place, who), (slot, taken), at_end, clerk, kept, &counts) {
                keeper.run();
            }
        })?;
        let line = Arc::new(Mutex::new(line.into()));
        let (news, thread, pid) = (news.into(), Some(thread), std::process::id());
        Ok((Self { bell, line, end, registrar, news, thread, pid }, sockets))
    }

    /// Where the link on the address of this number gets the sockets of others.
    pub(crate) fn neighbor(&self, address: u8) -> Neighbor {
        Neighbor::new(&self.line, address)
    }

    /// Notes the first index, from 2 on, that no queue pair of the slot has had: the next owner's begin there. Without it, or if
    /// connections of its queue pairs are not over yet, the slot `rests` for a while when it goes back.
    pub fn set_end(&self, next_index: u16, rests: bool) {
        self.end.store(next_index | if rests { RESTS } else { 0 }, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // The thread is the parent's, and so is the bell.
            std::mem::forget(thread);
            return;
        }
        // If the program has closed the descriptor behind our back, the slot ends with the process.
        if rustix::io::write(&self.bell, &1u64.to_ne_bytes()).is_ok() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// How the descriptors that the thread gets are divided.
struct Counts {
    locks: usize,
    parks: Vec<usize>,
}

/// The thread's.
struct Keeper {
    place: Place,
    slot: u16,
    /// The address that made the device fall back on the port, if one did.
    taken: Option<IpAddr>,
    end: Arc<AtomicU16>,
    /// Whose slot it is: the user's agent's or the service's. Nobody else can know it.
    who: Name,
    /// `None` while there is no agent.
    agent: Option<OwnedFd>,
    /// How long to wait before an agent is looked for.
    pause_ns: u64,
    bell: OwnedFd,
    /// `None` when nobody asks any more.
    answerer: Option<Answerer>,
    clerk: Clerk,
    locks: Vec<OwnedFd>,
    parks: Vec<Vec<OwnedFd>>,
}

/// What the thread has to do.
enum Call {
    /// The slot is to go back.
    Release,
    /// The agent says something, or has gone.
    Hear,
    /// A link wants a socket.
    Answer,
    /// The program has something to tell the agent.
    Note,
    /// The agent is ready to be told.
    Tell,
    /// Packets to queue pair 1 have come.
    HandOver,
    /// There is no agent.
    Register,
}

impl Keeper {
    fn new(
        (place, who): (Place, Name),
        (slot, taken): (u16, Option<IpAddr>),
        end: Arc<AtomicU16>,
        registrar: Arc<Registrar>,
        kept: Vec<OwnedFd>,
        counts: &Counts,
    ) -> Option<Self> {
        let mut kept = kept.into_iter();
        let (agent, bell) = (kept.next(), kept.next()?);
        let answerer = kept.next().map(Answerer::new);
        let clerk = Clerk::new(registrar, kept.next());
        let locks = kept.by_ref().take(counts.locks).collect();
        let parks = counts.parks.iter().map(|count| kept.by_ref().take(*count).collect()).collect();
        Some(Self { place, slot, taken, end, who, agent, pause_ns: 0, bell, answerer, clerk, locks, parks })
    }

    fn run(mut self) {
        loop {
            match self.wait() {
                Call::Release => return self.release(),
                Call::Hear => self.hear(),
                Call::Answer => self.answer(),
                Call::Note => self.clerk.note(),
                Call::Tell => self.tell(),
                Call::HandOver => {
                    // What is left makes us look again.
                    let _ = self.clerk.hand_over();
                    // Packets may go on coming.
                    self.tell();
                }
                Call::Register => self.register(),
            }
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self) -> Call {
        let Some(agent) = &self.agent else {
            let is_over = crate::wait::until_readable(&self.bell, self.pause_ns);
            return if is_over { Call::Release } else { Call::Register };
        };
        let news = if self.clerk.has_news() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN), PollFd::new(agent, PollFlags::IN | news)];
        // Before links are answered: what they ask for may be what the agent has just sent.
        let mut calls = vec![Call::Release, Call::Hear];
        let others = [
            (self.answerer.as_ref().map(AsFd::as_fd), Call::Answer),
            (self.clerk.line(), Call::Note),
            (self.clerk.frames(), Call::HandOver),
        ];
        for (fd, call) in others {
            fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            calls.extend(fd.map(|_| call));
        }
        // An interruption or an error is an early return.
        while poll(&mut fds, None).is_err() {}
        // The agent is told when everything is known that the program has said.
        let may_tell = fds[1].revents() == PollFlags::OUT;
        let is_ready = |(at, fd): (usize, &PollFd<'_>)| !(fd.revents().is_empty() || at == 1 && may_tell);
        match fds.iter().enumerate().position(is_ready) {
            None if may_tell => Call::Tell,
            ready => ready.and_then(|at| calls.into_iter().nth(at)).unwrap_or(Call::Hear),
        }
    }

    /// Takes what the agent says.
    fn hear(&mut self) {
        let Some(agent) = &self.agent else { return };
        match client::next(agent) {
            Ok(Some((Reply::Parks { address }, ends))) => client::store(&mut self.parks, address, ends),
            Ok(Some((Reply::Neighbor { address, slot }, socket))) => {
                if let Some(answerer) = &self.answerer {
                    answerer.hand_over(address, slot, &socket);
                }
            }
            Ok(Some((Reply::Gsi(reply), _))) => self.clerk.answered(&reply),
            Ok(Some((Reply::Keep(bequest), _))) => self.clerk.keep(bequest),
            // Answers to what was asked before.
            Ok(Some((Reply::Granted { .. } | Reply::Registered | Reply::Refused(_), _))) => {}
            Ok(None) | Err(_) => self.agent = None,
        }
    }

    /// Answers a link that wants a socket: from the parks, or by asking the service, which has them.
    fn answer(&mut self) {
        let Self { who, agent, answerer, parks, .. } = self;
        let is_heard = |answerer: &mut Answerer| match (who, agent) {
            (Name::Service, Some(service)) => answerer.pass_on(service),
            _ => answerer.answer(parks),
        };
        answerer.take_if(|answerer| !is_heard(answerer));
    }

    /// Tells the agent what the program has told us.
    fn tell(&mut self) {
        if let Some(agent) = &self.agent
            && self.clerk.tell(agent).is_err()
        {
            self.agent = None;
        }
    }

    /// Tells a new agent what we have; if that fails, again, less and less often.
    fn register(&mut self) {
        if self.who == Name::Agent && names::has_changed() {
            // The user's other processes would take us for a stranger, above all as their agent. The slot stays ours: the lock
            // says so.
            self.pause_ns = SELDOM_NS;
            return;
        }
        let agent = if self.who == Name::Service { find::find_again() } else { client::find() };
        match agent {
            Ok(agent) if self.is_registered_with(&agent) => {
                self.clerk.begin_again(is_ours(&agent));
                (self.agent, self.pause_ns) = (Some(agent), 0);
                return;
            }
            Ok(_) => {}
            Err(failure) if self.pause_ns == 0 => {
                tracing::warn!(?failure, "no agent: processes that start now cannot share the port");
            }
            Err(_) => {}
        }
        self.pause_ns = (2 * self.pause_ns).clamp(AGAIN_NS, SELDOM_NS);
    }

    fn is_registered_with(&mut self, agent: &OwnedFd) -> bool {
        // A device has few parks: more than 253 ends would be 32 addresses with more than 1700 slots.
        let counts = self.parks.iter().map(|ends| u8::try_from(ends.len()).unwrap_or(u8::MAX)).collect();
        let (place, slot, taken) = (self.place.clone(), self.slot, self.taken);
        let request = Request::Register { place, slot, taken, parks: counts };
        let ends = self.parks.iter().flatten();
        // Who has no parks shows that the slot is its.
        let shown = self.locks.iter().filter(|_| self.who == Name::Service);
        let ends: Vec<_> = ends.chain(shown).map(AsFd::as_fd).collect();
        if packet::send(agent, &request.encode(), &ends).is_err() {
            return false;
        }
        loop {
            match client::next(agent) {
                Ok(Some((Reply::Parks { address }, ends))) => client::store(&mut self.parks, address, ends),
                Ok(Some((Reply::Registered, _))) => return true,
                Ok(_) | Err(_) => return false,
            }
        }
    }

    /// Gives the slot back, and waits until the agent has it, so that the port is free for others; but for one that is stopped
    /// not long.
    fn release(mut self) {
        self.locks.clear();
        self.parks.clear();
        let Some(agent) = &self.agent else { return };
        let deadline = clock::now().plus_nanos(PATIENCE_NS);
        let left_ns = || deadline.nanos().saturating_sub(clock::now().nanos());
        // Wills that were taken back just now are not to be opened.
        while self.clerk.has_news() {
            if self.clerk.tell(agent).is_err() || !wait::until_writable(agent, left_ns()) {
                return;
            }
        }
        let end = self.end.load(Ordering::Acquire);
        let request = Request::Release { next_index: end & !RESTS, rests: end & RESTS != 0 };
        while let Ok(false) = packet::send_now(agent, &request.encode(), &[]) {
            if !wait::until_writable(agent, left_ns()) {
                return;
            }
        }
        while wait::until_readable(agent, left_ns()) && matches!(client::next(agent), Ok(Some(_))) {}
    }
}

/// Whether the agent is a thread of our own process.
fn is_ours(agent: &OwnedFd) -> bool {
    Peer::of(agent).is_ok_and(|peer| u32::try_from(peer.pid).is_ok_and(|pid| pid == std::process::id()))
}

/// Beside an index, which has 14 bits: the slot rests.
const RESTS: u16 = 1 << 15;
const STACK_BYTES: usize = 256 << 10;
/// How long the agent may take to hear that a slot goes back.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How long to wait before the second attempt to find an agent, and at most before one.
const AGAIN_NS: u64 = 20_000_000;
const SELDOM_NS: u64 = 2_000_000_000;
