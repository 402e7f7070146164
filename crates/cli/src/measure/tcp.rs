//! What kernel TCP does with the same bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use userdma_link::clock;

use super::Outcome;
use super::pingpong::{self, Patience, number, put};
use super::rig::Rig;
use crate::failure::Failure;

/// Messages of one length over TCP.
#[derive(Debug)]
pub(super) struct PingPong<'a> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
}

impl<'a> PingPong<'a> {
    /// On a socket that does not block.
    pub(super) fn spinning(rig: &'a Rig, len: usize) -> Result<Self, Failure> {
        rig.tcp.set_nonblocking(true)?;
        Ok(Self { stream: &rig.tcp, bytes: vec![0; len] })
    }

    /// On a socket that blocks.
    pub(super) fn blocking(rig: &'a Rig, len: usize) -> Result<Self, Failure> {
        rig.tcp.set_nonblocking(false)?;
        Ok(Self { stream: &rig.tcp, bytes: vec![0; len] })
    }
}

impl pingpong::PingPong for PingPong<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn send(&mut self, value: u64) -> Result<(), Failure> {
        put(&mut self.bytes, value);
        let mut patience = Patience::default();
        let mut done = 0;
        while done < self.bytes.len() {
            match self.stream.write(&self.bytes[done..]) {
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => patience.turn()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        let mut done = 0;
        let mut patience = Patience::default();
        while done < self.bytes.len() {
            match self.stream.read(&mut self.bytes[done..]) {
                Ok(0) => return Err(Failure::new("the TCP connection is gone")),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => patience.turn()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(number(&self.bytes))
    }
}

/// Writes pieces of `len` bytes; the last one begins with 1.
pub(super) fn lead_stream(rig: &Rig, slice_ns: u64, len: usize) -> Result<Outcome, Failure> {
    lead_pieces(rig, slice_ns, len)
}

/// Reads them, up to 128 KiB at a time.
pub(super) fn follow_stream(rig: &Rig, len: usize) -> Result<(), Failure> {
    follow_pieces(rig, len)
}

/// Writes messages of eight bytes, `per_call` by a system call.
pub(super) fn lead_rate(rig: &Rig, slice_ns: u64, per_call: usize) -> Result<Outcome, Failure> {
    let calls = lead_pieces(rig, slice_ns, 8 * per_call)?;
    Ok(Outcome { messages: calls.messages * per_call as u64, ..calls })
}

/// Reads them, as many at a time as there are.
pub(super) fn follow_rate(rig: &Rig, per_call: usize) -> Result<(), Failure> {
    follow_pieces(rig, 8 * per_call)
}

fn lead_pieces(rig: &Rig, slice_ns: u64, piece_len: usize) -> Result<Outcome, Failure> {
    rig.tcp.set_nonblocking(false)?;
    let mut stream = &rig.tcp;
    let mut piece = vec![0; piece_len];
    // The clock costs some 30 ns: for small pieces it is read rarely.
    let pieces_per_look = (4096 / piece_len).max(1) as u64;
    let mut messages = 0;
    let start = clock::now();
    while clock::now().since(start).as_nanos() < slice_ns.into() {
        for _ in 0..pieces_per_look {
            stream.write_all(&piece)?;
        }
        messages += pieces_per_look;
    }
    piece[0] = 1;
    stream.write_all(&piece)?;
    stream.read_exact(&mut [0])?;
    let ns = u64::try_from(clock::now().since(start).as_nanos()).unwrap_or(u64::MAX);
    messages += 1;
    Ok(Outcome { half_trip_us: None, bytes: messages * piece_len as u64, messages, ns })
}

fn follow_pieces(rig: &Rig, piece_len: usize) -> Result<(), Failure> {
    rig.tcp.set_nonblocking(false)?;
    let mut stream = &rig.tcp;
    let mut buffer = vec![0; CHUNK];
    // Where in a piece the next byte belongs, and whether it is the last piece.
    let (mut at, mut is_last) = (0, false);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(Failure::new("the TCP connection is gone"));
        }
        let first = (piece_len - at) % piece_len;
        is_last |= buffer[..count].iter().skip(first).step_by(piece_len).any(|byte| *byte == 1);
        at = (at + count) % piece_len;
        if is_last && at == 0 {
            stream.write_all(&[1])?;
            return Ok(());
        }
    }
}

/// Bytes of a read.
const CHUNK: usize = 128 << 10;
