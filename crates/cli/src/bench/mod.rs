//! `userdma bench`: this library beside plain sockets that do the same, in the same run.
//!
//! What counts is a ratio of neighbours: each round measures both, and the median over the rounds of the rounds' ratios is
//! judged.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use userdma::AccessFlags;
use userdma_link::clock;

use crate::args::{BenchArgs, BenchKind};
use crate::failure::Failure;
use crate::measure::rounds::{Sample, Samples, measure, median, prepare, seed};
use crate::measure::{Kind, Order, Rig};
use crate::pair::cpu;
use crate::pair::process::SecondProcess;
use crate::pair::protocol::{Opened, Request};
use crate::pair::side::Side;
use crate::pair::watchdog::Watchdog;

/// Measures, prints, and judges if asked to.
///
/// # Errors
/// A measurement failed; with `--check`, a ratio is not what it must be.
pub fn run(args: &BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let BenchKind::Core = args.what;
    let chosen = chosen(args.only.as_deref())?;
    let slice = Duration::from_millis(args.slice);
    let step_timeout = 10 * slice + Duration::from_secs(10);
    let watchdog = Watchdog::start("start", step_timeout);
    let cpus = cpu::two();
    if let Some([a, _]) = cpus {
        cpu::pin(a);
    }
    let (pair, a) = Side::open_first(args.addresses, AccessFlags::LOCAL_WRITE)?;
    let mut b = SecondProcess::start(&pair, cpus.map(|[_, b]| b), &watchdog)?;
    b.ask::<Opened>(&Request::Open)?;
    let mut rig = prepare(&a, crate::measure::Setup::default(), pair.a, &mut b)?;
    if cpus.is_none() {
        writeln!(out, "one CPU for both processes: spinning measures the scheduler")?;
    }
    let samples = all_rounds(args, &kinds(&chosen), &mut rig, &mut b, &watchdog, step_timeout)?;
    let results: Vec<_> = chosen.iter().map(|comparison| comparison.judge(&samples)).collect();
    if args.json {
        writeln!(out, "{:#}", json!(results.iter().map(Judged::json).collect::<Vec<_>>()))?;
    } else {
        results.iter().try_for_each(|judged| writeln!(out, "{}", judged.text(args.check)))?;
    }
    let failed: Vec<_> =
        results.iter().filter(|judged| !judged.is_good()).map(|judged| judged.of.name).collect();
    if args.check && !failed.is_empty() {
        return Err(Failure::new(format!("not as it must be: {}", failed.join("; "))));
    }
    Ok(())
}

/// The comparisons whose names contain `only`.
fn chosen(only: Option<&str>) -> Result<Vec<&'static Comparison>, Failure> {
    let is_wanted = |comparison: &&Comparison| only.is_none_or(|text| comparison.name.contains(text));
    let chosen: Vec<_> = COMPARISONS.iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        let names: Vec<_> = COMPARISONS.iter().map(|comparison| comparison.name).collect();
        return Err(Failure::new(format!("--only fits none of:\n    {}", names.join("\n    "))));
    }
    Ok(chosen)
}

/// What has to be measured for them, neighbours side by side.
fn kinds(chosen: &[&Comparison]) -> Vec<Kind> {
    let is_needed = |kind: &Kind| chosen.iter().any(|c| [c.ours, c.reference].contains(kind));
    KINDS.into_iter().filter(is_needed).collect()
}

fn all_rounds(
    args: &BenchArgs,
    kinds: &[Kind],
    rig: &mut Rig,
    b: &mut SecondProcess,
    watchdog: &Watchdog,
    step_timeout: Duration,
) -> Result<Samples, Failure> {
    let slice_ns = args.slice * 1_000_000;
    let start = clock::now();
    let mut samples = Samples::default();
    for round in 0..args.rounds {
        eprint!("\rround {} of {}", round + 1, args.rounds);
        for (index, kind) in kinds.iter().enumerate() {
            watchdog.step(&format!("{kind:?}, round {}", round + 1), step_timeout);
            let order = Order::new(*kind, slice_ns, seed(round, index, start));
            let sample = measure(rig, b, order, round)
                .map_err(|failure| Failure::new(format!("{kind:?}: {failure}")))?;
            samples.0.push(sample);
        }
    }
    eprintln!("\r\x1b[K");
    Ok(samples)
}

