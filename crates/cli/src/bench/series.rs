//! What can be measured, each thing with a name that comparisons use.

use super::tools::{self, Tool};
use crate::measure::message::INLINE_MAX;
use crate::measure::{Kind, Setup};

/// Something to be measured once in each round.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) id: String,
    /// What it is.
    pub(crate) about: String,
    /// Which memory the bytes come from and go to.
    pub(crate) memory: String,
    /// Bytes of a message, for points of a curve.
    pub(crate) len: Option<usize>,
    /// How it is measured.
    pub(crate) source: Source,
}

/// How something is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Between the two processes.
    Pair { kind: Kind, len: Option<usize>, setup: Setup },
    /// By copying in this process.
    Memcpy,
    /// Between two threads of this process.
    CacheLine,
    /// By another program.
    Tool(&'static Tool),
}

/// A line of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    /// The beginning of its points' names.
    pub(crate) id: &'static str,
    /// What the picture calls it.
    pub(crate) name: &'static str,
    kind: Kind,
    /// Bytes of its longest message.
    max_len: usize,
}

/// Half round trips over message size.
pub(crate) const LATENCY: [Curve; 3] = [
    Curve { id: "latency/send", name: "userdma SEND", kind: Kind::MessageLatency, max_len: 4 << 20 },
    // A datagram has at most 65,507 bytes.
    Curve { id: "latency/udp", name: "UDP, spinning", kind: Kind::UdpSpinLatency, max_len: 65_000 },
    Curve { id: "latency/tcp", name: "TCP, spinning", kind: Kind::TcpSpinLatency, max_len: 4 << 20 },
];

/// Goodput over message size.
pub(crate) const BANDWIDTH: [Curve; 3] = [
    Curve { id: "bandwidth/write", name: "userdma WRITE", kind: Kind::WriteBandwidth, max_len: 4 << 20 },
    Curve {
        id: "bandwidth/udp",
        name: "raw UDP, GSO + GRO + ICRC",
        kind: Kind::UdpBandwidth,
        max_len: 4 << 20,
    },
    Curve { id: "bandwidth/tcp", name: "TCP", kind: Kind::TcpBandwidth, max_len: 4 << 20 },
];

/// The points of all curves: 1 byte to 4 MiB, each four times as long as the one before.
pub(crate) fn curves() -> Vec<Series> {
    let points = |curve: &'static Curve, len: usize| Series {
        id: format!("{}/{len}", curve.id),
        about: format!("{}, {len} bytes", curve.name),
        memory: if curve.kind == Kind::MessageLatency && len <= INLINE_MAX { INLINE } else { PAGES }
            .to_owned(),
        len: Some(len),
        source: Source::Pair { kind: curve.kind, len: Some(len), setup: Setup::default() },
    };
    let lengths = || (0..12).map(|power| 1_usize << (2 * power));
    let of = |curves: &'static [Curve; 3]| {
        lengths().flat_map(move |len| {
            curves.iter().filter(move |curve| len <= curve.max_len).map(move |curve| points(curve, len))
        })
    };
    of(&LATENCY).chain(of(&BANDWIDTH)).collect()
}

