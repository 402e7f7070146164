//! Asynchronous events: what a device reports outside completions.

use std::fmt;

use crate::{Qpn, Srqn};

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
    /// A QP with a shared receive queue is in the error state and takes no more receives: those it had taken have
    /// completed.
    QpLastWqeReached {
        /// The queue pair.
        qpn: Qpn,
    },
    /// Fewer receives than its limit are left in a shared receive queue; the limit is off now.
    SrqLimitReached {
        /// The shared receive queue.
        srqn: Srqn,
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

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CqError { cq } => write!(f, "completion queue {cq} has overflowed"),
            Self::QpFatal { qpn } => write!(f, "queue pair {qpn} failed, through no fault of its peer's"),
            Self::QpRequestError { qpn } => {
                write!(
                    f,
                    "queue pair {qpn} refused an invalid request of its peer's, and is in the error state"
                )
            }
            Self::QpAccessError { qpn } => {
                write!(f, "queue pair {qpn} refused its peer access to memory, and is in the error state")
            }
            Self::CommunicationEstablished { qpn } => {
                write!(f, "queue pair {qpn} was reached by its peer before it could send")
            }
            Self::SqDrained { qpn } => write!(f, "the send queue of queue pair {qpn} has drained"),
            Self::QpLastWqeReached { qpn } => {
                write!(f, "queue pair {qpn} takes no more receives from its shared receive queue")
            }
            Self::SrqLimitReached { srqn } => {
                write!(f, "shared receive queue {srqn} has fewer receives left than its limit")
            }
            Self::PortActive => f.write_str("the port is active"),
            Self::PortError => f.write_str("the port is down"),
            Self::GidChange => f.write_str("the GID table has changed"),
            Self::DeviceFatal => f.write_str("the device cannot go on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_what_it_is_about() {
        let qpn = Qpn::new(0x11);
        for (event, text) in [
            (AsyncEvent::CqError { cq: 7 }, "completion queue 7 has overflowed"),
            (
                AsyncEvent::QpAccessError { qpn },
                "queue pair 0x000011 refused its peer access to memory, and is in the error state",
            ),
            (AsyncEvent::SqDrained { qpn }, "the send queue of queue pair 0x000011 has drained"),
            (
                AsyncEvent::QpLastWqeReached { qpn },
                "queue pair 0x000011 takes no more receives from its shared receive queue",
            ),
            (
                AsyncEvent::SrqLimitReached { srqn: Srqn::new(5) },
                "shared receive queue 0x000005 has fewer receives left than its limit",
            ),
            (AsyncEvent::DeviceFatal, "the device cannot go on"),
        ] {
            assert_eq!(event.to_string(), text);
        }
    }
}
