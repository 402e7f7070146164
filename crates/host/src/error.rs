//! Why the host refused a call.

use std::io;
use std::path::PathBuf;

use userdma_agent::ClaimError;
use userdma_link::OpenError as LinkError;
use userdma_verbs::{Errno, PostError};

/// Why a device was not opened; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The addresses could not be had.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The capture file could not be made.
    #[error("capture file {path}: {source}", path = path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The device is not usable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The system refused something that every device needs.
    #[error("{what}: {source}")]
    System {
        /// What it was about.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl OpenError {
    /// The number that says the most of it.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Claim(
                ClaimError::Taken { .. }
                | ClaimError::NoSlot { .. }
                | ClaimError::Link(LinkError::AddrInUse { .. }),
            ) => Errno::Eaddrinuse,
            Self::Claim(ClaimError::Link(LinkError::AddrNotAvailable { .. })) => Errno::Eaddrnotavail,
            Self::Claim(_) | Self::Capture { .. } | Self::Host(_) | Self::System { .. } => Errno::Einval,
        }
    }
}

/// Why a call on an open device did nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// This process is a child of the one that opened the device: it must open its own.
    #[error("the device was opened before fork and belongs to the parent process")]
    Forked,
    /// The system gave no thread that drives the device while nobody polls.
    #[error("the system gives no thread")]
    NoThread,
    /// The device met an error of its own and stopped.
    #[error("the device has stopped after an internal error")]
    Failed,
}

/// Why a work request was not posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PostFailure {
    /// The queue pair refused it.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The device is not usable.
    #[error(transparent)]
    Host(#[from] HostError),
}
