//! The service: an agent for all users of a machine, in a process of its own.
//!
//! ```text
//!   user 1000             user 1001                 the service
//!   lease ── line, claims ─┬─ line, claims ── lease   desk: whose is which slot
//!   slot 1: socket         │              slot 2: socket   │ parks, ends of the lines
//!                          ▼                               ▼
//!                       service ───────────────────────▶ keeper: has them while there is no service
//! ```
//!
//! It is the agent of `server.rs` with other rules. A process gets the socket of its own slot and never a park; a user has
//! a bound; who owns a slot is known by a line ([`crate::locks`]) and not by a name that anybody may take. All that must not
//! close is with the [`keeper`] too, so that the service may die and a new one go on.

mod complaints;
mod event;
pub(crate) mod find;
pub(crate) mod keeper;
pub(crate) mod note;
mod restore;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use userdma_link::descriptors::Peer;
use userdma_link::{UdpConfig, clock};

use self::complaints::{Complaints, Telling};
pub use self::event::ServiceEvent;
use self::note::{KeptSlot, Note};
use crate::desk::{Desk, LAST_SLOT};
use crate::locks::Locks;
use crate::message::{Place, Refusal};
use crate::names::{self, Name};
use crate::park::Park;
use crate::server::Agent;
use crate::wait;

/// How a service is run.
pub struct ServiceConfig {
    /// Devices that one user may have on one address: 1 ..= 1022.
    pub devices_per_user: u16,
    /// When it can be read, the service ends.
    pub stop: OwnedFd,
    /// Starts a process that runs [`keep`](crate::keep), and does not wait for it.
    pub start_keeper: Box<dyn FnMut() -> io::Result<()>>,
    /// Told what an administrator wants to know.
    pub log: Box<dyn FnMut(&ServiceEvent)>,
}

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Somebody has the service's name.
    #[error("{}, process {pid} of user {uid}", if *.uid == names::our_uid() { "a service runs already" } else { "somebody else has the service's name" })]
    Taken {
        /// The process; 0 if it is in another process namespace.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// The system has no names for Unix sockets, or does not give one.
    #[error("name of the service: {0}")]
    Name(io::Error),
    /// There is no process that keeps the sockets, and none can be started.
    #[error("keeper of the sockets: {0}")]
    Keeper(io::Error),
}

/// Serves all users of this machine's network namespace until it is told to stop. What is connected then stays so; a service
/// that is started later goes on with it.
///
/// # Errors
/// Another service is there, or the keeper is not to be had. Nothing has changed.
pub fn serve(config: ServiceConfig) -> Result<(), ServiceError> {
    let Some(listener) = names::listen_as(Name::Service).map_err(ServiceError::Name)? else {
        let peer = names::connect_to(Name::Service).ok().flatten().and_then(|other| Peer::of(&other).ok());
        let Peer { pid, uid } = peer.unwrap_or(Peer { pid: 0, uid: names::our_uid() });
        return Err(ServiceError::Taken { pid, uid });
    };
    raise_descriptor_limit();
    let ServiceConfig { devices_per_user, stop, mut start_keeper, log } = config;
    let per_user = devices_per_user.clamp(1, LAST_SLOT);
    let mut desk = Desk::new(Locks::Lines(HashMap::new()), per_user);
    let keeper = restore::take_over(&mut start_keeper, &mut desk).map_err(ServiceError::Keeper)?;
    let orphans = desk.used().collect();
    let mut service = Service {
        stop,
        keeper: Some(keeper),
        start_keeper,
        log,
        complaints: Complaints::default(),
        told: HashMap::new(),
        orphans,
    };
    service.tell(&ServiceEvent::Started {
        uid: names::our_uid(),
        per_user,
        taken_over: service.orphans.len(),
    });
    for holder in
        crate::holders(port()).into_iter().filter(|holder| desk.group(holder.address, port()).is_none())
    {
        service.tell(&ServiceEvent::Held(holder));
    }
    Agent::new(listener, desk, Some(service)).run();
    Ok(())
}

/// What makes an agent a service.
pub(crate) struct Service {
    stop: OwnedFd,
    /// The connection to the keeper; `None` if it is lost.
    keeper: Option<OwnedFd>,
    start_keeper: Box<dyn FnMut() -> io::Result<()>>,
    log: Box<dyn FnMut(&ServiceEvent)>,
    complaints: Complaints,
    /// How many sockets the keeper has of each port.
    told: HashMap<(IpAddr, u16), usize>,
    /// Slots whose owners have not registered since the service has started.
    orphans: HashSet<(IpAddr, u16, u16)>,
}

