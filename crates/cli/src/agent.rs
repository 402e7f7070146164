//! `userdma agent`: the service that shares the addresses of a machine among its users.

use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use userdma_agent::{ServiceConfig, ServiceEvent};

use crate::args::AgentArgs;
use crate::failure::Failure;

/// Serves until a signal ends it.
///
/// # Errors
/// It could not begin: another one runs, say.
pub fn run(args: &AgentArgs) -> Result<(), Failure> {
    let stop = userdma_link::signals::stop_signals()?;
    let mut keeper = None;
    let config = ServiceConfig {
        devices_per_user: args.devices_per_user,
        stop,
        start_keeper: Box::new(move || start_keeper(&mut keeper)),
        log: Box::new(log),
    };
    userdma_agent::serve(config).map_err(|error| Failure::new(error.to_string()))
}

/// What the keeper does, until nothing is left to keep.
///
/// # Errors
/// It cannot have its name.
pub fn keep() -> Result<(), Failure> {
    Ok(userdma_agent::keep()?)
}

/// Starts the keeper: this program again, which outlives us and has nothing of ours. `last` is the one before.
fn start_keeper(last: &mut Option<Child>) -> io::Result<()> {
    // If it has ended, nothing of it is to stay.
    let _ = last.as_mut().map(Child::try_wait);
    // Also if the file has been replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("userdma").arg("agent-keeper").env_remove("LD_PRELOAD").process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    *last = Some(command.spawn()?);
    Ok(())
}

/// A line for the administrator. Who started us is told what he waits for, if he is systemd.
fn log(event: &ServiceEvent) {
    tell(&mut io::stderr(), &format!("userdma agent: {event}\n"));
    if matches!(event, ServiceEvent::Started { .. }) {
        notify(b"READY=1");
    } else if matches!(event, ServiceEvent::Stopping { .. }) {
        notify(b"STOPPING=1");
    }
}

/// Writes a line, in one piece. If nobody reads, or not now, as of a terminal that was stopped, it is lost: the service goes on.
fn tell(to: &mut (impl Write + AsFd), line: &str) {
    let mut room = [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A pipe has room for 4096 bytes when it says so, which no line is longer than.
    let has_room = poll(&mut room, Some(&at_once)).is_ok() && room[0].revents().contains(PollFlags::OUT);
    if has_room {
        let _ = to.write_all(line.as_bytes());
    }
}

/// Tells the manager of services about us, as sd_notify(3) says.
fn notify(state: &[u8]) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    };
    // A manager that does not listen waits for nothing.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state, &address));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_reader_who_does_not_read_is_not_waited_for() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        for _ in 0..10_000 {
            tell(&mut writer, "a line of some thirty letters\n");
        }
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.len() > 4096 && text.lines().all(|line| line == "a line of some thirty letters"));
    }

    #[test]
    fn nobody_who_reads_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        tell(&mut writer, "a line\n");
    }
}
