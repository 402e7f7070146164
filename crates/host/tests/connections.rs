//! Connections between managers over real devices: of one process and of two.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code)]
mod common;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{Hosts, LONG, Side, errno, param};
use userdma_host::cm::{ConnParam, EventKind, Param, PortSpace};
use userdma_other::{Other, role, say};
use userdma_verbs::{QKey, QpState, Qpn};
use userdma_wire::mad::cm::RejectReason;

fn to(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn conn(param: Param) -> ConnParam {
    match param {
        Param::Conn(conn) => conn,
        Param::Ud(_) => panic!("of datagrams"),
    }
}

/// From the first call to the last event, with queue pairs that exchange a message.
fn meet(client: &Side, server: &Side, service: &str, via: &str) {
    let listener = server.listen(PortSpace::Tcp, service);
    let via = SocketAddr::new(via.parse().unwrap(), to(service).port());
    let active = client.resolve(PortSpace::Tcp, via);
    let client_qp = client.queue_pair(active);
    client.manager.connect(active, &param(client_qp.qpn(), b"hello")).unwrap();

    let request = server.queue.expect(EventKind::ConnectRequest);
    let passive = request.id;
    assert_eq!(request.listener, Some(listener));
    assert_eq!(conn(request.param).private_data[..5], *b"hello");
    let server_qp = server.queue_pair(passive);
    server_qp.receive();
    server_qp.connect(server, passive);
    server.manager.accept(passive, Some(&param(server_qp.qpn(), b"welcome"))).unwrap();

    let response = client.queue.expect(EventKind::ConnectResponse);
    assert_eq!(conn(response.param).private_data[..7], *b"welcome");
    client_qp.connect(client, active);
    client.manager.accept(active, None).unwrap();
    assert_eq!(server.queue.expect(EventKind::Established).id, passive);
    client_qp.send();
    client_qp.complete();
    server_qp.complete();

    client.manager.disconnect(active).unwrap();
    assert_eq!(server.queue.expect(EventKind::Disconnected).id, passive);
    server.manager.disconnect(passive).unwrap();
    assert_eq!(client.queue.expect(EventKind::Disconnected).id, active);
    client.queue.expect(EventKind::TimewaitExit);
    server.queue.expect(EventKind::TimewaitExit);
    client.manager.destroy(active).unwrap();
    server.manager.destroy(passive).unwrap();
    server.manager.destroy(listener).unwrap();
}

#[test]
fn two_managers_connect_over_ipv4() {
    let (client, server) = (Side::new(&[&["127.43.1.1"]]), Side::new(&[&["127.43.1.2"]]));
    meet(&client, &server, "127.43.1.2:7174", "127.43.1.2");
    meet(&client, &server, "0.0.0.0:7175", "127.43.1.2");
    meet(&client, &server, "[::]:7176", "127.43.1.2");
}

#[test]
fn two_managers_connect_over_ipv6() {
    let (client, server) = (Side::new(&[&["::1"]]), Side::new(&[&["::1"]]));
    meet(&client, &server, "[::1]:7174", "::1");
    meet(&client, &server, "[::]:7175", "::1");
}

#[test]
fn a_manager_connects_to_itself() {
    let side = Side::new(&[&["127.43.1.3"]]);
    let listener = side.listen(PortSpace::Tcp, "127.43.1.3:0");
    let service = SocketAddr::new(to("127.43.1.3:0").ip(), side.port(listener));
    let active = side.connect(PortSpace::Tcp, service, &param(Qpn::new(1 << 14), b"me"));
    let passive = side.queue.expect(EventKind::ConnectRequest).id;
    side.manager.accept(passive, Some(&param(Qpn::new(2 << 14), b""))).unwrap();
    assert_eq!(side.queue.expect(EventKind::ConnectResponse).id, active);
    side.manager.accept(active, None).unwrap();
    assert_eq!(side.queue.expect(EventKind::Established).id, passive);
}

#[test]
fn a_service_that_is_not_there_refuses_at_once() {
    let (client, server) = (Side::new(&[&["127.43.1.4"]]), Side::new(&[&["127.43.1.5"]]));
    // The device is open: something else is listened to.
    let listener = server.listen(PortSpace::Tcp, "127.43.1.5:1");
    client.connect(PortSpace::Tcp, to("127.43.1.5:2"), &param(Qpn::new(9), b""));
    assert_eq!(client.queue.expect(EventKind::Rejected).status, 8);
    server.manager.destroy(listener).unwrap();
    client.connect(PortSpace::Tcp, to("127.43.1.5:1"), &param(Qpn::new(9), b""));
    assert_eq!(client.queue.expect(EventKind::Rejected).status, 8, "no longer");
}

#[test]
fn a_program_refuses_with_its_own_words() {
    let (client, server) = (Side::new(&[&["127.43.1.6"]]), Side::new(&[&["127.43.1.7"]]));
    server.listen(PortSpace::Tcp, "127.43.1.7:3");
    client.connect(PortSpace::Tcp, to("127.43.1.7:3"), &param(Qpn::new(9), b""));
    let passive = server.queue.expect(EventKind::ConnectRequest).id;
    assert_eq!(errno(server.manager.reject(passive, RejectReason::StaleConnection, b"")), 22);
    server.manager.reject(passive, RejectReason::ConsumerReject, b"too late").unwrap();
    let event = client.queue.expect(EventKind::Rejected);
    assert_eq!((event.status, &conn(event.param).private_data[..8]), (28, &b"too late"[..]));
}

#[test]
fn a_full_backlog_lets_the_peer_ask_again() {
    let (client, server) = (Side::new(&[&["127.43.1.8"]]), Side::new(&[&["127.43.1.9"]]));
    *server.queue.backlog.lock().unwrap() = Some(1);
    server.listen(PortSpace::Tcp, "127.43.1.9:3");
    let ask = |qpn| client.connect(PortSpace::Tcp, to("127.43.1.9:3"), &param(Qpn::new(qpn), b""));
    let (first, second) = (ask(8), ask(9));
    server.queue.wait_for_refusal();
    let one = server.queue.expect(EventKind::ConnectRequest);
    server.manager.reject(one.id, RejectReason::ConsumerReject, b"").unwrap();
    assert_eq!(client.queue.expect(EventKind::Rejected).id, first);
    let other = server.queue.expect(EventKind::ConnectRequest);
    server.manager.reject(other.id, RejectReason::ConsumerReject, b"").unwrap();
    assert_eq!(client.queue.expect(EventKind::Rejected).id, second);
}

#[test]
fn datagram_services_are_asked_for() {
    let (client, server) = (Side::new(&[&["127.43.1.10"]]), Side::new(&[&["127.43.1.11"]]));
    server.listen(PortSpace::Udp, "127.43.1.11:5");
    let id = client.connect(PortSpace::Udp, to("127.43.1.11:5"), &param(Qpn::new(9), b"where"));
    let request = server.queue.expect(EventKind::ConnectRequest);
    let Param::Ud(asked) = request.param else { panic!("of a connection") };
    assert_eq!((asked.private_data.len(), &asked.private_data[..5]), (180, &b"where"[..]));
    server.manager.accept(request.id, Some(&param(Qpn::new(0x77), b"here"))).unwrap();
    let event = client.queue.expect(EventKind::Established);
    let Param::Ud(service) = event.param else { panic!("of a connection") };
    assert_eq!((event.id, service.qpn, service.qkey), (id, Qpn::new(0x77), QKey::new(0x0123_4567)));
    assert_eq!((service.private_data.len(), &service.private_data[..4]), (136, &b"here"[..]));
    assert_eq!(service.ah.grh.dgid.ip(), to("127.43.1.11:5").ip());
    client.connect(PortSpace::Udp, to("127.43.1.11:6"), &param(Qpn::new(9), b""));
    assert_eq!(client.queue.expect(EventKind::Unreachable).status, 1, "no such service");
}

#[test]
fn ports_are_had_once() {
    let side = Side::new(&[&["127.43.1.12"], &["127.43.1.13"]]);
    let bind = |address: &str| {
        let id = side.create(PortSpace::Tcp);
        (id, side.manager.bind(id, to(address).into()))
    };
    let (first, bound) = bind("127.43.1.12:99");
    bound.unwrap();
    assert_eq!(errno(bind("127.43.1.12:99").1), 98);
    bind("127.43.1.13:99").1.unwrap();
    assert_eq!(errno(bind("0.0.0.0:99").1), 99, "as the kernel: not available");
    assert_eq!(errno(bind("192.0.2.1:99").1), 19, "no device");
    side.manager.destroy(first).unwrap();
    bind("127.43.1.12:99").1.unwrap();
    let (any, bound) = bind("0.0.0.0:0");
    bound.unwrap();
    assert!((32_768..=60_999).contains(&side.port(any)), "{}", side.port(any));
}

#[test]
fn a_manager_that_ends_disconnects() {
    let (client, server) = (Side::new(&[&["127.43.1.14"]]), Side::new(&[&["127.43.1.15"]]));
    server.listen(PortSpace::Tcp, "127.43.1.15:3");
    let active = client.connect(PortSpace::Tcp, to("127.43.1.15:3"), &param(Qpn::new(9), b""));
    let passive = server.queue.expect(EventKind::ConnectRequest).id;
    server.manager.accept(passive, Some(&param(Qpn::new(8), b""))).unwrap();
    client.queue.expect(EventKind::ConnectResponse);
    client.manager.accept(active, None).unwrap();
    server.queue.expect(EventKind::Established);
    drop(client);
    assert_eq!(server.queue.expect(EventKind::Disconnected).id, passive);
}

/// Ten thousand connections, two hundred of them at a time. `USERDMA_TEST_LONG` for all of them; else some hundreds.
#[test]
fn many_connections_come_and_go() {
    let total = if std::env::var_os("USERDMA_TEST_LONG").is_some() { 10_000 } else { 400 };
    let (client, server) = (Side::new(&[&["127.43.1.16"]]), Side::new(&[&["127.43.1.17"]]));
    server.listen(PortSpace::Tcp, "127.43.1.17:3");
    let mut alive = std::collections::VecDeque::new();
    for number in 0..total {
        let qpn = Qpn::new(1 << 14 | number & 0x3fff);
        let active = client.connect(PortSpace::Tcp, to("127.43.1.17:3"), &param(qpn, b""));
        let passive = loop {
            let event = server.queue.poll(LONG).unwrap();
            if event.kind == EventKind::ConnectRequest {
                break event.id;
            }
        };
        server.manager.accept(passive, Some(&param(qpn, b""))).unwrap();
        while client.queue.poll(LONG).unwrap().kind != EventKind::ConnectResponse {}
        client.manager.accept(active, None).unwrap();
        while server.queue.poll(LONG).unwrap().kind != EventKind::Established {}
        alive.push_back((active, passive));
        if alive.len() > 200 {
            let (active, passive) = alive.pop_front().unwrap();
            client.manager.destroy(active).unwrap();
            server.manager.destroy(passive).unwrap();
        }
    }
    for (active, passive) in alive {
        server.manager.destroy(passive).unwrap();
        client.manager.destroy(active).unwrap();
    }
}

/// The other process listens, or connects, and then ends in the way that it is told.
#[test]
fn another_process_connects_and_goes() {
    const TEST: &str = "another_process_connects_and_goes";
    if let Some(role) = role() {
        return be_the_other(&role);
    }
    let server = Side::new(&[&["127.43.1.18"]]);
    server.listen(PortSpace::Tcp, "127.43.1.18:3");
    for role in ["destroy", "exit", "kill"] {
        let mut other = Other::start(TEST, role);
        let passive = server.queue.expect(EventKind::ConnectRequest).id;
        server.manager.accept(passive, Some(&param(Qpn::new(8), b""))).unwrap();
        server.queue.expect(EventKind::Established);
        assert_eq!(other.line(), "connected");
        if role == "kill" {
            other.child.kill().unwrap();
        } else {
            other.child.stdin.take();
        }
        let event = server.queue.expect(EventKind::Disconnected);
        assert_eq!(event.id, passive, "after {role}");
        server.manager.destroy(passive).unwrap();
        while server.queue.poll(Duration::ZERO).is_some() {}
    }
}

fn be_the_other(role: &str) {
    let client = Side::new(&[&["127.43.1.19"]]);
    let active = client.connect(PortSpace::Tcp, to("127.43.1.18:3"), &param(Qpn::new(9), b""));
    client.queue.expect(EventKind::ConnectResponse);
    client.manager.accept(active, None).unwrap();
    say("connected");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if role == "exit" {
        std::process::exit(0);
    }
    client.manager.destroy(active).unwrap();
}

/// All at once: nothing is lost on the way, so nothing needs to be asked again.
#[test]
fn a_thousand_connections_at_once() {
    const COUNT: u32 = 1000;
    let (client, server) = (Side::new(&[&["127.71.4.1"]]), Side::new(&[&["127.71.4.2"]]));
    let listener = server.listen(PortSpace::Tcp, "127.71.4.2:3");
    let ids: Vec<_> = (0..COUNT).map(|_| client.resolve(PortSpace::Tcp, to("127.71.4.2:3"))).collect();
    let accepting = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut established = 0;
            while established < COUNT {
                let event = server.queue.poll(LONG).unwrap();
                if event.kind == EventKind::ConnectRequest {
                    let qpn = Qpn::new(event.id.get());
                    server.manager.accept(event.id, Some(&param(qpn, b""))).unwrap();
                } else {
                    assert_eq!(event.kind, EventKind::Established);
                    established += 1;
                }
            }
        });
        for (qpn, id) in (1..).zip(&ids) {
            client.manager.connect(*id, &param(Qpn::new(qpn), b"")).unwrap();
        }
        for _ in 0..COUNT {
            let response = client.queue.expect(EventKind::ConnectResponse);
            client.manager.accept(response.id, None).unwrap();
        }
        accepting.join()
    });
    accepting.unwrap();
    let lost = |side: &Side, id| side.manager.host(id).unwrap().stats().unwrap().drop_management;
    assert_eq!((lost(&client, ids[0]), lost(&server, listener)), (0, 0));
}

