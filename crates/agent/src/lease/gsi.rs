//! Ports, services and wills of a device that shares its port, and what comes for its queue pair 1.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use userdma_link::clock;
use userdma_verbs::Time;

use super::Lease;
use super::registrar::Registrar;
use crate::gsi::{FRAME_LEN, GsiFrame, PortError, PortRequest, Reservation, Will};
use crate::message::{Bequest, GsiReply, GsiRequest, Request};
use crate::packet;
use crate::registry::Services;
use crate::wait;

/// While the agent's process is stopped, what waits for its answer ends with `ETIMEDOUT` after five seconds and has not happened.
impl Lease {
    /// Reserves a port.
    ///
    /// # Errors
    /// As [`PortError::errno`] says; nothing is reserved.
    pub fn reserve(&self, port: &PortRequest) -> io::Result<Reservation> {
        let id = self.registrar.number();
        let port = self.ask(|seq| GsiRequest::Reserve { seq, id, port: *port })?;
        Ok(Reservation { id, port })
    }

    /// Sees to it that nobody else has a port that was reserved to be shared: before listening there.
    ///
    /// # Errors
    /// `EADDRINUSE` or `EADDRNOTAVAIL`: somebody has it.
    pub fn begin_listening(&self, id: u32) -> io::Result<()> {
        self.ask(|seq| GsiRequest::BeginListening { seq, id }).map(drop)
    }

    /// Gives a port back. Does not wait.
    pub fn release_port(&self, id: u32) {
        if self.is_ours() {
            self.registrar.release(id);
            self.poke();
        }
    }

    /// From now on gets what comes for services, on one address of the device or all. The same twice is counted.
    ///
    /// # Errors
    /// `EADDRINUSE`: another device on an address gets it.
    pub fn listen(&self, service: Services, on: Option<IpAddr>) -> io::Result<()> {
        self.ask(|seq| GsiRequest::Listen { seq, service, on }).map(drop)
    }

    /// Ends what [`Lease::listen`] began. Does not wait.
    pub fn unlisten(&self, service: Services, on: Option<IpAddr>) {
        if self.is_ours() {
            self.registrar.unlisten(service, on);
            self.poke();
        }
    }

    /// What is to be sent for a connection if the device ends without taking it back. When this returns the process may be killed:
    /// the agent has it (and if that is in the same process, its deputy), unless there is none, or it takes nothing within 20 ms.
    /// Taking back does not wait.
    pub fn set_will(&self, comm_id: u32, will: Option<&Will>) {
        if self.is_ours() {
            self.registrar.set_will(comm_id, will);
            self.poke();
            if will.is_some()
                && self.registrar.wait_until_told(comm_id, PROMPT)
                && self.registrar.is_agent_ours()
            {
                // By its answer the deputy has it, too. Without one it is as when there is no agent.
                let _ = self.registrar.ask(|seq| GsiRequest::Sync { seq }, || self.poke(), PROMPT);
            }
        }
    }

    /// A connection has ended, and the peer has been told so once, with this: the agent tells it again until it knows, also if the
    /// device ends. Does not wait.
    pub fn open_will(&self, comm_id: u32, will: &Will) {
        if self.is_ours() {
            self.registrar.open_will(comm_id, will);
            self.poke();
        }
    }

