//! The connection manager of a process: identifiers, connections and listeners on its devices, one for each face that makes
//! them.
//!
//! ```text
//!   calls ──▶ lock ── Ids (no IO, no clock) ──▶ events to sinks, datagrams and wills to devices
//!                      ▲
//!   devices' drivers ──┴── inbox ── thread "userdma-cm": what has arrived, what is due
//! ```
//!
//! Everything happens under one lock: a call, the events that it causes, the datagrams that leave. So the events of an identifier
//! have an order, and none comes after it is destroyed. Drivers only put what has arrived into the inbox. What takes its time is done
//! without the lock: to open and close devices, to ask the agent for ports, to wake whoever waits for events.

mod errand;
mod inbox;
mod listen;
mod machine;
mod state;

use std::net::IpAddr;
use std::sync::Arc;

pub use userdma_mgmt::queue::EventQueue;
pub use userdma_mgmt::rdma::{
    Address, CmError, CmId, CmOption, ConnParam, Ece, Event, EventKind, IbAddress, Param, PathRecord,
    PortSpace, Query, UdParam,
};
use userdma_verbs::{QpAttr, QpAttrMask, QpState, QpType};
use userdma_wire::mad::cm::RejectReason;

use crate::Host;
use state::Owner;
pub(crate) use state::Shared;

/// Where the events of identifiers go.
pub trait EventSink: Send + Sync {
    /// Takes an event. Called with the manager's lock held: it queues, and neither wakes anybody nor calls a manager.
    ///
    /// Whether it was taken is asked of [`EventKind::ConnectRequest`] only: if not (a backlog is full), the new identifier does
    /// not exist, the peer hears nothing and asks again later.
    fn push(&self, event: Event) -> bool;

    /// Wakes who waits for events, after some have been pushed. No lock is held, and anything may be called. Perhaps somebody has
    /// taken them already, or the identifier is destroyed.
    fn wake(&self) {}

    /// Whether a peer who ends a connection is answered at once, so that nobody needs to call [`Manager::disconnect`] for that.
    fn answers_disconnect(&self) -> bool {
        false
    }
}

/// A device that connections can be made on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceEntry {
    /// Its name, as `roce_lo`.
    pub name: String,
    /// Its GUID, in network order.
    pub guid: [u8; 8],
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// The devices of the process. A place in the list stands for the same device for ever.
pub trait Devices: Send + Sync {
    /// All of them; the list may grow. It is asked for about once a second, as long as there is need.
    fn list(&self) -> Vec<DeviceEntry>;

    /// Opens the device at a place, or shares it with those who have it open. It stays open while an identifier or a connection
    /// needs it, and some seconds longer.
    ///
    /// # Errors
    /// A positive error number.
    fn open(&self, place: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32>;
}

/// The connection manager. Clones are the same one; with the last, all of its connections end.
///
/// A device takes part in one manager only. After `fork` the child's calls fail, and its parent's connections go on.
#[derive(Clone)]
pub struct Manager {
    owner: Arc<Owner>,
}

impl Manager {
    /// A manager of connections on these devices. Neither a device nor a thread is there before it is needed.
    pub fn new(devices: Arc<dyn Devices>) -> Self {
        // The one place where the connection manager draws randomness: everything below takes it as an argument.
        Self { owner: Arc::new(Owner::new(devices, crate::host::random())) }
    }

    /// A new identifier, whose events go to `sink`. `qp_type` counts in [`PortSpace::Ib`] only.
    ///
    /// # Errors
    /// The system has no thread, or the process is a child of the manager's.
    pub fn create(
        &self,
        sink: Arc<dyn EventSink>,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<CmId, CmError> {
        self.owner.start_thread()?;
        self.owner.enter(|state| {
            let id = state.ids.create(space, qp_type);
            state.sinks.insert(id, sink);
            id
        })
    }

    /// Ends an identifier; its connection is disconnected, its listening ends. No event of it comes any more when this
    /// returns, and none is being told.
    ///
    /// # Errors
    /// There is no such identifier.
    pub fn destroy(&self, id: CmId) -> Result<(), CmError> {
        self.owner.enter(|state| {
            let done = state.ids.destroy(&mut state.machine, state.now, id);
            state.sinks.remove(&id);
            done
        })?
    }

    /// Events of the identifier go to `sink` from now on. `meanwhile` runs before any does: events that wait at the old one can
    /// be moved there. It calls no manager.
    ///
    /// # Errors
    /// There is no such identifier.
    pub fn migrate(
        &self,
        id: CmId,
        sink: Arc<dyn EventSink>,
        meanwhile: impl FnOnce(),
    ) -> Result<(), CmError> {
        self.owner.enter(|state| {
            let place = state.sinks.get_mut(&id).ok_or(CmError::NoId)?;
            *place = sink;
            meanwhile();
            Ok(())
        })?
    }

    /// Binds to an address of a device, or to all of all devices (a wildcard), and to a port; 0 is one that is free.
    ///
    /// # Errors
    /// It is bound already, no device has the address, or somebody has the port.
    pub fn bind(&self, id: CmId, to: Address) -> Result<(), CmError> {
        self.owner.run(|state| {
            state.machine.refresh(state.now);
            state.ids.bind(&mut state.machine, id, to)
        })
    }

    /// Finds the device from which `dst` is reached: [`EventKind::AddrResolved`] or [`EventKind::AddrError`] is told. Nobody is
    /// asked for it, so it needs no timeout.
    ///
    /// # Errors
    /// It is neither new nor bound, the families differ, or there is no way to `dst` at all.
    pub fn resolve_addr(&self, id: CmId, src: Option<Address>, dst: Address) -> Result<(), CmError> {
        self.owner.run(|state| {
            state.machine.refresh(state.now);
            state.ids.resolve_addr(&mut state.machine, id, src, dst)
        })
    }

    /// Makes up the path to a resolved address: [`EventKind::RouteResolved`] is told. Nobody is asked for it, so it needs no
    /// timeout.
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn resolve_route(&self, id: CmId) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.resolve_route(id))?
    }