/// Somebody else's call does not wait for a device that takes its time.
#[test]
fn the_lock_is_free_while_a_device_is_opened() {
    let hosts = Hosts::new(&[&["127.71.4.3"], &["127.71.4.4"]]);
    let side = Side::on(&hosts);
    let first = side.create(PortSpace::Tcp);
    let (manager, asked) = (side.manager.clone(), std::sync::Arc::new(std::sync::Mutex::new(None)));
    let tell = std::sync::Arc::clone(&asked);
    *hosts.on_open.lock().unwrap() = Some(Box::new(move || {
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(manager.query(first).is_ok()));
        *tell.lock().unwrap() = said.recv_timeout(LONG).ok();
    }));
    let second = side.create(PortSpace::Tcp);
    side.manager.bind(second, to("127.71.4.3:7").into()).unwrap();
    assert_eq!(*asked.lock().unwrap(), Some(true), "another call has returned meanwhile");
    side.manager.bind(first, to("0.0.0.0:7").into()).unwrap_err();
    side.manager.bind(first, to("127.71.4.4:7").into()).unwrap();
}

/// What an identifier gets that is destroyed meanwhile goes back.
#[test]
fn an_identifier_may_go_while_its_device_is_opened() {
    let hosts = Hosts::new(&[&["127.71.4.5"]]);
    let side = Side::on(&hosts);
    let id = side.create(PortSpace::Tcp);
    let manager = side.manager.clone();
    *hosts.on_open.lock().unwrap() = Some(Box::new(move || manager.destroy(id).unwrap()));
    assert_eq!(errno(side.manager.bind(id, to("127.71.4.5:7").into())), 2);
    side.listen(PortSpace::Tcp, "127.71.4.5:7");
}