/// Something of ours beside something plain.
struct Comparison {
    name: &'static str,
    unit: &'static str,
    figure: fn(&Sample) -> f64,
    ours: Kind,
    reference: Kind,
    reference_name: &'static str,
    bound: Bound,
}

/// What a ratio must be.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Only shown.
    None,
}

struct Judged<'a> {
    of: &'a Comparison,
    ours: Spread,
    reference: Spread,
    ratio: Spread,
}

/// The median of rounds, and the extremes.
#[derive(Clone, Copy)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Comparison {
    fn judge(&self, samples: &Samples) -> Judged<'_> {
        let ours = samples.values(self.ours, self.figure);
        let reference = samples.values(self.reference, self.figure);
        let ratios = ours.iter().zip(&reference).map(|(ours, reference)| ours / reference).collect();
        Judged {
            of: self,
            ours: Spread::of(ours),
            reference: Spread::of(reference),
            ratio: Spread::of(ratios),
        }
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        let median = median(&mut values);
        let at = |index: Option<&f64>| index.copied().unwrap_or(f64::NAN);
        Self { min: at(values.first()), median, max: at(values.last()) }
    }

    fn json(self) -> Value {
        json!({ "min": self.min, "median": self.median, "max": self.max })
    }
}

impl Judged<'_> {
    fn is_good(&self) -> bool {
        match self.of.bound {
            Bound::AtMost(bound) => self.ratio.median <= bound,
            Bound::AtLeast(bound) => self.ratio.median >= bound,
            Bound::None => true,
        }
    }

    fn text(&self, is_checked: bool) -> String {
        let line = |name: &str, spread: Spread, unit: &str| {
            let Spread { min, median, max } = spread;
            format!("\n    {name:<44} {median:>7.3} {unit:<5} [{min:.3} … {max:.3}]")
        };
        let mut out = self.of.name.to_owned();
        out += &line("userdma", self.ours, self.of.unit);
        out += &line(self.of.reference_name, self.reference, self.of.unit);
        out += &line("ratio", self.ratio, "×");
        let verdict = match (self.is_good(), is_checked) {
            (true, true) => "  PASS",
            (false, true) => "  FAIL",
            (true | false, false) => "",
        };
        match self.of.bound {
            Bound::AtMost(bound) => out += &format!("  must be ≤ {bound}{verdict}"),
            Bound::AtLeast(bound) => out += &format!("  must be ≥ {bound}{verdict}"),
            Bound::None => {}
        }
        out.push('\n');
        out
    }

    fn json(&self) -> Value {
        let bound = match self.of.bound {
            Bound::AtMost(bound) => json!({ "at_most": bound }),
            Bound::AtLeast(bound) => json!({ "at_least": bound }),
            Bound::None => Value::Null,
        };
        json!({
            "name": self.of.name, "unit": self.of.unit, "reference": self.of.reference_name, "bound": bound,
            "userdma": self.ours.json(), "plain": self.reference.json(), "ratio": self.ratio.json(),
            "good": self.is_good(),
        })
    }
}

fn half_trip(sample: &Sample) -> f64 {
    sample.outcome.half_trip_us.unwrap_or(f64::NAN)
}

fn bandwidth(sample: &Sample) -> f64 {
    sample.outcome.gb_per_s()
}

/// Neighbours in time are what is compared.
const KINDS: [Kind; 8] = [
    Kind::SendLatency,
    Kind::UdpSpinLatency,
    Kind::WriteLatency,
    Kind::WriteBandwidth,
    Kind::UdpBandwidth,
    Kind::ReadBandwidth,
    Kind::TcpBandwidth,
    Kind::SendBandwidth,
];

const UDP: &str = "plain connected UDP, spinning";
const STREAM: &str = "plain UDP: GSO, GRO, ICRC, one copy";
const TCP: &str = "kernel TCP, 128 KiB a call";