/// Everything but curves; neighbours in the list are neighbours in time.
pub(crate) fn all() -> Vec<Series> {
    let plain = Setup::default();
    let own = |port: u16| Setup { port: Some(port), ..Setup::default() };
    let mtu = Setup { path_mtu: Some(1024), ..own(14_811) };
    let small = Setup { recv_buffer: Some(SMALL_BUFFER), ..own(14_812) };
    let small_mtu = Setup { path_mtu: Some(1024), recv_buffer: Some(SMALL_BUFFER), ..own(14_813) };
    let loss = |loss: f64, port: u16| Setup { loss, ..own(port) };
    let mut list = Vec::new();
    let mut add = |id: &str, about: &str, memory: &str, source| {
        list.push(Series { id: id.into(), about: about.into(), memory: memory.into(), len: None, source });
    };
    let pair = |kind, setup| Source::Pair { kind, len: None, setup };
    add("cache_line", "a cache line for each direction, two threads spinning", "static", Source::CacheLine);
    add("udp_8", "8 bytes, connected sockets, both spin", PAGES, pair(Kind::UdpSpinLatency, plain));
    add("send_8", "SEND/RECV of 8 bytes, both poll", INLINE, pair(Kind::SendLatency, plain));
    add("write_8", "WRITE of 8 bytes, both poll memory", INLINE, pair(Kind::WriteLatency, plain));
    add(
        "udp_unconnected_8",
        "8 bytes, unconnected sockets, both spin",
        PAGES,
        pair(Kind::UdpUnconnectedLatency, plain),
    );
    add("tcp_8", "8 bytes, both spin", PAGES, pair(Kind::TcpSpinLatency, plain));
    for tool in tools::UNMODIFIED.iter().chain(tools::LATENCIES) {
        add(tool.id, tool.about, tool.memory, Source::Tool(tool));
    }
    add(
        "udp_blocking_8",
        "8 bytes, connected sockets, both block",
        PAGES,
        pair(Kind::UdpBlockingLatency, plain),
    );
    add("send_8_event", "SEND/RECV of 8 bytes, both sleep", INLINE, pair(Kind::EventLatency, plain));
    add("stream_8", "8 bytes over a stream through tokio", PAGES, pair(Kind::StreamLatency, plain));
    add("tokio_tcp_8", "8 bytes over TCP through tokio", PAGES, pair(Kind::TokioTcpLatency, plain));
    for tool in tools::BLOCKING {
        add(tool.id, tool.about, tool.memory, Source::Tool(tool));
    }
    add("memcpy", "1 MiB, one core", PAGES, Source::Memcpy);
    for tool in tools::STREAMS {
        add(tool.id, tool.about, tool.memory, Source::Tool(tool));
    }
    add("udp_stream_no_icrc", "the raw stream without ICRC", PAGES, pair(Kind::UdpNoIcrcBandwidth, plain));
    add("udp_stream_own_icrc", "the raw stream with our ICRC", PAGES, pair(Kind::UdpOwnIcrcBandwidth, plain));
    add(
        "udp_stream",
        "raw stream: GSO, GRO, ICRC by crc32fast, one copy, 4096 bytes a packet",
        PAGES,
        pair(Kind::UdpBandwidth, plain),
    );
    add("write_1m", "WRITE of 1 MiB, both sides sleep for events", PAGES, pair(Kind::WriteBandwidth, plain));
    add("tcp_stream", "128 KiB a call", PAGES, pair(Kind::TcpBandwidth, plain));
    add("stream", "128 KiB a write, through tokio", PAGES, pair(Kind::StreamBandwidth, plain));
    add("tokio_tcp", "128 KiB a write, TCP through tokio", PAGES, pair(Kind::TokioTcpBandwidth, plain));
    add(
        "write_1m_polled",
        "WRITE of 1 MiB, completions polled",
        PAGES,
        pair(Kind::WritePolledBandwidth, plain),
    );
    for tool in tools::UNMODIFIED_STREAMS {
        add(tool.id, tool.about, tool.memory, Source::Tool(tool));
    }
    add("read_1m", "READ of 1 MiB", PAGES, pair(Kind::ReadBandwidth, plain));
    add("send_1m", "SEND of 1 MiB", PAGES, pair(Kind::SendBandwidth, plain));
    add("udp_stream_1024", "the raw stream, 1024 bytes a packet", PAGES, pair(Kind::UdpBandwidth, mtu));
    add("udp_stream_1024_own_icrc", "the same with our ICRC", PAGES, pair(Kind::UdpOwnIcrcBandwidth, mtu));
    add("write_1m_1024", "WRITE of 1 MiB at path MTU 1024", PAGES, pair(Kind::WriteBandwidth, mtu));
    add("udp_stream_small", "the raw stream, receive buffer 212,992", PAGES, pair(Kind::UdpBandwidth, small));
    add("write_1m_small", "WRITE of 1 MiB, receive buffer 212,992", PAGES, pair(Kind::WriteBandwidth, small));
    add(
        "udp_stream_1024_small",
        "the raw stream, 1024 bytes a packet, receive buffer 212,992",
        PAGES,
        pair(Kind::UdpBandwidth, small_mtu),
    );
    add(
        "write_1m_1024_small",
        "WRITE of 1 MiB at path MTU 1024, receive buffer 212,992",
        PAGES,
        pair(Kind::WriteBandwidth, small_mtu),
    );
    add(
        "write_1m_loss_0.1",
        "WRITE of 1 MiB, 0.1 % of all packets lost",
        PAGES,
        pair(Kind::WriteBandwidth, loss(0.001, 14_814)),
    );
    add(
        "write_1m_loss_1",
        "WRITE of 1 MiB, 1 % of all packets lost",
        PAGES,
        pair(Kind::WriteBandwidth, loss(0.01, 14_815)),
    );
    add(
        "stream_loss_0.1",
        "the stream, 0.1 % of all packets lost",
        PAGES,
        pair(Kind::StreamBandwidth, loss(0.001, 14_814)),
    );
    add("stream_rate", "writes of 8 bytes to a stream, through tokio", PAGES, pair(Kind::StreamRate, plain));
    add("tokio_tcp_rate", "writes of 8 bytes to TCP, through tokio", PAGES, pair(Kind::TokioTcpRate, plain));
    add(
        "udp_rate",
        "packets of 40 bytes, 32 by one sendmmsg, none joined",
        PAGES,
        pair(Kind::UdpRate, plain),
    );
    add("write_rate", "WRITEs of 8 bytes, 64 in a batch", INLINE, pair(Kind::WriteBatchRate, plain));
    for tool in tools::RATES {
        add(tool.id, tool.about, tool.memory, Source::Tool(tool));
    }
    list
}

/// The receive buffer that unprivileged programs get where nobody has changed `net.core.rmem_max`.
pub(crate) const SMALL_BUFFER: usize = 212_992;
const INLINE: &str = "inline";
const PAGES: &str = "pages";

#[cfg(test)]
mod tests {
    use super::super::goals::GOALS;
    use super::*;

    #[test]
    fn every_goal_compares_what_there_is_and_nothing_is_measured_in_vain() {
        let ids: Vec<_> = all().into_iter().map(|series| series.id).collect();
        for goal in GOALS {
            for id in [goal.ours, goal.reference] {
                assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
            }
        }
        for id in &ids {
            assert!(GOALS.iter().any(|goal| [goal.ours, goal.reference].contains(&id.as_str())), "{id}");
        }
    }

    #[test]
    fn curves_go_from_one_byte_to_four_mebibytes() {
        let points = curves();
        assert_eq!((points[0].len, points.last().and_then(|point| point.len)), (Some(1), Some(4 << 20)));
        assert!(!points.iter().any(|point| point.id == "latency/udp/65536"), "no datagram is that long");
    }
}
