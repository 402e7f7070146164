//! The side that asks for a connection: messages in, messages and events out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use common::*;
use userdma_mgmt::cm::{ConnId, Event, Failure, PortId, ReqParams};
use userdma_mgmt::rdma::Ece;
use userdma_verbs::{Errno, Gid, Lid, PKey, Psn, QpType, Qpn};
use userdma_wire::mad::cm::{Message, Mra, Rej, RejectReason, RejectedMessage, Rep, TransportService};
use userdma_wire::mad::{Data, Header};

#[test]
fn a_req_has_what_was_asked_for() {
    let mut one = One::new();
    let conn = one.cm.send_req(one.now, &req_params()).unwrap();
    assert_eq!(conn.0 >> 22, u32::from(SLOT), "the id says whose it is");
    let mad = one.cm.poll_transmit().unwrap().mad;
    assert_eq!(Header::parse(&mad).unwrap().attribute_modifier, 9);
    let (_, Message::Req(req)) = Message::parse(&mad).unwrap() else { panic!() };
    assert_eq!((req.local_comm_id, req.service_id, req.local_ca_guid), (conn.0, SERVICE, GUID));
    assert_eq!((req.local_qpn, req.starting_psn, req.pkey), (QPN, Psn::new(0x11_1111), PKey::DEFAULT));
    assert_eq!((req.responder_resources, req.initiator_depth), (4, 3));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries), (7, 6, 15));
    assert_eq!((req.remote_cm_response_timeout, req.local_cm_response_timeout), (20, 20));
    assert_eq!((req.transport_service_type, req.path_mtu, req.vendor_id), (TransportService::Rc, 3, 0x15b3));
    assert!(req.end_to_end_flow_control && !req.srq && req.alternate.is_absent());
    let path = req.primary;
    assert_eq!((path.local_gid, path.remote_gid), (Gid::from(HERE), Gid::from(THERE)));
    assert_eq!((path.local_lid, path.remote_lid), (Lid::new(0xffff), Lid::new(0xffff)));
    assert_eq!((path.flow_label, path.hop_limit, path.local_ack_timeout), (0x3573, 64, 17));
    assert_eq!(req.private_data, Data::new(b"please").unwrap());
}

#[test]
fn a_rep_is_told_and_the_rtu_establishes() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    one.hear(tid, rep(conn).with_vendor_id(0x15b3));
    let Event::Rep { rep: told, ece } = one.told_one(conn) else { panic!() };
    assert_eq!(told, rep(conn).with_vendor_id(0x15b3));
    assert_eq!(ece, Ece { vendor_id: 0x15b3, attr_mod: 0 });
    assert_eq!(one.cm.poll_timeout(), None, "it is the owner's turn");
    one.cm.send_rtu(conn, b"here I am").unwrap();
    let (rtu_tid, Message::Rtu(rtu)) = one.sent_one() else { panic!() };
    assert_eq!((rtu_tid, rtu.local_comm_id, rtu.remote_comm_id), (tid, conn.0, PEER_ID));
    assert_eq!(rtu.private_data, Data::new(b"here I am").unwrap());
    one.quiet();
    // The peer did not get it.
    one.hear(tid, rep(conn));
    assert_eq!(one.sent_one(), (tid, rtu.into()));
    one.quiet();
}

#[test]
fn a_req_is_sent_sixteen_times_and_given_up() {
    let mut one = One::new();
    let (conn, tid, req) = one.ask();
    for _ in 0..15 {
        one.wait_exactly(WAIT);
        assert_eq!(one.sent_one(), (tid, req.into()));
    }
    one.wait_exactly(WAIT);
    let (rej_tid, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej_tid, rej.reason, rej.message), (tid, RejectReason::Timeout, RejectedMessage::Other));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.info_len), (conn.0, 0, 8));
    assert_eq!(rej.info.bytes()[..8], GUID.to_be_bytes(), "the peer may know us by nothing else");
    assert_eq!(one.told_one(conn), Event::ReqError);
    assert_eq!(one.cm.stats().retries, 15);
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn an_mra_is_waited_for_once_each_time() {
    let mut one = One::new();
    let (conn, tid, req) = one.ask();
    let mra = Mra {
        local_comm_id: PEER_ID,
        remote_comm_id: conn.0,
        message: RejectedMessage::Req,
        service_timeout: 22,
        ..Mra::default()
    };
    let patience = Duration::from_nanos((4096 << 22) + (4096 << 17));
    one.wait(Duration::from_secs(1));
    one.hear(tid, mra);
    assert_eq!(one.told_one(conn), Event::Mra);
    one.hear(tid, mra);
    one.quiet();
    one.wait_exactly(patience);
    assert_eq!(one.sent_one(), (tid, req.into()), "and then it is asked again");
    one.hear(tid, mra);
    assert_eq!(one.told_one(conn), Event::Mra);
    one.wait_exactly(patience);
    one.sent_one();
    one.hear(tid, Mra { message: RejectedMessage::Rep, ..mra });
    one.hear(tid + 1, mra);
    one.quiet();
    one.wait_exactly(WAIT);
    one.sent_one();
}

