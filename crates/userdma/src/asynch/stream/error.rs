//! How a stream breaks.

use std::io;
use std::sync::Arc;

use userdma_verbs::WcStatus;

use super::flow::Violation;
use crate::{Error, WrError};

/// Why a stream does not go on: what the [`io::Error`] of a read or a write has inside.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The connection broke: the peer does not answer any more, or has broken it.
    #[error("the connection is broken: {0}")]
    Broken(Arc<WrError>),
    /// The peer has told what cannot be.
    #[error("the peer does not keep to the protocol of streams: {0}")]
    Protocol(&'static str),
    /// The memory of the stream has vanished.
    #[error("{0}")]
    Memory(Arc<Error>),
    /// The peer's program has dropped its stream, and reads no more.
    #[error("the peer has closed the stream")]
    PeerGone,
    /// This side has ended its writing.
    #[error("the stream is shut down for writing")]
    ShutDown,
}

impl StreamError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Broken(error) => match error.status() {
                Some(WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr) => io::ErrorKind::TimedOut,
                Some(_) => io::ErrorKind::ConnectionReset,
                None => io::ErrorKind::ConnectionAborted,
            },
            Self::Memory(_) => io::ErrorKind::Other,
            Self::Protocol(_) => io::ErrorKind::InvalidData,
            Self::PeerGone | Self::ShutDown => io::ErrorKind::BrokenPipe,
        }
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<Violation> for StreamError {
    fn from(violation: Violation) -> Self {
        Self::Protocol(violation.0)
    }
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        Self::Memory(Arc::new(error))
    }
}

impl From<WrError> for StreamError {
    fn from(error: WrError) -> Self {
        Self::Broken(Arc::new(error))
    }
}