    /// From when this returns packets to queue pair 1 that are for this device are given to `sink`, and `bell`, an eventfd, is rung behind
    /// them. The thread that calls it has no descriptors of the process: it may not drive, nor make system calls on any.
    ///
    /// # Errors
    /// The thread has not got the bell.
    pub fn set_gsi(&self, bell: BorrowedFd<'_>, sink: Box<dyn Fn(GsiFrame<'_>) + Send>) -> io::Result<()> {
        self.registrar.set_sink(Some(sink));
        // Others may make the thread look so often that there is no room for a moment.
        while !packet::send_now(&self.news, &[0], &[bell])? {
            if !wait::until_writable(&self.news, PATIENCE_NS) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        // From here on nothing is missed. If the agent is stopped, it is told when it goes on.
        match self.ask(|seq| GsiRequest::Sync { seq }) {
            Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Packets are given to nobody from now on; when this returns, the sink is not called any more.
    pub fn clear_gsi(&self) {
        if self.is_ours() {
            self.registrar.set_sink(None);
        }
    }

    fn ask(&self, request: impl Fn(u32) -> GsiRequest) -> io::Result<u16> {
        if !self.is_ours() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let end = clock::now().plus_nanos(PATIENCE_NS);
        loop {
            let left = Duration::from_nanos(end.nanos().saturating_sub(clock::now().nanos()));
            match self.registrar.ask(&request, || self.poke(), left) {
                Some(Err(PortError::Early)) if !left.is_zero() => std::thread::sleep(EARLY),
                Some(answer) => return Ok(answer?),
                None => return Err(io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error())),
            }
        }
    }

    /// Whether the process is the one that has the slot, and not a child of it.
    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Makes the thread look. If there is no room for a message, it is about to.
    fn poke(&self) {
        let _ = packet::send_now(&self.news, &[0], &[]);
    }
}

/// The part of the thread that keeps the slot.
#[derive(Debug)]
pub(super) struct Clerk {
    registrar: Arc<Registrar>,
    /// By which the program makes us look; `None` when it has gone.
    line: Option<OwnedFd>,
    /// Rung behind packets that were handed over; `None` if nobody wants any.
    bell: Option<OwnedFd>,
    /// By which packets come.
    frames: Option<OwnedFd>,
    /// The agent's end of that, until it has it.
    to_attach: Option<OwnedFd>,
    /// Wills of devices in the agent's process, by slot and connection: for the next agent.
    kept: BTreeMap<(IpAddr, u16, u16, u32), Bequest>,
    /// Those that the agent before had us keep, for the agent that there is now.
    to_pass_on: Vec<Bequest>,
    /// Those that were passed on, and when: if that agent dies as well before it has acted, the next gets them again.
    passed_on: Vec<(Time, Bequest)>,
}

impl Clerk {
    pub(super) fn new(registrar: Arc<Registrar>, line: Option<OwnedFd>) -> Self {
        Self {
            registrar,
            line,
            bell: None,
            frames: None,
            to_attach: None,
            kept: BTreeMap::new(),
            to_pass_on: Vec::new(),
            passed_on: Vec::new(),
        }
    }

    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn frames(&self) -> Option<BorrowedFd<'_>> {
        self.frames.as_ref().map(AsFd::as_fd)
    }

    /// Whether there is something to tell the agent.
    pub(super) fn has_news(&self) -> bool {
        self.to_attach.is_some() || !self.to_pass_on.is_empty() || self.registrar.has_news()
    }

    /// A new agent, which may be in our own process, is to be told everything.
    pub(super) fn begin_again(&mut self, is_ours: bool) {
        self.registrar.note_agent(is_ours);
        self.registrar.begin_again();
        let fresh = clock::now().nanos().saturating_sub(INHERITED_NS);
        let passed_on = std::mem::take(&mut self.passed_on).into_iter();
        self.to_pass_on.extend(passed_on.filter(|(at, _)| at.nanos() >= fresh).map(|(_, bequest)| bequest));
        self.to_pass_on.extend(std::mem::take(&mut self.kept).into_values());
        if self.bell.is_some() {
            // What the agent before passed on last; if it goes on, that is lost.
            for _ in 0..MAX_LAST {
                if !self.hand_over() {
                    break;
                }
            }
            self.open_frames();
        }
    }

    /// The program has said that there is something.
    pub(super) fn note(&mut self) {
        let Some(line) = &self.line else { return };
        match packet::receive(line, &mut [0], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.line = None,
            Ok((_, bells)) => {
                if let Some(bell) = bells.into_iter().next() {
                    self.bell = Some(bell);
                    if self.frames.is_none() {
                        self.open_frames();
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.line = None,
        }
    }

    /// Tells the agent as much as there is room for.
    pub(super) fn tell(&mut self, agent: &OwnedFd) -> io::Result<()> {
        if let Some(end) = &self.to_attach {
            if !packet::send_now(agent, &Request::Gsi(GsiRequest::Attach).encode(), &[end.as_fd()])? {
                return Ok(());
            }
            self.to_attach = None;
        }
        while let Some(bequest) = self.to_pass_on.last() {
            let request = Request::Gsi(GsiRequest::Bequest(bequest.clone()));
            if !packet::send_now(agent, &request.encode(), &[])? {
                return Ok(());
            }
            self.passed_on.extend(self.to_pass_on.pop().map(|bequest| (clock::now(), bequest)));
        }
        self.registrar.tell(|request| packet::send_now(agent, &Request::Gsi(request).encode(), &[]))
    }

    /// The agent wants a will kept for the next one, or no longer.
    pub(super) fn keep(&mut self, bequest: Bequest) {
        let key = (bequest.will.from, bequest.udp_port, bequest.slot, bequest.comm_id);
        if bequest.is_void {
            self.kept.remove(&key);
        } else if self.kept.len() < MAX_KEPT || self.kept.contains_key(&key) {
            self.kept.insert(key, bequest);
        }
    }

    pub(super) fn answered(&self, reply: &GsiReply) {
        self.registrar.answer(reply.seq, reply.result);
    }

    /// Packets have come. Whether there may be more.
    pub(super) fn hand_over(&mut self) -> bool {
        let mut packets = Vec::new();
        while packets.len() < FRAMES_AT_ONCE {
            let Some(frames) = &self.frames else { break };
            let mut room = [0; FRAME_LEN + 1];
            match packet::receive(frames, &mut room, RecvFlags::DONTWAIT) {
                // The agent has gone.
                Ok((0, _)) => self.frames = None,
                Ok((len, _)) => packets.push(room[..len].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.frames = None,
            }
        }
        if self.registrar.hand_over(&packets)
            && let Some(bell) = &self.bell
        {
            // It fails only if it has been rung 2^64 - 2 times.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        packets.len() == FRAMES_AT_ONCE
    }

    /// Makes a new way for packets, whose other end the agent gets.
    fn open_frames(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) {
            Ok((ours, theirs)) => (self.frames, self.to_attach) = (Some(ours), Some(theirs)),
            Err(error) => tracing::warn!(%error, "no way for management datagrams"),
        }
    }
}

/// How long the agent may take for an answer.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How long a thread may take to tell what the agent has room for.
const PROMPT: Duration = Duration::from_millis(20);
/// After so long a new agent is asked again.
const EARLY: Duration = Duration::from_millis(20);
/// Wills that are kept for the next agent: some 400 bytes each.
const MAX_KEPT: usize = 1 << 16;
/// How long an agent may need until it has acted on wills that it was told.
const INHERITED_NS: u64 = 10_000_000_000;
/// Packets that are handed over before the thread turns to something else.
const FRAMES_AT_ONCE: usize = 64;
/// How often that is done at the end of an agent: more than there is room for between us.
const MAX_LAST: usize = 64;

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::message::MAX_LEN;

    /// An agent that was told of wills may die before it has acted on them.
    #[test]
    fn what_is_kept_is_told_to_the_next_agent_and_to_the_one_after() {
        let mut clerk = Clerk::new(Arc::new(Registrar::default()), None);
        let ip = "127.71.1.3".parse().unwrap();
        let will = Will { from: ip, to: ip, mad: [7; 256] };
        let bequest = Bequest { udp_port: 4791, slot: 1, comm_id: 5, will, is_void: false };
        clerk.keep(bequest.clone());
        let told = GsiRequest::Bequest(bequest);
        for nth in ["first", "second"] {
            let (agent, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
            clerk.begin_again(false);
            clerk.tell(&theirs).unwrap();
            let mut room = [0; MAX_LEN];
            let (len, _) = packet::receive(&agent, &mut room, RecvFlags::empty()).expect(nth);
            assert_eq!(Request::decode(&room[..len]), Some(Request::Gsi(told.clone())), "{nth}");
            assert!(!clerk.has_news());
        }
    }

    /// The thread hears of the agent's end before it looks at what that passed on.
    #[test]
    fn what_an_agent_passed_on_last_is_handed_over_before_the_next() {
        let registrar = Arc::new(Registrar::default());
        let (tell, came) = std::sync::mpsc::channel();
        registrar.set_sink(Some(Box::new(move |frame| tell.send(frame.lost).unwrap())));
        let mut clerk = Clerk::new(registrar, None);
        clerk.bell = Some(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        clerk.open_frames();
        let agents_end = clerk.to_attach.take().unwrap();
        let remote = ("127.71.1.4".parse().unwrap(), 1);
        let count = u32::try_from(FRAMES_AT_ONCE).unwrap() + 3;
        for lost in 0..count {
            let frame = GsiFrame { remote, local: remote.0, lost, bytes: &[0; 7] };
            assert!(packet::send_now(&agents_end, &frame.encode(), &[]).unwrap());
        }
        drop(agents_end);
        clerk.begin_again(false);
        assert_eq!(came.try_iter().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        assert!(clerk.to_attach.is_some(), "the next agent gets a line of its own");
    }
}
