//! Streams of bytes through tokio: a stream over a queue pair and a TCP socket, by the same code.

use std::net::TcpStream;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use userdma::{AsyncCq, RdmaStream, StreamAttr, StreamSetup, exchange};
use userdma_link::clock;

use super::pingpong::median;
use super::{Outcome, Setup};
use crate::failure::Failure;
use crate::pair::side::Side;

/// Both streams, and the runtime that runs and drives them: one thread.
#[derive(Debug)]
pub(super) struct Streams {
    runtime: Runtime,
    rdma: RdmaStream,
    tcp: tokio::net::TcpStream,
}

/// Which one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Rdma,
    Tcp,
}

/// What is done with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Eight bytes to and fro.
    PingPong,
    /// Pieces of this length, one write each.
    Pieces(usize),
}

impl Streams {
    /// Connects at the same time as the other side. `tcp` is connected already.
    pub(super) fn connect(
        side: &Side,
        setup: Setup,
        control: &mut TcpStream,
        tcp: &TcpStream,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let attr = StreamAttr { rtr: setup.rtr()?, ..StreamAttr::default() };
        let cq = AsyncCq::with_tokio(&side.device, StreamSetup::places(attr.messages))?;
        let stream = StreamSetup::new(&side.pd, &cq, attr)?;
        let (peer, offer) = exchange(control, &(stream.endpoint(), stream.offer()))?;
        let rdma = stream.connect(&peer, &offer)?;
        // Neither side may send before the other one receives.
        exchange(control, &peer)?;
        tcp.set_nonblocking(true)?;
        let tcp = tokio::net::TcpStream::from_std(tcp.try_clone()?)?;
        drop(guard);
        Ok(Self { runtime, rdma, tcp })
    }

    /// Leads. `tcp` is the socket that this shares.
    pub(super) fn lead(
        &mut self,
        tcp: &TcpStream,
        way: Way,
        work: Work,
        slice_ns: u64,
    ) -> Result<Outcome, Failure> {
        tcp.set_nonblocking(true)?;
        let Self { runtime, rdma, tcp } = self;
        runtime.block_on(async {
            match way {
                Way::Rdma => lead(rdma, work, slice_ns).await,
                Way::Tcp => lead(tcp, work, slice_ns).await,
            }
        })
    }

    /// Follows.
    pub(super) fn follow(&mut self, tcp: &TcpStream, way: Way, work: Work) -> Result<(), Failure> {
        tcp.set_nonblocking(true)?;
        let Self { runtime, rdma, tcp } = self;
        runtime.block_on(async {
            match way {
                Way::Rdma => follow(rdma, work).await,
                Way::Tcp => follow(tcp, work).await,
            }
        })
    }
}

async fn lead(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    work: Work,
    slice_ns: u64,
) -> Result<Outcome, Failure> {
    match work {
        Work::PingPong => lead_ping_pong(stream, slice_ns).await,
        Work::Pieces(len) => lead_pieces(stream, slice_ns, len).await,
    }
}

async fn follow(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), work: Work) -> Result<(), Failure> {
    match work {
        Work::PingPong => follow_ping_pong(stream).await,
        Work::Pieces(len) => follow_pieces(stream, len).await,
    }
}

/// Numbers, each of which comes back.
async fn lead_ping_pong(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    slice_ns: u64,
) -> Result<Outcome, Failure> {
    let (mut next, mut half_trips_us) = (0, Vec::new());
    let start = clock::now();
    let mut before = start;
    while before.since(start).as_nanos() < slice_ns.into() {
        for _ in 0..TRIPS {
            next += 1;
            stream.write_u64(next).await?;
            let back = stream.read_u64().await?;
            if back != next {
                return Err(Failure::new(format!("{back:#x} came back for {next:#x}")));
            }
        }
        let now = clock::now();
        // Exact up to weeks.
        half_trips_us.push(now.since(before).as_nanos() as f64 / (2 * TRIPS) as f64 / 1000.0);
        before = now;
    }
    stream.write_u64(u64::MAX).await?;
    let messages = 2 * next;
    let ns = u64::try_from(before.since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: Some(median(&mut half_trips_us)), bytes: 8 * messages, messages, ns })
}

async fn follow_ping_pong(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), Failure> {
    loop {
        match stream.read_u64().await? {
            u64::MAX => return Ok(()),
            value => stream.write_u64(value).await?,
        }
    }
}

/// Pieces; the last one begins with 1.
async fn lead_pieces(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    slice_ns: u64,
    len: usize,
) -> Result<Outcome, Failure> {
    let mut piece = vec![0; len];
    // The clock costs some 30 ns: for small pieces it is read rarely.
    let pieces_per_look = (4096 / len).max(1) as u64;
    let mut messages = 0;
    let start = clock::now();
    while clock::now().since(start).as_nanos() < slice_ns.into() {
        for _ in 0..pieces_per_look {
            stream.write_all(&piece).await?;
        }
        messages += pieces_per_look;
    }
    piece[0] = 1;
    stream.write_all(&piece).await?;
    stream.read_u8().await?;
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    messages += 1;
    Ok(Outcome { half_trip_us: None, bytes: messages * len as u64, messages, ns })
}

async fn follow_pieces(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    len: usize,
) -> Result<(), Failure> {
    let mut buffer = vec![0; CHUNK];
    // Where in a piece the next byte belongs, and whether it is the last piece.
    let (mut at, mut is_last) = (0, false);
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(Failure::new("the stream has ended"));
        }
        let first = (len - at) % len;
        is_last |= buffer[..count].iter().skip(first).step_by(len).any(|byte| *byte == 1);
        at = (at + count) % len;
        if is_last && at == 0 {
            return Ok(stream.write_u8(1).await?);
        }
    }
}

/// Round trips between two looks at the clock.
const TRIPS: u64 = 32;
/// Bytes of a read.
const CHUNK: usize = 128 << 10;
