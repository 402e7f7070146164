//! Work requests as futures.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use userdma_verbs::{AtomicOp, SendFlags, SendOp, Wc, WcOpcode};

use super::bind::Bind;
use super::error::WrError;
use super::ops::Key;
use super::payload::{Payload, Slices};
use super::qp_state::QpShared;
use crate::qp::Unchecked;
use crate::{Error, MrSlice, Qp};

/// What is asked of the device, with the memory that it takes.
#[derive(Debug)]
pub(super) enum Request {
    /// Of the receive queue.
    Recv(Slices),
    /// Of the send queue.
    Send {
        /// What to do.
        op: SendOp,
        /// With what.
        payload: Payload,
        /// And how.
        flags: SendFlags,
    },
    /// Of the send queue: a bind, whose key is made when it is posted.
    Bind(Box<Bind>),
}

impl Request {
    pub(super) fn send(op: SendOp, payload: Payload) -> Self {
        Self::Send { op, payload, flags: SendFlags::SIGNALED }
    }

    pub(super) fn opcode(&self) -> WcOpcode {
        match self {
            Self::Recv(_) => WcOpcode::Recv,
            Self::Bind(_) => WcOpcode::BindMw,
            Self::Send { op, .. } => match op {
                SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_) => WcOpcode::Send,
                SendOp::Write(_) | SendOp::WriteWithImm(..) => WcOpcode::RdmaWrite,
                SendOp::Read(_) => WcOpcode::RdmaRead,
                SendOp::Atomic(_, AtomicOp::CompareSwap { .. }) => WcOpcode::CompSwap,
                SendOp::Atomic(_, AtomicOp::FetchAdd { .. }) => WcOpcode::FetchAdd,
                SendOp::LocalInv(_) => WcOpcode::LocalInv,
                SendOp::BindMw(_) => WcOpcode::BindMw,
            },
        }
    }

    /// Posts it; every one asks for its completion.
    pub(super) fn post(&self, qp: &Qp<Unchecked>, key: Key) -> Result<(), Error> {
        match self {
            Self::Recv(slices) => qp.post_recv(key.wr_id(), slices.sgl()),
            Self::Send { op, payload, flags } => {
                qp.post_op(key.wr_id(), *op, payload.data(), *flags | SendFlags::SIGNALED)
            }
            Self::Bind(bind) => bind.post(qp, key),
        }
    }
}

/// A work request, to be posted when the future is first polled. It resolves to its completion, whose `wr_id` is of no
/// meaning to the program.
///
/// Requests of a queue are posted in the order in which they were first polled. If the queue is full, a request waits
/// behind those that came before it.
///
/// Dropping the future before it was posted takes the request back. Afterwards it cannot be taken back: the device goes on
/// with it, keeps its memory until it has completed, and nobody is told the result. So a peer may still be written, and a
/// receive whose future was dropped still takes the next message, which is lost then: where futures of receives may be
/// dropped (in a `select!`), use [`Receives`](crate::Receives).
#[derive(Debug)]
#[must_use = "a work request is posted when it is polled"]
pub struct WorkRequest {
    qp: Arc<QpShared>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New(Request),
    HandedOver(Key),
    Resolved,
}

impl WorkRequest {
    pub(super) fn new(qp: &Arc<QpShared>, request: Request) -> Self {
        Self { qp: Arc::clone(qp), stage: Stage::New(request) }
    }

    /// Adds flags: `FENCE`, `SOLICITED`. A receive has none, and after the first poll they come too late.
    pub fn with_flags(mut self, more: SendFlags) -> Self {
        match &mut self.stage {
            Stage::New(Request::Send { flags, .. }) => *flags |= more,
            Stage::New(Request::Bind(bind)) => bind.flags |= more,
            Stage::New(Request::Recv(_)) | Stage::HandedOver(_) | Stage::Resolved => {}
        }
        self
    }
}

impl Future for WorkRequest {
    type Output = Result<Wc, WrError>;

    /// # Panics
    /// If it has resolved before.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let key = match std::mem::replace(&mut this.stage, Stage::Resolved) {
            Stage::New(request) => this.qp.submit(request),
            Stage::HandedOver(key) => key,
            Stage::Resolved => panic!("a work request was polled after it had resolved"),
        };
        let poll = this.qp.poll_op(key, cx);
        if poll.is_pending() {
            this.stage = Stage::HandedOver(key);
        }
        poll
    }
}

impl Drop for WorkRequest {
    fn drop(&mut self) {
        if let Stage::HandedOver(key) = self.stage {
            self.qp.abandon(key);
        }
    }
}

/// A COMPARE_SWAP or FETCH_ADD; otherwise as [`WorkRequest`]. It resolves to the value that was there before.
#[derive(Debug)]
#[must_use = "a work request is posted when it is polled"]
pub struct AtomicRequest {
    request: WorkRequest,
    result: MrSlice,
}

impl AtomicRequest {
    pub(super) fn new(qp: &Arc<QpShared>, op: SendOp, result: MrSlice) -> Self {
        Self { request: WorkRequest::new(qp, Request::send(op, Payload::from(&result))), result }
    }

    /// Adds flags: `FENCE`. After the first poll they come too late.
    pub fn with_flags(mut self, more: SendFlags) -> Self {
        self.request = self.request.with_flags(more);
        self
    }
}

impl Future for AtomicRequest {
    type Output = Result<u64, WrError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let wc = std::task::ready!(Pin::new(&mut self.request).poll(cx))?;
        let mut value = [0; 8];
        let read = self.result.read(0, &mut value);
        let lost = |reason| WrError::ResultLost { opcode: wc.opcode, reason: Arc::new(reason) };
        Poll::Ready(read.map(|()| u64::from_ne_bytes(value)).map_err(lost))
    }
}
