//! The side that is asked for a connection: messages in, messages and events out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

mod common;

use std::net::{IpAddr, Ipv4Addr};

use common::*;
use userdma_mgmt::cm::{Arrival, Event, Failure, MAX_UNDECIDED, PortId};
use userdma_mgmt::rdma::Ece;
use userdma_verbs::{Gid, Psn, Qpn};
use userdma_wire::mad::Data;
use userdma_wire::mad::cm::{
    Drep, Message, Mra, Path, Rej, RejectReason, RejectedMessage, Req, TransportService,
};

#[test]
fn a_req_is_told_accepted_and_established() {
    let mut one = One::new();
    let listener = one.listen();
    let mad = req().build_with(PEER_TID, 77);
    one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to: HERE, mad: &mad });
    let told = one.told();
    let [(conn, event)] = told[..] else { panic!("{told:?}") };
    let ece = Ece { vendor_id: 0, attr_mod: 77 };
    assert_eq!(event, Event::Req { listener, port: PORT, from: THERE, to: HERE, req: req(), ece });
    assert_eq!(conn.0 >> 22, u32::from(SLOT));
    assert_eq!(one.cm.poll_timeout(), None, "it is the owner's turn");
    one.cm.send_rep(one.now, conn, &rep_params()).unwrap();
    let (tid, Message::Rep(rep)) = one.sent_one() else { panic!() };
    assert_eq!((tid, rep.local_comm_id, rep.remote_comm_id), (PEER_TID, conn.0, PEER_ID));
    assert_eq!((rep.local_qpn, rep.starting_psn, rep.local_ca_guid), (QPN, Psn::new(0x22_2222), GUID));
    assert_eq!((rep.responder_resources, rep.initiator_depth, rep.target_ack_delay), (2, 1, 15));
    assert_eq!((rep.rnr_retry_count, rep.srq, rep.end_to_end_flow_control), (5, true, true));
    assert_eq!(rep.private_data, Data::new(b"welcome").unwrap());
    one.hear(PEER_TID, rtu(conn));
    assert_eq!(one.told_one(conn), Event::Rtu);
    assert_eq!(one.cm.poll_timeout(), None);
    one.hear(PEER_TID, rtu(conn));
    one.quiet();
}

#[test]
fn a_rep_is_sent_sixteen_times_and_given_up() {
    let mut one = One::new();
    one.listen();
    let (conn, rep) = one.accept();
    for _ in 0..15 {
        one.wait_exactly(REP_WAIT);
        assert_eq!(one.sent_one(), (PEER_TID, rep.into()));
    }
    one.wait_exactly(REP_WAIT);
    let (_, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej.reason, rej.local_comm_id, rej.remote_comm_id), (RejectReason::Timeout, conn.0, PEER_ID));
    assert_eq!(one.told_one(conn), Event::RepError);
    // The RTU was lost, and comes too late.
    one.hear(PEER_TID, rtu(conn));
    let (_, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej.reason, rej.message), (RejectReason::InvalidCommId, RejectedMessage::Other));
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_req_that_comes_again_is_answered_as_before() {
    let mut one = One::new();
    one.listen();
    let conn = one.be_asked();
    one.hear(PEER_TID, req());
    one.quiet();
    one.cm.prepare_mra(conn, 24).unwrap();
    one.quiet();
    one.hear(PEER_TID, req());
    let (PEER_TID, Message::Mra(mra)) = one.sent_one() else { panic!() };
    assert_eq!((mra.message, mra.service_timeout), (RejectedMessage::Req, 24));
    assert_eq!((mra.local_comm_id, mra.remote_comm_id), (conn.0, PEER_ID));
    one.cm.send_rep(one.now, conn, &rep_params()).unwrap();
    let rep = one.sent_one();
    one.hear(PEER_TID, req());
    assert_eq!(one.sent_one(), rep, "the REP, and no second event");
    one.hear(PEER_TID, rtu(conn));
    one.told_one(conn);
    one.hear(PEER_TID, req());
    one.quiet();
    one.hear(9, dreq(conn));
    one.told_one(conn);
    one.cm.send_drep(one.now, conn, &[]).unwrap();
    one.sent_one();
    one.hear(PEER_TID, req());
    let (PEER_TID, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej.reason, rej.local_comm_id), (RejectReason::StaleConnection, 0), "in timewait");
    one.quiet();
}

