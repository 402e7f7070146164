//! A process's side: how it gets a slot, and finds or becomes the agent.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::RecvFlags;
use userdma_link::clock;
use userdma_link::descriptors::Peer;

use crate::message::{MAX_LEN, Place, Refusal, Reply, Request};
use crate::{names, packet, server, wait};

/// What the agent gave, still in this thread's descriptors.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) agent: OwnedFd,
    pub(crate) slot: u16,
    pub(crate) first_index: u16,
    /// The address whose port was taken, if the slot is on the fallback port.
    pub(crate) taken: Option<IpAddr>,
    /// The slot's socket on each address.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) locks: Vec<OwnedFd>,
    /// The ends of the parks of each address.
    pub(crate) parks: Vec<Vec<OwnedFd>>,
}

/// Why there is no slot.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no agent and none can be: Unix sockets do not work here, or another user has the name.
    NoAgent(String),
    /// The agent is there but does not answer.
    Silent { pid: i32 },
    /// The agent refused.
    Refused(Refusal),
}

/// Gets a slot on all addresses of `place`, or on those with the port `fallback`.
pub(crate) fn claim(place: &Place, fallback: Option<u16>) -> Result<Granted, Failure> {
    let end = clock::now().plus_nanos(PATIENCE_NS);
    loop {
        let agent = find()?;
        match ask(agent, place, fallback) {
            Err(Failure::Refused(Refusal::Early)) if clock::now() < end => std::thread::sleep(EARLY),
            // It left or died in this moment: the next one.
            Ok(None) if clock::now() < end => std::thread::sleep(MOMENT),
            Ok(None) => return Err(Failure::NoAgent("one agent after the other ends".to_owned())),
            Ok(Some(granted)) => return Ok(granted),
            Err(failure) => return Err(failure),
        }
    }
}

/// A connection to the agent, which is started in this process if there is none.
pub(crate) fn find() -> Result<OwnedFd, Failure> {
    let no_agent = |what: &'static str| move |error: io::Error| Failure::NoAgent(format!("{what}: {error}"));
    let end = clock::now().plus_nanos(PATIENCE_NS);
    let mut is_crowded = false;
    while clock::now() < end {
        match names::connect_to_agent() {
            Ok(Some(agent)) => return checked(agent),
            Ok(None) => match names::listen_as_agent().map_err(no_agent("socket of the agent"))? {
                Some(listener) => server::start(listener).map_err(no_agent("thread of the agent"))?,
                // Somebody has the name and does not listen yet.
                None => std::thread::sleep(MOMENT),
            },
            // So many wait at its door that there is no room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                is_crowded = true;
                std::thread::sleep(MOMENT);
            }
            Err(error) => return Err(no_agent("connection to the agent")(error)),
        }
    }
    if is_crowded {
        return Err(Failure::Silent { pid: 0 });
    }
    Err(Failure::NoAgent("somebody has the name of the agent and does not listen".to_owned()))
}

/// The agent, if it is this user's.
fn checked(agent: OwnedFd) -> Result<OwnedFd, Failure> {
    let peer = Peer::of(&agent).map_err(|error| Failure::NoAgent(format!("user of the agent: {error}")))?;
    if peer.uid == names::our_uid() {
        return Ok(agent);
    }
    Err(Failure::NoAgent(format!("user {} has the name of this user's agent", peer.uid)))
}

/// Asks this agent; `None` if it has gone.
fn ask(agent: OwnedFd, place: &Place, fallback: Option<u16>) -> Result<Option<Granted>, Failure> {
    let request = Request::Claim { place: place.clone(), fallback };
    if packet::send(&agent, &request.encode(), &[]).is_err() {
        return Ok(None);
    }
    let count = place.addresses.len();
    let mut parks: Vec<_> = std::iter::repeat_with(Vec::new).take(count).collect();
    loop {
        let Some((reply, mut descriptors)) = next(&agent)? else { return Ok(None) };
        match reply {
            Reply::Parks { address } => store(&mut parks, address, descriptors),
            Reply::Granted { slot, first_index, taken } if descriptors.len() == 2 * count => {
                let (locks, sockets) = (descriptors.split_off(count), descriptors);
                return Ok(Some(Granted { agent, slot, first_index, taken, sockets, locks, parks }));
            }
            Reply::Refused(refusal) => return Err(Failure::Refused(refusal)),
            Reply::Granted { .. } | Reply::Registered | Reply::Gsi(_) | Reply::Keep(_) => return Ok(None),
        }
    }
}

/// The agent's next message; `None` if it has gone.
pub(crate) fn next(agent: &OwnedFd) -> Result<Option<(Reply, Vec<OwnedFd>)>, Failure> {
    if !wait::until_readable(agent, PATIENCE_NS) {
        return Err(Failure::Silent { pid: Peer::of(agent).map_or(0, |peer| peer.pid) });
    }
    let mut room = [0; MAX_LEN];
    match packet::receive(agent, &mut room, RecvFlags::DONTWAIT) {
        Ok((len, descriptors)) => Ok(Reply::decode(&room[..len]).map(|reply| (reply, descriptors))),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            Err(Failure::NoAgent(error.to_string()))
        }
        Err(_) => Ok(None),
    }
}

/// Takes parks in place of those that are there.
pub(crate) fn store(parks: &mut [Vec<OwnedFd>], address: u8, ends: Vec<OwnedFd>) {
    if let Some(place) = parks.get_mut(usize::from(address)) {
        *place = ends;
    }
}

/// How long an agent may take for an answer, and processes for finding one.
const PATIENCE_NS: u64 = 5_000_000_000;
/// After so long a new agent is asked again.
const EARLY: Duration = Duration::from_millis(20);
const MOMENT: Duration = Duration::from_millis(1);
