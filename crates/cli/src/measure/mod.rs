//! Measurements between the two processes: RDMA, and beside it kernel TCP and raw UDP, in the same run.
//!
//! One side leads and takes the time, the other follows. Each kind of measurement runs for a slice of time; rounds in which
//! every kind has its slice make neighbours of what is compared.

mod bandwidth;
mod latency;
pub mod message;
mod pingpong;
mod rate;
mod rig;
pub mod rounds;
mod setup;
mod stream;
mod tcp;
mod udp;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::pair::pattern::Difference;

use bandwidth::Learn;
pub use rig::{Rig, Role};
pub use setup::Setup;
use stream::{Way, Work};
use udp::Icrc;

/// What is measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Kind {
    /// SEND/RECV of 8 bytes, both sides poll their completion queues.
    SendLatency,
    /// WRITE of 8 bytes, both sides poll memory (and, since nobody else would, their completion queues).
    WriteLatency,
    /// SEND/RECV of 8 bytes, both sides sleep until their completion queues have something.
    EventLatency,
    /// 8 bytes over TCP, both sides spin on a non-blocking socket.
    TcpSpinLatency,
    /// 8 bytes over TCP, both sides block.
    TcpBlockingLatency,
    /// SEND/RECV of messages of any length, both sides poll their completion queues.
    MessageLatency,
    /// WRITEs of large messages; both sides sleep when there is nothing to do.
    WriteBandwidth,
    /// WRITEs of large messages; the side that posts polls its completion queue.
    WritePolledBandwidth,
    /// READs of large messages.
    ReadBandwidth,
    /// SENDs of large messages.
    SendBandwidth,
    /// A TCP stream.
    TcpBandwidth,
    /// WRITEs of 8 bytes, posted one by one.
    WriteRate,
    /// WRITEs of 8 bytes, 64 posted at a time.
    WriteBatchRate,
    /// 8 bytes over TCP, one system call each.
    TcpRate,
    /// 8 bytes over TCP, 64 times in each system call.
    TcpBatchRate,
    /// A message over connected UDP sockets, both sides spin.
    UdpSpinLatency,
    /// A message over unconnected UDP sockets, both sides spin.
    UdpUnconnectedLatency,
    /// A message over connected UDP sockets, both sides block.
    UdpBlockingLatency,
    /// Small packets over plain UDP sockets, 32 in a system call, none joined.
    UdpRate,
    /// Packets as those of WRITEs over plain UDP sockets: GSO, GRO, ICRC by a library, one copy.
    UdpBandwidth,
    /// The same with the device's way to compute the ICRC.
    UdpOwnIcrcBandwidth,
    /// The same without ICRC.
    UdpNoIcrcBandwidth,
    /// 8 bytes over a stream over a queue pair, through tokio.
    StreamLatency,
    /// 8 bytes over TCP, through tokio.
    TokioTcpLatency,
    /// A stream over a queue pair, through tokio.
    StreamBandwidth,
    /// TCP, through tokio.
    TokioTcpBandwidth,
    /// 8 bytes over a stream over a queue pair, one write each, through tokio.
    StreamRate,
    /// 8 bytes over TCP, one write each, through tokio.
    TokioTcpRate,
}

/// A measurement to be made.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Order {
    /// What.
    pub kind: Kind,
    /// For how long, nanoseconds.
    pub slice_ns: u64,
    /// What memory is filled with.
    pub seed: u64,
    /// Bytes of a message: 1 ..= 4 MiB; of latencies that are defined by 8 bytes, 8.
    pub len: usize,
    /// On which of the rigs that both sides have, in the order in which they were made.
    pub rig: usize,
}

impl Order {
    /// A measurement with the usual length of message, on the first rig.
    pub fn new(kind: Kind, slice_ns: u64, seed: u64) -> Self {
        Self { kind, slice_ns, seed, len: kind.usual_len(), rig: 0 }
    }
}

/// What the leading side found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Half of a round trip, microseconds: the median over windows of some trips.
    pub half_trip_us: Option<f64>,
    /// Bytes moved.
    pub bytes: u64,
    /// Messages moved.
    pub messages: u64,
    /// Time that it took, nanoseconds.
    pub ns: u64,
}

impl Outcome {
    /// Billions of bytes a second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.ns.max(1) as f64
    }

    /// Millions of messages a second.
    pub fn m_per_s(&self) -> f64 {
        self.messages as f64 * 1e3 / self.ns.max(1) as f64
    }
}

/// Small messages that go together, where they do.
const BATCH: usize = 64;

