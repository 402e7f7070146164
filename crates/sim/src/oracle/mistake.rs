//! Deliberate mistakes, and what becomes of them.

use userdma_verbs::WcStatus;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mistake {
    /// A key that names nothing.
    NoKey,
    /// The key of a region that has ended.
    StaleRegion,
    /// A window's key after its invalidation.
    StaleWindow,
    /// The key of a window that belongs to another queue pair, or is not bound.
    ForeignWindow,
    /// A key of another protection domain.
    ForeignPd,
    /// A range that leaves the region.
    OutOfBounds,
    /// A write through a key that allows only reading.
    ReadOnly,
    /// A READ or an atomic through a key that allows only writing.
    WriteOnly,
    /// An operation that the peer's queue pair does not grant.
    QpRight,
    /// An invalidation of a region's key.
    InvalidateRegion,
    /// A message longer than its receive.
    TooLong,
    /// A message without a receive, on a connection that does not wait for ever.
    NoReceive,
    /// A local element whose key names nothing.
    LocalKey,
    /// A local element in another protection domain.
    LocalPd,
    /// A result that would land where nothing may be written.
    LocalReadOnly,
    /// A key that names nothing in the receive.
    RecvKey,
    /// A receive where nothing may be written.
    RecvReadOnly,
    /// A bind that leaves its region.
    BadBind,
    /// A local invalidation of a key that is not a window's.
    BadInvalidate,
}

impl Mistake {
    pub(super) const ALL: [Self; 19] = [
        Self::NoKey,
        Self::StaleRegion,
        Self::StaleWindow,
        Self::ForeignWindow,
        Self::ForeignPd,
        Self::OutOfBounds,
        Self::ReadOnly,
        Self::WriteOnly,
        Self::QpRight,
        Self::InvalidateRegion,
        Self::TooLong,
        Self::NoReceive,
        Self::LocalKey,
        Self::LocalPd,
        Self::LocalReadOnly,
        Self::RecvKey,
        Self::RecvReadOnly,
        Self::BadBind,
        Self::BadInvalidate,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoKey => "wrong rkey",
            Self::StaleRegion => "stale region",
            Self::StaleWindow => "stale window",
            Self::ForeignWindow => "foreign window",
            Self::ForeignPd => "foreign domain",
            Self::OutOfBounds => "out of bounds",
            Self::ReadOnly => "read only",
            Self::WriteOnly => "write only",
            Self::QpRight => "queue pair's right",
            Self::InvalidateRegion => "invalidated a region",
            Self::TooLong => "too long",
            Self::NoReceive => "no receive",
            Self::LocalKey => "local key",
            Self::LocalPd => "local domain",
            Self::LocalReadOnly => "local read only",
            Self::RecvKey => "receive's key",
            Self::RecvReadOnly => "receive read only",
            Self::BadBind => "bad bind",
            Self::BadInvalidate => "bad invalidate",
        }
    }

    /// What the sender's completion says.
    pub(super) const fn status(self) -> WcStatus {
        match self {
            Self::NoKey
            | Self::StaleRegion
            | Self::StaleWindow
            | Self::ForeignWindow
            | Self::ForeignPd
            | Self::OutOfBounds
            | Self::ReadOnly
            | Self::WriteOnly
            | Self::InvalidateRegion => WcStatus::RemAccessErr,
            Self::TooLong | Self::QpRight => WcStatus::RemInvReqErr,
            Self::NoReceive => WcStatus::RnrRetryExcErr,
            Self::LocalKey | Self::LocalPd | Self::LocalReadOnly => WcStatus::LocProtErr,
            Self::RecvKey | Self::RecvReadOnly => WcStatus::RemOpErr,
            Self::BadBind => WcStatus::MwBindErr,
            Self::BadInvalidate => WcStatus::LocQpOpErr,
        }
    }

    /// Whether it takes an operation on the peer's memory.
    pub(super) const fn is_one_sided(self) -> bool {
        match self {
            Self::NoKey
            | Self::StaleRegion
            | Self::StaleWindow
            | Self::ForeignWindow
            | Self::ForeignPd
            | Self::OutOfBounds
            | Self::ReadOnly
            | Self::WriteOnly
            | Self::LocalKey
            | Self::LocalPd
            | Self::LocalReadOnly => true,
            Self::QpRight
            | Self::InvalidateRegion
            | Self::TooLong
            | Self::NoReceive
            | Self::RecvKey
            | Self::RecvReadOnly
            | Self::BadBind
            | Self::BadInvalidate => false,
        }
    }

    /// Whether the mistake is met only after a part of the message may have left.
    pub(super) const fn is_met_late(self) -> bool {
        matches!(self, Self::LocalKey | Self::LocalPd)
    }
}
