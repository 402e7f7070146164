//! The second process as A sees it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use userdma_link::clock;

use super::addresses::Pair;
use super::control::Control;
use super::protocol::{Answer, Request};
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

    /// Asks, and waits for the answer, which has the type that the [`Request`] names.
    ///
    /// # Errors
    /// The second process reports that it failed, or does not report.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        self.tell(request)?;
        self.answer()
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
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let Answer(answer) = self.control.receive().map_err(|error| lost(&error))?;
        let value = answer.map_err(|why| Failure::new(format!("second process: {why}")))?;
        serde_json::from_value(value).map_err(|error| Failure::new(format!("second process: {error}")))
    }

    /// Asks for something that has no answer but that it is done.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn order(&mut self, request: &Request) -> Result<(), Failure> {
        self.ask(request)
    }

    /// Has B compare its whole region with `parts`, zero elsewhere.
    ///
    /// # Errors
    /// As [`SecondProcess::ask`].
    pub fn check(&mut self, parts: &[Part], plant_fault: bool) -> Result<Option<Difference>, Failure> {
        self.ask(&Request::Check { parts: parts.to_vec(), plant_fault })
    }
}

fn lost(error: &std::io::Error) -> Failure {
    const GONE: [ErrorKind; 3] =
        [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    const SILENT: [ErrorKind; 2] = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
    let why = if GONE.contains(&error.kind()) {
        "is gone".to_owned()
    } else if SILENT.contains(&error.kind()) {
        "does not answer".to_owned()
    } else {
        format!("cannot be asked: {error}")
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
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
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
