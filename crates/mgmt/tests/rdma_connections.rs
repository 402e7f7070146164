//! Connections by IP address, from the first call to the last event.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code)]
mod world;

use std::time::Duration;

use userdma_mgmt::cm::PortId;
use userdma_mgmt::rdma::{CmError, EventKind, Param, PortSpace};
use userdma_verbs::{AccessFlags, AckTimeout, Gid, Mtu, QpAttrMask as M, QpState, Qpn};
use userdma_wire::mad::cm::RejectReason;
use world::{Process, World, param};

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";
const SERVER: &str = "10.0.0.2:7174";

fn conn(param: Param) -> userdma_mgmt::rdma::ConnParam {
    match param {
        Param::Conn(conn) => conn,
        Param::Ud(_) => panic!("of datagrams"),
    }
}

#[test]
fn a_connection_is_asked_for_accepted_completed_and_ended() {
    let mut world = World::new(&[&[A], &[B]]);
    let listener = world.listen(1, PortSpace::Tcp, SERVER);
    let active = world.connect(0, PortSpace::Tcp, SERVER);

    let request = world.expect(1, EventKind::ConnectRequest);
    let passive = request.id;
    assert_eq!((request.listener, request.status), (Some(listener), 0));
    let asked = conn(request.param);
    assert_eq!(asked.qpn, Qpn::new(0x11));
    assert_eq!((asked.responder_resources, asked.initiator_depth), (2, 4), "seen from the other side");
    assert_eq!((asked.retry_count, asked.rnr_retry_count), (6, 5));
    assert_eq!((asked.private_data.len(), &asked.private_data[..6]), (56, &b"hello\0"[..]));

    let now = world.now;
    world.processes[1].ids.accept(now, passive, Some(&param(0x22, b"welcome"))).unwrap();
    let response = world.expect(0, EventKind::ConnectResponse);
    assert_eq!(response.id, active);
    let accepted = conn(response.param);
    assert_eq!(accepted.qpn, Qpn::new(0x22));
    assert_eq!((accepted.private_data.len(), &accepted.private_data[..8]), (196, &b"welcome\0"[..]));

    let now = world.now;
    world.processes[0].ids.accept(now, active, None).unwrap();
    assert_eq!(world.expect(1, EventKind::Established).id, passive);

    let now = world.now;
    world.processes[0].ids.disconnect(now, active).unwrap();
    assert_eq!(world.expect(1, EventKind::Disconnected).id, passive);
    let now = world.now;
    world.processes[1].ids.disconnect(now, passive).unwrap();
    let ended = world.expect(0, EventKind::Disconnected);
    assert_eq!((ended.id, ended.status), (active, 0));
    assert_eq!(world.expect(0, EventKind::TimewaitExit).id, active);
    assert_eq!(world.expect(1, EventKind::TimewaitExit).id, passive);
    world.destroy(0, active);
    world.destroy(1, passive);
    world.destroy(1, listener);
    world.run(Duration::from_secs(100));
    for process in &mut world.processes {
        assert_eq!(process.events, [], "nothing else happened");
        assert_eq!(process.wills.len(), 0);
        assert_eq!(process.machine.books.borrow().ports.len(), 0);
        assert_eq!(process.machine.books.borrow().listens.len(), 0);
        assert_eq!(process.ids.idle_ports().len(), 1);
    }
}

