//! `userdma agent`: the service that shares the addresses of a machine among its users.

use std::env;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

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
    // If nobody reads, the service goes on.
    let _ = writeln!(io::stderr(), "userdma agent: {event}");
    if matches!(event, ServiceEvent::Started { .. }) {
        notify(b"READY=1");
    } else if matches!(event, ServiceEvent::Stopping { .. }) {
        notify(b"STOPPING=1");
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
