//! A process's side: whether there is a service that it is to ask, and how it gets a slot there.
//!
//! A service comes before the user's own agent. Its name may be taken by anybody, so it counts only if its user is trusted
//! ([`crate::setting`]). Where the service says that somebody else has the port, the own agent is asked: it may be the user's
//! own processes, which were there before the service.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::time::Duration;

use userdma_link::clock;
use userdma_link::descriptors::Peer;

use crate::client::{self, Failure, Granted};
use crate::message::{Place, Refusal};
use crate::names::{self, Name};
use crate::setting::{Trust, setting};

/// Gets a slot from the service. `None` if there is none, or it does not have the port: then the own agent is to be asked.
pub(crate) fn claim(place: &Place) -> Result<Option<Granted>, Failure> {
    if place.port != super::port() {
        return Ok(None);
    }
    let end = clock::now().plus_nanos(PATIENCE_NS);
    loop {
        let Some(service) = find()? else { return Ok(None) };
        match client::ask(service, Name::Service, place, None) {
            Ok(Some(granted)) => return Ok(Some(granted)),
            Err(Failure::Refused(Refusal::Taken(_))) => return Ok(None),
            Err(Failure::Refused(Refusal::Early)) if clock::now() < end => std::thread::sleep(AGAIN),
            // It has just died, or does not want to hear us.
            Ok(None) if clock::now() < end => std::thread::sleep(AGAIN),
            Ok(None) => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
}

/// A connection to the service; `None` if there is none that is to be asked. While there is a keeper, a service is waited for.
fn find() -> Result<Option<OwnedFd>, Failure> {
    let end = clock::now().plus_nanos(PATIENCE_NS);
    loop {
        match trusted(Name::Service) {
            Ok(None) if clock::now() < end && trusted(Name::Keeper).is_ok_and(|keeper| keeper.is_some()) => {}
            // So many wait at its door that there is no room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if clock::now() >= end {
                    return Err(Failure::Silent { pid: 0 });
                }
            }
            // Where there are no such sockets there is no service.
            Err(_) => return Ok(None),
            Ok(service) => return Ok(service),
        }
        std::thread::sleep(AGAIN);
    }
}

/// A connection to the service without waiting for it, for who has a slot of it.
pub(crate) fn find_again() -> Result<OwnedFd, Failure> {
    match trusted(Name::Service) {
        Ok(Some(service)) => Ok(service),
        Ok(None) => Err(Failure::NoAgent("the service has ended".to_owned())),
        Err(error) => Err(Failure::NoAgent(error.to_string())),
    }
}

/// A connection to who has the name, if that is a user whom this process trusts.
fn trusted(name: Name) -> io::Result<Option<OwnedFd>> {
    if setting().service == Trust::Nobody {
        return Ok(None);
    }
    let Some(socket) = names::connect_to(name)? else { return Ok(None) };
    let Peer { pid, uid } = Peer::of(&socket)?;
    if setting().trusts(uid, names::our_uid()) {
        return Ok(Some(socket));
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            pid,
            uid,
            "a service of a user who is neither root nor named by USERDMA_AGENT is not asked"
        );
    });
    Ok(None)
}

/// How long a service may take to be started again.
const PATIENCE_NS: u64 = 5_000_000_000;
const AGAIN: Duration = Duration::from_millis(10);