#[test]
fn an_mra_is_sent_at_once_if_wanted() {
    let mut one = One::new();
    one.listen();
    let conn = one.be_asked();
    one.cm.send_mra(conn, 21, b"soon").unwrap();
    let mra = one.sent_one();
    assert!(matches!(mra.1, Message::Mra(Mra { service_timeout: 21, .. })));
    one.hear(PEER_TID, req());
    assert_eq!(one.sent_one(), mra);
    one.cm.send_rej(one.now, conn, RejectReason::ConsumerReject, &[], &[]).unwrap();
    let (_, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!(rej.local_comm_id, conn.0, "the peer knows the id from the MRA");
}

#[test]
fn a_refusal_is_repeated_for_a_while() {
    let mut one = One::new();
    one.listen();
    let conn = one.be_asked();
    one.cm.send_rej(one.now, conn, RejectReason::ConsumerReject, &[], b"no").unwrap();
    let (PEER_TID, Message::Rej(rej)) = one.sent_one() else { panic!() };
    let expected = Rej {
        remote_comm_id: PEER_ID,
        reason: RejectReason::ConsumerReject,
        private_data: Data::new(b"no").unwrap(),
        ..Rej::default()
    };
    assert_eq!(rej, expected);
    one.cm.destroy(one.now, conn);
    one.quiet();
    one.hear(PEER_TID, req());
    assert_eq!(one.sent_one(), (PEER_TID, rej.into()), "and the listener is not asked again");
    one.quiet();
    // The same queue pair may ask anew meanwhile.
    one.hear(PEER_TID + 1, Req { local_comm_id: PEER_ID + 1, ..req() });
    let told = one.told();
    assert!(matches!(told[..], [(_, Event::Req { .. })]));
    one.cm.forget(told[0].0);
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn what_makes_no_connection_is_refused_with_its_reason() {
    let mut one = One::new();
    one.listen();
    let wrong = |field: &str| match field {
        "service" => Req { service_id: SERVICE + 1, ..req() },
        "transport" => Req { transport_service_type: TransportService::Extended, ..req() },
        "datagrams" => Req { transport_service_type: TransportService::Rd, ..req() },
        "no mtu" => Req { path_mtu: 0, ..req() },
        "mtu" => Req { path_mtu: 6, ..req() },
        "their gid" => {
            let local_gid = Gid::from(Ipv4Addr::new(127, 41, 0, 66));
            Req { primary: Path { local_gid, ..req().primary }, ..req() }
        }
        _ => {
            let remote_gid = Gid::from(Ipv4Addr::new(127, 41, 0, 66));
            Req { primary: Path { remote_gid, ..req().primary }, ..req() }
        }
    };
    for (field, reason) in [
        ("service", RejectReason::InvalidServiceId),
        ("transport", RejectReason::InvalidTransportType),
        ("datagrams", RejectReason::InvalidTransportType),
        ("no mtu", RejectReason::InvalidPathMtu),
        ("mtu", RejectReason::InvalidPathMtu),
        ("their gid", RejectReason::InvalidGid),
        ("our gid", RejectReason::InvalidGid),
    ] {
        one.hear(PEER_TID, wrong(field));
        let (PEER_TID, Message::Rej(rej)) = one.sent_one() else { panic!("{field}") };
        assert_eq!((rej.reason, rej.message), (reason, RejectedMessage::Req), "{field}");
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, PEER_ID), "{field}");
        one.empty();
    }
}