#[test]
fn both_sides_learn_attributes_that_fit_together() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let (active, passive) = world.pair(SERVER);
    let mut attr = |at: usize, id, state| world.processes[at].ids.init_qp_attr(id, state).unwrap();
    let (init, mask) = attr(0, active, QpState::Init);
    assert_eq!(mask, M::STATE | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT);
    let remote = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    assert_eq!((init.qp_state, init.qp_access_flags, init.port_num), (QpState::Init, remote, 1));

    let ((a_rtr, a_mask), (a_rts, _)) = (attr(0, active, QpState::Rtr), attr(0, active, QpState::Rts));
    let ((b_rtr, b_mask), (b_rts, b_rts_mask)) =
        (attr(1, passive, QpState::Rtr), attr(1, passive, QpState::Rts));
    let reliable = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    assert_eq!(a_mask, M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | reliable);
    assert_eq!(b_mask, a_mask);
    let reliable = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    assert_eq!(b_rts_mask, M::STATE | M::SQ_PSN | reliable);
    assert_eq!((a_rtr.rq_psn, b_rtr.rq_psn), (b_rts.sq_psn, a_rts.sq_psn));
    assert_ne!(a_rtr.rq_psn, b_rtr.rq_psn, "drawn by chance");
    assert_eq!((a_rtr.dest_qp_num, b_rtr.dest_qp_num), (Qpn::new(0x22), Qpn::new(0x11)));
    assert_eq!((a_rtr.path_mtu, b_rtr.path_mtu), (Mtu::Mtu1024, Mtu::Mtu1024));
    assert_eq!((a_rtr.max_dest_rd_atomic, a_rts.max_rd_atomic), (2, 4));
    assert_eq!((b_rtr.max_dest_rd_atomic, b_rts.max_rd_atomic), (4, 2));
    assert_eq!((a_rts.retry_cnt, a_rts.rnr_retry, b_rts.retry_cnt, b_rts.rnr_retry), (6, 5, 6, 5));
    assert_eq!((a_rts.timeout, b_rts.timeout), (AckTimeout::new(17).unwrap(), AckTimeout::new(17).unwrap()));
    let gid = |ip: &str| Gid::from(ip.parse::<std::net::IpAddr>().unwrap());
    assert_eq!((a_rtr.ah_attr.grh.dgid, b_rtr.ah_attr.grh.dgid), (gid(B), gid(A)));
    assert_eq!(a_rtr.ah_attr.grh.hop_limit, 64);
    assert_eq!(a_rtr.ah_attr.grh.flow_label, b_rtr.ah_attr.grh.flow_label);
    assert_eq!(a_rtr.ah_attr.grh.flow_label, (40_000 * 31 + 7174) & 0xf_ffff);

    let now = world.now;
    world.processes[0].ids.disconnect(now, active).unwrap();
    let over = world.processes[0].ids.init_qp_attr(active, QpState::Rts);
    assert!(matches!(over, Err(CmError::State { .. })), "{over:?}");
}

#[test]
fn nobody_listens() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, "10.0.0.2:1");
    let id = world.connect(0, PortSpace::Tcp, SERVER);
    let event = world.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (id, 8));
}

#[test]
fn a_request_is_refused_with_data() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let active = world.connect(0, PortSpace::Tcp, SERVER);
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    let now = world.now;
    let ids = &mut world.processes[1].ids;
    let wrong = ids.reject(now, passive, RejectReason::StaleConnection, &[]);
    assert_eq!(wrong.unwrap_err().errno(), 22);
    ids.reject(now, passive, RejectReason::ConsumerReject, b"no").unwrap();
    let event = world.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (active, 28));
    let said = conn(event.param).private_data;
    assert_eq!((said.len(), &said[..3]), (148, &b"no\0"[..]));
    world.destroy(1, passive);
    world.destroy(0, active);
    world.run(Duration::from_secs(100));
    assert_eq!(world.processes[1].ids.idle_ports().len(), 0, "the listener is there");
    assert_eq!(world.processes[0].ids.idle_ports().len(), 1);
}

#[test]
fn a_peer_that_is_not_there_is_unreachable_after_sixteen_requests() {
    let mut world = World::new(&[&[A]]);
    let begun = world.now;
    let id = world.connect(0, PortSpace::Tcp, SERVER);
    let event = world.expect(0, EventKind::Unreachable);
    assert_eq!((event.id, event.status), (id, -110));
    assert_eq!(world.sent, 17, "and a REJ, for a peer that cannot be heard");
    let took = world.now.since(begun).as_secs();
    assert!((60..90).contains(&took), "{took} s");
}

