//! What may be called when, who is meant by a request, and datagram services.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code)]
mod world;

use std::net::SocketAddr;
use std::time::Duration;

use userdma_mgmt::cm::PortId;
use userdma_mgmt::rdma::{
    Address, CmError, CmId, CmOption, ConnParam, EventKind, IbAddress, Param, PortSpace,
};
use userdma_verbs::{Gid, QKey, QpAttrMask as M, QpState, QpType, Qpn};
use userdma_wire::mad::cm::RejectReason;
use world::{Process, World, listen, param};

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

fn address(text: &str) -> Address {
    text.parse::<SocketAddr>().unwrap().into()
}

/// Every call that needs a state, on an identifier; the numbers of those that are refused.
fn refused(process: &mut Process, now: userdma_verbs::Time, id: CmId) -> Vec<&'static str> {
    let Process { ids, machine, .. } = process;
    let nothing = ConnParam::default();
    let calls: Vec<(&'static str, Result<(), CmError>)> = vec![
        ("route", ids.resolve_route(id)),
        ("connect", ids.connect(now, id, &nothing)),
        ("accept", ids.accept(now, id, Some(&nothing))),
        ("complete", ids.accept(now, id, None)),
        ("reject", ids.reject(now, id, RejectReason::ConsumerReject, &[])),
        ("disconnect", ids.disconnect(now, id)),
        ("notify", ids.notify_established(now, id)),
        ("bind", ids.bind(machine, id, address("10.0.0.1:5"))),
    ];
    for (name, result) in &calls {
        assert!(result.is_ok() || result.unwrap_err().errno() == 22, "{name}: {result:?}");
    }
    calls.into_iter().filter(|(_, result)| result.is_err()).map(|(name, _)| name).collect()
}

#[test]
fn calls_need_their_states() {
    let mut world = World::new(&[&[A], &[B]]);
    let now = world.now;
    let process = &mut world.processes[0];
    let id = process.ids.create(PortSpace::Tcp, QpType::Rc);
    let all_but_bind = ["route", "connect", "accept", "complete", "reject", "disconnect", "notify"];
    assert_eq!(refused(process, now, id), all_but_bind);
    let all = [&all_but_bind[..], &["bind"][..]].concat();
    assert_eq!(refused(process, now, id), all, "bound now");

    let Process { ids, machine, .. } = process;
    listen(ids, machine, id).unwrap();
    assert_eq!(refused(process, now, id), all, "listening");
    let Process { ids, machine, .. } = process;
    assert_eq!(listen(ids, machine, id).unwrap_err().errno(), 22);
    let resolved = ids.resolve_addr(machine, id, None, address("10.0.0.2:1"));
    assert_eq!(resolved.unwrap_err().errno(), 22);
    let late = ids.set_option(id, CmOption::ReuseAddr(true));
    assert_eq!(late.unwrap_err().errno(), 22);
    ids.destroy(machine, now, id).unwrap();
    assert_eq!(ids.query(id).unwrap_err().errno(), 2);
}

#[test]
fn too_much_private_data_is_refused() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, "10.0.0.2:7");
    let id = world.resolve(0, PortSpace::Tcp, "10.0.0.2:7");
    let now = world.now;
    let ids = &mut world.processes[0].ids;
    let refused = ids.connect(now, id, &param(1, &[1; 57])).unwrap_err();
    assert_eq!(refused, CmError::PrivateData { len: 57, max: 56 });
    assert_eq!(refused.errno(), 22);
    ids.connect(now, id, &param(1, &[1; 56])).unwrap();
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    let now = world.now;
    let ids = &mut world.processes[1].ids;
    assert_eq!(ids.accept(now, passive, Some(&param(2, &[1; 197]))).unwrap_err().errno(), 22);
    assert_eq!(world.expect(0, EventKind::Rejected).status, 28, "as the kernel, which refuses the peer then");
}

