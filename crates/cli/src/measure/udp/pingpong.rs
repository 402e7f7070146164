//! A datagram to and fro: the fastest way there is for a few bytes.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::failure::Failure;
use crate::measure::pingpong::{self, Patience, number, put};
use crate::measure::rig::Rig;

/// Datagrams of one length over plain sockets.
#[derive(Debug)]
pub(in crate::measure) struct PingPong<'a> {
    socket: &'a UdpSocket,
    /// Where to, if the socket is not connected.
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
}

impl<'a> PingPong<'a> {
    /// Connected sockets; both sides spin.
    pub(in crate::measure) fn spinning(rig: &'a Rig, len: usize) -> Result<Self, Failure> {
        rig.udp.connected.set_nonblocking(true)?;
        Ok(Self { socket: &rig.udp.connected, to: None, bytes: vec![0; len] })
    }

    /// Connected sockets; both sides block.
    pub(in crate::measure) fn blocking(rig: &'a Rig, len: usize) -> Result<Self, Failure> {
        rig.udp.connected.set_nonblocking(false)?;
        rig.udp.connected.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { socket: &rig.udp.connected, to: None, bytes: vec![0; len] })
    }

    /// Sockets that are told with each datagram where it goes; both sides spin.
    pub(in crate::measure) fn unconnected(rig: &'a Rig, len: usize) -> Result<Self, Failure> {
        rig.udp.lone.socket.set_nonblocking(true)?;
        Ok(Self { socket: &rig.udp.lone.socket, to: Some(rig.udp.lone.peer), bytes: vec![0; len] })
    }
}

impl pingpong::PingPong for PingPong<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn send(&mut self, value: u64) -> Result<(), Failure> {
        put(&mut self.bytes, value);
        match self.to {
            Some(to) => self.socket.send_to(&self.bytes, to)?,
            None => self.socket.send(&self.bytes)?,
        };
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        let mut patience = Patience::default();
        loop {
            let received = match self.to {
                Some(_) => self.socket.recv_from(&mut self.bytes).map(|(len, _)| len),
                None => self.socket.recv(&mut self.bytes),
            };
            match received {
                Ok(len) if len == self.bytes.len() => return Ok(number(&self.bytes)),
                Ok(len) => return Err(Failure::new(format!("a datagram of {len} bytes"))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => patience.turn()?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
