//! Devices, sinks and queue pairs for connections that are tested.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use userdma_host::cm::{
    CmError, CmId, ConnParam, DeviceEntry, Devices, Event, EventKind, EventSink, Manager, PortSpace,
};
use userdma_host::{Host, HostConfig};
use userdma_verbs::{
    QpCap, QpInitAttr, QpState, QpType, Qpn, RecvWr, SendFlags, SendOp, SendWr, Wc, WcOpcode, WcStatus,
};

/// Devices of a process, one for each list of addresses.
pub struct Hosts {
    addresses: Vec<Vec<IpAddr>>,
    open: Mutex<HashMap<usize, Weak<Open>>>,
    /// What runs while a device is opened.
    pub on_open: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// An open device.
pub struct Open(Host);

impl AsRef<Host> for Open {
    fn as_ref(&self) -> &Host {
        &self.0
    }
}

impl Hosts {
    pub fn new(addresses: &[&[&str]]) -> Arc<Self> {
        let parse = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Self {
            addresses: addresses.iter().map(parse).collect(),
            open: Mutex::default(),
            on_open: Mutex::default(),
        })
    }
}

impl Devices for Hosts {
    fn list(&self) -> Vec<DeviceEntry> {
        let entry = |(place, addresses): (u8, &Vec<IpAddr>)| DeviceEntry {
            name: format!("test{place}"),
            // The process's number makes them differ between processes.
            guid: (u64::from(std::process::id()) << 8 | u64::from(place)).to_be_bytes(),
            addresses: addresses.clone(),
        };
        (0..).zip(&self.addresses).map(entry).collect()
    }

    fn open(&self, place: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
        if let Some(run) = self.on_open.lock().unwrap().take() {
            run();
        }
        let mut open = self.open.lock().unwrap();
        if let Some(device) = open.get(&place).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let config = HostConfig { addresses: self.addresses[place].clone(), ..HostConfig::default() };
        let device = Arc::new(Open(Host::open(&config).map_err(|error| error.errno() as i32)?));
        open.insert(place, Arc::downgrade(&device));
        Ok(device)
    }
}

/// Events that wait.
#[derive(Default)]
pub struct Queue {
    /// What runs when somebody is woken.
    pub on_wake: Mutex<Option<Box<dyn FnMut() + Send>>>,
    events: Mutex<VecDeque<Event>>,
    changed: Condvar,
    /// Requests that may wait.
    pub backlog: Mutex<Option<usize>>,
    /// Requests that found no room. Changed under the lock of the events.
    refused: AtomicUsize,
}

impl EventSink for Queue {
    fn push(&self, event: Event) -> bool {
        let mut events = self.events.lock().unwrap();
        let is_request = event.kind == EventKind::ConnectRequest;
        let is_refused = is_request && self.backlog.lock().unwrap().is_some_and(|most| events.len() >= most);
        if is_refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            events.push_back(event);
        }
        self.changed.notify_all();
        !is_refused
    }

    fn wake(&self) {
        if let Some(run) = &mut *self.on_wake.lock().unwrap() {
            run();
        }
    }
}

impl Queue {
    /// The next event, if it comes within `patience`.
    pub fn poll(&self, patience: Duration) -> Option<Event> {
        let events = self.events.lock().unwrap();
        let waited = self.changed.wait_timeout_while(events, patience, |events| events.is_empty());
        waited.unwrap().0.pop_front()
    }

    /// Waits until a request has found no room.
    pub fn wait_for_refusal(&self) {
        let events = self.events.lock().unwrap();
        let has_room = |_: &mut VecDeque<Event>| self.refused.load(Ordering::Relaxed) == 0;
        let waited = self.changed.wait_timeout_while(events, LONG, has_room).unwrap();
        assert!(!waited.1.timed_out(), "every request found room");
    }

    /// The next event, which is of this kind.
    pub fn expect(&self, kind: EventKind) -> Event {
        let event = self.poll(LONG).expect("an event");
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }
}

/// A manager and its queue.
pub struct Side {
    pub manager: Manager,
    pub queue: Arc<Queue>,
}

impl Side {
    /// On devices that the caller knows.
    pub fn on(hosts: &Arc<Hosts>) -> Self {
        Self { manager: Manager::new(Arc::clone(hosts) as Arc<dyn Devices>), queue: Arc::default() }
    }

