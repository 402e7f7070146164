//! Names of Unix sockets in the kernel's abstract space, of which each network namespace has its own: what holds a name is
//! gone when it dies, and nobody holds it twice. So the kernel says who is the agent, and who has a slot.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// The user whose agent we look for.
pub(crate) fn our_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Takes the name of the agent and listens; `None` if somebody has it.
pub(crate) fn listen_as_agent() -> io::Result<Option<OwnedFd>> {
    let Some(socket) = bind_to(SocketType::SEQPACKET, agent())? else { return Ok(None) };
    listen(&socket, BACKLOG)?;
    Ok(Some(socket))
}

/// A connection to the agent; `None` if there is none. It does not wait: an agent that is stopped while a thousand wait at its
/// door is an error (`EAGAIN`).
pub(crate) fn connect_to_agent() -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match connect(&socket, &SocketAddrUnix::new_abstract_name(agent().as_bytes())?) {
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
    bind_to(SocketType::DGRAM, &format!("{}/{ip}/{port}/{slot}", agent()))
}

/// The agent's name. The number is the version of the protocol and of what its processes rely on. `USERDMA_AGENT` is a word
/// that sets processes apart, as tests do: those with different words have different agents, and share no port.
fn agent() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let word = std::env::var("USERDMA_AGENT").unwrap_or_default();
        let word: String = word.chars().filter(char::is_ascii_alphanumeric).take(MAX_WORD).collect();
        format!("userdma/2/{}/{word}", our_uid())
    })
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
/// With it the longest name, of a lock on an IPv6 address, fits into the 107 bytes of a socket's name.
const MAX_WORD: usize = 24;
