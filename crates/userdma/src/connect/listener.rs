//! Who takes requests.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use userdma_host::cm::{CmError, ConnParam, Event};
use userdma_wire::mad::cm::RejectReason;

use super::connection::{Connection, Link};
use super::error::ConnectError;
use super::events::Queue;
use super::id::{self, Id, conn_param};
use super::{ConnAttr, Connect, Depths, block_on};
use crate::Device;

/// Takes requests for connections on a port of a device's addresses. Dropping it ends that: requests that nobody has taken are
/// refused, connections that were made go on.
#[derive(Debug)]
pub struct Listener {
    id: Id,
    local: SocketAddr,
}

/// A request for a connection. Dropping it refuses.
#[derive(Debug)]
#[must_use = "a request that is dropped is refused"]
pub struct Request {
    id: Id,
    peer: SocketAddr,
    param: ConnParam,
}

impl Listener {
    /// Listens on an address of the device, as `"10.0.0.1:7471"`, or with `0.0.0.0` or `::` on all of them; on port 0 it is a free
    /// one. Ports are counted for each address, and for all processes that share it.
    ///
    /// # Errors
    /// [`ConnectError::Cm`] says that the device has no such address, or that somebody has the port.
    pub fn bind(device: &Device, address: impl ToSocketAddrs) -> Result<Self, ConnectError> {
        let address = resolve(device, address)?;
        let ip = address.ip();
        if !ip.is_unspecified() && device.gids().all(|gid| gid.ip() != ip.to_canonical()) {
            return Err(CmError::NoDevice(ip).into());
        }
        let id = Id::create(device, Queue::with_backlog(BACKLOG))?;
        id.manager.bind(id.id, address.into())?;
        id.manager.listen(id.id)?;
        let [local, _] = id.addresses()?;
        Ok(Self { id, local: local.unwrap_or(address) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next request. Waiting for it may be given up: none is lost.
    ///
    /// # Errors
    /// The device is no longer usable.
    pub async fn accept(&self) -> Result<Request, ConnectError> {
        loop {
            let event = self.id.queue.request().await.ok_or(ConnectError::DeviceGone)?;
            // One whose peer has gone meanwhile is passed over.
            if let Ok(request) = Request::new(&self.id, event) {
                return Ok(request);
            }
        }
    }

    /// The same, waiting: no longer than `timeout`, if there is one.
    ///
    /// # Errors
    /// As [`Listener::accept`]; or time is up.
    pub fn accept_blocking(&self, timeout: Option<Duration>) -> Result<Request, ConnectError> {
        block_on(timeout, self.accept())
    }

    /// The same for an owner who is asked again and again: who asked last is woken.
    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<Result<Request, ConnectError>> {
        loop {
            let Some(event) = ready!(self.id.queue.poll_request(cx)) else {
                return Poll::Ready(Err(ConnectError::DeviceGone));
            };
            if let Ok(request) = Request::new(&self.id, event) {
                return Poll::Ready(Ok(request));
            }
        }
    }
}

impl Request {
    fn new(listener: &Id, event: Event) -> Result<Self, ConnectError> {
        let id = Id::of_request(listener, event.id)?;
        let [_, peer] = id.addresses()?;
        Ok(Self { id, peer: peer.ok_or(ConnectError::DeviceGone)?, param: conn_param(event) })
    }

    /// Who asks.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// What his program says: its bytes, and zeros up to 56.
    pub fn private_data(&self) -> &[u8] {
        &self.param.private_data
    }

    /// READs and atomics that he asks this side to offer, and offers.
    pub fn depths(&self) -> Depths {
        Depths::of(&self.param)
    }

    /// Accepts with `qp`, and waits until the peer knows. Post receives before: the peer may send at once. Dropping the future
    /// gives up.
    ///
    /// # Errors
    /// The peer has gone, or does not answer. The queue pair is destroyed.
    pub async fn accept<I: Connect>(
        self,
        qp: I,
        attr: &ConnAttr,
    ) -> Result<Connection<I::Connected>, ConnectError> {
        let Self { id, peer, param } = self;
        let agreed = id::accept(&id, peer, Depths::of(&param), &qp, attr).await?;
        Ok(Connection::new(Link::new(id, peer), qp.connected(), &agreed, param.private_data))
    }

    /// The same, waiting: no longer than `timeout`, if there is one.
    ///
    /// # Errors
    /// As [`Request::accept`]; or time is up.
    pub fn accept_blocking<I: Connect>(
        self,
        qp: I,
        attr: &ConnAttr,
        timeout: Option<Duration>,
    ) -> Result<Connection<I::Connected>, ConnectError> {
        block_on(timeout, self.accept(qp, attr))
    }

    /// Refuses, with up to 148 bytes for the peer's program.
    ///
    /// # Errors
    /// There is too much private data. The peer is refused without.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        Ok(self.id.manager.reject(self.id.id, RejectReason::ConsumerReject, private_data)?)
    }
}

/// The first address that is of a family of the device.
pub(super) fn resolve(device: &Device, address: impl ToSocketAddrs) -> Result<SocketAddr, ConnectError> {
    let addresses: Vec<_> = address.to_socket_addrs().map_err(ConnectError::Address)?.collect();
    let fits = |address: &&SocketAddr| device.gids().any(|gid| gid.ip().is_ipv4() == address.is_ipv4());
    let found = addresses.iter().find(fits).or(addresses.first()).copied();
    found.ok_or_else(|| ConnectError::Address(io::ErrorKind::NotFound.into()))
}

/// Requests that may wait. What does not find room is asked again by the peer.
const BACKLOG: u32 = 1024;
