//! Asynchronous events: what a device reports outside completions.

use crate::Qpn;

/// An unaffiliated or affiliated asynchronous event, a subset of `enum ibv_event_type`.
///
/// `cq` numbers are the device's CQ numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overflowed: completions after it are refused, and its QPs go to the error state.
    CqError {
        /// The completion queue's number.
        cq: u32,
    },
    /// A QP went to the error state and cannot report it in a completion.
    QpFatal {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The responder refused a request as invalid; the QP is in the error state.
    QpRequestError {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The responder refused a request for lack of access rights; the QP is in the error state.
    QpAccessError {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The first packet arrived on a connection that was not yet in RTS.
    CommunicationEstablished {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The send queue of a QP in SQD has drained.
    SqDrained {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The port became active.
    PortActive,
    /// The port went down.
    PortError,
    /// The GID table changed.
    GidChange,
    /// The device cannot go on.
    DeviceFatal,
}
