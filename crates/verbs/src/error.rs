//! Errors of verbs calls: API misuse and lack of resources. What goes wrong with a work request after it was
//! accepted is a [`WcStatus`](crate::WcStatus) in a completion instead.

use crate::{AccessFlags, Gid, LKey, QpAttrMask, QpState};

/// An error number as the C verbs return it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(i32)]
pub enum Errno {
    /// No such object.
    Enoent = 2,
    /// Try again.
    Eagain = 11,
    /// Not enough memory, or a queue is full.
    Enomem = 12,
    /// Memory is not accessible.
    Efault = 14,
    /// The object is in use.
    Ebusy = 16,
    /// An argument is wrong.
    Einval = 22,
    /// Not supported.
    Eopnotsupp = 95,
    /// The address is taken.
    Eaddrinuse = 98,
    /// This machine does not have the address.
    Eaddrnotavail = 99,
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegMrError {
    /// The range is empty, or ends past the address space or the device's longest region.
    #[error(
        "region of {length} bytes at {addr:#x}: 1 to 2^47 bytes that end in the address space are possible"
    )]
    Range {
        /// First address.
        addr: u64,
        /// Bytes.
        length: u64,
    },
    /// Part of the range is not mapped, or not writable though the rights need it.
    #[error("memory at {addr:#x} is not {}", if *.write { "writable" } else { "readable" })]
    NotAccessible {
        /// The first address that failed.
        addr: u64,
        /// Whether it was writing that failed.
        write: bool,
    },
    /// `REMOTE_WRITE` or `REMOTE_ATOMIC` without `LOCAL_WRITE`, or rights that do not exist here.
    #[error(
        "access rights {access:?} do not go together (remote write and atomic need local write) or are not supported"
    )]
    Access {
        /// The rights asked for.
        access: AccessFlags,
    },
    /// The table of regions is full.
    #[error("no more than {max} memory regions")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain")]
    NoPd,
}

/// Why a completion queue was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateCqError {
    /// The size is 0 or above the device's limit.
    #[error("completion queue of {cqe} entries: 1 to {max} are possible")]
    Size {
        /// Entries asked for.
        cqe: u32,
        /// The limit.
        max: u32,
    },
    /// The table of completion queues is full.
    #[error("no more than {max} completion queues")]
    TooMany {
        /// The limit.
        max: u32,
    },
}

/// Why a queue pair was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateQpError {
    /// A size is above the device's limit.
    #[error("{field} is {value}, at most {max} is possible")]
    Cap {
        /// The field of [`QpCap`](crate::QpCap).
        field: &'static str,
        /// The value asked for.
        value: u32,
        /// The limit.
        max: u32,
    },
    /// The transport service is not there.
    #[error("transport service {0:?} is not supported")]
    Type(crate::QpType),
    /// The table of queue pairs is full.
    #[error("no more than {max} queue pairs")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// A protection domain or completion queue does not exist.
    #[error("no such {0}")]
    NoObject(&'static str),
}

