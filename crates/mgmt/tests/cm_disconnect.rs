//! How connections end: DREQ, DREP, timewait, and what a dying process leaves behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

mod common;

use common::*;
use userdma_mgmt::cm::{ConnId, Event, Failure, answer_unknown};
use userdma_verbs::Qpn;
use userdma_wire::mad::Data;
use userdma_wire::mad::cm::{Drep, Dreq, Message, Rej, RejectReason, RejectedMessage};

/// The peer's DREP.
fn drep(conn: ConnId) -> Drep {
    Drep { local_comm_id: PEER_ID, remote_comm_id: conn.0, ..Drep::default() }
}

#[test]
fn a_dreq_is_answered_and_timewait_ends() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    one.cm.send_dreq(one.now, conn, b"bye").unwrap();
    let (dreq_tid, Message::Dreq(dreq)) = one.sent_one() else { panic!() };
    assert_eq!((dreq_tid, dreq.local_comm_id, dreq.remote_comm_id), (tid, conn.0, PEER_ID));
    assert_eq!((dreq.remote_qpn, dreq.private_data), (PEER_QPN, Data::new(b"bye").unwrap()));
    one.hear(tid + 1, drep(conn));
    one.hear(tid, Drep { local_comm_id: PEER_ID + 1, ..drep(conn) });
    one.quiet();
    one.hear(tid, drep(conn));
    assert_eq!(one.told_one(conn), Event::Drep);
    assert_eq!(one.cm.send_dreq(one.now, conn, &[]), Err(Failure::State("timewait")));
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(conn), Event::TimewaitExit);
    one.cm.destroy(one.now, conn);
    one.empty();
}

#[test]
fn a_dreq_without_an_answer_ends_in_timewait() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    let dreq = one.sent_one();
    for _ in 0..15 {
        one.wait_exactly(WAIT);
        assert_eq!(one.sent_one(), dreq);
    }
    one.wait_exactly(WAIT);
    assert_eq!(one.told_one(conn), Event::DreqError);
    one.quiet();
    one.hear(tid, drep(conn));
    one.quiet();
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(conn), Event::TimewaitExit);
}

#[test]
fn a_dreq_of_the_peer_is_told_answered_and_answered_again() {
    let mut one = One::new();
    one.listen();
    let conn = one.be_connected();
    one.hear(99, dreq(conn));
    assert_eq!(one.told_one(conn), Event::Dreq);
    one.hear(99, dreq(conn));
    one.quiet();
    one.cm.send_drep(one.now, conn, b"bye").unwrap();
    let (99, Message::Drep(drep)) = one.sent_one() else { panic!() };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (conn.0, PEER_ID));
    assert_eq!(drep.private_data, Data::new(b"bye").unwrap());
    one.hear(99, dreq(conn));
    assert_eq!(one.sent_one(), (99, drep.into()), "it was lost");
    one.cm.destroy(one.now, conn);
    one.hear(99, dreq(conn));
    assert_eq!(one.sent_one(), (99, drep.into()), "timewait needs no owner");
    one.wait_exactly(TIMEWAIT);
    one.empty();
    one.hear(99, dreq(conn));
    assert!(matches!(one.sent_one(), (99, Message::Drep(_))), "nobody knows it, and says yes");
    one.empty();
}

#[test]
fn both_may_disconnect_at_once() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    one.sent_one();
    one.hear(99, dreq(conn));
    assert!(matches!(one.sent_one(), (99, Message::Drep(_))));
    assert_eq!(one.told_one(conn), Event::Dreq);
    one.hear(tid, drep(conn));
    one.quiet();
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(conn), Event::TimewaitExit);
}

#[test]
fn a_dreq_for_another_queue_pair_or_connection_is_nobodys() {
    let mut one = One::new();
    let (conn, _) = one.connect();
    one.hear(9, Dreq { remote_qpn: Qpn::new(9), ..dreq(conn) });
    one.quiet();
    one.hear(9, Dreq { local_comm_id: PEER_ID + 1, ..dreq(conn) });
    let (9, Message::Drep(drep)) = one.sent_one() else { panic!() };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (conn.0, PEER_ID + 1));
    assert_eq!(one.told(), []);
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    one.sent_one();
}

#[test]
fn a_dreq_may_come_before_our_rtu() {
    let mut one = One::new();
    let (conn, _) = one.ask_and_hear();
    one.hear(9, dreq(conn));
    assert_eq!(one.told_one(conn), Event::Dreq);
    assert_eq!(one.cm.send_rtu(conn, &[]), Err(Failure::State("DREQ received")));
    one.cm.destroy(one.now, conn);
    assert!(matches!(one.sent_one(), (9, Message::Drep(_))));
    one.wait_exactly(TIMEWAIT);
    one.empty();
}

/// A connection whose owner is gone says goodbye until it is heard, and then is no more.
#[test]
fn goodbye_is_said_without_an_owner() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    one.cm.destroy(one.now, conn);
    let dreq = one.sent_one();
    assert!(matches!(dreq.1, Message::Dreq(_)));
    one.wait_exactly(WAIT);
    assert_eq!(one.sent_one(), dreq);
    one.hear(tid, drep(conn));
    one.quiet();
    one.wait_exactly(TIMEWAIT);
    one.empty();
}