static COMPARISONS: [Comparison; 8] = [
    Comparison {
        name: "SEND/RECV of 8 bytes, half round trip, polling",
        unit: "µs",
        figure: half_trip,
        ours: Kind::SendLatency,
        reference: Kind::UdpSpinLatency,
        reference_name: UDP,
        bound: Bound::AtMost(1.5),
    },
    Comparison {
        name: "WRITE of 8 bytes, half round trip, memory polled",
        unit: "µs",
        figure: half_trip,
        ours: Kind::WriteLatency,
        reference: Kind::UdpSpinLatency,
        reference_name: UDP,
        bound: Bound::AtMost(1.5),
    },
    Comparison {
        name: "WRITE of 1 MiB, goodput at path MTU 4096",
        unit: "GB/s",
        figure: bandwidth,
        ours: Kind::WriteBandwidth,
        reference: Kind::UdpBandwidth,
        reference_name: STREAM,
        bound: Bound::AtLeast(0.8),
    },
    Comparison {
        name: "READ of 1 MiB, goodput",
        unit: "GB/s",
        figure: bandwidth,
        ours: Kind::ReadBandwidth,
        reference: Kind::UdpBandwidth,
        reference_name: STREAM,
        bound: Bound::None,
    },
    Comparison {
        name: "SEND of 1 MiB, goodput",
        unit: "GB/s",
        figure: bandwidth,
        ours: Kind::SendBandwidth,
        reference: Kind::UdpBandwidth,
        reference_name: STREAM,
        bound: Bound::None,
    },
    Comparison {
        name: "WRITE of 1 MiB beside TCP",
        unit: "GB/s",
        figure: bandwidth,
        ours: Kind::WriteBandwidth,
        reference: Kind::TcpBandwidth,
        reference_name: TCP,
        bound: Bound::None,
    },
    Comparison {
        name: "CPU time for WRITEs of 1 MiB, both sides",
        unit: "s/GB",
        figure: Sample::cpu_s_per_gb,
        ours: Kind::WriteBandwidth,
        reference: Kind::UdpBandwidth,
        reference_name: STREAM,
        bound: Bound::None,
    },
    Comparison {
        name: "CPU time for WRITEs of 1 MiB beside TCP, both sides",
        unit: "s/GB",
        figure: Sample::cpu_s_per_gb,
        ours: Kind::WriteBandwidth,
        reference: Kind::TcpBandwidth,
        reference_name: TCP,
        bound: Bound::None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Outcome;

    fn sample(kind: Kind, round: u32, half_trip_us: f64) -> Sample {
        let outcome = Outcome { half_trip_us: Some(half_trip_us), ..Outcome::default() };
        Sample { kind, round, outcome, cpu_ns: 0 }
    }

    #[test]
    fn the_median_of_the_rounds_ratios_is_judged() {
        // Ratios 1.4, 1.6, 1.2: neighbours, though the machine has become three times slower in between.
        let rounds = [(1.4, 1.0), (3.2, 2.0), (3.6, 3.0)];
        let mut samples = Samples::default();
        for (round, (ours, reference)) in (0..).zip(rounds) {
            samples.0.push(sample(Kind::SendLatency, round, ours));
            samples.0.push(sample(Kind::UdpSpinLatency, round, reference));
        }
        let judged = COMPARISONS[0].judge(&samples);
        assert!((judged.ratio.median - 1.4).abs() < 1e-9 && judged.is_good());
        let text = judged.text(true);
        assert!(text.contains("must be ≤ 1.5  PASS") && text.contains("[1.200 … 1.600]"), "{text}");
        samples.0[0].outcome.half_trip_us = Some(1.6);
        let judged = COMPARISONS[0].judge(&samples);
        assert!(
            !judged.is_good() && judged.text(true).contains("FAIL") && !judged.text(false).contains("FAIL")
        );
        assert!(!COMPARISONS[0].judge(&Samples::default()).is_good(), "nothing measured is not good");
    }
}
