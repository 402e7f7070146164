//! The second process, B: it does what A asks, and ends when A does.

use std::io;
use std::net::TcpStream;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde_json::Value;
use userdma::AccessFlags;

use super::control::Control;
use super::cpu;
use super::protocol::{Answer, Completion, Measured, Request};
use super::side::{Side, state_name};
use crate::args::PeerArgs;
use crate::failure::Failure;
use crate::measure::{Follower, Order, Rig};

/// Serves A until the connection closes.
///
/// # Errors
/// The connection could not be made, or broke in the middle of a message.
pub fn run(args: &PeerArgs) -> Result<(), Failure> {
    // Should A be killed, nobody else would end this process. If the system refuses, the closing connection does it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if let Some(cpu) = args.cpu {
        cpu::pin(cpu);
    }
    let stream = TcpStream::connect(args.control)
        .map_err(|error| Failure::new(format!("second process: cannot reach the first one: {error}")))?;
    let mut control = Control::new(stream, None)?;
    let mut peer = Peer { args: args.clone(), side: None, rigs: Vec::new(), measuring: None };
    loop {
        let request = match control.receive() {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(Failure::new(format!("second process: {error}"))),
        };
        let answer = peer.answer(request, &mut control).map_err(|failure| failure.to_string());
        control.send(&Answer(answer))?;
    }
}

struct Peer {
    args: PeerArgs,
    side: Option<Side>,
    rigs: Vec<Rig>,
    measuring: Option<Measuring>,
}

/// A measurement that has begun.
struct Measuring {
    order: Order,
    cpu_ns: u64,
}

impl Peer {
    fn answer(&mut self, request: Request, control: &mut Control) -> Result<Value, Failure> {
        match request {
            Request::Open => {
                let side = Side::open(self.args.address, self.args.port, B_ACCESS)?;
                encode(&self.side.insert(side).opened())
            }
            Request::CreateQp => {
                let endpoint = self.side_mut()?.create_qp()?;
                encode(&(endpoint.qpn.get(), endpoint.psn.get()))
            }
            Request::Connect => encode(&self.side_mut()?.connect(&mut control.stream)?.states),
            Request::PostRecv { wr_id, list } => encode(&self.side()?.post_recv(wr_id, &list)?),
            Request::Fill(parts) => encode(&self.side()?.fill(&parts)?),
            Request::Check { parts, plant_fault } => encode(&self.side()?.check(&parts, plant_fault)?),
            Request::Completions(count) => {
                let found = self.side()?.completions(count)?;
                encode(&found.iter().map(Completion::from).collect::<Vec<_>>())
            }
            Request::Load(offset) => encode(&self.side()?.mr.load(offset)?),
            Request::Store(offset, value) => encode(&self.side()?.mr.store(offset, value)?),
            Request::QpState => encode(&state_name(self.side()?.qp()?.state())),
            Request::PrepareMeasurements(setup) => {
                let side = self.side.as_ref().ok_or_else(no_device)?;
                self.rigs.push(Rig::follow(side, setup, self.args.address, &mut control.stream)?);
                encode(&())
            }
            Request::Measure(order) => self.measure(order, control),
            Request::EndMeasurement => self.end_measurement(),
        }
    }

    /// Says that it is ready itself, takes part, and leaves the rest to the request that ends the measurement.
    fn measure(&mut self, order: Order, control: &mut Control) -> Result<Value, Failure> {
        let rig = self.rigs.get_mut(order.rig).ok_or_else(no_device)?;
        self.measuring = Some(Measuring { order, cpu_ns: cpu::process_ns() });
        let mut follower = Follower::new(rig, order)?;
        control.send(&Answer(Ok(Value::Null)))?;
        encode(&follower.run()?)
    }

    fn end_measurement(&mut self) -> Result<Value, Failure> {
        let Some(Measuring { order, cpu_ns }) = self.measuring.take() else {
            return Err(Failure::new("no measurement has begun"));
        };
        let cpu_ns = cpu::process_ns() - cpu_ns;
        let difference = self.rigs.get(order.rig).ok_or_else(no_device)?.check(order)?;
        encode(&Measured { cpu_ns, difference })
    }

    fn side(&self) -> Result<&Side, Failure> {
        self.side.as_ref().ok_or_else(no_device)
    }

    fn side_mut(&mut self) -> Result<&mut Side, Failure> {
        self.side.as_mut().ok_or_else(no_device)
    }
}

fn encode(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(format!("answer: {error}")))
}

fn no_device() -> Failure {
    Failure::new("the second process has not opened its device")
}

/// The rights of B's memory: A may do everything.
const B_ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);
