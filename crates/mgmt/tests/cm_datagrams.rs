//! Questions for datagrams (SIDR), alternate paths (LAP), and what is nobody's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

mod common;

use std::time::Duration;

use common::*;
use userdma_mgmt::cm::{Arrival, ConnId, Event, Failure, SidrRepParams, answer_unknown};
use userdma_verbs::{PKey, QKey, Qpn};
use userdma_wire::mad::cm::{
    Apr, AprStatus, Drep, Lap, Message, Mra, Rej, RejectedMessage, SidrRep, SidrReq, SidrStatus,
};
use userdma_wire::mad::{ClassPortInfo, Data, Header};

/// 2^20 times 4.096 µs.
const SIDR_WAIT: Duration = Duration::from_nanos(4096 << 20);

fn ask(one: &mut One) -> (ConnId, u64, SidrReq) {
    let conn = one.cm.send_sidr_req(one.now, &sidr_params()).unwrap();
    let (tid, Message::SidrReq(req)) = one.sent_one() else { panic!() };
    (conn, tid, req)
}

fn question() -> SidrReq {
    SidrReq {
        request_id: PEER_ID,
        pkey: PKey::DEFAULT,
        service_id: SERVICE,
        private_data: Data::new(b"who").unwrap(),
    }
}

fn answer() -> SidrRepParams<'static> {
    SidrRepParams { status: SidrStatus::Valid, qpn: QPN, qkey: QKey::new(0x0123_4567), private_data: b"me" }
}

