//! Shared receive queues: how they are made, and what can be asked and changed.

use bitflags::bitflags;

use crate::Errno;

/// How a shared receive queue is made. What was made is as asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SrqInitAttr {
    /// Receives that may be posted and not taken: 1 ..= `max_srq_wr`.
    pub max_wr: u32,
    /// Elements of a receive's scatter/gather list: 0 ..= `max_srq_sge`.
    pub max_sge: u32,
}

/// Attributes of a shared receive queue, as `struct ibv_srq_attr`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SrqAttr {
    /// Receives that may be posted and not taken.
    pub max_wr: u32,
    /// Elements of a receive's scatter/gather list; never changes.
    pub max_sge: u32,
    /// The event `SrqLimitReached` is told once, when fewer receives than this are left, and this becomes 0: none.
    pub srq_limit: u32,
}

bitflags! {
    /// Which fields of [`SrqAttr`] a modify sets. Values of `enum ibv_srq_attr_mask`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct SrqAttrMask: u32 {
        /// `max_wr`.
        const MAX_WR = 1 << 0;
        /// `srq_limit`.
        const LIMIT = 1 << 1;
    }
}

/// Why a shared receive queue was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateSrqError {
    /// A size is not possible.
    #[error("{field} is {value}, {min} to {max} are possible")]
    Size {
        /// The field of [`SrqInitAttr`].
        field: &'static str,
        /// The value asked for.
        value: u32,
        /// The least that is possible.
        min: u32,
        /// The limit.
        max: u32,
    },
    /// The table of shared receive queues is full.
    #[error("no more than {max} shared receive queues")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain")]
    NoPd,
}

/// Why a shared receive queue was not modified; nothing of it has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifySrqError {
    /// A field has a value that is not possible.
    #[error("{field} is {value}, {min} to {max} are possible now")]
    Value {
        /// The field of [`SrqAttr`].
        field: &'static str,
        /// The value asked for.
        value: u32,
        /// The least that is possible: what is posted must fit, and the limit.
        min: u32,
        /// The most that is possible.
        max: u32,
    },
    /// The shared receive queue does not exist.
    #[error("no such shared receive queue")]
    NoSrq,
}

impl CreateSrqError {
    /// The number that `ibv_create_srq` sets.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Size { .. } | Self::NoPd => Errno::Einval,
            Self::TooMany { .. } => Errno::Enomem,
        }
    }
}

impl ModifySrqError {
    /// The number that `ibv_modify_srq` returns.
    pub const fn errno(&self) -> Errno {
        Errno::Einval
    }
}
