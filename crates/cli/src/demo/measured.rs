//! The rounds of the demo's measurement.

use userdma_link::clock;

use super::screen::Screen;
use crate::failure::Failure;
use crate::measure::rounds::{Samples, measure, seed};
use crate::measure::{Kind, Order, Rig};
use crate::pair::process::SecondProcess;

/// Measures everything in [`ROUNDS`] interleaved rounds, for about `seconds` in all.
pub(super) fn all(
    rig: &mut Rig,
    second: &mut SecondProcess,
    seconds: f64,
    screen: &mut Screen,
) -> Result<Samples, Failure> {
    let slices = f64::from(ROUNDS) * KINDS.len() as f64;
    // At most an hour.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, below 2^42")]
    let slice_ns = (seconds / slices * 1e9) as u64;
    let start = clock::now();
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        screen.progress(&format!("measuring: round {} of {ROUNDS} …", round + 1));
        for (index, kind) in KINDS.iter().enumerate() {
            let order = Order { kind: *kind, slice_ns, seed: seed(round, index, start) };
            let sample = measure(rig, second, order, round)
                .map_err(|failure| Failure::new(format!("{kind:?}: {failure}")))?;
            samples.0.push(sample);
        }
    }
    Ok(samples)
}

/// Rounds.
pub(super) const ROUNDS: u32 = 5;

/// What is compared stands side by side.
const KINDS: [Kind; 11] = [
    Kind::SendLatency,
    Kind::TcpSpinLatency,
    Kind::WriteLatency,
    Kind::EventLatency,
    Kind::TcpBlockingLatency,
    Kind::WriteBandwidth,
    Kind::TcpBandwidth,
    Kind::ReadBandwidth,
    Kind::SendBandwidth,
    Kind::WriteRate,
    Kind::TcpRate,
];
