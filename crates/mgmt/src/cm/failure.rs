//! Why a call does nothing.

use userdma_verbs::{Errno, QpType};

use super::PortId;

/// Why a call was refused. Nothing has happened then.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// There is no such connection, or it was given up by [`super::Cm::destroy`].
    #[error("no such connection")]
    NoConnection,
    /// The connection is in a state in which this cannot be done.
    #[error("not possible in state {0}")]
    State(&'static str),
    /// More bytes than the message has room for.
    #[error("{len} bytes in a field of {max}")]
    TooLong {
        /// How many.
        len: usize,
        /// How many fit.
        max: usize,
    },
    /// A service type that is neither reliable nor unreliable connection.
    #[error("service type {0:?}: only reliable and unreliable connections can be made")]
    ServiceType(QpType),
    /// A port that was not added.
    #[error("{0:?} was not added")]
    NoPort(PortId),
    /// The service is listened to already.
    #[error("the service is listened to already")]
    InUse,
    /// As many connections as there can be.
    #[error("no communication id is free")]
    NoIds,
}

impl Failure {
    /// The number that the kernel's calls return.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NoConnection | Self::State(_) | Self::TooLong { .. } | Self::ServiceType(_) => {
                Errno::Einval
            }
            Self::NoPort(_) => Errno::Eaddrnotavail,
            Self::InUse => Errno::Ebusy,
            Self::NoIds => Errno::Enomem,
        }
    }
}