#[test]
fn a_question_is_asked_and_answered() {
    let mut one = One::new();
    let (conn, tid, req) = ask(&mut one);
    assert_eq!((req.request_id, req.service_id, req.pkey), (conn.0, SERVICE, PKey::DEFAULT));
    assert_eq!(req.private_data, Data::new(b"who").unwrap());
    one.wait_exactly(SIDR_WAIT);
    assert_eq!(one.sent_one(), (tid, req.into()));
    let rep = SidrRep { request_id: conn.0, service_id: SERVICE, qpn: PEER_QPN, ..SidrRep::default() };
    one.hear(tid + 1, rep);
    one.hear(tid, SidrRep { request_id: conn.0 + 1, ..rep });
    one.quiet();
    one.hear(tid, rep);
    assert_eq!(one.told_one(conn), Event::SidrRep { rep });
    one.hear(tid, rep);
    one.quiet();
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_question_without_an_answer_ends() {
    let mut one = One::new();
    let (conn, ..) = ask(&mut one);
    for _ in 0..2 {
        one.wait_exactly(SIDR_WAIT);
        one.sent_one();
    }
    one.wait_exactly(SIDR_WAIT);
    assert_eq!(one.told_one(conn), Event::SidrError);
    one.cm.destroy(one.now, conn);
    one.empty();
    let (conn, ..) = ask(&mut one);
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_question_is_told_answered_and_answered_again() {
    let mut one = One::new();
    let listener = one.listen();
    one.hear(5, question());
    let told = one.told();
    let [(conn, event)] = told[..] else { panic!("{told:?}") };
    assert_eq!(event, Event::SidrReq { listener, port: PORT, from: THERE, to: HERE, req: question() });
    one.hear(5, question());
    one.quiet();
    one.cm.send_sidr_rep(one.now, conn, &answer()).unwrap();
    let (5, Message::SidrRep(rep)) = one.sent_one() else { panic!() };
    assert_eq!((rep.request_id, rep.service_id, rep.status), (PEER_ID, SERVICE, SidrStatus::Valid));
    assert_eq!((rep.qpn, rep.qkey), (QPN, QKey::new(0x0123_4567)));
    assert_eq!(rep.private_data, Data::new(b"me").unwrap());
    assert_eq!(one.cm.send_sidr_rep(one.now, conn, &answer()), Err(Failure::State("answered")));
    one.cm.destroy(one.now, conn);
    one.hear(5, question());
    assert_eq!(one.sent_one(), (5, rep.into()), "and nobody is asked again");
    assert_eq!(one.wait_for_the_end(), []);
    one.empty();
}

#[test]
fn questions_that_nobody_answers_are_refused() {
    let mut one = One::new();
    one.hear(5, question());
    let (5, Message::SidrRep(rep)) = one.sent_one() else { panic!() };
    assert_eq!((rep.request_id, rep.status), (PEER_ID, SidrStatus::Unsupported));
    one.empty();
    let listener = one.listen();
    one.hear(5, question());
    let conn = one.told()[0].0;
    one.cm.destroy(one.now, conn);
    let (5, Message::SidrRep(rep)) = one.sent_one() else { panic!() };
    assert_eq!(rep.status, SidrStatus::Rejected);
    one.hear(6, SidrReq { request_id: 9, ..question() });
    one.cm.unlisten(listener);
    let (6, Message::SidrRep(rep)) = one.sent_one() else { panic!() };
    assert_eq!((rep.request_id, rep.status), (9, SidrStatus::Unsupported));
    assert_eq!(one.told(), []);
}

/// The peer's LAP.
fn lap(conn: ConnId) -> Lap {
    Lap { local_comm_id: PEER_ID, remote_comm_id: conn.0, remote_qpn: QPN, ..Lap::default() }
}

#[test]
fn a_lap_is_told_and_answered() {
    let mut one = One::new();
    let (conn, _) = one.connect();
    one.hear(50, lap(conn));
    assert_eq!(one.told_one(conn), Event::Lap { lap: lap(conn) });
    one.hear(50, lap(conn));
    one.quiet();
    one.cm.send_apr(conn, AprStatus::Unsupported, &[], b"no").unwrap();
    let (50, Message::Apr(apr)) = one.sent_one() else { panic!() };
    assert_eq!(
        (apr.local_comm_id, apr.remote_comm_id, apr.status),
        (conn.0, PEER_ID, AprStatus::Unsupported)
    );
    one.hear(50, lap(conn));
    assert_eq!(one.sent_one(), (50, apr.into()), "it was lost");
    assert_eq!(one.cm.send_apr(conn, AprStatus::Unsupported, &[], &[]), Err(Failure::State("established")));
    one.hear(51, lap(conn));
    assert_eq!(one.told_one(conn), Event::Lap { lap: lap(conn) });
    one.cm.send_mra(conn, 22, &[]).unwrap();
    let (51, Message::Mra(mra)) = one.sent_one() else { panic!() };
    assert_eq!(mra.message, RejectedMessage::Other);
    // The connection is none the worse for it.
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    one.sent_one();
}

#[test]
fn a_lap_for_nothing_is_refused() {
    let mut one = One::new();
    one.hear(50, lap(ConnId(0x77)));
    let (50, Message::Apr(apr)) = one.sent_one() else { panic!() };
    assert_eq!((apr.local_comm_id, apr.remote_comm_id), (0x77, PEER_ID));
    assert_eq!(apr.status, AprStatus::InvalidCommId);
    let (conn, _) = one.connect();
    one.hear(50, Lap { remote_qpn: Qpn::new(1), ..lap(conn) });
    assert!(matches!(one.sent_one().1, Message::Apr(Apr { status: AprStatus::InvalidQpn, .. })));
    one.quiet();
}

#[test]
fn a_lap_of_ours_is_answered_or_given_up() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    one.cm.send_lap(one.now, conn, &Lap { hop_limit: 9, ..Lap::default() }).unwrap();
    let (lap_tid, Message::Lap(lap)) = one.sent_one() else { panic!() };
    assert_eq!((lap_tid, lap.local_comm_id, lap.remote_comm_id), (tid, conn.0, PEER_ID));
    assert_eq!((lap.remote_qpn, lap.hop_limit), (PEER_QPN, 9));
    assert_eq!(one.cm.send_lap(one.now, conn, &lap), Err(Failure::State("established")));
    one.wait_exactly(WAIT);
    assert_eq!(one.sent_one(), (tid, lap.into()));
    let mra = Mra {
        local_comm_id: PEER_ID,
        remote_comm_id: conn.0,
        message: RejectedMessage::Other,
        ..Mra::default()
    };
    one.hear(tid, mra);
    assert_eq!(one.told_one(conn), Event::Mra);
    let apr = Apr {
        local_comm_id: PEER_ID,
        remote_comm_id: conn.0,
        status: AprStatus::Unsupported,
        ..Apr::default()
    };
    one.hear(tid + 1, apr);
    one.quiet();
    one.hear(tid, apr);
    assert_eq!(one.told_one(conn), Event::Apr { apr });
    assert_eq!(one.cm.poll_timeout(), None);
    one.cm.send_lap(one.now, conn, &Lap::default()).unwrap();
    one.sent_one();
    assert_eq!(one.wait_for_the_end().len(), 15);
    assert_eq!(one.told_one(conn), Event::LapError);
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    one.sent_one();
}

#[test]
fn no_answer_is_answered() {
    let (one, mut other) = (1, One::new());
    for message in [
        Message::from(Mra::default()),
        Rej::default().into(),
        Drep::default().into(),
        SidrRep::default().into(),
        Apr::default().into(),
    ] {
        assert_eq!(answer_unknown(&message.build(one)), None, "{message}");
        other.hear(one, message);
        other.empty();
    }
    // What is an answer to something unknown is not answered either.
    for message in [
        Message::from(req()),
        rep(ConnId(1)).into(),
        rtu(ConnId(1)).into(),
        dreq(ConnId(1)).into(),
        lap(ConnId(1)).into(),
        question().into(),
    ] {
        let answer = answer_unknown(&message.build(7)).unwrap();
        assert_eq!(Header::parse(&answer).unwrap().transaction_id, 7, "{message}");
        assert_eq!(answer_unknown(&answer), None, "{message}");
    }
}

#[test]
fn a_port_tells_what_the_class_is() {
    let mut one = One::new();
    let header = Header {
        base_version: 1,
        class: 7,
        class_version: 2,
        method: Header::METHOD_GET,
        status: 0,
        class_specific: 0,
        transaction_id: 11,
        attribute_id: ClassPortInfo::ATTRIBUTE,
        attribute_modifier: 0,
    };
    let mad = ClassPortInfo::default().build(&header);
    one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to: HERE, mad: &mad });
    let told = one.cm.poll_transmit().unwrap().mad;
    let (told, info) = ClassPortInfo::parse(&told).unwrap();
    assert_eq!((told.method, told.transaction_id, told.status), (Header::METHOD_GET_RESP, 11, 0));
    assert_eq!((info.base_version, info.class_version), (1, 2));
    one.empty();
    // What is not known is said not to be, whatever the class.
    for unknown in [
        Header { class: 3, ..header },
        Header { method: Header::METHOD_SET, ..header },
        Header { attribute_id: 0x35, ..header },
    ] {
        let mut mad = [7; 256];
        unknown.write(&mut mad);
        one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to: HERE, mad: &mad });
        let told = one.cm.poll_transmit().unwrap().mad;
        let status = Header::STATUS_UNSUPPORTED_METHOD_ATTRIBUTE;
        let expected = Header { method: Header::METHOD_GET_RESP, status, ..unknown };
        assert_eq!(Header::parse(&told), Ok(expected));
        assert_eq!(told[24..], [7; 232]);
        one.empty();
    }
    // Neither answers nor what is for queue pair 0.
    for nobodys in [Header { class: 0x81, ..header }, Header { method: Header::METHOD_GET_RESP, ..header }] {
        let mad = ClassPortInfo::default().build(&nobodys);
        one.cm.handle_mad(one.now, Arrival { port: PORT, from: THERE, to: HERE, mad: &mad });
        one.empty();
    }
}