#[test]
fn no_device_and_no_way() {
    let mut world = World::new(&[&[A]]);
    let Process { ids, machine, .. } = &mut world.processes[0];
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    assert_eq!(ids.bind(machine, id, address("10.9.9.9:1")).unwrap_err().errno(), 19);
    machine.source = Some("192.0.2.1".parse().unwrap());
    ids.resolve_addr(machine, id, None, address("192.0.2.7:1")).unwrap();
    assert_eq!(world.expect(0, EventKind::AddrError).status, -19);
    let Process { ids, machine, .. } = &mut world.processes[0];
    machine.source = None;
    let unreachable = ids.resolve_addr(machine, id, None, address("192.0.2.7:1"));
    assert_eq!(unreachable.unwrap_err().errno(), 101);
    machine.source = Some(A.parse().unwrap());
    let other_family = ids.resolve_addr(machine, id, None, address("[2001:db8::1]:1"));
    assert_eq!(other_family.unwrap_err().errno(), 22, "it is bound to IPv4's wildcard");
    machine.broken.push(PortId(0));
    ids.resolve_addr(machine, id, None, address("192.0.2.7:1")).unwrap();
    assert_eq!(world.expect(0, EventKind::AddrError).status, -98, "the device cannot be opened");
}

#[test]
fn a_wildcard_of_ipv6_takes_ipv4_too_unless_it_says_otherwise() {
    const BOTH: &[&str] = &[B, "2001:db8::2"];
    let mut world = World::new(&[&[A, "2001:db8::1"], BOTH]);
    let listener = world.listen(1, PortSpace::Tcp, "[::]:7");
    for (to, peer) in [("10.0.0.2:7", "10.0.0.1:40000"), ("[2001:db8::2]:7", "[2001:db8::1]:40000")] {
        world.processes[0].machine.source = address(peer).ip().map(|ip| ip.ip());
        let active = world.connect(0, PortSpace::Tcp, to);
        let passive = world.expect(1, EventKind::ConnectRequest).id;
        let query = world.processes[1].ids.query(passive).unwrap();
        assert_eq!((query.src, query.dst), (Some(address(to)), Some(address(peer))));
        assert_eq!((query.src_service_id, query.device), (0x0106_0007, Some(0)));
        assert_eq!(query.path.unwrap().dgid, Gid::from(address(peer).ip().unwrap().ip()));
        world.destroy(1, passive);
        assert_eq!(world.expect(0, EventKind::Rejected).id, active);
        world.destroy(0, active);
    }
    world.destroy(1, listener);

    let Process { ids, machine, .. } = &mut world.processes[1];
    let only = ids.create(PortSpace::Tcp, QpType::Rc);
    ids.set_option(only, CmOption::AfOnly(true)).unwrap();
    ids.bind(machine, only, address("[::]:8")).unwrap();
    listen(ids, machine, only).unwrap();
    world.processes[0].machine.source = Some(A.parse().unwrap());
    world.connect(0, PortSpace::Tcp, "10.0.0.2:8");
    assert_eq!(world.expect(0, EventKind::Rejected).status, 28, "as the kernel");
    world.processes[0].machine.source = Some("2001:db8::1".parse().unwrap());
    world.connect(0, PortSpace::Tcp, "[2001:db8::2]:8");
    world.expect(1, EventKind::ConnectRequest);
}

#[test]
fn a_wildcard_covers_every_device_that_can_be_opened() {
    let mut world = World::new(&[&[A], &[B]]);
    let machine = &mut world.processes[1].machine;
    machine.devices.push((PortId(1), vec!["10.0.1.2".parse().unwrap()]));
    machine.devices.push((PortId(2), vec!["10.0.2.2".parse().unwrap()]));
    machine.broken.push(PortId(2));
    let listener = world.listen(1, PortSpace::Tcp, "0.0.0.0:7");
    let books = &world.processes[1].machine.books;
    assert_eq!(books.borrow().ports.len(), 2);
    assert_eq!(books.borrow().listens.len(), 2);
    world.connect(0, PortSpace::Tcp, "10.0.1.2:7");
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    assert_eq!(world.processes[1].ids.query(passive).unwrap().device, Some(1));
    assert_eq!(world.processes[1].ids.query(listener).unwrap().device, None);
    world.destroy(1, listener);
    assert_eq!(world.processes[1].machine.books.borrow().ports.len(), 0);
}

#[test]
fn a_port_that_is_taken_elsewhere_is_tried_again_or_refused() {
    let mut world = World::new(&[&[A]]);
    let machine = &mut world.processes[0].machine;
    let other = "10.0.1.1".parse().unwrap();
    machine.devices.push((PortId(1), vec![other]));
    machine.books.borrow_mut().ports.insert(1000, (PortSpace::Tcp, 40_000, other));
    let Process { ids, machine, .. } = &mut world.processes[0];
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    assert_eq!(ids.bind(machine, id, address("0.0.0.0:40000")).unwrap_err().errno(), 98);
    assert_eq!(machine.books.borrow().ports.len(), 1, "what was reserved is given back");
    // The machine of this test always proposes the first that is free on the first device.
    assert_eq!(ids.bind(machine, id, address("0.0.0.0:0")).unwrap_err().errno(), 99);
    assert_eq!(machine.books.borrow().ports.len(), 1);
    ids.bind(machine, id, address("10.0.0.1:40000")).unwrap();
}

