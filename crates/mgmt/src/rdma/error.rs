//! Why a call was refused.

use std::net::IpAddr;

/// Why a call was refused. Nothing has changed and no event comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// There is no such identifier.
    #[error("no such identifier")]
    NoId,
    /// The identifier is not in a state that allows this.
    #[error("{call} is not possible now: it needs {wanted}")]
    State {
        /// The call.
        call: &'static str,
        /// What the identifier would have to be or have.
        wanted: &'static str,
    },
    /// An argument has a value that is not possible.
    #[error("{what} is {value}, {allowed} is possible")]
    Value {
        /// The argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// More private data than the message has room for.
    #[error("{len} bytes of private data, at most {max} fit")]
    PrivateData {
        /// How many there are.
        len: usize,
        /// How many fit.
        max: usize,
    },
    /// The addresses are of different families, or of one that is not known.
    #[error("addresses of this family are not possible here")]
    Family,
    /// The port space has no ports for this kind of address.
    #[error("the port space does not have this service")]
    Service,
    /// No device of this process has the address.
    #[error("no device has the address {0}")]
    NoDevice(IpAddr),
    /// A device could not be opened. Why, the log says.
    #[error("device {device} cannot be opened, the system says {errno}")]
    Open {
        /// Its place among the devices.
        device: usize,
        /// The error number, positive.
        errno: i32,
    },
    /// Somebody has the port on this address.
    #[error("port {0} is taken")]
    PortTaken(u16),
    /// Somebody has the port on every address, or no port is free.
    #[error("no such port is free")]
    NoPort,
    /// There are as many connections as there can be.
    #[error("no communication id is free")]
    NoIds,
    /// It is not there.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The system refused.
    #[error("the system says {0}")]
    System(i32),
}

impl CmError {
    /// The number that the kernel's `rdma_cm` would say, positive.
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NoId => ENOENT,
            Self::State { .. } | Self::Value { .. } | Self::PrivateData { .. } => EINVAL,
            Self::Family => EAFNOSUPPORT,
            Self::Service => EPROTONOSUPPORT,
            Self::NoDevice(_) => ENODEV,
            Self::PortTaken(_) => EADDRINUSE,
            Self::NoPort => EADDRNOTAVAIL,
            Self::NoIds => ENOMEM,
            Self::Unsupported(_) => ENOSYS,
            Self::Open { errno, .. } | Self::System(errno) => *errno,
        }
    }
}

const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
pub(super) const ENODEV: i32 = 19;
pub(super) const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EPROTONOSUPPORT: i32 = 93;
const EAFNOSUPPORT: i32 = 97;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
pub(super) const ETIMEDOUT: i32 = 110;
