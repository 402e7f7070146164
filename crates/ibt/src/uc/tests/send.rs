//! What is sent, when it completes, and what a failure does.

use userdma_verbs::{AccessFlags, AtomicOp, BindMw, PostError, RKey};
use userdma_wire::Opcode;

use super::*;
use crate::Room;

#[test]
fn a_message_is_cut_into_packets_that_ask_for_nothing_and_completes_with_the_last() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 2 * MTU + 3);
    assert_eq!(a.fills(), ["SEND First +0 256", "SEND Middle +1 256", "SEND Last +2 3"]);
    assert!(a.sent_wcs().is_empty() && a.uc.awaits_sending(), "not with the link yet");
    a.run(Uc::handle_sent);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::Success)]);
    assert!(!a.uc.awaits_sending());
    let to = a.remote(0);
    a.post_signaled(2, SendOp::Write(to), MTU + 1);
    a.post_signaled(3, SendOp::WriteWithImm(to, 7), 0);
    a.post_signaled(4, SendOp::SendWithImm(7), 1);
    assert_eq!(
        a.sends(),
        [
            "WRITE First +3 dma 257 256",
            "WRITE Last +4 1",
            "WRITE Only with Immediate +5 dma 0",
            "SEND Only with Immediate +6 1",
        ]
    );
    let wcs: Vec<_> = drain(&a.send_cq).iter().map(|wc| (wc.wr_id, wc.byte_len)).collect();
    assert_eq!(wcs, [(2, 257), (3, 0), (4, 1)]);
    assert!(a.sends().is_empty() && a.sent_wcs().is_empty(), "nothing is sent again");
}

#[test]
fn places_are_free_once_unsignaled_sends_have_left() {
    let mut a = Side::new();
    for round in 0..3 {
        for wr_id in 0..32 {
            a.post(wr_id, SendOp::Send, SendFlags::empty(), &[]);
        }
        let more = SendWr { wr_id: 9, op: SendOp::Send, flags: SendFlags::empty(), sgl: &[], inline: &[] };
        assert!(matches!(a.qp.post_send(&more), Err(PostError::QueueFull { .. })), "round {round}");
        assert_eq!(a.sends().len(), 32);
    }
    assert!(a.sent_wcs().is_empty());
}

#[test]
fn the_last_packet_of_a_solicited_message_says_so() {
    let mut a = Side::new();
    let sgl = [a.sge(0, MTU + 1)];
    a.post(1, SendOp::Send, SendFlags::SOLICITED, &sgl);
    assert_eq!(a.sends(), ["SEND First +0 256", "SEND Last +1 s 1"]);
}

#[test]
fn it_keeps_to_the_pace_and_goes_on_when_there_is_room_or_its_time_has_come() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 200 * MTU);
    let cost = MTU + 768;
    assert_eq!(u32::try_from(a.sends().len()).unwrap(), (128 << 10) / cost, "a burst");
    assert!(a.uc.is_paced() && !a.uc.has_work() && a.sent_wcs().is_empty());
    let ask = a.paces.next_ask().expect("a look at the receiver's buffer");
    let room = Room { used: 0, limit: 20 * cost * 4 / 3 };
    let _ = a.paces.answer(a.now, &ask, Some(room));
    assert_eq!(a.sends().len(), 10, "half of what is free");
    assert!(a.paces.next_ask().is_some());
    let at = a.uc.deadline().expect("a time to try again");
    a.now = at;
    a.run(|uc, ctx| uc.handle_timeout(ctx));
    assert!(a.uc.has_work() && a.uc.deadline().is_none());
    assert!(a.sends().is_empty(), "nobody has answered");
    assert!(a.uc.deadline().is_some_and(|next| next > at));
}

#[test]
fn a_message_longer_than_a_batch_goes_on_in_the_next() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 100 * MTU);
    assert_eq!(a.sends().len(), 100);
    assert_eq!(a.uc.attr().sq_psn, attributes().sq_psn.add(100));
    assert_eq!(a.sent_wcs(), [(1, WcStatus::Success)]);
}

#[test]
fn what_the_service_does_not_have_is_refused_when_it_is_posted() {
    let a = Side::new();
    let to = a.remote(0);
    let atomic = SendOp::Atomic(to, AtomicOp::FetchAdd { add: 1 });
    for op in [SendOp::Read(to), atomic, SendOp::SendWithInv(to.rkey)] {
        let sgl = [a.sge(0, 8)];
        let wr = SendWr { wr_id: 1, op, flags: SendFlags::SIGNALED, sgl: &sgl, inline: &[] };
        assert!(matches!(a.qp.post_send(&wr), Err(PostError::Operation(_))), "{op:?}");
    }
}

