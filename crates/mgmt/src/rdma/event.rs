//! What is told of an identifier.

use userdma_verbs::{AhAttr, QKey, Qpn};

use crate::rdma::CmId;

/// What happened. Values of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u32)]
pub enum EventKind {
    /// `resolve_addr` has found a device.
    AddrResolved = 0,
    /// It has not.
    AddrError = 1,
    /// `resolve_route` has found a path.
    RouteResolved = 2,
    /// It has not.
    RouteError = 3,
    /// Somebody wants to connect to a listener.
    ConnectRequest = 4,
    /// The peer accepts: the queue pair is to be made ready, and then `accept(None)` completes the connection.
    ConnectResponse = 5,
    /// The connection was not made for a reason of this side.
    ConnectError = 6,
    /// The peer does not answer, or has no such datagram service.
    Unreachable = 7,
    /// The peer does not accept; the status is a reason of the standard.
    Rejected = 8,
    /// The connection is made, or the datagram service is known.
    Established = 9,
    /// The connection has ended.
    Disconnected = 10,
    /// The device has gone. The identifier is good for nothing but to be destroyed.
    DeviceRemoval = 11,
    /// A multicast group was joined.
    MulticastJoin = 12,
    /// It was not.
    MulticastError = 13,
    /// The device's address has changed.
    AddrChange = 14,
    /// The numbers of the connection that has ended can be used again.
    TimewaitExit = 15,
}

/// What is told of an identifier.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The identifier; of [`EventKind::ConnectRequest`] a new one, which belongs to whoever takes the event.
    pub id: CmId,
    /// What happened.
    pub kind: EventKind,
    /// 0, a negative error number, or a positive reason of the standard, as the kernel gives it.
    pub status: i32,
    /// Of [`EventKind::ConnectRequest`]: who was asked.
    pub listener: Option<CmId>,
    /// Of [`EventKind::MulticastJoin`] and [`EventKind::MulticastError`]: which membership, as the call named it.
    pub membership: Option<u32>,
    /// What the peer says.
    pub param: Param,
}

/// What a side says to the other: as the identifier's service is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Param {
    /// Of a connection.
    Conn(ConnParam),
    /// Of datagrams.
    Ud(UdParam),
}

/// What the sides of a connection agree about. In events both depths are seen from this side, as the kernel tells them:
/// `responder_resources` is what this side is asked to offer, `initiator_depth` what it may use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConnParam {
    /// Queue pair.
    pub qpn: Qpn,
    /// Guards datagrams, if an InfiniBand address asks for a key of its own; 0 elsewhere.
    pub qkey: QKey,
    /// READs and atomics that the peer may have outstanding here: 0 ..= 255.
    pub responder_resources: u8,
    /// READs and atomics that this side may have outstanding: 0 ..= 255.
    pub initiator_depth: u8,
    /// Whether credits are told.
    pub flow_control: bool,
    /// Resends before giving up: 0 ..= 7, more is taken as 7.
    pub retry_count: u8,
    /// Resends after RNR before giving up: 0 ..= 7, 7 is for ever, more is taken as 7.
    pub rnr_retry_count: u8,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// What the program adds. At most 56 bytes with a connection request, 196 with an acceptance, 148 with a rejection, 180 with
    /// a datagram request, 136 with its answer; from the peer as many bytes as the message has room for.
    pub private_data: Vec<u8>,
    /// About enhanced connections. Zero for nothing.
    pub ece: Ece,
}

/// A datagram service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UdParam {
    /// Queue pair.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: QKey,
    /// The way to it.
    pub ah: AhAttr,
    /// What the peer's program adds.
    pub private_data: Vec<u8>,
}

/// Enhanced connection establishment: what two adapters of one vendor agree about. We have nothing to agree about, and carry it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ece {
    /// The vendor: 24 bits.
    pub vendor_id: u32,
    /// The vendor's options.
    pub attr_mod: u32,
}
