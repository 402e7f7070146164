//! One error for all calls: each variant carries the verbs' own, with the values that were wrong.

use std::{fmt, io};

use userdma_host::{AttachFailure, CreateAhError, EventError, HostError};
use userdma_verbs::{
    BindMwError, CreateCqError, CreateQpError, CreateSrqError, DeviceAttr, Errno, ModifyQpError,
    ModifySrqError, ObjectError, PostError, RegMrError,
};

pub use userdma_host::OpenError;

/// Why a call did nothing. What goes wrong with a work request after it was accepted is a
/// [`WcStatus`](crate::WcStatus) in its completion instead.
///
/// Its `Debug` form is the same text as its `Display` form, so that `main` may return it and people can read it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device was not opened.
    #[error("cannot open the device: {0}")]
    Open(#[from] OpenError),
    /// The name is neither a device's nor an address.
    #[error("`{0}` is neither a device, as `roce_eth0`, nor an IP address")]
    Name(String),
    /// The name is an address with a port.
    #[error(
        "`{0}` has a port: a device is opened by an address alone, `userdma devices` lists what there is"
    )]
    Port(String),
    /// A fault description was not understood.
    #[error("faults: {0}")]
    Faults(String),
    /// The device is no longer usable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no room for new memory.
    #[error("cannot allocate {len} bytes: {source}")]
    Alloc {
        /// Bytes.
        len: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Memory was not registered.
    #[error("cannot register memory: {0}")]
    RegMr(#[from] RegMrError),
    /// A completion queue was not made.
    #[error("cannot create the completion queue: {0}")]
    CreateCq(#[from] CreateCqError),
    /// A queue pair was not made.
    #[error("cannot create the queue pair: {0}")]
    CreateQp(#[from] CreateQpError),
    /// A shared receive queue was not made.
    #[error("cannot create the shared receive queue: {0}")]
    CreateSrq(#[from] CreateSrqError),
    /// A shared receive queue was not modified.
    #[error("cannot modify the shared receive queue: {0}")]
    ModifySrq(#[from] ModifySrqError),
    /// A queue pair whose operations are futures was to take receives from a shared receive queue.
    #[error("a queue pair whose operations are futures has receives of its own, and no shared receive queue")]
    AsyncSrq,
    /// A queue pair was not modified.
    #[error("cannot modify the queue pair: {0}")]
    ModifyQp(#[from] ModifyQpError),
    /// An address handle was not made.
    #[error("cannot create the address handle: {0}")]
    CreateAh(#[from] CreateAhError),
    /// A queue pair was not attached to a group.
    #[error("cannot attach the queue pair: {0}")]
    Attach(#[from] AttachFailure),
    /// The bytes do not tell where a datagram came from.
    #[error("these are not the 40 bytes before a datagram that came to this device")]
    NoSource,
    /// A work request was not posted.
    #[error("cannot post: {0}")]
    Post(#[from] PostError),
    /// A memory window was not made.
    #[error("memory window: {0}")]
    BindMw(#[from] BindMwError),
    /// An object was not found or is in use.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Memory was not copied.
    #[error("cannot copy: {0}")]
    Memory(#[from] userdma_mem::MemError),
    /// There are too many protection domains.
    #[error("no more than {} protection domains", DeviceAttr::LIMITS.max_pd)]
    NoPd,
    /// The call needs a completion queue whose channel is its own.
    #[error("the completion queue shares its channel: wait on the channel")]
    SharedChannel,
    /// A completion was refused because the queue was full; its queue pairs are in the error state.
    #[error("completion queue {cq} of {cqe} entries has overflowed")]
    CqOverflow {
        /// The queue's number.
        cq: u32,
        /// Its entries.
        cqe: u32,
    },
    /// A queue pair for futures wants more places in its completion queue than are left.
    #[error(
        "the queue pair may have {wanted} completions, completion queue {cq} has room for {free} of {cqe}"
    )]
    CqReserved {
        /// The queue's number.
        cq: u32,
        /// Its entries.
        cqe: u32,
        /// Those that no queue pair has.
        free: u32,
        /// Sends and receives of the queue pair.
        wanted: u32,
    },
    /// Nobody takes completions from a queue for futures.
    #[error("nobody drives completion queue {cq}: its driver was dropped")]
    NoDriver {
        /// The queue's number.
        cq: u32,
    },
    /// A stream was to have sizes that there are not.
    #[error(
        "a stream with a ring of {ring} bytes and {messages} messages: a power of two from 16384 to 268435456, and 16 to 4096"
    )]
    StreamSize {
        /// Bytes of its ring.
        ring: u32,
        /// Messages that may be under way.
        messages: u16,
    },
    /// What the peer offers is no stream.
    #[error("the peer's offer of a stream is not understood: {0}")]
    StreamOffer(String),
    /// The device has no such GID.
    #[error("sgid_index is {index}, the device has {len} GIDs")]
    NoGid {
        /// The index.
        index: u8,
        /// How many there are.
        len: usize,
    },
    /// Objects of two devices do not go together.
    #[error("the {0} belongs to another device")]
    OtherDevice(&'static str),
    /// The system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The number that the C verbs would give.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Open(error) => error.errno(),
            Self::Name(_) => Errno::Enoent,
            Self::RegMr(error) => error.errno(),
            Self::CreateCq(error) => error.errno(),
            Self::CreateQp(error) => error.errno(),
            Self::ModifyQp(error) => error.errno(),
            Self::CreateSrq(error) => error.errno(),
            Self::ModifySrq(error) => error.errno(),
            Self::AsyncSrq => Errno::Eopnotsupp,
            Self::Post(error) => error.errno(),
            Self::BindMw(error) => error.errno(),
            Self::Object(error) => error.errno(),
            Self::Attach(error) => error.errno(),
            Self::Memory(userdma_mem::MemError::Fault) => Errno::Efault,
            Self::NoPd | Self::Alloc { .. } | Self::CqOverflow { .. } | Self::CqReserved { .. } => {
                Errno::Enomem
            }
            Self::Port(_)
            | Self::Faults(_)
            | Self::Host(_)
            | Self::Memory(userdma_mem::MemError::OutOfBounds { .. })
            | Self::SharedChannel
            | Self::NoDriver { .. }
            | Self::StreamSize { .. }
            | Self::StreamOffer(_)
            | Self::NoGid { .. }
            | Self::CreateAh(_)
            | Self::NoSource
            | Self::OtherDevice(_)
            | Self::Io(_) => Errno::Einval,
        }
    }
}

impl From<EventError> for Error {
    fn from(error: EventError) -> Self {
        match error {
            EventError::Host(error) => error.into(),
            // Callers here wait on; programs in C are told.
            EventError::Interrupted => Self::Io(io::ErrorKind::Interrupted.into()),
        }
    }
}
