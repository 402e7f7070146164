//! The table of identifiers: the machine that calls, datagrams and the time go into, and datagrams and events come out of.

mod bind;
mod connect;
mod devices;
mod handle;
mod listen;
mod multicast;
mod request;
mod resolve;

use std::collections::{HashMap, VecDeque};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_verbs::{Gid, Psn, QpType, Time};

use crate::cm::{Arrival, Cm, ConnId, NumberChange, Outgoing, PortId};
use crate::queue::EventQueue;
use crate::rdma::entry::{Entry, State};
use crate::rdma::error::ENODEV;
use crate::rdma::system::{Device, System};
use crate::rdma::{
    Address, CmError, CmId, CmOption, ConnParam, Event, EventKind, Param, PortSpace, Query, UdParam,
};
use listen::Listeners;
pub use listen::Listening;

/// The identifiers of a process, and the connections below them.
#[derive(Debug)]
pub struct Ids {
    cm: Cm,
    rng: SmallRng,
    pub(super) table: HashMap<CmId, Entry>,
    last: u32,
    conns: HashMap<ConnId, CmId>,
    pub(super) devices: HashMap<PortId, Device>,
    listeners: Listeners,
    /// Devices that wildcards have been told of.
    known_devices: usize,
    events: EventQueue<CmId, Event>,
    wills: VecDeque<WillChange>,
}

/// What is to be sent if the process dies has changed.
#[derive(Clone, Debug)]
pub struct WillChange {
    /// The device.
    pub port: PortId,
    /// The connection.
    pub conn: ConnId,
    /// What is to be sent; nothing any more.
    pub will: Option<Outgoing>,
}

impl Ids {
    /// No identifiers. `seed` is for PSNs and numbers of connections.
    pub fn new(seed: u64) -> Self {
        Self {
            cm: Cm::new(seed),
            rng: SmallRng::seed_from_u64(seed.rotate_left(32)),
            table: HashMap::new(),
            last: 0,
            conns: HashMap::new(),
            devices: HashMap::new(),
            listeners: Listeners::default(),
            known_devices: 0,
            events: EventQueue::default(),
            wills: VecDeque::new(),
        }
    }

    /// A new identifier. `qp_type` counts in [`PortSpace::Ib`] only.
    pub fn create(&mut self, space: PortSpace, qp_type: QpType) -> CmId {
        let entry = Entry::new(space, qp_type, self.draw_psn());
        self.insert(entry)
    }

    /// Ends an identifier, its listening or its connection. No event of it comes any more, those that wait are gone.
    ///
    /// # Errors
    /// There is no such identifier.
    pub fn destroy(&mut self, system: &mut impl System, now: Time, id: CmId) -> Result<(), CmError> {
        let entry = self.table.remove(&id).ok_or(CmError::NoId)?;
        if entry.state == State::Listen {
            self.stop_listening(system, id, &entry);
        }
        if let Some(conn) = entry.conn {
            self.revoke(&entry, conn);
            self.conns.remove(&conn);
            self.cm.destroy(now, conn);
        }
        for held in &entry.held {
            system.release(held.port, held.reservation);
        }
        self.events.forget(id);
        self.take_cm_events(now);
        Ok(())
    }

    /// Takes back a request that nobody has room for: the peer hears nothing, and asks again later. As `ucma.c
    /// ucma_event_handler()` and `cm.c cm_destroy_id()` with `-ENOMEM`.
    pub fn refuse(&mut self, id: CmId) {
        let Some(entry) = self.table.remove(&id) else { return };
        if let Some(conn) = entry.conn {
            self.conns.remove(&conn);
            self.cm.forget(conn);
        }
    }