#[test]
fn another_address_does_not_listen() {
    let mut one = One::new();
    one.listen();
    let to = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 77));
    let asked = Req { primary: Path { remote_gid: Gid::from(to), ..req().primary }, ..req() };
    let mad = asked.build(PEER_TID);
    one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to, mad: &mad });
    let refused = one.cm.poll_transmit().unwrap();
    assert_eq!((refused.from, refused.to), (to, THERE));
    let (_, Message::Rej(rej)) = Message::parse(&refused.mad).unwrap() else { panic!() };
    assert_eq!(rej.reason, RejectReason::InvalidServiceId);
    one.empty();
    one.cm.listen(SERVICE, 0, None).unwrap();
    one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to, mad: &mad });
    assert!(matches!(one.told()[..], [(_, Event::Req { to: told, .. })] if told == to));
}

#[test]
fn a_queue_pair_that_asks_again_has_forgotten_the_connection() {
    let mut one = One::new();
    one.listen();
    let old = one.be_connected();
    let again = Req { local_comm_id: PEER_ID + 1, ..req() };
    one.hear(PEER_TID + 1, again);
    let sent = one.sent();
    let [(tid, Message::Rej(rej)), (_, Message::Dreq(dreq))] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((tid, rej.reason), (PEER_TID + 1, RejectReason::StaleConnection));
    assert_eq!((dreq.local_comm_id, dreq.remote_comm_id, dreq.remote_qpn), (old.0, PEER_ID, PEER_QPN));
    // Somebody else cannot speak of that queue pair.
    let from = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 66));
    let elsewhere = Path { local_gid: Gid::from(from), ..req().primary };
    one.hear_from(from, 4, Req { local_comm_id: 5, primary: elsewhere, ..req() });
    assert!(matches!(one.told()[..], [(_, Event::Req { .. })]));
    assert_eq!(one.sent(), []);
}