#[test]
fn another_service_type_than_the_listeners_is_refused() {
    let mut world = World::new(&[&[A], &[B]]);
    let Process { ids, machine, .. } = &mut world.processes[1];
    let listener = ids.create(PortSpace::Ib, QpType::Uc);
    ids.bind(machine, listener, address("10.0.0.2:7")).unwrap();
    listen(ids, machine, listener).unwrap();
    world.connect(0, PortSpace::Ib, "10.0.0.2:7");
    assert_eq!(world.expect(0, EventKind::Rejected).status, 28);
}

#[test]
fn datagram_services_are_told_refused_or_unknown() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Udp, "10.0.0.2:9");
    let active = world.connect(0, PortSpace::Udp, "10.0.0.2:9");
    let request = world.expect(1, EventKind::ConnectRequest);
    let Param::Ud(asked) = request.param else { panic!("of a connection") };
    assert_eq!((asked.private_data.len(), &asked.private_data[..6]), (180, &b"hello\0"[..]));
    let now = world.now;
    let ids = &mut world.processes[1].ids;
    let (attr, mask) = ids.init_qp_attr(request.id, QpState::Init).unwrap();
    assert_eq!(mask, M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY);
    assert_eq!(attr.qkey, QKey::new(0x0123_4567));
    ids.accept(now, request.id, Some(&param(0x33, b"here"))).unwrap();
    let event = world.expect(0, EventKind::Established);
    let Param::Ud(service) = event.param else { panic!("of a connection") };
    assert_eq!((event.id, event.status), (active, 0));
    assert_eq!((service.qpn, service.qkey), (Qpn::new(0x33), QKey::new(0x0123_4567)));
    assert_eq!((service.private_data.len(), &service.private_data[..5]), (136, &b"here\0"[..]));
    assert_eq!(service.ah.grh.dgid, Gid::from(B.parse::<std::net::IpAddr>().unwrap()));

    world.connect(0, PortSpace::Udp, "10.0.0.2:9");
    let second = world.expect(1, EventKind::ConnectRequest).id;
    let now = world.now;
    world.processes[1].ids.reject(now, second, RejectReason::ConsumerReject, b"no").unwrap();
    assert_eq!(world.expect(0, EventKind::Unreachable).status, 2);
    world.connect(0, PortSpace::Udp, "10.0.0.2:10");
    assert_eq!(world.expect(0, EventKind::Unreachable).status, 1);
    let third = world.connect(0, PortSpace::Udp, "10.0.0.7:10");
    let event = world.expect(0, EventKind::Unreachable);
    assert_eq!((event.id, event.status), (third, -110));
}

#[test]
fn a_gid_can_be_asked_for_and_leads_nowhere() {
    let mut world = World::new(&[&[A]]);
    let Process { ids, machine, .. } = &mut world.processes[0];
    // What librdmacm asks once to find out whether the kernel knows such addresses.
    let probe = ids.create(PortSpace::Ib, QpType::Rc);
    let any =
        IbAddress { service_id: 0x0106_0000, service_mask: 0xffff_ffff_ffff_0000, ..IbAddress::default() };
    ids.bind(machine, probe, Address::Ib(any)).unwrap();
    assert_eq!(machine.opened, [], "and opens nothing");
    assert!(listen(ids, machine, probe).is_err());
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    let gid = IbAddress { gid: Gid::from(A.parse::<std::net::IpAddr>().unwrap()), ..any };
    assert_eq!(ids.bind(machine, id, Address::Ib(gid)).unwrap_err().errno(), 19);
    assert_eq!(ids.resolve_addr(machine, id, None, Address::Ib(gid)).unwrap_err().errno(), 19);
    let strange = IbAddress { service_id: 0x7777_0000, ..any };
    assert_eq!(ids.bind(machine, id, Address::Ib(strange)).unwrap_err().errno(), 93);
}