impl Service {
    /// Whether it is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        wait::is_readable(&self.stop)
    }

    pub(crate) fn tell(&mut self, event: &ServiceEvent) {
        let telling = event.blamed().map(|user| (user, self.complaints.add(user, clock::now())));
        if !matches!(telling, Some((_, Telling::LeaveOut))) {
            (self.log)(event);
        }
        if let Some((uid, Telling::TellLast)) = telling {
            (self.log)(&ServiceEvent::Muted { uid });
        }
    }

    /// What it waits for beside the clients, and of which of those only that they hang up.
    pub(crate) fn descriptors<'a>(&'a self, desk: &'a Desk) -> (Vec<BorrowedFd<'a>>, Vec<BorrowedFd<'a>>) {
        let read = std::iter::once(&self.stop).chain(&self.keeper).map(AsFd::as_fd).collect();
        let lines = self.orphans.iter().filter_map(|&(ip, port, slot)| desk.locks().line(ip, port, slot));
        (read, lines.map(AsFd::as_fd).collect())
    }

    /// When it has to do something though nothing happens.
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        self.keeper.is_none().then_some(RETRY_NS)
    }

    /// Whether a claim may be heard: `others` are the numbers of addresses that the user's devices have.
    pub(crate) fn admit(&self, user: u32, place: &Place, others: usize) -> Result<(), Refusal> {
        if place.port != port() {
            return Err(Refusal::Other(format!("the service has port {} only", port())));
        }
        if others + place.addresses.len() > MAX_ADDRESSES {
            return Err(Refusal::Other(format!(
                "the devices of user {user} have {others} addresses, and {MAX_ADDRESSES} is what the service gives to one user"
            )));
        }
        Ok(())
    }

    /// Tells the keeper what has changed about a slot, and the groups that it is in.
    pub(crate) fn keep(&mut self, desk: &Desk, place: &Place, slot: u16) {
        for &ip in &place.addresses {
            self.orphans.remove(&(ip, place.port, slot));
            let kept = self
                .keep_group(desk, ip, place.port)
                .and_then(|()| self.keep_slot(desk, ip, place.port, slot));
            if let Err(error) = kept {
                self.lose_keeper(error);
            }
        }
    }

    /// The slots without a registered owner whose owner has died.
    pub(crate) fn dead(&self, desk: &Desk) -> Vec<(IpAddr, u16, u16)> {
        let is_dead = |&&(ip, port, slot): &&(IpAddr, u16, u16)| !desk.locks().is_locked(ip, port, slot);
        self.orphans.iter().filter(is_dead).copied().collect()
    }

    /// Whether `shown`, one for each address, are the owner's ends of a slot that waits for its owner.
    pub(crate) fn is_owner(&self, desk: &Desk, place: &Place, slot: u16, shown: &[OwnedFd]) -> bool {
        let is_owned = |(ip, shown): (&IpAddr, &OwnedFd)| {
            self.orphans.contains(&(*ip, place.port, slot))
                && desk.locks().line(*ip, place.port, slot).is_some_and(|line| line.is_to(shown))
        };
        shown.len() == place.addresses.len() && place.addresses.iter().zip(shown).all(is_owned)
    }

    /// Sees to it that there is a keeper.
    pub(crate) fn look_after_keeper(&mut self, desk: &Desk) {
        if self.keeper.as_ref().is_some_and(wait::is_readable) {
            // It has nothing to say.
            self.lose_keeper(io::ErrorKind::ConnectionReset.into());
        }
        if self.keeper.is_none()
            && let Ok(keeper) = restore::find_keeper(&mut self.start_keeper)
        {
            self.keeper = Some(keeper);
            self.told.clear();
            match self.keep_all(desk) {
                Ok(()) => self.tell(&ServiceEvent::KeeperStarted),
                Err(error) => self.lose_keeper(error),
            }
        }
    }

    fn lose_keeper(&mut self, error: io::Error) {
        if self.keeper.take().is_some() {
            self.tell(&ServiceEvent::KeeperLost(error));
        }
    }

    fn keep_all(&mut self, desk: &Desk) -> io::Result<()> {
        let slots: Vec<_> = desk.used().collect();
        for &(ip, port, slot) in &slots {
            self.keep_group(desk, ip, port)?;
            self.keep_slot(desk, ip, port, slot)?;
        }
        Ok(())
    }

    /// Hands the keeper the parks of a group, if they have changed.
    fn keep_group(&mut self, desk: &Desk, ip: IpAddr, port: u16) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let group = desk.group(ip, port);
        let len = group.map_or(0, |group| group.len());
        if self.told.get(&(ip, port)).copied().unwrap_or(0) != len {
            let parks: Vec<_> = group.iter().flat_map(|group| group.parks()).map(Park::end).collect();
            keeper::tell(keeper, &Note::Parks { ip, port }, &parks)?;
            self.told.insert((ip, port), len);
        }
        Ok(())
    }

    fn keep_slot(&self, desk: &Desk, ip: IpAddr, port: u16, slot: u16) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let Some((user, entry)) = desk.slot(ip, port, slot).and_then(|entry| Some((entry.user?, entry)))
        else {
            return Ok(());
        };
        let line = desk.locks().line(ip, port, slot).filter(|_| entry.is_used);
        let far_inode = line.map_or(0, |line| line.far_inode);
        let kept = KeptSlot { user, next_index: entry.next_index, far_inode };
        let line: Vec<_> = line.iter().map(|line| line.as_fd()).collect();
        keeper::tell(keeper, &Note::Slot { ip, port, slot, kept }, &line)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("orphans", &self.orphans).finish_non_exhaustive()
    }
}

/// The port that a service has.
pub(crate) fn port() -> u16 {
    UdpConfig::default().port
}

/// A descriptor for each client, line and address: as many as the system allows. If it does not, there are fewer.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Connections of one user at most: one for each device, and some for those who ask.
pub(crate) const MAX_CONNECTIONS: usize = 2048;
/// Addresses of all devices of one user at most: each may cost a group.
const MAX_ADDRESSES: usize = 1024;
/// When a keeper that was lost is looked for again.
const RETRY_NS: u64 = 1_000_000_000;
/// How long nothing is done if nobody can be taken in, for want of descriptors.
const FULL: Duration = Duration::from_millis(10);