#[test]
fn goodbye_ends_if_nobody_hears_it() {
    let mut one = One::new();
    let (conn, _) = one.connect();
    one.cm.destroy(one.now, conn);
    assert_eq!(one.sent().len(), 1);
    assert_eq!(one.wait_for_the_end().len(), 15);
    one.empty();
}

#[test]
fn a_rej_ends_an_established_connection() {
    let mut one = One::new();
    let (conn, tid) = one.connect();
    let rej = Rej {
        local_comm_id: PEER_ID,
        remote_comm_id: conn.0,
        message: RejectedMessage::Other,
        reason: RejectReason::InvalidCommId,
        ..Rej::default()
    };
    one.hear(tid + 1, rej);
    one.hear(tid, Rej { local_comm_id: 1, ..rej });
    one.quiet();
    one.hear(tid, rej);
    assert_eq!(one.told_one(conn), Event::Rej { rej });
    one.wait_exactly(TIMEWAIT);
    assert_eq!(one.told_one(conn), Event::TimewaitExit);
}

#[test]
fn a_connection_has_a_will_as_long_as_the_peer_needs_it() {
    let mut one = One::new();
    one.listen();
    let asked = one.be_asked();
    assert_eq!(one.cm.will(asked), None);
    one.cm.forget(asked);
    let (conn, _) = one.accept();
    let will = one.cm.will(conn).unwrap();
    assert_eq!((will.port, will.from, will.to), (PORT, HERE, THERE));
    let (tid, Message::Dreq(last)) = Message::parse(&will.mad).unwrap() else { panic!() };
    assert_eq!((last.local_comm_id, last.remote_comm_id, last.remote_qpn), (conn.0, PEER_ID, PEER_QPN));
    one.hear(PEER_TID, rtu(conn));
    one.told_one(conn);
    assert_eq!(one.cm.will(conn), Some(will.clone()));
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    assert_eq!(one.sent_one(), (tid, last.into()), "what is sent in life");
    assert_eq!(one.cm.will(conn), Some(will));
    one.hear(tid, drep(conn));
    one.told_one(conn);
    assert_eq!(one.cm.will(conn), None);
    let (conn, ..) = one.ask();
    assert_eq!(one.cm.will(conn), None);
}

/// What a will says is understood by the peer, and answered by it.
#[test]
fn a_peer_answers_the_will_of_the_dead() {
    let mut one = One::new();
    let (conn, _) = one.connect();
    let will = one.cm.will(conn).unwrap();
    let answer = answer_unknown(&will.mad).unwrap();
    let (tid, Message::Drep(drep)) = Message::parse(&answer).unwrap() else { panic!() };
    assert_eq!((tid, drep.remote_comm_id), (one.own_tid(conn), conn.0));
}

/// From the first message that names it to the end of timewait, whoever owns the connection, and in however many it is.
#[test]
fn the_number_of_a_queue_pair_is_guarded_as_long_as_somebody_may_speak_of_it() {
    let mut one = One::new();
    let guarded =
        |one: &mut One| one.cm.poll_number().map(|change| (change.port, change.qpn, change.is_guarded));
    let (conn, _, _) = one.ask();
    assert_eq!(guarded(&mut one), Some((PORT, QPN, true)));
    one.cm.destroy(one.now, conn);
    assert_eq!(guarded(&mut one), Some((PORT, QPN, false)), "refused, and the peer has not answered");
    one.sent();

    one.wait_for_the_end();
    let (conn, tid) = one.connect();
    assert_eq!(guarded(&mut one), Some((PORT, QPN, true)));
    one.cm.send_dreq(one.now, conn, &[]).unwrap();
    one.sent_one();
    one.cm.destroy(one.now, conn);
    one.hear(tid, drep(conn));
    let (again, _, _) = one.ask();
    assert_eq!(guarded(&mut one), None, "in timewait, and asks anew");
    one.wait(TIMEWAIT);
    assert_eq!(guarded(&mut one), None);
    one.cm.destroy(one.now, again);
    assert_eq!(guarded(&mut one), Some((PORT, QPN, false)));
}

/// A side that has refused after its REP says goodbye until it is answered: the peer may be connected.
#[test]
fn a_number_is_guarded_while_the_peer_may_think_that_it_is_connected() {
    let mut one = One::new();
    one.listen();
    let (conn, _) = one.accept();
    assert!(one.cm.poll_number().is_some_and(|change| change.is_guarded));
    one.cm.destroy(one.now, conn);
    one.wait(WAIT);
    let sent = one.sent();
    let [_, (tid, Message::Dreq(_))] = sent[..] else { panic!("{sent:?}") };
    assert_eq!(one.cm.poll_number(), None);
    one.hear(tid, drep(conn));
    assert!(one.cm.poll_number().is_some_and(|change| !change.is_guarded));
    one.wait_for_the_end();
    one.empty();
}