    /// Sets an option. As `cma.c rdma_set_service_type()` and its neighbors.
    ///
    /// # Errors
    /// It is not possible now, or the value is not.
    pub fn set_option(&mut self, id: CmId, option: CmOption) -> Result<(), CmError> {
        let entry = self.table.get_mut(&id).ok_or(CmError::NoId)?;
        match option {
            CmOption::Tos(tos) => entry.tos = tos,
            CmOption::ReuseAddr(reuse) => {
                let is_right = entry.state == State::Idle || reuse && entry.state != State::Listen;
                entry.check(is_right, "reuse address", "an identifier that is not bound")?;
                entry.reuse_address = reuse;
            }
            CmOption::AfOnly(only) => {
                let is_right = matches!(entry.state, State::Idle | State::AddrBound);
                entry.check(
                    is_right,
                    "address family only",
                    "an identifier that neither listens nor resolves",
                )?;
                entry.af_only = Some(only);
            }
            CmOption::AckTimeout(code) => {
                entry.check(
                    entry.qp_type == QpType::Rc,
                    "ACK timeout",
                    "an identifier of reliable connections",
                )?;
                if code > 31 {
                    let (value, allowed) = (code.into(), "0 ..= 31");
                    return Err(CmError::Value { what: "ACK timeout", value, allowed });
                }
                entry.ack_timeout = Some(code);
            }
        }
        Ok(())
    }

    /// What is known about an identifier.
    ///
    /// # Errors
    /// There is no such identifier.
    pub fn query(&self, id: CmId) -> Result<Query, CmError> {
        let entry = self.entry(id)?;
        let gid = |address: &Option<Address>| match (entry.port, address) {
            (Some(_), Some(Address::Ip(ip))) => Gid::from(ip.ip().to_canonical()),
            (Some(_) | None, _) => Gid::default(),
        };
        let service_id = |address: &Option<Address>| match address {
            Some(Address::Ip(ip)) => entry.space.service_id(ip.port()),
            Some(Address::Ib(ib)) => ib.service_id,
            None => entry.space.service_id(0),
        };
        Ok(Query {
            src: entry.src,
            dst: entry.dst,
            // A place in a list.
            device: entry.port.map(|port| port.0 as usize),
            sgid: gid(&entry.src),
            dgid: gid(&entry.dst),
            path: entry.path,
            src_service_id: service_id(&entry.src),
            dst_service_id: service_id(&entry.dst),
        })
    }

    /// The device of an identifier that is bound to one.
    pub fn device(&self, id: CmId) -> Option<PortId> {
        self.table.get(&id)?.port
    }