/// Why a queue pair was not modified; nothing of it has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyQpError {
    /// There is no such transition.
    #[error("a QP in {from:?} cannot go to {to:?}")]
    Transition {
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// `cur_qp_state` was set and is not the state.
    #[error("cur_qp_state is {claimed:?}, the QP is in {actual:?}")]
    CurState {
        /// The state that the caller named.
        claimed: QpState,
        /// The state it is in.
        actual: QpState,
    },
    /// The transition needs more attributes.
    #[error("the transition from {from:?} to {to:?} needs {missing:?}")]
    Missing {
        /// From this state.
        from: QpState,
        /// To this one.
        to: QpState,
        /// What was not in the mask.
        missing: QpAttrMask,
    },
    /// The transition does not take an attribute.
    #[error("the transition from {from:?} to {to:?} does not take {extra:?}")]
    Extra {
        /// From this state.
        from: QpState,
        /// To this one.
        to: QpState,
        /// What must not be in the mask.
        extra: QpAttrMask,
    },
    /// An attribute has a value that is not possible.
    #[error("{field} is {value}, {allowed} is possible")]
    Value {
        /// The field of [`QpAttr`](crate::QpAttr).
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// The peer's GID leads nowhere.
    #[error("grh.dgid is {dgid}, {allowed} is possible")]
    Dgid {
        /// The GID.
        dgid: Gid,
        /// What would be right.
        allowed: &'static str,
    },
    /// The queue pair does not exist.
    #[error("no such queue pair")]
    NoQp,
}

/// Why a work request was not accepted; it was not posted, and earlier ones of the same call were.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full.
    #[error("the queue holds {max} work requests and is full")]
    QueueFull {
        /// The queue's size.
        max: u32,
    },
    /// Too many elements in the scatter/gather list.
    #[error("{num} scatter/gather elements, the queue takes {max}")]
    TooManySge {
        /// Elements given.
        num: usize,
        /// The queue's limit.
        max: u32,
    },
    /// Too much inline data.
    #[error("{len} bytes inline, the queue takes {max}")]
    InlineTooLong {
        /// Bytes given.
        len: usize,
        /// The queue's limit.
        max: u32,
    },
    /// The message is longer than 2^31 bytes.
    #[error("message of {len} bytes, at most 2^31 are possible")]
    TooLong {
        /// Bytes in the list.
        len: u64,
    },
    /// The datagram is longer than the port's MTU.
    #[error("datagram of {len} bytes, at most {max} can be sent this way")]
    DatagramTooLong {
        /// Bytes in the list.
        len: u64,
        /// The MTU.
        max: u32,
    },
    /// The state does not allow it.
    #[error("nothing may be posted to this queue in state {0:?}")]
    State(QpState),
    /// The queue pair has no receive queue of its own.
    #[error("receives are posted to the shared receive queue of this queue pair")]
    SharedRecvQueue,
    /// A signal handler posts to the queue that its own thread is busy with: the same post may succeed when the handler has
    /// returned.
    #[error("the queue is busy with what this signal handler has interrupted")]
    Interrupted,
    /// The transport service does not have the operation, or the flags do not go with it.
    #[error("{0}")]
    Operation(&'static str),
    /// An atomic's target is not on 8 bytes, or its buffer is not 8 bytes.
    #[error("atomic: {field} is {value:#x}, {allowed} is possible")]
    Atomic {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
}

/// Why a memory window was not made or bound through a call (a bind by work request fails in a completion).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BindMwError {
    /// The key does not name a region of the right domain.
    #[error("{0} does not name a region of this protection domain")]
    Key(LKey),
    /// The table is full.
    #[error("no more than {max} memory windows")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain")]
    NoPd,
}

/// Why an object was not destroyed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// It does not exist.
    #[error("no such {0}")]
    NoObject(&'static str),
    /// Others still use it.
    #[error("{object} is still used by {users} other objects")]
    Busy {
        /// What it is.
        object: &'static str,
        /// How many use it.
        users: u32,
    },
}

impl RegMrError {
    /// The number that `ibv_reg_mr` sets.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NotAccessible { .. } => Errno::Efault,
            Self::Range { .. } | Self::Access { .. } | Self::NoPd => Errno::Einval,
            Self::TooMany { .. } => Errno::Enomem,
        }
    }
}

impl CreateCqError {
    /// The number that `ibv_create_cq` sets.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Size { .. } => Errno::Einval,
            Self::TooMany { .. } => Errno::Enomem,
        }
    }
}

impl CreateQpError {
    /// The number that `ibv_create_qp` sets.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Cap { .. } | Self::NoObject(_) => Errno::Einval,
            Self::Type(_) => Errno::Eopnotsupp,
            Self::TooMany { .. } => Errno::Enomem,
        }
    }
}

impl ModifyQpError {
    /// The number that `ibv_modify_qp` returns.
    pub const fn errno(&self) -> Errno {
        Errno::Einval
    }
}

impl PostError {
    /// The number that `ibv_post_send` and `ibv_post_recv` return.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::QueueFull { .. } => Errno::Enomem,
            Self::Interrupted => Errno::Eagain,
            Self::TooManySge { .. }
            | Self::InlineTooLong { .. }
            | Self::TooLong { .. }
            | Self::DatagramTooLong { .. }
            | Self::State(_)
            | Self::SharedRecvQueue
            | Self::Operation(_)
            | Self::Atomic { .. } => Errno::Einval,
        }
    }
}

impl BindMwError {
    /// The number that `ibv_alloc_mw` sets.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Key(_) | Self::NoPd => Errno::Einval,
            Self::TooMany { .. } => Errno::Enomem,
        }
    }
}

impl ObjectError {
    /// The number that the destroy call returns.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NoObject(_) => Errno::Einval,
            Self::Busy { .. } => Errno::Ebusy,
        }
    }
}
