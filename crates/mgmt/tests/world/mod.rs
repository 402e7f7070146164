//! Processes with identifiers, on a network that delays and loses datagrams, without sockets and clocks.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma_mgmt::cm::{Arrival, Outgoing, PortId};
use userdma_mgmt::rdma::{
    CmError, CmId, ConnParam, Device, Event, EventKind, Ids, PortRequest, PortSpace, Reservation, System,
    WillChange,
};
use userdma_verbs::{Mtu, QpType, Qpn, Time};

/// Ports and services of all addresses.
#[derive(Debug, Default)]
pub struct Books {
    pub ports: BTreeMap<u32, (PortSpace, u16, IpAddr)>,
    pub listens: Vec<(u64, PortId, Option<IpAddr>)>,
    last: u32,
}

/// A machine with devices, without sockets.
pub struct Machine {
    pub devices: Vec<(PortId, Vec<IpAddr>)>,
    pub books: Rc<RefCell<Books>>,
    /// Devices that cannot be opened.
    pub broken: Vec<PortId>,
    /// Devices on which somebody else listens to everything.
    pub deaf: Vec<PortId>,
    /// From where the machine sends; `None`: nowhere.
    pub source: Option<IpAddr>,
    pub opened: Vec<PortId>,
}

impl System for Machine {
    fn devices(&self) -> &[(PortId, Vec<IpAddr>)] {
        &self.devices
    }

    fn open(&mut self, port: PortId) -> Result<Device, CmError> {
        let device = port.0 as usize;
        if self.broken.contains(&port) {
            return Err(CmError::Open { device, errno: 98 });
        }
        self.opened.push(port);
        let addresses = self.devices[device].1.clone();
        let slot = u16::try_from(port.0).unwrap() + 1;
        Ok(Device { slot, guid: 0x0200_00ff_fe00_0000 + u64::from(port.0), addresses, mtu: Mtu::Mtu1024 })
    }

    fn sources(&self, _to: SocketAddr) -> Result<Vec<IpAddr>, CmError> {
        self.source.map(|source| vec![source]).ok_or(CmError::System(101))
    }

    fn reserve(&mut self, port: PortId, request: &PortRequest) -> Result<Reservation, CmError> {
        let mut books = self.books.borrow_mut();
        let ours = &self.devices[port.0 as usize].1;
        let is_taken = |wanted: u16| {
            let mut there = books.ports.values();
            there.any(|&(space, port, ip)| {
                space == request.space
                    && port == wanted
                    && ours.contains(&ip)
                    && (request.address.is_unspecified() || ip == request.address)
            })
        };
        let wanted =
            if request.port == 0 { (40_000..).find(|&port| !is_taken(port)).unwrap() } else { request.port };
        if is_taken(wanted) {
            return Err(CmError::PortTaken(wanted));
        }
        let address = if request.address.is_unspecified() { ours[0] } else { request.address };
        books.last += 1;
        let id = books.last;
        books.ports.insert(id, (request.space, wanted, address));
        Ok(Reservation { id, port: wanted })
    }

    fn begin_listening(&mut self, _port: PortId, _reservation: u32) -> Result<(), CmError> {
        Ok(())
    }

    fn release(&mut self, _port: PortId, reservation: u32) {
        assert!(self.books.borrow_mut().ports.remove(&reservation).is_some(), "it was reserved");
    }

    fn unlisten(&mut self, port: PortId, service_id: u64, on: Option<IpAddr>) {
        let listens = &mut self.books.borrow_mut().listens;
        let at = listens.iter().position(|there| *there == (service_id, port, on));
        listens.swap_remove(at.expect("it was listened to"));
    }
}

/// Listens, with whatever the machine says at once.
pub fn listen(ids: &mut Ids, machine: &mut Machine, id: CmId) -> Result<(), CmError> {
    let wanted = ids.listen(machine, id)?;
    for port in wanted.ports {
        if machine.deaf.contains(&port) {
            ids.give_up_listening(machine, id);
            return Err(CmError::PortTaken(0));
        }
        machine.books.borrow_mut().listens.push((wanted.service_id, port, wanted.on));
        assert!(ids.note_listening(id, port));
    }
    Ok(())
}

/// Has wildcards listen on devices that have appeared.
pub fn listen_on_new_devices(ids: &mut Ids, machine: &mut Machine) {
    for (id, port) in ids.poll_new_devices(machine) {
        if let Ok(Some(wanted)) = ids.listen_also(machine, id, port) {
            machine.books.borrow_mut().listens.push((wanted.service_id, port, wanted.on));
            assert!(ids.note_listening(id, port));
        }
    }
}

/// A process.
pub struct Process {
    pub ids: Ids,
    pub machine: Machine,
    pub events: Vec<Event>,
    pub wills: HashMap<u32, Outgoing>,
}

/// Processes, the network between them, and the time.
pub struct World {
    pub processes: Vec<Process>,
    pub now: Time,
    pub loss: f64,
    /// Datagrams that were sent.
    pub sent: u64,
    under_way: Vec<(Time, Outgoing)>,
    rng: SmallRng,
}