/// Leads a measurement. The other side is ready.
///
/// # Errors
/// A completion with an error, a connection that is gone, something that takes too long.
pub fn lead(rig: &mut Rig, order: Order) -> Result<Outcome, Failure> {
    let (slice, len) = (order.slice_ns, order.len);
    match order.kind {
        Kind::SendLatency => pingpong::lead(&mut latency::Send::polling(rig), slice),
        Kind::EventLatency => pingpong::lead(&mut latency::Send::sleeping(rig), slice),
        Kind::WriteLatency => pingpong::lead(&mut latency::Write::new(rig), slice),
        Kind::TcpSpinLatency => pingpong::lead(&mut tcp::PingPong::spinning(rig, len)?, slice),
        Kind::TcpBlockingLatency => pingpong::lead(&mut tcp::PingPong::blocking(rig, len)?, slice),
        Kind::MessageLatency => pingpong::lead(&mut message::Message::new(rig, len), slice),
        Kind::WriteBandwidth => bandwidth::write(rig, slice, len, Learn::Sleeping),
        Kind::WritePolledBandwidth => bandwidth::write(rig, slice, len, Learn::Polling),
        Kind::ReadBandwidth => bandwidth::read(rig, slice, len),
        Kind::SendBandwidth => bandwidth::send(rig, slice, len),
        Kind::TcpBandwidth => tcp::lead_stream(rig, slice, len),
        Kind::WriteRate => rate::write(rig, slice, false),
        Kind::WriteBatchRate => rate::write(rig, slice, true),
        Kind::TcpRate => tcp::lead_rate(rig, slice, 1),
        Kind::TcpBatchRate => tcp::lead_rate(rig, slice, BATCH),
        Kind::UdpSpinLatency => pingpong::lead(&mut udp::PingPong::spinning(rig, len)?, slice),
        Kind::UdpUnconnectedLatency => pingpong::lead(&mut udp::PingPong::unconnected(rig, len)?, slice),
        Kind::UdpBlockingLatency => pingpong::lead(&mut udp::PingPong::blocking(rig, len)?, slice),
        Kind::UdpRate => udp::lead_rate(rig, slice),
        Kind::UdpBandwidth => udp::lead_stream(rig, slice, len, Icrc::Library),
        Kind::UdpOwnIcrcBandwidth => udp::lead_stream(rig, slice, len, Icrc::Device),
        Kind::UdpNoIcrcBandwidth => udp::lead_stream(rig, slice, len, Icrc::None),
        Kind::StreamLatency => rig.streams.lead(&rig.tcp, Way::Rdma, Work::PingPong, slice),
        Kind::TokioTcpLatency => rig.streams.lead(&rig.tcp, Way::Tcp, Work::PingPong, slice),
        Kind::StreamBandwidth | Kind::StreamRate => {
            rig.streams.lead(&rig.tcp, Way::Rdma, Work::Pieces(len), slice)
        }
        Kind::TokioTcpBandwidth | Kind::TokioTcpRate => {
            rig.streams.lead(&rig.tcp, Way::Tcp, Work::Pieces(len), slice)
        }
    }
}

/// The following side of a measurement.
#[derive(Debug)]
pub struct Follower<'a> {
    rig: &'a mut Rig,
    order: Order,
}

impl<'a> Follower<'a> {
    /// Gets ready: from now on the other side may begin.
    ///
    /// # Errors
    /// Memory or connection are gone.
    pub fn new(rig: &'a mut Rig, order: Order) -> Result<Self, Failure> {
        rig.prepare(order)?;
        Ok(Self { rig, order })
    }

    /// Does its part, if it has one: where the other side's one-sided operations are measured, it has none.
    ///
    /// # Errors
    /// As [`lead`].
    pub fn run(&mut self) -> Result<(), Failure> {
        let (rig, len) = (&mut *self.rig, self.order.len);
        match self.order.kind {
            Kind::SendLatency => pingpong::follow(&mut latency::Send::polling(rig)),
            Kind::EventLatency => pingpong::follow(&mut latency::Send::sleeping(rig)),
            Kind::WriteLatency => pingpong::follow(&mut latency::Write::new(rig)),
            Kind::TcpSpinLatency => pingpong::follow(&mut tcp::PingPong::spinning(rig, len)?),
            Kind::TcpBlockingLatency => pingpong::follow(&mut tcp::PingPong::blocking(rig, len)?),
            Kind::MessageLatency => pingpong::follow(&mut message::Message::new(rig, len)),
            Kind::WriteBandwidth
            | Kind::WritePolledBandwidth
            | Kind::ReadBandwidth
            | Kind::WriteRate
            | Kind::WriteBatchRate => Ok(()),
            Kind::SendBandwidth => bandwidth::receive(rig),
            Kind::TcpBandwidth => tcp::follow_stream(rig, len),
            Kind::TcpRate => tcp::follow_rate(rig, 1),
            Kind::TcpBatchRate => tcp::follow_rate(rig, BATCH),
            Kind::UdpSpinLatency => pingpong::follow(&mut udp::PingPong::spinning(rig, len)?),
            Kind::UdpUnconnectedLatency => pingpong::follow(&mut udp::PingPong::unconnected(rig, len)?),
            Kind::UdpBlockingLatency => pingpong::follow(&mut udp::PingPong::blocking(rig, len)?),
            Kind::UdpRate => udp::follow_rate(rig),
            Kind::UdpBandwidth => udp::follow_stream(rig, len, Icrc::Library),
            Kind::UdpOwnIcrcBandwidth => udp::follow_stream(rig, len, Icrc::Device),
            Kind::UdpNoIcrcBandwidth => udp::follow_stream(rig, len, Icrc::None),
            Kind::StreamLatency => rig.streams.follow(&rig.tcp, Way::Rdma, Work::PingPong),
            Kind::TokioTcpLatency => rig.streams.follow(&rig.tcp, Way::Tcp, Work::PingPong),
            Kind::StreamBandwidth | Kind::StreamRate => {
                rig.streams.follow(&rig.tcp, Way::Rdma, Work::Pieces(len))
            }
            Kind::TokioTcpBandwidth | Kind::TokioTcpRate => {
                rig.streams.follow(&rig.tcp, Way::Tcp, Work::Pieces(len))
            }
        }
    }
}

