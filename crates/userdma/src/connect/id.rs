//! Identifiers of the connection manager, which end when they are dropped.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use userdma_host::Host;
use userdma_host::cm::{CmId, ConnParam, Event, EventKind, Manager, Param, PortSpace};
use userdma_verbs::{QpState, QpType};

use super::error::ConnectError;
use super::events::Queue;
use super::qp::Connect;
use super::{ConnAttr, Depths};
use crate::{Device, Error};

/// An identifier: a listener, a request, or a connection. Dropping it ends what it is.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) manager: Manager,
    pub(super) id: CmId,
    pub(super) queue: Arc<Queue>,
    host: Host,
}

impl Drop for Id {
    fn drop(&mut self) {
        // It is there. After this no event of it is told.
        let _ = self.manager.destroy(self.id);
        // Whoever has asked and was not looked at is refused now, and not left to find out for himself.
        for request in self.queue.take_requests() {
            let _ = self.manager.destroy(request);
        }
    }
}

impl Id {
    /// A new one, of reliable connections.
    pub(super) fn create(device: &Device, queue: Queue) -> Result<Self, ConnectError> {
        let (manager, queue) = (device.connections.manager(&device.host), Arc::new(queue));
        let id = manager.create(queue.clone(), PortSpace::Tcp, QpType::Rc)?;
        Ok(Self { manager, id, queue, host: device.host.clone() })
    }

    /// The identifier of a request that the listener `of` has taken, with events of its own.
    pub(super) fn of_request(of: &Self, id: CmId) -> Result<Self, ConnectError> {
        let (queue, before) = (Arc::new(Queue::default()), &of.queue);
        let this = Self { manager: of.manager.clone(), id, queue: Arc::clone(&queue), host: of.host.clone() };
        this.manager.migrate(id, this.queue.clone(), || queue.take_over(before, id))?;
        Ok(this)
    }

    /// The addresses of both ends, where they are known.
    pub(super) fn addresses(&self) -> Result<[Option<SocketAddr>; 2], ConnectError> {
        let query = self.manager.query(self.id)?;
        Ok([query.src, query.dst].map(|address| address.and_then(|address| address.ip())))
    }

    /// Waits for an event of this kind. Any other that ends the way there is an error.
    pub(super) async fn expect(&self, kind: EventKind, peer: SocketAddr) -> Result<Event, ConnectError> {
        loop {
            let event = self.queue.event().await;
            if event.kind == kind {
                return Ok(event);
            }
            if let Some(error) = failure(event, peer) {
                return Err(error);
            }
        }
    }

    /// Whether the queue pair is of this device.
    fn check<Q: Connect>(&self, qp: &Q) -> Result<(), ConnectError> {
        if qp.host().is_same(&self.host) {
            return Ok(());
        }
        Err(Error::OtherDevice("queue pair").into())
    }

    /// Takes the queue pair to RTS.
    pub(super) fn ready<Q: Connect>(&self, qp: &Q, attr: &ConnAttr) -> Result<(), ConnectError> {
        for state in [QpState::Rtr, QpState::Rts] {
            let (mut found, mask) = self.manager.init_qp_attr(self.id, state)?;
            found.path_mtu = attr.rtr.path_mtu.map_or(found.path_mtu, |mtu| mtu.min(found.path_mtu));
            found.min_rnr_timer = attr.rtr.min_rnr_timer;
            found.timeout = attr.rts.timeout;
            qp.modify(&found, mask)?;
        }
        Ok(())
    }
}

/// What the peer says of a connection.
pub(super) fn conn_param(event: Event) -> ConnParam {
    match event.param {
        Param::Conn(param) => param,
        // Identifiers here are of connections.
        Param::Ud(_) => ConnParam::default(),
    }
}

/// Why there is no connection, if the event says so.
fn failure(event: Event, peer: SocketAddr) -> Option<ConnectError> {
    Some(match event.kind {
        EventKind::Rejected => match event.status {
            INVALID_SERVICE_ID => ConnectError::NoListener(peer),
            CONSUMER_DEFINED => ConnectError::Rejected { peer, private_data: conn_param(event).private_data },
            reason => ConnectError::Refused { peer, reason },
        },
        EventKind::Unreachable => ConnectError::Unreachable(peer),
        EventKind::AddrError | EventKind::RouteError | EventKind::ConnectError => {
            let source = std::io::Error::from_raw_os_error(event.status.wrapping_neg());
            ConnectError::NoRoute { peer, source }
        }
        EventKind::Disconnected => ConnectError::Ended(peer),
        EventKind::DeviceRemoval => ConnectError::DeviceGone,
        EventKind::AddrResolved
        | EventKind::RouteResolved
        | EventKind::ConnectRequest
        | EventKind::ConnectResponse
        | EventKind::Established
        | EventKind::MulticastJoin
        | EventKind::MulticastError
        | EventKind::AddrChange
        | EventKind::TimewaitExit => return None,
    })
}

/// An address of the device of the family of `peer`, with a port that the connection manager chooses.
pub(super) fn source(device: &Device, peer: SocketAddr) -> Result<SocketAddr, ConnectError> {
    let fits = |ip: &IpAddr| ip.is_ipv4() == peer.is_ipv4();
    let ip = device.gids().map(|gid| gid.ip()).find(fits);
    ip.map(|ip| SocketAddr::new(ip, 0))
        .ok_or_else(|| ConnectError::NoRoute { peer, source: std::io::ErrorKind::AddrNotAvailable.into() })
}

/// Asks for the connection and takes the queue pair there; what was agreed.
pub(super) async fn connect<Q: Connect>(
    id: &Id,
    device: &Device,
    peer: SocketAddr,
    qp: &Q,
    attr: &ConnAttr,
) -> Result<ConnParam, ConnectError> {
    id.check(qp)?;
    let source = source(device, peer)?;
    id.manager.resolve_addr(id.id, Some(source.into()), peer.into())?;
    id.expect(EventKind::AddrResolved, peer).await?;
    id.manager.resolve_route(id.id)?;
    id.expect(EventKind::RouteResolved, peer).await?;
    id.manager.connect(id.id, &attr.request(qp.qpn()))?;
    let answer = id.expect(EventKind::ConnectResponse, peer).await?;
    id.queue.watch(qp.host(), qp.qpn());
    id.ready(qp, attr)?;
    id.manager.accept(id.id, None)?;
    Ok(conn_param(answer))
}

/// Accepts the request that asks for `theirs`, and waits until the peer knows.
pub(super) async fn accept<Q: Connect>(
    id: &Id,
    peer: SocketAddr,
    theirs: Depths,
    qp: &Q,
    attr: &ConnAttr,
) -> Result<ConnParam, ConnectError> {
    id.check(qp)?;
    let answer = attr.answer(qp.qpn(), theirs);
    id.queue.watch(qp.host(), qp.qpn());
    id.ready(qp, attr)?;
    id.manager.accept(id.id, Some(&answer))?;
    match id.expect(EventKind::Established, peer).await {
        // A peer whose last word is lost may have sent, and ended the connection, before it is said again: what it sent is there.
        Ok(_) | Err(ConnectError::Ended(_)) => Ok(answer),
        Err(error) => Err(error),
    }
}

/// Reasons of a rejection. As the kernel's `rdma/ib_cm.h enum ib_cm_rej_reason`.
const INVALID_SERVICE_ID: i32 = 8;
const CONSUMER_DEFINED: i32 = 28;