#[test]
fn options_reach_the_path_and_the_queue_pair() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, "10.0.0.2:7");
    let Process { ids, machine, .. } = &mut world.processes[0];
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    ids.set_option(id, CmOption::Tos(0x68)).unwrap();
    ids.set_option(id, CmOption::AckTimeout(12)).unwrap();
    assert_eq!(ids.set_option(id, CmOption::AckTimeout(32)).unwrap_err().errno(), 22);
    ids.resolve_addr(machine, id, Some(address("10.0.0.1:0")), address("10.0.0.2:7")).unwrap();
    ids.resolve_route(id).unwrap();
    let now = world.now;
    world.processes[0].ids.connect(now, id, &param(1, &[])).unwrap();
    let passive = world.expect(1, EventKind::ConnectRequest).id;
    assert_eq!(world.processes[1].ids.query(passive).unwrap().path.unwrap().traffic_class, 0x68);
    let now = world.now;
    world.processes[1].ids.accept(now, passive, Some(&param(2, &[]))).unwrap();
    world.wait_for(0, EventKind::ConnectResponse);
    let ids = &mut world.processes[0].ids;
    assert_eq!(ids.init_qp_attr(id, QpState::Rtr).unwrap().0.ah_attr.grh.traffic_class, 0x68);
    assert_eq!(ids.init_qp_attr(id, QpState::Rts).unwrap().0.timeout.exponent(), 12);
    world.run(Duration::from_secs(1));
}

#[test]
fn a_device_that_comes_back_is_listened_on_anew() {
    let mut world = World::new(&[&[A], &[B]]);
    let before = world.listen(1, PortSpace::Tcp, "10.0.0.2:7");
    let Process { ids, machine, .. } = &mut world.processes[1];
    ids.remove_port(PortId(0));
    // What the machine had for it has gone with it.
    *machine.books.borrow_mut() = world::Books::default();
    assert_eq!(world.expect(1, EventKind::DeviceRemoval).id, before);
    let listener = world.listen(1, PortSpace::Tcp, "10.0.0.2:7");
    world.destroy(1, before);
    world.connect(0, PortSpace::Tcp, "10.0.0.2:7");
    assert_eq!(world.expect(1, EventKind::ConnectRequest).listener, Some(listener));
}

#[test]
fn who_may_not_listen_is_bound_as_before() {
    let mut world = World::new(&[&[A], &[B]]);
    let Process { ids, machine, .. } = &mut world.processes[1];
    machine.deaf.push(PortId(0));
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    ids.bind(machine, id, address("10.0.0.2:7")).unwrap();
    assert_eq!(listen(ids, machine, id).unwrap_err().errno(), 98);
    world.connect(0, PortSpace::Tcp, "10.0.0.2:7");
    assert_eq!(world.expect(0, EventKind::Rejected).status, 8);
    let Process { ids, machine, .. } = &mut world.processes[1];
    machine.deaf.clear();
    listen(ids, machine, id).unwrap();
    world.connect(0, PortSpace::Tcp, "10.0.0.2:7");
    assert_eq!(world.expect(1, EventKind::ConnectRequest).listener, Some(id));
    world.destroy(1, id);
    assert!(world.processes[1].machine.books.borrow().listens.is_empty());
}

/// Requests are taken before the machine has answered; and who has gone by then ends nothing.
#[test]
fn a_listener_may_go_while_the_machine_is_asked() {
    let mut world = World::new(&[&[A], &[B]]);
    let Process { ids, machine, .. } = &mut world.processes[1];
    let id = ids.create(PortSpace::Tcp, QpType::Rc);
    ids.bind(machine, id, address("10.0.0.2:7")).unwrap();
    let wanted = ids.listen(machine, id).unwrap();
    assert_eq!((wanted.on, wanted.ports), (Some(B.parse().unwrap()), vec![PortId(0)]));
    world.connect(0, PortSpace::Tcp, "10.0.0.2:7");
    world.expect(1, EventKind::ConnectRequest);
    // The machine's books have no such listener: to end it would be a mistake.
    world.destroy(1, id);
    assert!(!world.processes[1].ids.note_listening(id, PortId(0)));
}

