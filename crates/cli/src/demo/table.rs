//! The table: RDMA beside kernel TCP.

use serde_json::{Value, json};

use super::measured::ROUNDS;
use super::screen::Screen;
use crate::measure::Kind;
use crate::measure::rounds::{Sample, Samples};
use crate::pair::cpu;

/// The figures in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
    machine: Machine,
}

/// Where the figures come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    cpus: usize,
    is_pinned: bool,
    /// Threads that wanted to run in the minute before, on average.
    load: f64,
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
    pub(super) fn new(samples: &Samples, machine: Machine) -> Self {
        let row = |&(section, figure, name, rdma, tcp_name, tcp): &Plan| {
            let median = |kind| samples.median(kind, |sample| figure.of(sample)).unwrap_or(f64::NAN);
            Row { section, name, unit: figure.unit(), rdma: median(rdma), tcp_name, tcp: median(tcp) }
        };
        Self { rows: PLAN.iter().map(row).collect(), machine }
    }

    /// Shows it.
    pub(super) fn print(&self, screen: &mut Screen) {
        for line in self.machine.words() {
            screen.line(&line);
        }
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
        json!({ "rounds": ROUNDS, "cpus": self.machine.cpus, "pinned": self.machine.is_pinned,
                "load_before": self.machine.load, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl Machine {
    /// Looks at this machine, before anything is pinned or measured.
    pub(super) fn look(is_pinned: bool) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        Self { cpus: cpu::allowed().len().max(1), is_pinned, load: load.unwrap_or(0.0) }
    }

    fn words(&self) -> Vec<String> {
        let pinned =
            if self.is_pinned { "each process keeps to one of them" } else { "the processes share it" };
        let cpus = if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) };
        let mut lines = vec![
            format!("{ROUNDS} rounds in which everything has its turn; medians. This machine has {cpus}: {pinned}."),
            "Both processes run on this machine: no cable, no network card. TCP is measured between the same two.".to_owned(),
        ];
        if self.load > self.cpus as f64 / 2.0 {
            lines.push(format!(
                "Other programs are busy here (load {:.1}): take ratios rather than figures.",
                self.load
            ));
        }
        lines
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
    (RATE, Figure::Rate, "WRITE, posted one by one", Kind::WriteRate, "8 bytes a call", Kind::TcpRate),
    (
        RATE,
        Figure::Rate,
        "WRITE, 64 posted at a time",
        Kind::WriteBatchRate,
        "64 × 8 bytes a call",
        Kind::TcpBatchRate,
    ),
    (CPU, Figure::Cpu, "WRITE", Kind::WriteBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (CPU, Figure::Cpu, "READ", Kind::ReadBandwidth, "128 KiB a call", Kind::TcpBandwidth),
    (CPU, Figure::Cpu, "SEND", Kind::SendBandwidth, "128 KiB a call", Kind::TcpBandwidth),
];