#[test]
fn connections_are_made_and_ended_though_a_third_of_the_datagrams_is_lost() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    world.loss = 0.3;
    for _ in 0..200 {
        let (active, passive) = world.pair(SERVER);
        let now = world.now;
        world.processes[0].ids.disconnect(now, active).unwrap();
        assert_eq!(world.expect(1, EventKind::Disconnected).id, passive);
        let now = world.now;
        world.processes[1].ids.disconnect(now, passive).unwrap();
        assert_eq!(world.expect(0, EventKind::Disconnected).id, active);
        world.destroy(0, active);
        world.destroy(1, passive);
        // Late repeats are nobody's.
        world.run(Duration::from_secs(200));
        for process in &mut world.processes {
            process.events.retain(|event| event.kind != EventKind::TimewaitExit);
            assert_eq!(process.events, []);
        }
    }
    assert_eq!(world.processes[0].ids.idle_ports().len(), 1, "nothing is left");
    assert_eq!(world.processes[0].wills.len() + world.processes[1].wills.len(), 0);
}

#[test]
fn a_connection_that_is_destroyed_is_disconnected() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let (active, passive) = world.pair(SERVER);
    assert_eq!((world.processes[0].wills.len(), world.processes[1].wills.len()), (1, 1));
    world.destroy(0, active);
    assert_eq!(world.expect(1, EventKind::Disconnected).id, passive);
    assert_eq!((world.processes[0].wills.len(), world.processes[1].wills.len()), (0, 1), "not answered yet");
    world.destroy(1, passive);
    world.run(Duration::ZERO);
    assert_eq!(world.processes[1].wills.len(), 0);
    world.run(Duration::from_secs(100));
    assert_eq!(world.processes[0].ids.idle_ports().len(), 1, "nothing is left");
}

#[test]
fn a_request_that_is_destroyed_is_refused() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let active = world.connect(0, PortSpace::Tcp, SERVER);
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    world.destroy(1, passive);
    let event = world.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (active, 28));
}

#[test]
fn a_request_that_nobody_has_room_for_comes_again() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let active = world.connect(0, PortSpace::Tcp, SERVER);
    let first = world.expect(1, EventKind::ConnectRequest).id;
    world.processes[1].ids.refuse(first);
    let sent = world.sent;
    let second = world.expect(1, EventKind::ConnectRequest).id;
    assert_ne!(first, second);
    assert_eq!(world.sent, sent + 1, "the request, and no answer to the first");
    let now = world.now;
    world.processes[1].ids.accept(now, second, Some(&param(0x22, &[]))).unwrap();
    assert_eq!(world.expect(0, EventKind::ConnectResponse).id, active);
}

#[test]
fn what_the_queue_pair_hears_establishes_the_connection() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let active = world.connect(0, PortSpace::Tcp, SERVER);
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    let now = world.now;
    let early = world.processes[1].ids.notify_established(now, passive);
    assert_eq!(early.unwrap_err().errno(), 22, "nothing is accepted yet");
    world.processes[1].ids.accept(now, passive, Some(&param(0x22, &[]))).unwrap();
    world.expect(0, EventKind::ConnectResponse);
    let now = world.now;
    world.processes[1].ids.notify_established(now, passive).unwrap();
    assert_eq!(world.expect(1, EventKind::Established).id, passive);
    world.processes[0].ids.accept(now, active, None).unwrap();
    world.run(Duration::from_secs(100));
    assert_eq!(world.processes[1].events, [], "once");
}

