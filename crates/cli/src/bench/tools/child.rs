//! Children that end when we do, whatever ends us.
//!
//! A tool is not started directly but by this program, in a process of its own that asks the kernel to be ended with its
//! parent, moves to its CPU, and then becomes the tool: both stay with it.

use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use userdma_link::clock;

use super::Place;
use crate::args::ChildArgs;
use crate::failure::Failure;
use crate::pair::cpu;

/// In the child: becomes the tool.
///
/// # Errors
/// The tool cannot be started; otherwise this does not return.
pub(crate) fn run(args: &ChildArgs) -> Result<(), Failure> {
    // If the system refuses, the tool ends by itself within its time.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let parent = getppid().map(|pid| pid.as_raw_pid().unsigned_abs());
    if parent != Some(args.parent) {
        return Err(Failure::new("the parent has ended"));
    }
    if let Some(cpu) = args.cpu {
        cpu::pin(cpu);
    }
    let [program, rest @ ..] = &args.command[..] else { return Err(Failure::new("no program is named")) };
    let error = Command::new(program).args(rest).exec();
    Err(Failure::new(format!("{}: {error}", program.display())))
}

/// A side of a tool; it is ended when this is dropped.
#[derive(Debug)]
pub(super) struct Side {
    name: String,
    child: Child,
}

/// Which of the two CPUs a side gets.
#[derive(Clone, Copy, Debug)]
enum Cpu {
    Client = 0,
    Server = 1,
}

/// Starts a server and waits until it listens on `port` (TCP).
pub(super) fn server(
    place: &Place,
    port: u16,
    command: &[&str],
    env: &[(&str, &str)],
) -> Result<Side, Failure> {
    let mut side = start(place, Cpu::Server, command, env)?;
    let end = clock::now() + START;
    while !is_listening(port) {
        if side.child.try_wait()?.is_some() || clock::now() > end {
            return Err(Failure::new(format!("the server does not listen: {}", side.end())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(side)
}

/// Runs a client to its end; what it printed.
pub(super) fn client(place: &Place, command: &[&str], env: &[(&str, &str)]) -> Result<String, Failure> {
    let mut side = start(place, Cpu::Client, command, env)?;
    let end = clock::now() + LONGEST;
    loop {
        match side.child.try_wait()? {
            Some(status) if status.success() => return Ok(side.end()),
            Some(status) => {
                let said = side.end();
                return Err(Failure::new(format!("{}: {status}: {said}", side.name)));
            }
            None if clock::now() > end => {
                let seconds = LONGEST.as_secs();
                return Err(Failure::new(format!("{} takes longer than {seconds} s", side.name)));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

/// A TCP port that nobody listens on.
pub(super) fn free_port(place: &Place) -> Result<u16, Failure> {
    Ok(TcpListener::bind((place.address, 0))?.local_addr()?.port())
}

fn start(place: &Place, cpu: Cpu, command: &[&str], env: &[(&str, &str)]) -> Result<Side, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg("bench-child").arg("--parent").arg(std::process::id().to_string());
    if let Some(cpus) = place.cpus {
        child.arg("--cpu").arg(cpus[cpu as usize].to_string());
    }
    child.arg("--").args(command.iter().map(OsString::from)).envs(env.iter().copied());
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn()?;
    Ok(Side { name: command.first().copied().unwrap_or_default().to_owned(), child })
}

impl Side {
    /// Ends it if it runs; what it has printed. Both pipes hold more than these tools print.
    fn end(&mut self) -> String {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            let _ = out.read_to_string(&mut text);
        }
        if text.trim().is_empty()
            && let Some(mut err) = self.child.stderr.take()
        {
            let _ = err.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether somebody on this machine listens on a TCP port. A connection would be taken for the client's.
fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .any(|table| has_listener(&table, port))
}

/// In the kernel's table of sockets: `sl local_address rem_address st …`, state 0A is LISTEN.
fn has_listener(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&suffix))
    })
}

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(5);
/// How long a client may take.
const LONGEST: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0223007F:14B5 00000000:0000 0A 00000000\n   \
                     1: 0223007F:14B6 0323007F:9C40 01 00000000\n";
        assert!(has_listener(table, 0x14b5) && !has_listener(table, 0x14b6) && !has_listener(table, 0x9c40));
    }

    #[test]
    fn a_listening_socket_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }
}