impl World {
    /// Processes with a device each, with these addresses.
    pub fn new(devices: &[&[&str]]) -> Self {
        let processes = devices.iter().enumerate().map(|(seed, addresses)| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
            let source = Some(addresses[0]);
            let devices = vec![(PortId(0), addresses)];
            let books = Rc::new(RefCell::new(Books::default()));
            let (broken, deaf, opened) = (Vec::new(), Vec::new(), Vec::new());
            let machine = Machine { devices, books, broken, deaf, source, opened };
            Process { ids: Ids::new(seed as u64), machine, events: Vec::new(), wills: HashMap::new() }
        });
        Self {
            processes: processes.collect(),
            now: Time::from_nanos(1_000_000_000),
            loss: 0.0,
            sent: 0,
            under_way: Vec::new(),
            rng: SmallRng::seed_from_u64(7),
        }
    }

    /// Takes what a process has to say.
    fn drain(&mut self, at: usize) {
        let process = &mut self.processes[at];
        while let Some(event) = process.ids.poll_event() {
            process.events.push(event);
        }
        while let Some(WillChange { conn, will, .. }) = process.ids.poll_will() {
            match will {
                Some(will) => assert!(process.wills.insert(conn.0, will).is_none()),
                None => assert!(process.wills.remove(&conn.0).is_some()),
            }
        }
        while let Some(out) = process.ids.poll_transmit() {
            self.sent += 1;
            if self.rng.random::<f64>() >= self.loss {
                self.under_way.push((self.now + Duration::from_micros(100), out));
            }
        }
    }

    fn deliver(&mut self, out: &Outgoing) {
        let to = self.processes.iter().position(|process| {
            process.machine.devices.iter().any(|(_, addresses)| addresses.contains(&out.to))
        });
        let Some(at) = to else { return };
        let process = &mut self.processes[at];
        let port = process.machine.devices.iter().find(|(_, ips)| ips.contains(&out.to)).unwrap().0;
        if process.machine.opened.contains(&port) {
            let arrival = Arrival { port, from: out.from, to: out.to, mad: &out.mad };
            process.ids.handle_mad(self.now, arrival);
        }
    }

    /// Lets time pass until `is_over` says so, or `limit` has passed; whether it did.
    pub fn run_until(&mut self, limit: Duration, mut is_over: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            (0..self.processes.len()).for_each(|at| self.drain(at));
            if is_over(self) {
                return true;
            }
            (0..self.processes.len()).for_each(|at| self.drain(at));
            let arrivals = self.under_way.iter().map(|(at, _)| *at);
            let deadlines = self.processes.iter().filter_map(|process| process.ids.poll_timeout());
            let Some(next) = arrivals.chain(deadlines).min().filter(|&next| next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            let (arrived, under_way): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.under_way).into_iter().partition(|(at, _)| *at <= self.now);
            self.under_way = under_way;
            arrived.iter().for_each(|(_, out)| self.deliver(out));
            for process in &mut self.processes {
                process.ids.handle_timeout(self.now);
            }
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Waits for the next event of a process.
    pub fn event(&mut self, at: usize) -> Event {
        let is_there = self.run_until(PATIENCE, |world| !world.processes[at].events.is_empty());
        assert!(is_there, "no event");
        self.processes[at].events.remove(0)
    }

    /// Waits for the next event of a process, which is of this kind.
    pub fn expect(&mut self, at: usize, kind: EventKind) -> Event {
        let event = self.event(at);
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// Waits for an event of this kind, and forgets others.
    pub fn wait_for(&mut self, at: usize, kind: EventKind) -> Event {
        loop {
            let event = self.event(at);
            if event.kind == kind {
                return event;
            }
        }
    }

    /// A listener.
    pub fn listen(&mut self, at: usize, space: PortSpace, on: &str) -> CmId {
        let Process { ids, machine, .. } = &mut self.processes[at];
        let id = ids.create(space, QpType::Rc);
        ids.bind(machine, id, on.parse::<SocketAddr>().unwrap().into()).unwrap();
        listen(ids, machine, id).unwrap();
        id
    }

    /// An identifier whose route to `to` is resolved.
    pub fn resolve(&mut self, at: usize, space: PortSpace, to: &str) -> CmId {
        let Process { ids, machine, .. } = &mut self.processes[at];
        let id = ids.create(space, QpType::Rc);
        ids.resolve_addr(machine, id, None, to.parse::<SocketAddr>().unwrap().into()).unwrap();
        assert_eq!(self.expect(at, EventKind::AddrResolved).status, 0);
        self.processes[at].ids.resolve_route(id).unwrap();
        assert_eq!(self.expect(at, EventKind::RouteResolved).id, id);
        id
    }

    /// An identifier that has asked `to` for a connection.
    pub fn connect(&mut self, at: usize, space: PortSpace, to: &str) -> CmId {
        let id = self.resolve(at, space, to);
        let now = self.now;
        self.processes[at].ids.connect(now, id, &param(0x11, b"hello")).unwrap();
        id
    }

    /// A connection, made: the identifiers of process 0, which asked, and of process 1.
    pub fn pair(&mut self, to: &str) -> (CmId, CmId) {
        let active = self.connect(0, PortSpace::Tcp, to);
        let passive = self.expect(1, EventKind::ConnectRequest).id;
        let now = self.now;
        self.processes[1].ids.accept(now, passive, Some(&param(0x22, b"welcome"))).unwrap();
        assert_eq!(self.expect(0, EventKind::ConnectResponse).id, active);
        let now = self.now;
        self.processes[0].ids.accept(now, active, None).unwrap();
        assert_eq!(self.expect(1, EventKind::Established).id, passive);
        (active, passive)
    }

    /// Ends an identifier.
    pub fn destroy(&mut self, at: usize, id: CmId) {
        let Process { ids, machine, .. } = &mut self.processes[at];
        ids.destroy(machine, self.now, id).unwrap();
    }
}

/// What a side says.
pub fn param(qpn: u32, private_data: &[u8]) -> ConnParam {
    ConnParam {
        qpn: Qpn::new(qpn),
        responder_resources: 4,
        initiator_depth: 2,
        retry_count: 6,
        rnr_retry_count: 5,
        private_data: private_data.to_vec(),
        ..ConnParam::default()
    }
}

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(600);