#[test]
fn a_client_that_gives_up_is_recognized_by_its_guid() {
    let mut one = One::new();
    one.listen();
    let conn = one.be_asked();
    let gone = Rej {
        local_comm_id: PEER_ID,
        message: RejectedMessage::Other,
        reason: RejectReason::Timeout,
        info_len: 8,
        info: Data::new(&PEER_GUID.to_be_bytes()).unwrap(),
        ..Rej::default()
    };
    one.hear(PEER_TID, Rej { info: Data::new(&GUID.to_be_bytes()).unwrap(), ..gone });
    one.hear(PEER_TID, Rej { reason: RejectReason::ConsumerReject, ..gone });
    one.hear_from(IpAddr::V4(Ipv4Addr::new(127, 41, 0, 9)), PEER_TID, gone);
    one.hear(PEER_TID + 1, gone);
    one.quiet();
    one.hear(PEER_TID, gone);
    assert_eq!(one.told_one(conn), Event::Rej { rej: gone });
    assert_eq!(one.cm.send_rep(one.now, conn, &rep_params()), Err(Failure::State("answered")));
    one.cm.destroy(one.now, conn);
    one.quiet();
    // A copy of the REQ that was held up.
    one.hear(PEER_TID, req());
    assert!(matches!(one.sent_one(), (PEER_TID, Message::Rej(_))));
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn data_may_come_before_the_rtu() {
    let mut one = One::new();
    one.listen();
    let (conn, _) = one.accept();
    one.cm.establish(conn).unwrap();
    assert_eq!(one.told_one(conn), Event::Established);
    assert_eq!(one.cm.poll_timeout(), None, "the REP is not sent again");
    assert_eq!(one.cm.establish(conn), Err(Failure::State("established")));
    one.hear(PEER_TID, rtu(conn));
    one.quiet();
}

/// A flood of requests that nobody answers takes a bounded place, and what was dropped may come again.
#[test]
fn undecided_requests_are_bounded() {
    let mut one = One::new();
    one.listen();
    let ask = |one: &mut One, n: u32| {
        one.hear(PEER_TID, Req { local_comm_id: n, local_qpn: Qpn::new(n), ..req() });
        assert_eq!(one.sent(), []);
    };
    for n in 0..20_000 {
        ask(&mut one, 100 + n);
    }
    let told = one.told();
    assert_eq!(told.len(), MAX_UNDECIDED);
    assert_eq!(one.cm.stats().overflows, 20_000 - MAX_UNDECIDED as u64);
    assert_eq!(one.cm.counts().connections, MAX_UNDECIDED);
    one.cm.send_rej(one.now, told[0].0, RejectReason::ConsumerReject, &[], &[]).unwrap();
    one.sent_one();
    ask(&mut one, 50_000);
    ask(&mut one, 50_001);
    assert_eq!(one.told().len(), 1, "one place was free");
}

/// Clients that are refused all day: what is kept of them is bounded.
#[test]
fn what_is_kept_of_the_refused_is_bounded() {
    let mut one = One::new();
    one.listen();
    for n in 0..30_000 {
        one.hear(PEER_TID, Req { local_comm_id: 1 + n, local_qpn: Qpn::new(n), ..req() });
        let told = one.told();
        let [(conn, _)] = told[..] else { panic!("{n}: {told:?}") };
        one.cm.destroy(one.now, conn);
        one.sent_one();
    }
    assert!(one.cm.counts().connections <= 8192, "{:?}", one.cm.counts());
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn a_listener_that_goes_refuses_what_nobody_has_taken() {
    let mut one = One::new();
    let listener = one.listen();
    let taken = one.be_asked();
    one.hear(PEER_TID + 1, Req { local_comm_id: 5, local_qpn: Qpn::new(5), ..req() });
    one.cm.unlisten(listener);
    let (tid, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((tid, rej.remote_comm_id, rej.reason), (PEER_TID + 1, 5, RejectReason::InvalidServiceId));
    one.quiet();
    one.cm.send_rep(one.now, taken, &rep_params()).unwrap();
    one.sent_one();
    one.hear(PEER_TID, rtu(taken));
    assert_eq!(one.told_one(taken), Event::Rtu, "what was taken goes on without its listener");
    assert!(one.cm.listen(SERVICE, 0, Some((PORT, HERE))).is_ok());
}

#[test]
fn a_request_that_is_forgotten_is_new_when_it_comes_again() {
    let mut one = One::new();
    one.listen();
    let first = one.be_asked();
    one.cm.forget(first);
    one.empty();
    let second = one.be_asked();
    assert_ne!(first, second);
}

#[test]
fn an_owner_that_leaves_refuses() {
    let mut one = One::new();
    one.listen();
    let (conn, _) = one.accept();
    one.cm.destroy(one.now, conn);
    let (tid, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!(
        (tid, rej.reason, rej.message),
        (PEER_TID, RejectReason::ConsumerReject, RejectedMessage::Other)
    );
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (conn.0, PEER_ID));
    // The RTU had left before.
    one.hear(PEER_TID, rtu(conn));
    assert_eq!(one.sent_one(), (PEER_TID, rej.into()));
    one.hear(PEER_TID, req());
    assert_eq!(one.sent_one(), (PEER_TID, rej.into()));
    // Whether the peer has heard it nobody knows: a DREQ asks.
    one.wait_exactly(REP_WAIT);
    let (dreq_tid, Message::Dreq(dreq)) = one.sent_one() else { panic!() };
    assert_eq!((dreq.local_comm_id, dreq.remote_comm_id), (conn.0, PEER_ID));
    one.wait_exactly(REP_WAIT);
    assert_eq!(one.sent_one(), (dreq_tid, dreq.into()));
    let drep = Drep { local_comm_id: PEER_ID, remote_comm_id: conn.0, ..Drep::default() };
    one.hear(dreq_tid, drep);
    one.quiet();
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn two_ports_are_two_machines() {
    let mut one = One::new();
    one.listen();
    one.cm.add_port(PortId(8), 4, 9);
    let mad = req().build(PEER_TID);
    one.cm.handle_mad(one.now, Arrival { port: PortId(8), from: THERE, to: HERE, mad: &mad });
    let refused = one.cm.poll_transmit().unwrap();
    assert_eq!(refused.port, PortId(8));
    one.empty();
}
