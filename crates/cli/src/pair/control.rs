//! Messages over the TCP connection between the two processes: a length, then JSON.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One end of the connection.
#[derive(Debug)]
pub struct Control {
    /// The connection: the two sides also exchange endpoints over it, between messages.
    pub stream: TcpStream,
}

impl Control {
    /// An end on `stream`. A message that takes longer than `timeout` to come is an error; `None` waits for ever.
    ///
    /// # Errors
    /// The connection does not take options: it is gone.
    pub fn new(stream: TcpStream, timeout: Option<Duration>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(timeout)?;
        Ok(Self { stream })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let len = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.stream.write_all(&[&len.to_be_bytes()[..], &body].concat())
    }

    /// Receives a message.
    ///
    /// # Errors
    /// The connection is gone, the time is up, or the other side speaks something else.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}

/// Bytes; nothing that the two say is longer.
const MAX_MESSAGE: usize = 1 << 20;