#[test]
fn what_the_peer_has_not_confirmed_can_be_passed_on() {
    let mut world = World::new(&[&[A], &[B]]);
    world.listen(1, PortSpace::Tcp, "10.0.0.2:7");
    let (active, passive) = world.pair("10.0.0.2:7");
    assert!(world.processes[0].ids.unanswered().is_empty());
    world.loss = 1.0;
    world.destroy(0, active);
    world.run(Duration::from_millis(1));
    let left = world.processes[0].ids.unanswered();
    let will = left[0].will.as_ref().unwrap();
    assert_eq!((left.len(), will.to), (1, B.parse().unwrap()));
    world.loss = 0.0;
    let (now, port) = (world.now, PortId(0));
    let arrival = userdma_mgmt::cm::Arrival { port, from: will.from, to: will.to, mad: &will.mad };
    world.processes[1].ids.handle_mad(now, arrival);
    assert_eq!(world.expect(1, EventKind::Disconnected).id, passive);
    world.processes[1].ids.disconnect(now, passive).unwrap();
    world.run(Duration::from_millis(10));
    assert!(world.processes[0].ids.unanswered().is_empty());
}

/// An identifier of the first process that is bound.
fn bound(world: &mut World, space: PortSpace, to: &str) -> CmId {
    let Process { ids, machine, .. } = &mut world.processes[0];
    let id = ids.create(space, QpType::Ud);
    ids.bind(machine, id, address(to)).unwrap();
    id
}

#[test]
fn a_group_is_joined_at_once_and_says_where_datagrams_go() {
    let mut world = World::new(&[&[A, "fd00::1"]]);
    let id = bound(&mut world, PortSpace::Udp, "10.0.0.1:0");
    let ids = &mut world.processes[0].ids;
    ids.set_option(id, CmOption::Tos(0x68)).unwrap();
    for (group, number) in [("239.1.2.3:0", 5), ("[::ffff:239.1.2.3]:9", 6)] {
        ids.join_multicast(id, address(group), number).unwrap();
        let event = ids.poll_event().unwrap();
        assert_eq!((event.id, event.kind, event.status), (id, EventKind::MulticastJoin, 0));
        assert_eq!(event.membership, Some(number));
        let Param::Ud(param) = event.param else { panic!("of datagrams") };
        assert_eq!((param.qpn, param.qkey), (Qpn::MULTICAST, QKey::new(0x0123_4567)));
        let grh = param.ah.grh;
        assert_eq!(grh.dgid.to_string(), "::ffff:239.1.2.3");
        assert_eq!((grh.sgid_index, grh.hop_limit, grh.traffic_class, param.ah.port_num), (0, 64, 0x68, 1));
    }
    // It is of the other family, which its address is not.
    ids.join_multicast(id, address("[ff05::1]:0"), 7).unwrap();
    let event = ids.poll_event().unwrap();
    assert_eq!((event.kind, event.status, event.membership), (EventKind::MulticastError, -22, Some(7)));
    let v6 = bound(&mut world, PortSpace::Udp, "[fd00::1]:0");
    let ids = &mut world.processes[0].ids;
    ids.join_multicast(v6, address("[ff05::1]:0"), 0).unwrap();
    let Param::Ud(param) = ids.poll_event().unwrap().param else { panic!("of datagrams") };
    assert_eq!((param.ah.grh.dgid.to_string(), param.ah.grh.sgid_index), ("ff05::1".to_owned(), 1));
    assert!(ids.poll_event().is_none());
}

#[test]
fn who_may_join_a_group() {
    let mut world = World::new(&[&[A]]);
    let group = address("239.1.2.3:0");
    let datagrams = bound(&mut world, PortSpace::Udp, "10.0.0.1:0");
    let connection = bound(&mut world, PortSpace::Tcp, "10.0.0.1:0");
    let ids = &mut world.processes[0].ids;
    let idle = ids.create(PortSpace::Udp, QpType::Ud);
    assert_eq!(ids.join_multicast(connection, group, 0).unwrap_err().errno(), 22);
    assert_eq!(ids.join_multicast(idle, group, 0).unwrap_err().errno(), 22);
    for single in ["10.0.0.2:0", "0.0.0.0:0", "[::]:0"] {
        assert_eq!(ids.join_multicast(datagrams, address(single), 0).unwrap_err().errno(), 22, "{single}");
    }
    let gid = |gid| Address::Ib(IbAddress { gid, ..IbAddress::default() });
    assert_eq!(ids.join_multicast(datagrams, gid(Gid::default()), 0).unwrap_err().errno(), 22);
    ids.join_multicast(datagrams, gid(Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3))), 0).unwrap();
    assert_eq!(ids.poll_event().unwrap().kind, EventKind::MulticastJoin);
    assert!(ids.poll_event().is_none(), "what was refused tells nothing");
}
