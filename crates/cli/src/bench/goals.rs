//! What is compared, and what the ratio must be.

use serde::{Deserialize, Serialize};

use super::report::Figures;

/// A comparison to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// As `U1`; empty for what is only shown.
    pub(crate) id: &'static str,
    /// What is compared.
    pub(crate) name: &'static str,
    /// Which figure.
    pub(crate) metric: Metric,
    /// The series in the numerator.
    pub(crate) ours: &'static str,
    /// The series in the denominator.
    pub(crate) reference: &'static str,
    /// What the median of the rounds' ratios must be.
    pub(crate) must: Option<Bound>,
    /// What it might be at best.
    pub(crate) stretch: Option<Bound>,
}

/// A figure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Half of a round trip, or what one operation takes.
    HalfTripUs,
    /// Bytes moved.
    GbPerS,
    /// Messages moved.
    MPerS,
    /// CPU time.
    CpuSPerGb,
}

/// What a ratio must be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

impl Metric {
    /// Its value.
    pub(crate) fn of(self, figures: Figures) -> Option<f64> {
        match self {
            Self::HalfTripUs => figures.half_trip_us,
            Self::GbPerS => figures.gb_per_s,
            Self::MPerS => figures.m_per_s,
            Self::CpuSPerGb => figures.cpu_s_per_gb,
        }
    }

    /// Its unit.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::HalfTripUs => "µs",
            Self::GbPerS => "GB/s",
            Self::MPerS => "M/s",
            Self::CpuSPerGb => "CPU s/GB",
        }
    }
}

impl Bound {
    /// Whether `ratio` is within it.
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bound) => ratio <= bound,
            Self::AtLeast(bound) => ratio >= bound,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
        }
    }
}

const fn at_most(must: f64, stretch: f64) -> [Option<Bound>; 2] {
    [Some(Bound::AtMost(must)), Some(Bound::AtMost(stretch))]
}

const fn at_least(must: f64, stretch: f64) -> [Option<Bound>; 2] {
    [Some(Bound::AtLeast(must)), Some(Bound::AtLeast(stretch))]
}

