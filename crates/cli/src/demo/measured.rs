//! The rounds of the demo's measurement.

use std::time::Duration;

use userdma_link::clock;

use super::screen::Screen;
use crate::failure::Failure;
use crate::measure::rounds::{Samples, measure, seed};
use crate::measure::{Kind, Order, Rig};
use crate::pair::process::SecondProcess;
use crate::pair::watchdog::Watchdog;

/// How long it may take.
pub(super) struct Plan<'a> {
    /// All of it, about.
    pub(super) seconds: f64,
    /// What one measurement may take longer than its slice.
    pub(super) timeout: Duration,
    pub(super) watchdog: &'a Watchdog,
}

/// Measures everything in [`ROUNDS`] interleaved rounds.
pub(super) fn all(
    rig: &mut Rig,
    second: &mut SecondProcess,
    plan: &Plan<'_>,
    screen: &mut Screen,
) -> Result<Samples, Failure> {
    let slice = Duration::from_secs_f64(plan.seconds).div_f64(f64::from(ROUNDS) * KINDS.len() as f64);
    // At most an hour.
    let slice_ns = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    plan.watchdog.advise("; the machine may be too busy for it: with --seconds 0 nothing is measured");
    let start = clock::now();
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        screen.progress(&format!("measuring: round {} of {ROUNDS} …", round + 1));
        for (index, (kind, name)) in KINDS.iter().enumerate() {
            plan.watchdog.step(&format!("measuring {name}"), plan.timeout + 2 * slice);
            let order = Order::new(*kind, slice_ns, seed(round, index, start));
            let sample = measure(rig, second, order, round)
                .map_err(|failure| Failure::new(format!("measuring {name}: {failure}")))?;
            samples.0.push(sample);
        }
    }
    Ok(samples)
}

/// Rounds.
pub(super) const ROUNDS: u32 = 5;

/// What is compared stands side by side. With names for who is told that one failed.
const KINDS: [(Kind, &str); 13] = [
    (Kind::SendLatency, "SEND of 8 bytes, both sides polling"),
    (Kind::TcpSpinLatency, "TCP of 8 bytes, both sides spinning"),
    (Kind::WriteLatency, "WRITE of 8 bytes"),
    (Kind::EventLatency, "SEND of 8 bytes, both sides sleeping"),
    (Kind::TcpBlockingLatency, "TCP of 8 bytes, both sides blocking"),
    (Kind::WriteBandwidth, "WRITEs of 1 MiB"),
    (Kind::TcpBandwidth, "a TCP stream"),
    (Kind::ReadBandwidth, "READs of 1 MiB"),
    (Kind::SendBandwidth, "SENDs of 1 MiB"),
    (Kind::WriteRate, "WRITEs of 8 bytes"),
    (Kind::TcpRate, "8 bytes over TCP, one by one"),
    (Kind::WriteBatchRate, "WRITEs of 8 bytes in batches"),
    (Kind::TcpBatchRate, "8 bytes over TCP in batches"),
];