    /// Takes a management datagram that has come.
    pub fn handle_mad(&mut self, now: Time, arrival: Arrival<'_>) {
        self.cm.handle_mad(now, arrival);
        self.take_cm_events(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.cm.handle_timeout(now);
        self.take_cm_events(now);
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.cm.poll_transmit()
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cm.poll_timeout()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop().map(|(_, event)| event)
    }

    /// The next connection whose will has changed.
    pub fn poll_will(&mut self) -> Option<WillChange> {
        self.wills.pop_front()
    }

    /// As [`Cm::poll_number`].
    pub fn poll_number(&mut self) -> Option<NumberChange> {
        self.cm.poll_number()
    }

    /// Devices that no identifier and no connection needs.
    pub fn idle_ports(&self) -> Vec<PortId> {
        let needs =
            |entry: &Entry, port| entry.port == Some(port) || entry.held.iter().any(|held| held.port == port);
        let is_idle =
            |port: &PortId| !self.table.values().any(|entry| needs(entry, *port)) && self.cm.is_idle(*port);
        self.devices.keys().copied().filter(is_idle).collect()
    }

    /// A device that was idle is closed.
    pub fn close_port(&mut self, port: PortId) {
        self.devices.remove(&port);
        self.cm.remove_port(port);
    }

    /// A device has gone: its identifiers are good for nothing any more. As `cma.c cma_process_remove()`. Whoever listens on all
    /// devices is told, too, if that was the last one: the kernel lets him wait.
    pub fn remove_port(&mut self, port: PortId) {
        self.close_port(port);
        self.forget_listeners_of(port);
        let mut gone = Vec::new();
        for (&id, entry) in &mut self.table {
            let held = entry.held.len();
            entry.held.retain(|held| held.port != port);
            if entry.state == State::Listen && entry.port.is_none() && held > 0 && entry.held.is_empty() {
                // It stays what it is: another device may appear.
                gone.push(id);
                continue;
            }
            if entry.port != Some(port) || entry.state == State::DeviceRemoval {
                continue;
            }
            if let Some(conn) = entry.conn.take() {
                self.conns.remove(&conn);
            }
            (entry.state, entry.has_will) = (State::DeviceRemoval, false);
            entry.end_link();
            gone.push(id);
        }
        gone.sort_unstable();
        for id in gone {
            self.tell(id, EventKind::DeviceRemoval, 0);
        }
    }

    /// The process ends: every connection ends with it, and nothing is told any more.
    pub fn abandon(&mut self, now: Time) {
        for (conn, _) in std::mem::take(&mut self.conns) {
            self.cm.destroy(now, conn);
        }
        self.table.values_mut().for_each(|entry| entry.conn = None);
        self.events.clear();
    }

    /// Connections that this side has ended and whose peers have not said that they know: what is sent to each until it does.
    pub fn unanswered(&self) -> Vec<WillChange> {
        let will = |(conn, will): (ConnId, Outgoing)| WillChange { port: will.port, conn, will: Some(will) };
        self.cm.goodbyes().map(will).collect()
    }

    /// All devices are let go, whatever is there; which they were.
    pub fn remove_ports(&mut self) -> Vec<PortId> {
        let ports: Vec<_> = self.devices.keys().copied().collect();
        ports.iter().for_each(|&port| self.remove_port(port));
        ports
    }

    /// Whether devices are open.
    pub fn has_ports(&self) -> bool {
        !self.devices.is_empty()
    }

    /// All identifiers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = CmId> + '_ {
        self.table.keys().copied()
    }

    fn insert(&mut self, entry: Entry) -> CmId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = CmId(self.last);
            if self.last != 0 && !self.table.contains_key(&id) {
                self.table.insert(id, entry);
                return id;
            }
        }
    }

    fn draw_psn(&mut self) -> Psn {
        Psn::new(self.rng.random())
    }

    fn entry(&self, id: CmId) -> Result<&Entry, CmError> {
        self.table.get(&id).ok_or(CmError::NoId)
    }

    fn entry_mut(&mut self, id: CmId) -> Result<&mut Entry, CmError> {
        self.table.get_mut(&id).ok_or(CmError::NoId)
    }

    /// Opens a device if it is not open.
    fn open(&mut self, system: &mut impl System, port: PortId) -> Result<&Device, CmError> {
        if !self.devices.contains_key(&port) {
            let device = system.open(port)?;
            self.cm.add_port(port, device.slot, device.guid);
            self.devices.insert(port, device);
        }
        self.devices.get(&port).ok_or(CmError::Open { device: port.0 as usize, errno: ENODEV })
    }

    /// An event in which the peer says nothing.
    fn tell(&mut self, id: CmId, kind: EventKind, status: i32) {
        let is_ud = self.table.get(&id).is_some_and(Entry::is_ud);
        let param = if is_ud { Param::Ud(UdParam::default()) } else { Param::Conn(ConnParam::default()) };
        self.events.push(id, Event { id, kind, status, listener: None, membership: None, param });
    }

    /// Tells of a connection's will, if it is another one now.
    fn note_will(&mut self, id: CmId) {
        let Some(entry) = self.table.get_mut(&id) else { return };
        let (Some(conn), Some(port)) = (entry.conn, entry.port) else { return };
        let will = self.cm.will(conn);
        if will.is_some() != entry.has_will {
            entry.has_will = will.is_some();
            self.wills.push_back(WillChange { port, conn, will });
        }
    }

    /// The will of a connection that is no longer ours counts no longer.
    fn revoke(&mut self, entry: &Entry, conn: ConnId) {
        if let Some(port) = entry.port.filter(|_| entry.has_will) {
            self.wills.push_back(WillChange { port, conn, will: None });
        }
    }
}
