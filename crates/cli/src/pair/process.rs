//! The second process as A sees it.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use userdma_link::clock;

use super::addresses::Pair;
use super::control::Control;
use super::protocol::{Completion, Opened, Reply, Request};
use super::watchdog::Watchdog;
use crate::failure::Failure;
use crate::pair::pattern::{Difference, Part};

/// The second process, running.
#[derive(Debug)]
pub struct SecondProcess {
    /// The connection to it.
    pub control: Control,
    /// Where it was reached.
    pub address: SocketAddr,
}

impl SecondProcess {
    /// Starts this program again as B and waits until it has called back. The watchdog looks after it from then on.
    ///
    /// # Errors
    /// It does not start, or does not call.
    pub fn start(pair: &Pair, cpu: Option<usize>, watchdog: &Watchdog) -> Result<Self, Failure> {
        let problem = |what: &str, error: std::io::Error| Failure::new(format!("{what}: {error}"));
        let listener = TcpListener::bind((pair.a, 0)).map_err(|e| problem("control connection", e))?;
        let address = listener.local_addr().map_err(|e| problem("control connection", e))?;
        let program = std::env::current_exe().map_err(|e| problem("path of this program", e))?;
        let mut command = Command::new(program);
        command.arg("demo-peer").arg("--control").arg(address.to_string());
        command.arg("--address").arg(pair.b.to_string());
        if let Some(port) = pair.private_port {
            command.arg("--port").arg(port.to_string());
        }
        if let Some(cpu) = cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| problem("second process", e))?;
        watchdog.look_after(child);
        let stream = accept(&listener)?;
        let control = Control::new(stream, Some(REPLY_TIMEOUT))?;
        Ok(Self { control, address })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The second process reports that it failed, or does not report.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.tell(request)?;
        self.reply()
    }

    /// Asks, and does not wait.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tell(&mut self, request: &Request) -> Result<(), Failure> {
        self.control.send(request).map_err(|error| lost(&error))
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn reply(&mut self) -> Result<Reply, Failure> {
        match self.control.receive().map_err(|error| lost(&error))? {
            Reply::Failed(why) => Err(Failure::new(format!("second process: {why}"))),
            reply => Ok(reply),
        }
    }

    /// Asks for something that has no answer but that it is done.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn order(&mut self, request: &Request) -> Result<(), Failure> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Has B open its device.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn open(&mut self) -> Result<Opened, Failure> {
        match self.ask(&Request::Open)? {
            Reply::Opened(opened) => Ok(opened),
            other => Err(unexpected(&other)),
        }
    }

    /// Has B compare its whole region with `parts`, zero elsewhere.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn check(&mut self, parts: &[Part], plant_fault: bool) -> Result<Option<Difference>, Failure> {
        match self.ask(&Request::Check { parts: parts.to_vec(), plant_fault })? {
            Reply::Checked(difference) => Ok(difference),
            other => Err(unexpected(&other)),
        }
    }

    /// B's next `count` completions.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn completions(&mut self, count: usize) -> Result<Vec<Completion>, Failure> {
        match self.ask(&Request::Completions(count))? {
            Reply::Completions(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Eight bytes of B's memory as a number.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn load(&mut self, offset: usize) -> Result<u64, Failure> {
        match self.ask(&Request::Load(offset))? {
            Reply::Number(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    /// The state of B's queue pair.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn qp_state(&mut self) -> Result<String, Failure> {
        match self.ask(&Request::QpState)? {
            Reply::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }
}

/// An answer to another question.
pub fn unexpected(reply: &Reply) -> Failure {
    Failure::new(format!("second process: unexpected answer {reply:?}"))
}

fn lost(error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "does not answer".to_owned(),
        std::io::ErrorKind::UnexpectedEof
        | std::io::ErrorKind::ConnectionReset
        | std::io::ErrorKind::BrokenPipe => "is gone".to_owned(),
        _ => format!("cannot be asked: {error}"),
    };
    Failure::new(format!("the second process {why}"))
}

fn accept(listener: &TcpListener) -> Result<std::net::TcpStream, Failure> {
    let problem = |error: std::io::Error| Failure::new(format!("control connection: {error}"));
    listener.set_nonblocking(true).map_err(problem)?;
    let end = clock::now() + REPLY_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(problem)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(problem(error)),
        }
        if clock::now() > end {
            return Err(Failure::new("the second process does not call back"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How long an answer may take. Measurements end by themselves long before.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
