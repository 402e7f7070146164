//! The second process, B: it does what A asks, and ends when A does.

use std::io;
use std::net::TcpStream;

use rustix::process::{Signal, set_parent_process_death_signal};
use userdma::AccessFlags;

use super::control::Control;
use super::cpu;
use super::protocol::{Completion, Reply, Request};
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
    let mut peer = Peer { args: args.clone(), side: None, rig: None, measuring: None };
    loop {
        let request = match control.receive() {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(Failure::new(format!("second process: {error}"))),
        };
        let reply =
            peer.answer(request, &mut control).unwrap_or_else(|failure| Reply::Failed(failure.to_string()));
        control.send(&reply)?;
    }
}

struct Peer {
    args: PeerArgs,
    side: Option<Side>,
    rig: Option<Rig>,
    measuring: Option<Measuring>,
}

/// A measurement that has begun.
struct Measuring {
    order: Order,
    cpu_ns: u64,
}

impl Peer {
    fn answer(&mut self, request: Request, control: &mut Control) -> Result<Reply, Failure> {
        match request {
            Request::Open => {
                let side = Side::open(self.args.address, self.args.port, B_ACCESS)?;
                let opened = side.opened();
                self.side = Some(side);
                Ok(Reply::Opened(opened))
            }
            Request::CreateQp => {
                let side = self.side_mut()?;
                let endpoint = side.create_qp()?;
                Ok(Reply::QpCreated {
                    qpn: endpoint.qpn.get(),
                    psn: endpoint.psn.get(),
                    state: "INIT".to_owned(),
                })
            }
            Request::Connect => Ok(Reply::Connected(self.side_mut()?.connect(&mut control.stream)?.states)),
            Request::PostRecv { wr_id, list } => {
                self.side()?.post_recv(wr_id, &list)?;
                Ok(Reply::Done)
            }
            Request::Fill(parts) => {
                self.side()?.fill(&parts)?;
                Ok(Reply::Done)
            }
            Request::Check { parts, plant_fault } => {
                Ok(Reply::Checked(self.side()?.check(&parts, plant_fault)?))
            }
            Request::Completions(count) => {
                let found = self.side()?.completions(count)?;
                Ok(Reply::Completions(found.iter().map(Completion::from).collect()))
            }
            Request::Load(offset) => Ok(Reply::Number(self.side()?.mr.load(offset)?)),
            Request::Store(offset, value) => {
                self.side()?.mr.store(offset, value)?;
                Ok(Reply::Done)
            }
            Request::QpState => Ok(Reply::State(state_name(self.side()?.qp()?.state()).to_owned())),
            Request::PrepareMeasurements => {
                let side = self.side.as_ref().ok_or_else(no_device)?;
                self.rig = Some(Rig::follow(side, self.args.address, &mut control.stream)?);
                Ok(Reply::Done)
            }
            Request::Measure(order) => self.measure(order, control),
            Request::EndMeasurement => self.end_measurement(),
        }
    }

    /// Says that it is ready itself, takes part, and leaves the rest to the request that ends the measurement.
    fn measure(&mut self, order: Order, control: &mut Control) -> Result<Reply, Failure> {
        let rig = self.rig.as_mut().ok_or_else(no_device)?;
        self.measuring = Some(Measuring { order, cpu_ns: cpu::process_ns() });
        let mut follower = Follower::new(rig, order)?;
        control.send(&Reply::Ready)?;
        follower.run()?;
        Ok(Reply::Done)
    }

    fn end_measurement(&mut self) -> Result<Reply, Failure> {
        let Some(Measuring { order, cpu_ns }) = self.measuring.take() else {
            return Err(Failure::new("no measurement has begun"));
        };
        let cpu_ns = cpu::process_ns() - cpu_ns;
        let difference = self.rig.as_mut().ok_or_else(no_device)?.check(order)?;
        Ok(Reply::Measured { cpu_ns, difference })
    }

    fn side(&self) -> Result<&Side, Failure> {
        self.side.as_ref().ok_or_else(no_device)
    }

    fn side_mut(&mut self) -> Result<&mut Side, Failure> {
        self.side.as_mut().ok_or_else(no_device)
    }
}

fn no_device() -> Failure {
    Failure::new("the second process has not opened its device")
}

/// The rights of B's memory: A may do everything.
const B_ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);