#[test]
fn a_window_is_bound_and_invalidated_between_messages() {
    let mut a = Side::new();
    let mw = a.mrs.alloc_mw(a.qp.pd()).unwrap();
    let rkey = RKey::new(mw.get() & !0xff | 0x42);
    let access = AccessFlags::REMOTE_WRITE;
    let bind = BindMw { mw, rkey, mr: a.key, addr: a.memory.addr(), length: 64, access };
    a.post_signaled(1, SendOp::Send, 1);
    a.post_signaled(2, SendOp::BindMw(bind), 0);
    a.post_signaled(3, SendOp::LocalInv(rkey), 0);
    a.post_signaled(4, SendOp::Send, 1);
    assert_eq!(a.sends(), ["SEND Only +0 1", "SEND Only +1 1"]);
    assert_eq!(a.sent_wcs(), [1, 2, 3, 4].map(|wr_id| (wr_id, WcStatus::Success)));
}

#[test]
fn a_send_that_fails_leads_to_sqe_where_receiving_goes_on_and_back_to_rts() {
    let mut a = Side::new();
    a.post_recv(50, 4096, 64);
    a.post_signaled(1, SendOp::Send, 8);
    let wrong = Sge { lkey: LKey::new(0x7777), ..a.sge(0, 8) };
    let half = [a.sge(0, MTU), wrong];
    a.post(2, SendOp::Send, SendFlags::empty(), &half);
    a.post_signaled(3, SendOp::Send, 8);
    assert_eq!(a.fills(), ["SEND Only +0 8", "SEND First +1 256"], "as far as it is right");
    assert_eq!((a.uc.state(), a.sent_wcs().len()), (QpState::Rts, 0), "the first has to leave");
    a.run(Uc::handle_sent);
    assert_eq!(
        a.sent_wcs(),
        [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)],
        "an error completes though it is unsignaled"
    );
    assert_eq!((a.uc.state(), a.qp.state()), (QpState::Sqe, QpState::Sqe));

    a.post_signaled(4, SendOp::Send, 8);
    assert!(a.sends().is_empty());
    assert_eq!(a.sent_wcs(), [(4, WcStatus::WrFlushErr)]);
    a.receive(&packet(Opcode::UcSendOnly, 0, false, b"x", |w| w));
    assert_eq!(a.received(), [(50, 1)]);

    a.modify(QpState::Rts, &attributes(), QpAttrMask::empty());
    a.post_signaled(5, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +2 8"], "the next PSN, from which the peer sees what it missed");
    assert_eq!(a.sent_wcs(), [(5, WcStatus::Success)]);
}

#[test]
fn a_local_operation_that_fails_is_a_send_that_fails() {
    let mut a = Side::new();
    a.post(1, SendOp::LocalInv(RKey::new(0x9900)), SendFlags::empty(), &[]);
    assert!(a.sends().is_empty());
    assert_eq!((a.sent_wcs(), a.uc.state()), (vec![(1, WcStatus::LocQpOpErr)], QpState::Sqe));
}

#[test]
fn in_sqd_what_was_begun_is_finished_then_reported_and_nothing_new_begins() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 70 * MTU);
    a.post_signaled(2, SendOp::Send, 8);
    let mut batch = TxBatch::new(&CAPS);
    assert_eq!(a.run(|uc, ctx| uc.fill(ctx, &mut batch)), Fill::More);
    let attr = QpAttr { en_sqd_async_notify: true, ..attributes() };
    a.modify(QpState::Sqd, &attr, QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(a.events().is_empty());
    assert_eq!(a.sends().len(), 70 - batch.count(), "the rest of the message");
    assert_eq!(a.events(), [AsyncEvent::SqDrained { qpn: Qpn::new(0x11) }]);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::Success)]);
    a.modify(QpState::Rts, &attributes(), QpAttrMask::empty());
    assert_eq!(a.sends(), ["SEND Only +70 8"]);
    a.modify(QpState::Sqd, &attr, QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert_eq!(a.events().len(), 1, "nothing was under way");
}

#[test]
fn err_flushes_what_is_posted_and_what_will_be_and_reset_forgets() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.post_recv(3, 0, 8);
    a.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    assert_eq!(a.sent_wcs(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!((a.recv_wcs()[0].wr_id, a.uc.state()), (3, QpState::Err));
    a.post_signaled(4, SendOp::Send, 8);
    a.post_recv(5, 0, 8);
    assert!(a.sends().is_empty());
    assert_eq!((a.sent_wcs(), a.recv_wcs()[0].wr_id), (vec![(4, WcStatus::WrFlushErr)], 5));
    a.post_recv(6, 0, 8);
    a.modify(QpState::Reset, &attributes(), QpAttrMask::empty());
    assert_eq!((a.sends().len(), a.sent_wcs().len(), a.recv_wcs().len()), (0, 0, 0));
    a.bring_to_rtr(&attributes());
    a.modify(QpState::Rts, &attributes(), QpAttrMask::SQ_PSN);
    a.post_signaled(7, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +0 8"]);
}
