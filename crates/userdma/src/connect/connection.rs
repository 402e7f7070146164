//! Connections.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::time::Duration;

use userdma_host::cm::ConnParam;

use super::error::ConnectError;
use super::events::Queue;
use super::id::{self, Id};
use super::listener::resolve;
use super::{ConnAttr, Connect, Depths, block_on};
use crate::{AsyncQp, Device};

/// A connected queue pair that knows its peer: `Q` is an [`AsyncQp`] or a [`Qp`](crate::Qp), whose operations it has.
///
/// When the peer disconnects, drops its end, or its process dies, the queue pair goes to the error state: everything that is under
/// way ends flushed, **receives too**. Dropping it disconnects, and destroys the queue pair; to lose nothing, wait for your own
/// operations and a last word of the peer first.
#[derive(Debug)]
pub struct Connection<Q = AsyncQp> {
    /// Before the queue pair: no event finds it destroyed.
    link: Link,
    qp: Q,
    depths: Depths,
    private_data: Vec<u8>,
}

/// What keeps a connection: with it the peer is told that it has ended.
#[derive(Debug)]
pub(crate) struct Link {
    id: Id,
    peer: SocketAddr,
}

impl<Q> Connection<Q> {
    /// Connects `qp` to whoever listens on `peer`, as `"10.0.0.1:7471"`, from an address of the device whose queue pair it is.
    /// Post receives before: the peer may send at once. Dropping the future gives up.
    ///
    /// # Errors
    /// [`ConnectError`] says whether there is nobody, who refuses and what he says, or that nobody answers, after a minute or so:
    /// set a limit of your own. The queue pair is destroyed.
    pub async fn connect<I>(
        device: &Device,
        peer: impl ToSocketAddrs,
        qp: I,
        attr: &ConnAttr,
    ) -> Result<Self, ConnectError>
    where
        I: Connect<Connected = Q>,
    {
        let (peer, id) = (resolve(device, peer)?, Id::create(device, Queue::default())?);
        let answer = id::connect(&id, device, peer, &qp, attr).await?;
        let private_data = answer.private_data.clone();
        Ok(Self::new(Link { id, peer }, qp.connected(), &answer, private_data))
    }

    /// The same, waiting: no longer than `timeout`, if there is one.
    ///
    /// # Errors
    /// As [`Connection::connect`]; or time is up.
    pub fn connect_blocking<I>(
        device: &Device,
        peer: impl ToSocketAddrs,
        qp: I,
        attr: &ConnAttr,
        timeout: Option<Duration>,
    ) -> Result<Self, ConnectError>
    where
        I: Connect<Connected = Q>,
    {
        block_on(timeout, Self::connect(device, peer, qp, attr))
    }

    pub(super) fn new(link: Link, qp: Q, agreed: &ConnParam, private_data: Vec<u8>) -> Self {
        Self { link, qp, depths: Depths::of(agreed), private_data }
    }

    /// The queue pair.
    pub fn qp(&self) -> &Q {
        &self.qp
    }

    /// What the peer's program has said when it connected or accepted: its bytes, and zeros up to 56 (of a request) or 196.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// READs and atomics that both sides have agreed about.
    pub fn depths(&self) -> Depths {
        self.depths
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.link.peer
    }

    /// This side's address and port.
    ///
    /// # Errors
    /// The process is a child of the connection's.
    pub fn local_addr(&self) -> Result<SocketAddr, ConnectError> {
        self.link.local_addr()
    }

    /// Waits until the connection has ended: the peer has disconnected, or has died.
    pub async fn closed(&self) {
        self.link.id.queue.over().await;
    }

    /// Whether it has.
    pub fn is_closed(&self) -> bool {
        self.link.id.queue.is_over()
    }

    /// Ends the connection, and waits until the peer knows, or does not answer. What is under way ends flushed.
    ///
    /// # Errors
    /// The process is a child of the connection's.
    pub async fn disconnect(self) -> Result<(), ConnectError> {
        if self.is_closed() {
            return Ok(());
        }
        let Id { manager, id, queue, .. } = &self.link.id;
        manager.disconnect(*id)?;
        queue.over().await;
        Ok(())
    }

    /// The same, waiting.
    ///
    /// # Errors
    /// As [`Connection::disconnect`].
    pub fn disconnect_blocking(self) -> Result<(), ConnectError> {
        block_on(None, self.disconnect())
    }

    /// What keeps it, and the queue pair, which is to be dropped after that.
    pub(crate) fn into_parts(self) -> (Link, Q) {
        (self.link, self.qp)
    }
}

impl<Q> Deref for Connection<Q> {
    type Target = Q;

    fn deref(&self) -> &Q {
        &self.qp
    }
}

impl Link {
    pub(super) fn new(id: Id, peer: SocketAddr) -> Self {
        Self { id, peer }
    }

    /// The peer.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This side.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, ConnectError> {
        let [local, _] = self.id.addresses()?;
        local.ok_or(ConnectError::DeviceGone)
    }
}