impl Kind {
    /// Whether plain sockets do it.
    pub fn is_plain(self) -> bool {
        match self {
            Self::TcpSpinLatency
            | Self::TcpBlockingLatency
            | Self::TcpBandwidth
            | Self::TcpRate
            | Self::TcpBatchRate
            | Self::UdpSpinLatency
            | Self::UdpUnconnectedLatency
            | Self::UdpBlockingLatency
            | Self::UdpRate
            | Self::UdpBandwidth
            | Self::UdpOwnIcrcBandwidth
            | Self::UdpNoIcrcBandwidth
            | Self::TokioTcpLatency
            | Self::TokioTcpBandwidth
            | Self::TokioTcpRate => true,
            Self::SendLatency
            | Self::WriteLatency
            | Self::EventLatency
            | Self::MessageLatency
            | Self::WriteBandwidth
            | Self::WritePolledBandwidth
            | Self::ReadBandwidth
            | Self::SendBandwidth
            | Self::WriteRate
            | Self::WriteBatchRate
            | Self::StreamLatency
            | Self::StreamBandwidth
            | Self::StreamRate => false,
        }
    }

    /// Bytes of a message where nothing is said of them.
    fn usual_len(self) -> usize {
        match self {
            Self::WriteBandwidth
            | Self::WritePolledBandwidth
            | Self::ReadBandwidth
            | Self::SendBandwidth
            | Self::UdpBandwidth
            | Self::UdpOwnIcrcBandwidth
            | Self::UdpNoIcrcBandwidth => 1 << 20,
            Self::TcpBandwidth | Self::StreamBandwidth | Self::TokioTcpBandwidth => 128 << 10,
            Self::SendLatency
            | Self::WriteLatency
            | Self::EventLatency
            | Self::MessageLatency
            | Self::TcpSpinLatency
            | Self::TcpBlockingLatency
            | Self::WriteRate
            | Self::WriteBatchRate
            | Self::TcpRate
            | Self::TcpBatchRate
            | Self::UdpSpinLatency
            | Self::UdpUnconnectedLatency
            | Self::UdpBlockingLatency
            | Self::UdpRate
            | Self::StreamLatency
            | Self::TokioTcpLatency
            | Self::StreamRate
            | Self::TokioTcpRate => 8,
        }
    }

    /// Which side's memory holds a measurement's result, to be compared with the pattern.
    fn result_at(self) -> Option<Role> {
        match self {
            Self::WriteBandwidth
            | Self::WritePolledBandwidth
            | Self::SendBandwidth
            | Self::WriteRate
            | Self::WriteBatchRate => Some(Role::Follower),
            Self::ReadBandwidth => Some(Role::Leader),
            Self::SendLatency
            | Self::WriteLatency
            | Self::EventLatency
            | Self::TcpSpinLatency
            | Self::TcpBlockingLatency
            | Self::TcpBandwidth
            | Self::TcpRate
            | Self::TcpBatchRate
            | Self::MessageLatency
            | Self::UdpSpinLatency
            | Self::UdpUnconnectedLatency
            | Self::UdpBlockingLatency
            | Self::UdpRate
            | Self::UdpBandwidth
            | Self::UdpOwnIcrcBandwidth
            | Self::UdpNoIcrcBandwidth
            | Self::StreamLatency
            | Self::TokioTcpLatency
            | Self::StreamBandwidth
            | Self::TokioTcpBandwidth
            | Self::StreamRate
            | Self::TokioTcpRate => None,
        }
    }
}

impl Rig {
    /// Compares the memory that a measurement has filled on this side, if it has, with what should be there.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn check(&self, order: Order) -> Result<Option<Difference>, Failure> {
        match (order.kind.result_at(), order.kind) {
            (Some(role), _) if role != self.role() => Ok(None),
            (Some(_), Kind::WriteRate | Kind::WriteBatchRate) => rate::check(self),
            (Some(_), _) => self.compare(order),
            (None, _) => Ok(None),
        }
    }
}
