//! How an asynchronous operation ends badly.

use std::fmt;
use std::sync::Arc;

use userdma_verbs::{Qpn, WcOpcode, WcStatus};

use crate::Error;

/// Why a work request was not executed, or not to its end.
///
/// Its `Debug` form is the same text as its `Display` form.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WrError {
    /// It was refused, and nothing was sent.
    #[error("{} was not posted: {reason}", name(*.opcode))]
    NotPosted {
        /// What was to be done.
        opcode: WcOpcode,
        /// Why not.
        reason: Arc<Error>,
    },
    /// It completed with an error. The queue pair is in the error state now.
    #[error("{} on queue pair {:#x} failed: {}", name(*.opcode), .qpn.get(), .status.as_str())]
    Failed {
        /// What was to be done.
        opcode: WcOpcode,
        /// The queue pair.
        qpn: Qpn,
        /// How it ended.
        status: WcStatus,
        /// A detail for people who read traces: the NAK syndrome, or 0.
        vendor_err: u32,
    },
    /// Its queue pair was destroyed first. Whether the peer has executed it is not known; the device has let go of its
    /// memory.
    #[error("{} on queue pair {:#x} did not end: the queue pair was destroyed", name(*.opcode), .qpn.get())]
    Destroyed {
        /// What was to be done.
        opcode: WcOpcode,
        /// The queue pair.
        qpn: Qpn,
    },
    /// It was executed, but the memory where its result lies has vanished since.
    #[error("the result of {} is lost: {reason}", name(*.opcode))]
    ResultLost {
        /// What was done.
        opcode: WcOpcode,
        /// What became of the memory.
        reason: Arc<Error>,
    },
    /// The completion queue serves nobody any more. The request may have been executed, and the device may still use its
    /// memory, which stays registered until the queue pair is dropped.
    #[error("{} did not end: {reason}", name(*.opcode))]
    Cq {
        /// What was to be done.
        opcode: WcOpcode,
        /// What happened to the queue.
        reason: Arc<Error>,
    },
}

impl WrError {
    /// The status of its completion, if it had one.
    pub fn status(&self) -> Option<WcStatus> {
        match self {
            Self::Failed { status, .. } => Some(*status),
            Self::NotPosted { .. } | Self::Destroyed { .. } | Self::ResultLost { .. } | Self::Cq { .. } => {
                None
            }
        }
    }

    /// Whether it ended because something else on its queue pair had gone wrong before.
    pub fn is_flushed(&self) -> bool {
        self.status() == Some(WcStatus::WrFlushErr)
    }
}

impl fmt::Debug for WrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What ends every operation of a queue pair at once.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// It is destroyed.
    Destroyed,
    /// Its completion queue is of no use.
    Cq(Arc<Error>),
}

impl Cause {
    /// The error of one operation.
    pub(super) fn error(&self, opcode: WcOpcode, qpn: Qpn) -> WrError {
        match self {
            Self::Destroyed => WrError::Destroyed { opcode, qpn },
            Self::Cq(reason) => WrError::Cq { opcode, reason: Arc::clone(reason) },
        }
    }
}

fn name(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "SEND",
        WcOpcode::RdmaWrite => "RDMA WRITE",
        WcOpcode::RdmaRead => "RDMA READ",
        WcOpcode::CompSwap => "COMPARE_SWAP",
        WcOpcode::FetchAdd => "FETCH_ADD",
        WcOpcode::BindMw => "bind of a memory window",
        WcOpcode::LocalInv => "local invalidation",
        WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => "receive",
    }
}
