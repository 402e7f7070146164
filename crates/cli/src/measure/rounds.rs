//! Rounds: every kind once, then again, and the medians.

use std::net::IpAddr;

use userdma_verbs::Time;

pub use super::pingpong::median;
use super::{Kind, Order, Outcome, Rig, Setup, lead};
use crate::failure::Failure;
use crate::pair::cpu;
use crate::pair::process::SecondProcess;
use crate::pair::protocol::{Measured, Request};
use crate::pair::side::Side;

/// One measurement of one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What was measured.
    pub kind: Kind,
    /// In which round, from 0.
    pub round: u32,
    /// What came out.
    pub outcome: Outcome,
    /// CPU time of both processes, nanoseconds.
    pub cpu_ns: u64,
}

impl Sample {
    /// CPU seconds for 10^9 bytes.
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_ns as f64 / self.outcome.bytes.max(1) as f64
    }
}

/// All samples of a run.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// The median over the rounds of a figure of `kind`; `None` if it was not measured.
    pub fn median(&self, kind: Kind, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let mut values = self.values(kind, figure);
        (!values.is_empty()).then(|| median(&mut values))
    }

    /// A figure of `kind` in each round.
    pub fn values(&self, kind: Kind, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.0.iter().filter(|sample| sample.kind == kind).map(figure).collect()
    }
}

/// Makes what measurements need on both sides.
///
/// # Errors
/// Those of the devices and of the connections.
pub fn prepare(a: &Side, setup: Setup, address: IpAddr, second: &mut SecondProcess) -> Result<Rig, Failure> {
    second.tell(&Request::PrepareMeasurements(setup))?;
    let rig = Rig::lead(a, setup, address, &mut second.control.stream)?;
    second.answer::<()>()?;
    Ok(rig)
}

/// Measures one thing.
///
/// # Errors
/// As [`lead`], on either side; a byte of the memory that was filled is wrong.
pub fn measure(
    rig: &mut Rig,
    second: &mut SecondProcess,
    order: Order,
    round: u32,
) -> Result<Sample, Failure> {
    rig.prepare(order)?;
    second.ask::<()>(&Request::Measure(order))?;
    let cpu_start = cpu::process_ns();
    let outcome = lead(rig, order)?;
    second.answer::<()>()?;
    let cpu_a = cpu::process_ns() - cpu_start;
    let there: Measured = second.ask(&Request::EndMeasurement)?;
    if let Some(difference) = there.difference.or(rig.check(order)?) {
        return Err(Failure::new(format!("after {:?}: {difference}", order.kind)));
    }
    Ok(Sample { kind: order.kind, round, outcome, cpu_ns: cpu_a + there.cpu_ns })
}

/// A seed that no other measurement of the run has; never 0.
pub fn seed(round: u32, index: usize, start: Time) -> u64 {
    (start.nanos() ^ u64::from(round) << 32 ^ index as u64) | 1
}