    /// Asks the peer for a connection, or for its datagram service. [`EventKind::ConnectResponse`] or
    /// [`EventKind::Established`] is told if it accepts, else [`EventKind::Rejected`] or [`EventKind::Unreachable`].
    ///
    /// # Errors
    /// The route is not resolved, or there is too much private data.
    pub fn connect(&self, id: CmId, param: &ConnParam) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.connect(state.now, id, param))?
    }

    /// Takes requests from now on: each is told as [`EventKind::ConnectRequest`] with an identifier of its own. How many may
    /// wait is for the sink to say.
    ///
    /// # Errors
    /// It is neither new nor bound, or somebody listens there.
    pub fn listen(&self, id: CmId) -> Result<(), CmError> {
        self.owner.listen(id)
    }

    /// Accepts a request; with `None` completes what the peer has accepted. The queue pair is ready by then.
    ///
    /// # Errors
    /// There is nothing to accept, or there is too much private data. The peer is refused then.
    pub fn accept(&self, id: CmId, param: Option<&ConnParam>) -> Result<(), CmError> {
        self.accept_then(id, param, || ())
    }

    /// The same; `accepted` runs if it is done, before anything that follows is told. It calls no manager.
    ///
    /// # Errors
    /// As [`Manager::accept`].
    pub fn accept_then(
        &self,
        id: CmId,
        param: Option<&ConnParam>,
        accepted: impl FnOnce(),
    ) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.accept(state.now, id, param).map(|()| accepted()))?
    }

    /// Refuses a request, or what the peer has accepted, for a reason of the program's
    /// ([`RejectReason::ConsumerReject`]), or because it has proposed an option that is not supported
    /// ([`RejectReason::VendorOptionNotSupported`]).
    ///
    /// # Errors
    /// There is nothing to refuse, there is too much private data, or it is another reason.
    pub fn reject(&self, id: CmId, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.reject(state.now, id, reason, private_data))?
    }

    /// Ends a connection, or answers the peer who has ended it. [`EventKind::Disconnected`] is told.
    ///
    /// # Errors
    /// There never was a connection.
    pub fn disconnect(&self, id: CmId) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.disconnect(state.now, id))?
    }

    /// The queue pair has heard from the peer's before the peer's last message has come.
    ///
    /// # Errors
    /// Nothing was accepted, or the connection is made already.
    pub fn notify_established(&self, id: CmId) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.notify_established(state.now, id))?
    }

    /// The attributes with which the identifier's queue pair goes to `qp_state`, and which they are.
    ///
    /// # Errors
    /// The identifier has no device, or what the state needs is not known yet or no longer.
    pub fn init_qp_attr(&self, id: CmId, qp_state: QpState) -> Result<(QpAttr, QpAttrMask), CmError> {
        self.owner.enter(|state| state.ids.init_qp_attr(id, qp_state))?
    }

    /// Sets an option.
    ///
    /// # Errors
    /// It is not possible now, or the value is not.
    pub fn set_option(&self, id: CmId, option: CmOption) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.set_option(id, option))?
    }

    /// What is known about an identifier.
    ///
    /// # Errors
    /// There is no such identifier.
    pub fn query(&self, id: CmId) -> Result<Query, CmError> {
        self.owner.enter(|state| state.ids.query(id))?
    }

    /// Joins a group (multicast): [`EventKind::MulticastJoin`] or [`EventKind::MulticastError`] is told, and names `membership`. It
    /// says where datagrams to the group go. To receive them a queue pair is attached: [`Host::attach_multicast`]. So there is
    /// nothing to leave.
    ///
    /// # Errors
    /// It has no device, is neither bound nor resolved, or is not of datagrams; the address is no group's.
    pub fn join_multicast(&self, id: CmId, group: Address, membership: u32) -> Result<(), CmError> {
        self.owner.enter(|state| state.ids.join_multicast(id, group, membership))?
    }

    /// The open device of an identifier that is bound to one.
    pub fn host(&self, id: CmId) -> Option<Host> {
        let host = self.owner.enter(|state| state.machine.host(state.ids.device(id)?));
        host.ok().flatten()
    }
}

/// So that a device can stand for itself in [`Devices`].
impl AsRef<Self> for Host {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Manager")
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