#[test]
fn a_device_that_goes_takes_its_identifiers_with_it() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, SERVER);
    let (active, passive) = world.pair(SERVER);
    world.processes[0].ids.remove_port(PortId(0));
    let event = world.expect(0, EventKind::DeviceRemoval);
    assert_eq!((event.id, event.status), (active, 0));
    let refused = world.processes[0].ids.disconnect(world.now, active);
    assert_eq!(refused.unwrap_err().errno(), 22);
    let now = world.now;
    world.processes[1].ids.disconnect(now, passive).unwrap();
    assert_eq!(world.expect(1, EventKind::Disconnected).status, -110, "nobody answers");
}

#[test]
fn a_wildcard_hears_that_its_last_device_has_gone_and_listens_on_new_ones() {
    let mut world = World::new(&[&[A], &[B]]);
    let devices = &mut world.processes[1].machine.devices;
    devices.push((PortId(1), vec!["10.0.1.2".parse().unwrap()]));
    let listener = world.listen(1, PortSpace::Tcp, "0.0.0.0:7");
    let Process { ids, machine, .. } = &mut world.processes[1];
    // The first look finds what it has already.
    world::listen_on_new_devices(ids, machine);
    assert_eq!(machine.books.borrow().listens.len(), 2);
    ids.remove_port(PortId(0));
    world.run(Duration::from_secs(1));
    assert_eq!(world.processes[1].events, []);
    world.processes[1].ids.remove_port(PortId(1));
    assert_eq!(world.expect(1, EventKind::DeviceRemoval).id, listener);

    let Process { ids, machine, .. } = &mut world.processes[1];
    machine.devices.push((PortId(2), vec!["10.0.2.2".parse().unwrap()]));
    machine.devices.push((PortId(3), vec!["10.0.3.2".parse().unwrap()]));
    machine.broken.push(PortId(3));
    for _ in 0..2 {
        world::listen_on_new_devices(ids, machine);
        assert_eq!(machine.books.borrow().listens.last().map(|listen| listen.1), Some(PortId(2)));
        assert_eq!(machine.books.borrow().listens.len(), 3, "once on each");
    }
    assert!(ids.listens_on_all());
    world.connect(0, PortSpace::Tcp, "10.0.2.2:7");
    assert_eq!(world.expect(1, EventKind::ConnectRequest).listener, Some(listener));
    world.destroy(1, listener);
    assert!(!world.processes[1].ids.listens_on_all());
    let books = world.processes[1].machine.books.borrow();
    assert!(books.listens.iter().all(|listen| listen.1 != PortId(2)));
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let mut world = World::new(&[&[A], &[B]]);
    let listener = world.listen(1, PortSpace::Tcp, SERVER);
    let mut alive = std::collections::VecDeque::new();
    for qpn in 0..10_000 {
        let active = world.resolve(0, PortSpace::Tcp, SERVER);
        let now = world.now;
        world.processes[0].ids.connect(now, active, &param(qpn, &[])).unwrap();
        let passive = world.wait_for(1, EventKind::ConnectRequest).id;
        let now = world.now;
        world.processes[1].ids.accept(now, passive, Some(&param(qpn, &[]))).unwrap();
        world.wait_for(0, EventKind::ConnectResponse);
        let now = world.now;
        world.processes[0].ids.accept(now, active, None).unwrap();
        world.wait_for(1, EventKind::Established);
        alive.push_back((active, passive));
        if alive.len() > 200 {
            let (active, passive) = alive.pop_front().unwrap();
            world.destroy(0, active);
            world.wait_for(1, EventKind::Disconnected);
            world.destroy(1, passive);
        }
    }
    for (active, passive) in alive {
        world.destroy(0, active);
        world.destroy(1, passive);
    }
    world.destroy(1, listener);
    world.run(Duration::from_secs(200));
    for process in &world.processes {
        assert_eq!(process.ids.iter().count(), 0);
        assert_eq!(process.ids.idle_ports().len(), 1, "no connection is left");
        assert_eq!(process.machine.books.borrow().ports.len(), 0);
        assert_eq!(process.wills.len(), 0);
    }
}