const fn goal(
    id: &'static str,
    name: &'static str,
    metric: Metric,
    [ours, reference]: [&'static str; 2],
    [must, stretch]: [Option<Bound>; 2],
) -> Goal {
    Goal { id, name, metric, ours, reference, must, stretch }
}

const SHOWN: [Option<Bound>; 2] = [None, None];
use Metric::{CpuSPerGb, GbPerS, HalfTripUs, MPerS};

/// All of them, in the order of the goals.
#[rustfmt::skip]
pub(crate) const GOALS: &[Goal] = &[
    goal("U1", "SEND of 8 bytes beside connected UDP", HalfTripUs, ["send_8", "udp_8"], at_most(1.5, 1.3)),
    goal("U1", "WRITE of 8 bytes beside connected UDP", HalfTripUs, ["write_8", "udp_8"], at_most(1.5, 1.3)),
    goal("", "SEND of 8 bytes beside unconnected UDP", HalfTripUs, ["send_8", "udp_unconnected_8"], SHOWN),
    goal("", "SEND of 8 bytes beside spinning TCP", HalfTripUs, ["send_8", "tcp_8"], SHOWN),
    goal("", "connected UDP of 8 bytes beside a cache line to and fro", HalfTripUs, ["udp_8", "cache_line"], SHOWN),
    goal("U2", "SEND of 8 bytes beside libfabric's reliable datagrams over UDP", HalfTripUs, ["send_8", "fi_rxd"], [Some(Bound::AtMost(0.5)), None]),
    goal("U2", "SEND of 8 bytes beside UCX over TCP", HalfTripUs, ["send_8", "ucx_am_lat"], [Some(Bound::AtMost(0.75)), None]),
    goal("U2", "SEND of 8 bytes beside libfabric's unreliable datagrams", HalfTripUs, ["send_8", "fi_dgram"], [None, Some(Bound::AtMost(1.0))]),
    goal("U3", "WRITE of 1 MiB beside raw UDP", GbPerS, ["write_1m", "udp_stream"], at_least(0.9, 1.0)),
    goal("U3", "WRITE of 1 MiB beside iperf3 TCP", GbPerS, ["write_1m", "iperf3_tcp"], at_least(0.75, 1.0)),
    goal("", "WRITE of 1 MiB beside kernel TCP", GbPerS, ["write_1m", "tcp_stream"], SHOWN),
    goal("", "READ of 1 MiB beside raw UDP", GbPerS, ["read_1m", "udp_stream"], SHOWN),
    goal("", "SEND of 1 MiB beside raw UDP", GbPerS, ["send_1m", "udp_stream"], SHOWN),
    goal("", "WRITE of 1 MiB beside memcpy", GbPerS, ["write_1m", "memcpy"], SHOWN),
    goal("U3", "WRITE of 1 MiB beside raw UDP, receive buffer 212,992", GbPerS, ["write_1m_small", "udp_stream_small"], at_least(0.9, 1.0)),
    goal("", "receive buffer 212,992 beside a large one", GbPerS, ["write_1m_small", "write_1m"], SHOWN),
    goal("U4", "WRITE of 1 MiB at path MTU 1024 beside raw UDP", GbPerS, ["write_1m_1024", "udp_stream_1024"], at_least(0.9, 1.0)),
    goal("U4", "WRITE of 1 MiB at path MTU 1024 beside iperf3 TCP", GbPerS, ["write_1m_1024", "iperf3_tcp"], at_least(0.5, 0.7)),
    goal("U4", "WRITE of 1 MiB at path MTU 1024, receive buffer 212,992", GbPerS, ["write_1m_1024_small", "udp_stream_1024_small"], at_least(0.9, 1.0)),
    goal("U6", "WRITE of 1 MiB beside iperf3 UDP of 4112 bytes", GbPerS, ["write_1m", "iperf3_udp"], at_least(2.5, 3.0)),
    goal("U6", "WRITE of 1 MiB beside qperf udp_bw", GbPerS, ["write_1m", "qperf_udp_bw"], at_least(2.5, 3.0)),
    goal("U7", "CPU time of WRITEs in event mode beside iperf3 TCP", CpuSPerGb, ["write_1m", "iperf3_tcp"], at_most(1.5, 1.2)),
    goal("U7", "CPU time of WRITEs in event mode beside iperf3 UDP", CpuSPerGb, ["write_1m", "iperf3_udp"], at_most(0.4, 0.33)),
    goal("", "CPU time of WRITEs in event mode beside raw UDP", CpuSPerGb, ["write_1m", "udp_stream"], SHOWN),
    goal("", "CPU time of WRITEs, polling, beside iperf3 TCP", CpuSPerGb, ["write_1m_polled", "iperf3_tcp"], SHOWN),
    goal("U8", "rate of WRITEs of 8 bytes beside UDP sendmmsg", MPerS, ["write_rate", "udp_rate"], at_least(3.0, 8.0)),
    goal("U8", "rate of WRITEs of 8 bytes beside UCX over TCP", MPerS, ["write_rate", "ucx_am_bw"], [Some(Bound::AtLeast(5.0)), None]),
    goal("U9", "raw UDP with our ICRC beside raw UDP without", GbPerS, ["udp_stream_own_icrc", "udp_stream_no_icrc"], at_least(0.85, 0.93)),
    goal("", "raw UDP with crc32fast's ICRC beside raw UDP without", GbPerS, ["udp_stream", "udp_stream_no_icrc"], SHOWN),
    goal("", "WRITE of 1 MiB beside raw UDP with our ICRC", GbPerS, ["write_1m", "udp_stream_own_icrc"], SHOWN),
    goal("", "WRITE of 1 MiB at path MTU 1024 beside raw UDP with our ICRC", GbPerS, ["write_1m_1024", "udp_stream_1024_own_icrc"], SHOWN),
    goal("U10", "SEND of 8 bytes, sleeping, beside qperf udp_lat", HalfTripUs, ["send_8_event", "qperf_udp_lat"], at_most(1.3, 1.1)),
    goal("U10", "SEND of 8 bytes, sleeping, beside blocking UDP", HalfTripUs, ["send_8_event", "udp_blocking_8"], at_most(1.3, 1.1)),
    goal("", "ib_send_lat of 8 bytes beside SEND by the Rust API", HalfTripUs, ["ib_send_lat", "send_8"], [Some(Bound::AtMost(1.1)), None]),
    goal("", "ib_write_lat of 8 bytes beside WRITE by the Rust API", HalfTripUs, ["ib_write_lat", "write_8"], SHOWN),
    goal("", "ib_write_lat of 8 bytes beside blocking UDP", HalfTripUs, ["ib_write_lat", "udp_blocking_8"], [Some(Bound::AtMost(1.3)), None]),
    goal("", "ib_write_bw of 1 MiB beside WRITE by the Rust API", GbPerS, ["ib_write_bw", "write_1m_polled"], [Some(Bound::AtLeast(0.9)), None]),
    goal("", "stream of 8 bytes beside TCP, both through tokio", HalfTripUs, ["stream_8", "tokio_tcp_8"], SHOWN),
    goal("", "stream beside TCP, both through tokio", GbPerS, ["stream", "tokio_tcp"], SHOWN),
    goal("", "CPU time of a stream beside TCP, both through tokio", CpuSPerGb, ["stream", "tokio_tcp"], SHOWN),
    goal("", "stream beside WRITE of 1 MiB", GbPerS, ["stream", "write_1m"], SHOWN),
    goal("", "rate of writes of 8 bytes to a stream beside TCP, both through tokio", MPerS, ["stream_rate", "tokio_tcp_rate"], SHOWN),
    goal("", "stream with 0.1 % loss beside none", GbPerS, ["stream_loss_0.1", "stream"], SHOWN),
    goal("U11", "WRITE of 1 MiB with 0.1 % loss beside none", GbPerS, ["write_1m_loss_0.1", "write_1m"], SHOWN),
    goal("U11", "WRITE of 1 MiB with 1 % loss beside none", GbPerS, ["write_1m_loss_1", "write_1m"], SHOWN),
];