/// Whoever is woken may do anything: the executor that runs its task at once, say.
#[test]
fn who_is_woken_may_call_the_manager() {
    let side = Side::new(&[&["127.71.4.6"]]);
    let id = side.create(PortSpace::Tcp);
    let (manager, (say, said)) = (side.manager.clone(), std::sync::mpsc::channel());
    *side.queue.on_wake.lock().unwrap() = Some(Box::new(move || {
        let _ = say.send(manager.query(id).is_ok());
    }));
    let resolving = side.manager.clone();
    std::thread::spawn(move || resolving.resolve_addr(id, None, to("127.71.4.6:7").into()));
    assert!(said.recv_timeout(LONG).unwrap());
    *side.queue.on_wake.lock().unwrap() = None;
}

#[test]
fn attributes_need_a_connection() {
    let side = Side::new(&[&["127.43.1.20"]]);
    let id = side.create(PortSpace::Tcp);
    assert_eq!(errno(side.manager.init_qp_attr(id, QpState::Init)), 22, "no device");
    side.manager.bind(id, to("127.43.1.20:0").into()).unwrap();
    side.manager.init_qp_attr(id, QpState::Init).unwrap();
    side.manager.destroy(id).unwrap();
    assert_eq!(errno(side.manager.query(id)), 2);
}

#[test]
fn a_forked_child_has_no_connections() {
    let side = Side::new(&[&["127.43.1.21"]]);
    let listener = side.listen(PortSpace::Tcp, "127.43.1.21:3");
    // SAFETY: the child makes calls that fail at once, and ends; the parent waits for it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = side.manager.query(listener).is_err() && side.manager.destroy(listener).is_err();
        // SAFETY: ends the child without running what the parent has to run at its end.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    side.manager.query(listener).unwrap();
}

#[test]
fn a_device_that_fails_is_told_to_who_only_waits() {
    let side = Side::new(&[&["127.72.10.1"]]);
    let ids = [side.listen(PortSpace::Tcp, "127.72.10.1:7000"), side.listen(PortSpace::Tcp, "0.0.0.0:7001")];
    let host = side.manager.host(ids[0]).unwrap();
    // An error of ours stops the device.
    let failing = catch_unwind(AssertUnwindSafe(|| host.control(|_, _| panic!("for this test"))));
    assert!(failing.is_err() && host.check().is_err());
    let told = ids.map(|_| side.queue.expect(EventKind::DeviceRemoval).id);
    assert_eq!(told, ids);
}