#[test]
fn a_rej_ends_it() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    let rej = Rej { private_data: Data::new(b"no").unwrap(), ..rej(conn, RejectReason::ConsumerReject) };
    one.hear(tid, rej);
    assert_eq!(one.told_one(conn), Event::Rej { rej });
    assert_eq!(one.cm.poll_timeout(), None);
    one.hear(tid, rej);
    one.quiet();
    assert_eq!(one.cm.send_rtu(conn, &[]), Err(Failure::State("idle")));
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_stale_connection_is_left_alone_for_a_while() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    one.hear(tid, rej(conn, RejectReason::StaleConnection));
    assert!(matches!(one.told_one(conn), Event::Rej { .. }));
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(conn), Event::TimewaitExit);
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_rej_that_overtakes_its_rep_is_taken() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    let rej = Rej {
        local_comm_id: PEER_ID,
        message: RejectedMessage::Other,
        ..rej(conn, RejectReason::ConsumerReject)
    };
    one.hear(tid, rej);
    assert_eq!(one.told_one(conn), Event::Rej { rej });
    one.hear(tid, rep(conn));
    one.quiet();
}

#[test]
fn what_is_not_the_answer_changes_nothing() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    one.hear(tid + 1, rep(conn));
    one.hear(tid + 1, rej(conn, RejectReason::ConsumerReject));
    one.hear_from(IpAddr::V4(Ipv4Addr::new(127, 41, 0, 9)), tid, rej(conn, RejectReason::ConsumerReject));
    one.quiet();
    one.hear(tid, rtu(conn));
    assert!(matches!(one.sent_one(), (_, Message::Rej(_))), "nobody has sent it a REP");
    one.quiet();
    one.hear(tid, rep(conn));
    assert!(matches!(one.told_one(conn), Event::Rep { .. }));
    one.hear(tid, rep(conn));
    one.hear(tid, Rep { local_comm_id: PEER_ID + 1, ..rep(conn) });
    one.quiet();
}

#[test]
fn a_rep_for_somebody_elses_connection_is_refused() {
    let mut one = One::new();
    one.hear(5, rep(ConnId(0x1234)));
    let (5, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0x1234, PEER_ID));
    assert_eq!((rej.message, rej.reason), (RejectedMessage::Rep, RejectReason::InvalidCommId));
    one.empty();
}

#[test]
fn who_gives_up_says_so_and_nothing_is_left() {
    let mut one = One::new();
    let (conn, tid, _) = one.ask();
    one.cm.destroy(one.now, conn);
    let (rej_tid, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej_tid, rej.reason, rej.local_comm_id), (tid, RejectReason::Timeout, conn.0));
    one.empty();
    // The REP was under way.
    one.hear(tid, rep(conn));
    let (_, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej.reason, rej.message), (RejectReason::InvalidCommId, RejectedMessage::Rep));
    one.empty();
    assert_eq!(one.cm.send_rtu(conn, &[]), Err(Failure::NoConnection));
}

