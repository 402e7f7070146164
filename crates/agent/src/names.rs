//! Names of Unix sockets in the kernel's abstract space, of which each network namespace has its own: what holds a name is
//! gone when it dies, and nobody holds it twice. So the kernel says who is the agent, and who has a slot.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::setting::setting;

thread_local! {
    /// The user that this thread stays, if it does.
    static STAYS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The user whose agent we look for.
pub(crate) fn our_uid() -> u32 {
    STAYS.get().unwrap_or_else(|| rustix::process::geteuid().as_raw())
}

/// This thread goes on as `user`, who started it: programs change theirs (`setuid`), and what a thread keeps for others, slots and
/// their locks, is the first one's still.
pub(crate) fn stay(user: u32) {
    STAYS.set(Some(user));
}

/// Whether the program has become another user since: those of the first one do not know this thread any more, as the kernel tells
/// them who connects or listens now.
pub(crate) fn has_changed() -> bool {
    STAYS.get().is_some_and(|user| user != rustix::process::geteuid().as_raw())
}

/// What may be listening under a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Name {
    /// The agent of this process's user.
    Agent,
    /// The service for all users.
    Service,
    /// The process that keeps the service's sockets while there is none.
    Keeper,
}

/// Takes a name and listens; `None` if somebody has it.
pub(crate) fn listen_as(name: Name) -> io::Result<Option<OwnedFd>> {
    let Some(socket) = bind_to(SocketType::SEQPACKET, &name.text())? else { return Ok(None) };
    listen(&socket, BACKLOG)?;
    Ok(Some(socket))
}

/// A connection to who has the name; `None` if nobody listens. It does not wait: somebody who is stopped while a thousand wait
/// at his door is an error (`EAGAIN`).
pub(crate) fn connect_to(name: Name) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match connect(&socket, &SocketAddrUnix::new_abstract_name(name.text().as_bytes())?) {
            Ok(()) => {
                rustix::io::ioctl_fionbio(&socket, false)?;
                return Ok(Some(socket));
            }
            Err(Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What only the owner of a slot has, as long as he lives; `None` if somebody has it.
pub(crate) fn lock_slot(ip: IpAddr, port: u16, slot: u16) -> io::Result<Option<OwnedFd>> {
    bind_to(SocketType::DGRAM, &format!("{}/{ip}/{port}/{slot}", Name::Agent.text()))
}

impl Name {
    /// The name itself. The number is the version of the protocol and of what its processes rely on.
    fn text(self) -> String {
        let word = &setting().word;
        match self {
            Self::Agent => format!("userdma/3/{}/{word}", our_uid()),
            Self::Service => format!("userdma/3/service/{word}"),
            Self::Keeper => format!("userdma/3/keeper/{word}"),
        }
    }
}

fn bind_to(kind: SocketType, name: &str) -> io::Result<Option<OwnedFd>> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Processes that may connect while the agent is busy; the kernel's limit is 4096 mostly. Others wait.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use rustix::process::Uid;

    use super::*;

    #[test]
    fn a_thread_stays_the_user_who_started_it_and_knows_that_the_program_is_another() {
        let user = our_uid();
        if user != 0 {
            return eprintln!("SKIPPED: only root can become another user");
        }
        let lock = |slot| lock_slot("127.74.90.1".parse().unwrap(), 4791, slot).unwrap();
        let kept = std::thread::spawn(move || {
            stay(user);
            assert!(!has_changed());
            // Of this thread alone, as the kernel has it.
            rustix::thread::set_thread_uid(Uid::from_raw(65_534)).unwrap();
            assert!(has_changed());
            assert_eq!(our_uid(), user);
            (lock(1), lock(2))
        });
        let kept = kept.join().unwrap();
        assert!(
            kept.0.is_some() && lock(1).is_none(),
            "the lock has the name that the user's others look for"
        );
        drop(kept);
        assert!(lock(1).is_some());
    }
}
