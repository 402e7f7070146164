//! The bind of a memory window as a future.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use userdma_verbs::{AccessFlags, SendFlags};

use super::error::WrError;
use super::ops::Key;
use super::qp_state::QpShared;
use super::request::{Request, WorkRequest};
use crate::cq::lock;
use crate::qp::Unchecked;
use crate::{Error, MrSlice, Mw, Qp, RemoteMr, mw};

/// What is to be bound. The window gets its new key when the bind is posted, which may be long after the call: another
/// bind of it may come in between.
#[derive(Debug)]
pub(super) struct Bind {
    mw: Arc<mw::Inner>,
    part: MrSlice,
    access: AccessFlags,
    pub(super) flags: SendFlags,
    /// What to tell the peer, with the window's key of before until the bind is posted. The future has it too.
    bound: Arc<Mutex<RemoteMr>>,
}

impl Bind {
    pub(super) fn post(&self, qp: &Qp<Unchecked>, key: Key) -> Result<(), Error> {
        let flags = self.flags | SendFlags::SIGNALED;
        *lock(&self.bound) = qp.post_bind(key.wr_id(), &self.mw, &self.part, self.access, flags)?;
        Ok(())
    }
}

/// The bind of a memory window; otherwise as [`WorkRequest`]. It resolves to what the peer must be told.
///
/// If it is dropped after it was posted the window is bound all the same: [`Mw::rkey`] has the key, and
/// [`AsyncQp::local_inv`](crate::AsyncQp::local_inv) withdraws it.
#[derive(Debug)]
#[must_use = "a work request is posted when it is polled"]
pub struct BindRequest {
    request: WorkRequest,
    bound: Arc<Mutex<RemoteMr>>,
}

impl BindRequest {
    pub(super) fn new(qp: &Arc<QpShared>, mw: &Mw, part: MrSlice, access: AccessFlags) -> Self {
        let bound = Arc::new(Mutex::new(RemoteMr { rkey: mw.rkey(), ..part.remote() }));
        let (mw, shared) = (Arc::clone(mw.inner()), Arc::clone(&bound));
        let bind = Bind { mw, part, access, flags: SendFlags::empty(), bound: shared };
        Self { request: WorkRequest::new(qp, Request::Bind(Box::new(bind))), bound }
    }

    /// Adds flags: `FENCE`. After the first poll they come too late.
    pub fn with_flags(mut self, more: SendFlags) -> Self {
        self.request = self.request.with_flags(more);
        self
    }
}

impl Future for BindRequest {
    type Output = Result<RemoteMr, WrError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(Pin::new(&mut self.request).poll(cx))?;
        // What has completed was posted: the key is the bind's.
        Poll::Ready(Ok(*lock(&self.bound)))
    }
}