#[test]
fn a_rep_that_the_owner_refuses_is_refused_again() {
    let mut one = One::new();
    let (conn, tid) = one.ask_and_hear();
    one.cm.send_rej(one.now, conn, RejectReason::NoResources, b"info", b"data").unwrap();
    let (rej_tid, Message::Rej(rej)) = one.sent_one() else { panic!() };
    assert_eq!((rej_tid, rej.reason, rej.message), (tid, RejectReason::NoResources, RejectedMessage::Rep));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.info_len), (conn.0, PEER_ID, 4));
    assert_eq!(rej.private_data, Data::new(b"data").unwrap());
    one.cm.destroy(one.now, conn);
    one.quiet();
    one.hear(tid, rep(conn));
    assert_eq!(one.sent_one(), (tid, rej.into()));
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn a_queue_pair_that_connects_again_has_forgotten_the_old_connection() {
    let mut one = One::new();
    let (old, old_tid) = one.connect();
    let (new, tid, req) = one.ask();
    let again = Rep { local_comm_id: PEER_ID + 1, ..rep(new) };
    one.hear(tid, again);
    let sent = one.sent();
    let [(_, Message::Rej(rej)), (dreq_tid, Message::Dreq(dreq))] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((rej.reason, rej.message), (RejectReason::StaleConnection, RejectedMessage::Rep));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (new.0, PEER_ID + 1));
    assert_eq!((dreq_tid, dreq.local_comm_id, dreq.remote_comm_id), (old_tid, old.0, PEER_ID));
    assert_eq!(one.told(), []);
    // The peer answers that it does not know the old one, and the REQ that is sent again succeeds.
    let drep = userdma_mgmt::cm::answer_unknown(&dreq.build(dreq_tid)).unwrap();
    let (drep_tid, drep) = Message::parse(&drep).unwrap();
    one.hear(drep_tid, drep);
    assert_eq!(one.told_one(old), Event::Drep);
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(old), Event::TimewaitExit);
    one.now = one.cm.poll_timeout().unwrap();
    one.cm.handle_timeout(one.now);
    assert_eq!(one.sent_one(), (tid, req.into()));
    one.hear(tid, Rep { local_comm_id: PEER_ID + 2, ..rep(new) });
    assert!(matches!(one.told_one(new), Event::Rep { .. }));
}

#[test]
fn what_cannot_be_asked_is_refused_at_once() {
    let mut one = One::new();
    let long = [0; 93];
    let ask = |one: &mut One, params: &ReqParams<'_>| one.cm.send_req(one.now, params).unwrap_err();
    let error = ask(&mut one, &ReqParams { private_data: &long, ..req_params() });
    assert_eq!((error, error.errno()), (Failure::TooLong { len: 93, max: 92 }, Errno::Einval));
    assert_eq!(error.to_string(), "93 bytes in a field of 92");
    assert_eq!(
        ask(&mut one, &ReqParams { qp_type: QpType::Ud, ..req_params() }),
        Failure::ServiceType(QpType::Ud)
    );
    assert_eq!(ask(&mut one, &ReqParams { port: PortId(99), ..req_params() }), Failure::NoPort(PortId(99)));
    one.empty();
    let (conn, ..) = one.ask();
    assert_eq!(one.cm.send_rep(one.now, conn, &rep_params()), Err(Failure::State("REQ sent")));
    assert_eq!(one.cm.send_dreq(one.now, conn, &[]), Err(Failure::State("REQ sent")));
    assert_eq!(one.cm.send_drep(one.now, conn, &[]), Err(Failure::State("REQ sent")));
    assert_eq!(one.cm.establish(conn), Err(Failure::State("REQ sent")));
    assert_eq!(one.cm.prepare_mra(conn, 20), Err(Failure::State("REQ sent")));
    one.quiet();
}

#[test]
fn an_unreliable_connection_is_asked_for_as_such() {
    let mut one = One::new();
    one.cm.send_req(one.now, &ReqParams { qp_type: QpType::Uc, qpn: Qpn::new(5), ..req_params() }).unwrap();
    let (_, Message::Req(req)) = one.sent_one() else { panic!() };
    assert_eq!((req.transport_service_type, req.local_qpn), (TransportService::Uc, Qpn::new(5)));
}

/// Ids count through 22 bits, and those in use are left out.
#[test]
fn ids_come_back_late() {
    let mut one = One::new();
    let (first, ..) = one.ask();
    let (second, ..) = one.ask();
    assert_ne!(first, second);
    one.cm.destroy(one.now, first);
    one.sent();
    let mut seen = vec![second];
    for _ in 0..1000 {
        let (conn, ..) = one.ask();
        assert!(!seen.contains(&conn) && conn != first);
        seen.push(conn);
        one.cm.destroy(one.now, conn);
        one.sent();
    }
}

#[test]
fn a_port_that_goes_takes_everything_with_it() {
    let mut one = One::new();
    one.listen();
    let (conn, ..) = one.ask();
    one.be_asked();
    assert!(!one.cm.is_idle(PORT) && one.cm.is_idle(PortId(1)));
    one.cm.remove_port(PORT);
    assert!(one.cm.is_idle(PORT));
    assert_eq!(one.cm.counts().listeners, 0);
    one.empty();
    assert_eq!(one.cm.send_rtu(conn, &[]), Err(Failure::NoConnection));
    one.hear(1, req());
    one.empty();
}