    pub fn new(addresses: &[&[&str]]) -> Self {
        Self { manager: Manager::new(Hosts::new(addresses)), queue: Arc::default() }
    }

    pub fn create(&self, space: PortSpace) -> CmId {
        let sink: Arc<Queue> = Arc::clone(&self.queue);
        self.manager.create(sink, space, QpType::Rc).unwrap()
    }

    pub fn listen(&self, space: PortSpace, on: &str) -> CmId {
        let id = self.create(space);
        self.manager.bind(id, on.parse::<SocketAddr>().unwrap().into()).unwrap();
        self.manager.listen(id).unwrap();
        id
    }

    /// The port that an identifier is bound to.
    pub fn port(&self, id: CmId) -> u16 {
        self.manager.query(id).unwrap().src.unwrap().ip().unwrap().port()
    }

    pub fn resolve(&self, space: PortSpace, to: SocketAddr) -> CmId {
        self.resolve_with(self.create(space), to)
    }

    pub fn resolve_with(&self, id: CmId, to: SocketAddr) -> CmId {
        self.manager.resolve_addr(id, None, to.into()).unwrap();
        assert_eq!(self.queue.expect(EventKind::AddrResolved).id, id);
        self.manager.resolve_route(id).unwrap();
        self.queue.expect(EventKind::RouteResolved);
        id
    }

    pub fn connect(&self, space: PortSpace, to: SocketAddr, param: &ConnParam) -> CmId {
        let id = self.resolve(space, to);
        self.manager.connect(id, param).unwrap();
        id
    }

    /// A queue pair on the identifier's device, in INIT.
    pub fn queue_pair(&self, id: CmId) -> QueuePair {
        let host = self.manager.host(id).expect("a device");
        let (pd, cq) =
            host.control(|shard, _| (shard.alloc_pd().unwrap(), shard.create_cq(16, None).unwrap())).unwrap();
        let cap =
            QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: true };
        let qp = host.create_qp(pd, init, cq.number(), cq.number(), None).unwrap().unwrap();
        let qp = QueuePair { host, qp, cq };
        qp.modify(self, id, QpState::Init);
        qp
    }
}

/// A queue pair and its completion queue.
pub struct QueuePair {
    pub host: Host,
    pub qp: Arc<userdma_objects::QpShared>,
    pub cq: Arc<userdma_objects::Cq>,
}

impl QueuePair {
    pub fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// Takes it to a state, as the manager says.
    pub fn modify(&self, side: &Side, id: CmId, state: QpState) {
        let (attr, mask) = side.manager.init_qp_attr(id, state).unwrap();
        let qpn = self.qpn();
        self.host.control(move |shard, now| shard.modify_qp(now, qpn, &attr, mask)).unwrap().unwrap();
    }

    pub fn connect(&self, side: &Side, id: CmId) {
        self.modify(side, id, QpState::Rtr);
        self.modify(side, id, QpState::Rts);
    }

    pub fn receive(&self) {
        self.host.post_recv(&self.qp, &RecvWr { wr_id: 1, sgl: &[] }).unwrap();
    }

    pub fn send(&self) {
        let wr = SendWr { wr_id: 2, op: SendOp::Send, flags: SendFlags::SIGNALED, sgl: &[], inline: &[] };
        self.host.post_send(&self.qp, &wr).unwrap();
    }

    /// Waits for a completion without an error.
    pub fn complete(&self) {
        let mut wcs = [Wc::new(0, WcStatus::GeneralErr, WcOpcode::Send, Qpn::new(0))];
        let end = userdma_host::uptime() + LONG;
        while self.host.poll_cq(&self.cq, &mut wcs).unwrap() == 0 {
            assert!(userdma_host::uptime() < end, "no completion");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(wcs[0].status, WcStatus::Success);
    }
}

/// What a side says.
pub fn param(qpn: Qpn, private_data: &[u8]) -> ConnParam {
    ConnParam {
        qpn,
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data: private_data.to_vec(),
        ..ConnParam::default()
    }
}

/// The number of an error.
pub fn errno<T>(result: Result<T, CmError>) -> i32 {
    result.map(|_| ()).unwrap_err().errno()
}

/// Longer than anything takes on a machine that is busy.
pub const LONG: Duration = Duration::from_secs(30);
