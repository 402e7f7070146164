//! What becomes of peers and devices when a manager ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use userdma_link::{Faults, Link, clock};
use userdma_verbs::Qpn;

use super::*;
use crate::HostConfig;

/// A manager of one device, which stays open.
struct Side {
    host: Host,
    manager: Option<Manager>,
    sink: Arc<Told>,
    events: Receiver<Event>,
}

struct One(Host);

struct Told(Sender<Event>);

impl Devices for One {
    fn list(&self) -> Vec<DeviceEntry> {
        let addresses = self.0.gids().iter().map(|gid| gid.local).collect();
        vec![DeviceEntry { name: "test".to_owned(), guid: [2; 8], addresses }]
    }

    fn open(&self, _place: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
        Ok(Arc::new(self.0.clone()))
    }
}

impl EventSink for Told {
    fn push(&self, event: Event) -> bool {
        self.0.send(event).is_ok()
    }
}

impl Side {
    fn new(address: &str) -> Self {
        let config = HostConfig { addresses: vec![address.parse().unwrap()], ..HostConfig::default() };
        let host = Host::open(&config).unwrap();
        let manager = Some(Manager::new(Arc::new(One(host.clone()))));
        let (tell, events) = channel();
        Self { host, manager, sink: Arc::new(Told(tell)), events }
    }

    fn manager(&self) -> &Manager {
        self.manager.as_ref().unwrap()
    }

    fn create(&self) -> CmId {
        self.manager().create(Arc::<Told>::clone(&self.sink), PortSpace::Tcp, QpType::Rc).unwrap()
    }

    fn expect(&self, kind: EventKind) -> CmId {
        let event = self.events.recv_timeout(LONG).unwrap();
        assert_eq!(event.kind, kind);
        event.id
    }
}

/// Two sides that are connected; the server's end.
fn connect(client: &Side, server: &Side, to: &str) -> CmId {
    let to: SocketAddr = to.parse().unwrap();
    let listener = server.create();
    server.manager().bind(listener, to.into()).unwrap();
    server.manager().listen(listener).unwrap();
    let active = client.create();
    client.manager().resolve_addr(active, None, to.into()).unwrap();
    client.expect(EventKind::AddrResolved);
    client.manager().resolve_route(active).unwrap();
    client.expect(EventKind::RouteResolved);
    let param = ConnParam { qpn: Qpn::new(9), ..ConnParam::default() };
    client.manager().connect(active, &param).unwrap();
    let passive = server.expect(EventKind::ConnectRequest);
    server.manager().accept(passive, Some(&param)).unwrap();
    client.expect(EventKind::ConnectResponse);
    client.manager().accept(active, None).unwrap();
    server.expect(EventKind::Established)
}

#[test]
fn what_is_to_follow_an_acceptance_does_not_follow_one_that_fails() {
    let (client, server) = (Side::new("127.71.5.5"), Side::new("127.71.5.6"));
    let passive = connect(&client, &server, "127.71.5.6:3");
    let again = server.manager().accept_then(passive, Some(&ConnParam::default()), || panic!("it has run"));
    assert!(matches!(again, Err(CmError::State { call: "accept", .. })), "{again:?}");
}

/// What comes to a device is lost, or no longer.
fn set_loss(host: &Host, is_lossy: bool) {
    let faults: Option<Faults> = is_lossy.then(|| "loss=1".parse().unwrap());
    let set = move |core: &mut crate::drive::Core, _| {
        let links = core.links.iter_mut().map(|Link::Udp(link)| link);
        links.for_each(|link| link.set_faults(faults.as_ref(), clock::now()));
    };
    host.owner.command(set).unwrap();
}

/// The program goes on with its device, and nobody is left there who would say it again: the agent does.
#[test]
fn peers_learn_that_a_manager_has_ended_though_its_last_word_is_lost() {
    let (mut client, server) = (Side::new("127.71.5.1"), Side::new("127.71.5.2"));
    connect(&client, &server, "127.71.5.2:3");
    set_loss(&server.host, true);
    client.manager = None;
    while server.host.fault_stats().unwrap().lost == 0 {
        std::thread::yield_now();
    }
    set_loss(&server.host, false);
    server.expect(EventKind::Disconnected);
}

/// What still comes for it is answered.
#[test]
fn the_device_of_a_manager_that_has_ended_says_so() {
    let (mut gone, asks) = (Side::new("127.71.5.3"), Side::new("127.71.5.4"));
    connect(&gone, &asks, "127.71.5.4:3");
    gone.manager = None;
    asks.expect(EventKind::Disconnected);
    let (tell, came) = channel();
    asks.host.set_management_sink(move |datagram| tell.send(datagram).is_ok()).unwrap();
    let [from, to] = ["127.71.5.4", "127.71.5.3"].map(|ip| ip.parse().unwrap());
    let dreq = userdma_wire::mad::cm::Dreq {
        local_comm_id: u32::from(asks.host.slot()) << 22 | 1,
        remote_comm_id: u32::from(gone.host.slot()) << 22 | 1,
        ..Default::default()
    };
    asks.host.send_management(from, to, &dreq.build(7)).unwrap();
    // A DREP.
    while came.recv_timeout(LONG).unwrap().mad[16..18] != [0, 0x16] {}
}

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(30);
