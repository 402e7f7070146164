//! Queue pairs: connections, reliable and unreliable, and datagrams.

mod batch;
mod builder;
mod data;
mod inner;
mod post;
mod setup;
mod ud;

use std::fmt;
use std::marker::PhantomData;

use userdma_host::Host;
use userdma_verbs::{QpAttr, QpCap, QpState, Qpn};

use crate::{Cq, Endpoint, Error};

pub use batch::Batch;
pub use builder::QpBuilder;
pub use data::{Data, Inline, Sgl};
use inner::Inner;
pub use post::Posts;
pub use setup::{RtrAttr, RtsAttr, SetupError};
pub use ud::UdQp;

/// State INIT: receives may be posted.
#[derive(Debug)]
pub enum Init {}
/// State RTR: receives messages.
#[derive(Debug)]
pub enum Rtr {}
/// State RTS: connected. Errors and [`Qp::modify`] may take it further.
#[derive(Debug)]
pub enum Rts {}
/// A state that the program keeps account of itself, with [`Qp::modify`].
#[derive(Debug)]
pub enum Unchecked {}

/// A queue pair. `S` is how far its set-up has come.
///
/// Dropping it destroys it: what is posted ends without completions, and completions that were not polled are lost (but those of receives from
/// a shared receive queue). The
/// peer is not told, and a peer that goes is noticed only by operations that it must answer, not by receives: see the
/// [`guide`](crate::guide). Threads share it by reference.
pub struct Qp<S> {
    inner: Box<Inner>,
    state: PhantomData<fn() -> S>,
}

/// Its device, number and state.
impl<S> fmt::Debug for Qp<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({} {} {:?})", self.inner.host().name(), self.qpn(), self.state())
    }
}

impl<S> Qp<S> {
    fn new(inner: Box<Inner>) -> Self {
        Self { inner, state: PhantomData }
    }

    /// The same, with its state left to the caller's account.
    pub(crate) fn into_unchecked(self) -> Qp<Unchecked> {
        Qp::new(self.inner)
    }

    /// Its device.
    pub(crate) fn host(&self) -> &Host {
        self.inner.host()
    }

    /// Whether both its queues complete on `cq`.
    pub(crate) fn completes_on(&self, cq: &Cq) -> bool {
        self.inner.send_cq.is_same(cq) && self.inner.recv_cq.is_same(cq)
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qp.qpn()
    }

    /// Its sizes.
    pub fn cap(&self) -> QpCap {
        self.inner.qp.cap()
    }

    /// The state that it is in now.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// Its attributes.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn query(&self) -> Result<QpAttr, Error> {
        let qpn = self.qpn();
        Ok(self.inner.host().control(move |shard, _| shard.query_qp(qpn))??)
    }

    /// What the peer needs to connect to it: GID, number, first PSN, and how much the link carries.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            gid: self.inner.gid,
            qpn: self.qpn(),
            psn: self.inner.psn,
            path_mtu: self.inner.active_mtu,
        }
    }
}
