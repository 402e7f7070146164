//! What the states allow, and what becomes of posted work.

use userdma_verbs::{AsyncEvent, QpAttr, QpAttrMask, WcStatus};
use userdma_wire::Opcode;

use super::*;

#[test]
fn in_rtr_requests_are_executed_and_the_first_is_reported() {
    let attr = attributes();
    let mut b = Side::in_reset();
    b.modify(QpState::Init, &attr, QpAttrMask::ACCESS_FLAGS);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!((b.sends().len(), b.stats.drop_qpn), (0, 1));
    let rtr = QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN;
    b.modify(QpState::Rtr, &attr, rtr | QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER);
    b.post_recv(1, 4096, 8);
    b.post_recv(2, 4096, 8);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    b.receive(&send(Opcode::RcSendOnly, 1, b"x"));
    assert_eq!(b.events(), [AsyncEvent::CommunicationEstablished { qpn: Qpn::new(0x11) }]);
    assert_eq!(b.recv_wcs().len(), 2);
}

#[test]
fn in_sqd_what_was_begun_is_finished_then_reported_and_nothing_new_begins() {
    let mut a = Side::new();
    a.window = Window::new(17 << 10);
    a.post_signaled(1, SendOp::Send, 50 * MTU);
    a.post_signaled(2, SendOp::Send, 8);
    assert_eq!(a.sends().len(), 34);
    let attr = QpAttr { en_sqd_async_notify: true, ..attributes() };
    a.modify(QpState::Sqd, &attr, QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    a.ack(33);
    assert_eq!(a.sends().len(), 16, "the rest of the message");
    a.at_ms(68);
    assert_eq!(a.sends().len(), 16, "lost packets are sent again");
    assert!(a.events().is_empty());
    a.ack(49);
    assert_eq!(a.events(), [AsyncEvent::SqDrained { qpn: Qpn::new(0x11) }]);
    assert!(a.sends().is_empty());
    a.modify(QpState::Rts, &attr, QpAttrMask::empty());
    assert_eq!(a.sends(), ["SEND Only +50 a 8"]);
}

#[test]
fn err_flushes_what_is_posted_and_what_will_be() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    let sgl = [a.sge(0, 8)];
    a.post(2, SendOp::Send, SendFlags::empty(), &sgl);
    a.post_recv(3, 0, 8);
    a.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    assert_eq!(a.sent_wcs(), [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(a.recv_wcs()[0].wr_id, 3);
    a.post(4, SendOp::Send, SendFlags::empty(), &sgl);
    a.post_recv(5, 0, 8);
    a.run(|rc, ctx| rc.handle_doorbell(ctx));
    assert_eq!(a.sent_wcs(), [(4, WcStatus::WrFlushErr)]);
    assert_eq!(a.recv_wcs()[0].wr_id, 5);
    assert_eq!((a.sends().len(), a.window.in_flight(), a.rc.deadline()), (0, 0, None));
}

/// As a program does that disconnects when it has its last message. Otherwise the peer would send that again until it gives up.
#[test]
fn what_was_executed_is_acknowledged_though_the_queue_pair_goes_to_err() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 8);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    b.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    assert_eq!((b.sends().len(), b.stats.sent_acks), (1, 1));
    assert_eq!((b.sends().len(), b.rc.ack_owed_since()), (0, None));
}

#[test]
fn a_message_in_its_middle_gives_its_receive_back_flushed() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 1000);
    b.receive(&send(Opcode::RcSendFirst, 0, &[1; 256]));
    b.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    let wcs = b.recv_wcs();
    assert_eq!((wcs.len(), wcs[0].wr_id, wcs[0].status), (1, 1, WcStatus::WrFlushErr));
}

#[test]
fn reset_forgets_without_completions_and_the_connection_can_be_made_again() {
    let mut a = Side::new();
    a.window = Window::new(17 << 10);
    a.post_signaled(1, SendOp::Send, 50 * MTU);
    assert_eq!(a.sends().len(), 34, "the message stands half sent");
    a.post_recv(3, 0, 8);
    a.modify(QpState::Reset, &attributes(), QpAttrMask::empty());
    assert_eq!((a.sent_wcs().len(), a.recv_wcs().len(), a.window.in_flight()), (0, 0, 0));
    let attr = attributes();
    for (to, mask) in [
        (QpState::Init, QpAttrMask::ACCESS_FLAGS),
        (QpState::Rtr, QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN),
        (QpState::Rts, QpAttrMask::SQ_PSN | QpAttrMask::TIMEOUT | QpAttrMask::RETRY_CNT),
    ] {
        a.modify(to, &attr, mask);
    }
    a.post_signaled(4, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
    a.ack(0);
    assert_eq!(a.sent_wcs(), [(4, WcStatus::Success)]);
}
