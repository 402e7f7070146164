//! The table: RDMA beside kernel TCP.

use serde_json::{Value, json};

use super::measured::ROUNDS;
use super::screen::Screen;
use crate::measure::Kind;
use crate::measure::rounds::{Sample, Samples};

/// The figures in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
    is_pinned: bool,
}

#[derive(Debug)]
struct Row {
    section: &'static str,
    name: &'static str,
    unit: &'static str,
    rdma: f64,
    tcp_name: &'static str,
    tcp: f64,
}

/// What is taken out of a sample.
#[derive(Clone, Copy, Debug)]
enum Figure {
    HalfTrip,
    Bandwidth,
    Rate,
    Cpu,
}

impl Table {
    /// The medians of the samples.
    pub(super) fn new(samples: &Samples, is_pinned: bool) -> Self {
        let row = |&(section, figure, name, rdma, tcp_name, tcp): &Plan| {
            let median = |kind| samples.median(kind, |sample| figure.of(sample)).unwrap_or(f64::NAN);
            Row { section, name, unit: figure.unit(), rdma: median(rdma), tcp_name, tcp: median(tcp) }
        };
        Self { rows: PLAN.iter().map(row).collect(), is_pinned }
    }

    /// Shows it.
    pub(super) fn print(&self, screen: &mut Screen) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let place =
            if self.is_pinned { "each process on a CPU of its own" } else { "both processes on one CPU" };
        screen.line(&format!("medians of {ROUNDS} interleaved rounds; {place}, this machine has {cpus}"));
        screen.line("(pinning leaves one to this process now); both processes on this machine, over loopback: no network");
        screen.line("card or cable is in these figures. kernel TCP: the same two processes, the same bytes, TCP_NODELAY.");
        let mut section = "";
        for row in &self.rows {
            if row.section != section {
                section = row.section;
                screen.part(&format!("{section:<38} {:>16} {:>16} {:>12}", "RDMA", "kernel TCP", "RDMA/TCP"));
            }
            let value = |value: f64| format!("{} {}", number(value), row.unit);
            let line = format!(
                "{:<36} {:>16} {:>16} {:>12}   {}",
                row.name,
                value(row.rdma),
                value(row.tcp),
                format!("{:.2} ×", row.rdma / row.tcp),
                row.tcp_name,
            );
            screen.line(line.trim_end());
        }
        screen.figures(self.json());
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "section": row.section, "name": row.name, "unit": row.unit, "rdma": row.rdma,
                "kernel_tcp": row.tcp, "kernel_tcp_how": row.tcp_name, "ratio": row.rdma / row.tcp,
            })
        };
        json!({ "rounds": ROUNDS, "pinned": self.is_pinned, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl Figure {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::HalfTrip => sample.outcome.half_trip_us.unwrap_or(f64::NAN),
            Self::Bandwidth => sample.outcome.gb_per_s(),
            Self::Rate => sample.outcome.m_per_s(),
            Self::Cpu => sample.cpu_s_per_gb(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::HalfTrip => "µs",
            Self::Bandwidth => "GB/s",
            Self::Rate => "M/s",
            Self::Cpu => "s/GB",
        }
    }
}

/// Three significant digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Section, figure, name; RDMA's measurement; how TCP does it, TCP's measurement.
type Plan = (&'static str, Figure, &'static str, Kind, &'static str, Kind);

const LATENCY: &str = "latency of 8 bytes (half round trip)";
const BANDWIDTH: &str = "bandwidth, messages of 1 MiB";
const RATE: &str = "messages of 8 bytes";
const CPU: &str = "CPU seconds per 10^9 bytes, both sides";

const PLAN: &[Plan] = &[
    (
        LATENCY,
        Figure::HalfTrip,
        "SEND/RECV, completions polled",
        Kind::SendLatency,
        "spinning",
        Kind::TcpSpinLatency,
    ),
    (LATENCY, Figure::HalfTrip, "WRITE, memory polled", Kind::WriteLatency, "spinning", Kind::TcpSpinLatency),
    (
        LATENCY,
        Figure::HalfTrip,
        "SEND/RECV, sleeping",
        Kind::EventLatency,
        "blocking",
        Kind::TcpBlockingLatency,
    ),
    (BANDWIDTH, Figure::Bandwidth, "WRITE", Kind::WriteBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (BANDWIDTH, Figure::Bandwidth, "READ", Kind::ReadBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (BANDWIDTH, Figure::Bandwidth, "SEND", Kind::SendBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (RATE, Figure::Rate, "WRITE, 64 posted at a time", Kind::WriteRate, "8 bytes a call", Kind::TcpRate),
    (CPU, Figure::Cpu, "WRITE", Kind::WriteBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (CPU, Figure::Cpu, "READ", Kind::ReadBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (CPU, Figure::Cpu, "SEND", Kind::SendBandwidth, "128 KiB a call", Kind::TcpBandwidth),
];
