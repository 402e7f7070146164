//! Why there is no connection.

use std::io;
use std::net::SocketAddr;

use userdma_host::cm::CmError;

use crate::Error;

/// Why there is no connection. A queue pair that was to be connected is destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The other side has nobody who takes requests for this port.
    #[error("nobody listens on {0}")]
    NoListener(SocketAddr),
    /// The other side's program does not want it.
    #[error("{peer} has refused the connection{}", said(.private_data))]
    Rejected {
        /// Who.
        peer: SocketAddr,
        /// What its program says to it: its bytes and zeros, 148 in all.
        private_data: Vec<u8>,
    },
    /// The other side's connection manager does not make it.
    #[error(
        "{peer} does not make the connection, its reason is {reason} (of the standard's table of reasons)"
    )]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// A number of the standard's.
        reason: i32,
    },
    /// Nobody has answered, though asked again and again.
    #[error("{0} does not answer")]
    Unreachable(SocketAddr),
    /// No device of this side leads there.
    #[error("there is no way from this device to {peer}: {source}")]
    NoRoute {
        /// Who.
        peer: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The other side has ended it before it was made. Who accepts has a connection then, which has ended: what was sent is there.
    #[error("{0} has ended the connection before it was made")]
    Ended(SocketAddr),
    /// Time is up. Of a request or a connection that was to be made nothing is left.
    #[error("it has taken too long")]
    TimedOut,
    /// The device is no longer usable.
    #[error("the device is gone")]
    DeviceGone,
    /// The address is none.
    #[error("cannot use the address: {0}")]
    Address(io::Error),
    /// The connection manager of this side refuses.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// The queue pair or the stream cannot be had.
    #[error(transparent)]
    Setup(#[from] Error),
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::NoListener(_) | ConnectError::Rejected { .. } | ConnectError::Refused { .. } => {
                io::ErrorKind::ConnectionRefused
            }
            ConnectError::Unreachable(_) | ConnectError::TimedOut => io::ErrorKind::TimedOut,
            ConnectError::NoRoute { .. } => io::ErrorKind::NetworkUnreachable,
            ConnectError::Ended(_) => io::ErrorKind::ConnectionAborted,
            ConnectError::DeviceGone => io::ErrorKind::NotConnected,
            ConnectError::Address(error) => error.kind(),
            ConnectError::Cm(CmError::PortTaken(_)) => io::ErrorKind::AddrInUse,
            ConnectError::Cm(CmError::NoDevice(_) | CmError::NoPort) => io::ErrorKind::AddrNotAvailable,
            ConnectError::Cm(_) | ConnectError::Setup(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// What the other side's program says, if it is a text.
fn said(private_data: &[u8]) -> String {
    let len = private_data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match str::from_utf8(&private_data[..len]) {
        Ok("") | Err(_) => String::new(),
        Ok(text) => format!(": {text:?}"),
    }
}
