//! When the requester asks for acknowledgements, and what it does if nobody was asked.

use userdma_verbs::{BindMw, SendFlags, SendOp, WcStatus};
use userdma_wire::{Opcode, Syndrome};

use super::*;

/// An end whose peer has sent a request just now.
fn in_conversation() -> Side {
    let mut a = Side::new();
    a.post_recv(1, 0, 64);
    a.receive(&send(Opcode::RcSendOnly, 0, b"hello"));
    assert_eq!(a.sends().len(), 1, "its acknowledgement");
    a
}

fn post_unsignaled(a: &mut Side, wr_id: u64, len: u32) {
    let sgl = [a.sge(0, len)];
    a.post(wr_id, SendOp::Send, SendFlags::empty(), &sgl);
}

/// What binds a new window.
fn binding(a: &mut Side) -> BindMw {
    let mw = a.mrs.alloc_mw(PdId(1)).unwrap();
    let rkey = mw.with_variant(mw.get().to_le_bytes()[0].wrapping_add(1));
    BindMw { mw, rkey, mr: a.key, addr: a.memory.addr(), length: 64, access: AccessFlags::REMOTE_WRITE }
}

#[test]
fn the_last_of_several_unsignaled_messages_asks_for_all() {
    let mut a = Side::new();
    for wr_id in 0..3 {
        post_unsignaled(&mut a, wr_id, 8);
    }
    assert_eq!(a.sends(), ["SEND Only +0 8", "SEND Only +1 8", "SEND Only +2 a 8"]);
    post_unsignaled(&mut a, 3, 8);
    assert_eq!(a.sends(), ["SEND Only +3 a 8"], "nothing follows");
}

#[test]
fn in_a_conversation_only_completions_and_every_sixteenth_packet_ask() {
    let mut a = in_conversation();
    let mut asking = Vec::new();
    for wr_id in 0..40 {
        if wr_id == 20 {
            a.post_signaled(wr_id, SendOp::Send, 8);
        } else {
            post_unsignaled(&mut a, wr_id, 8);
        }
        if a.sends().pop().unwrap().contains(" a ") {
            asking.push(wr_id);
            a.ack(u32::try_from(wr_id).unwrap());
        }
    }
    assert_eq!(asking, [15, 20, 36]);
    assert_eq!(a.sent_wcs(), [(20, WcStatus::Success)]);
}

#[test]
fn a_conversation_is_over_after_a_pause() {
    let mut a = in_conversation();
    a.now = Time::from_nanos(200_000);
    post_unsignaled(&mut a, 1, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
}

#[test]
fn a_queue_that_is_half_full_asks() {
    let mut a = in_conversation();
    let half = u64::from(a.qp.cap().max_send_wr / 2);
    let asks: Vec<_> = (1..=half + 2)
        .map(|wr_id| {
            post_unsignaled(&mut a, wr_id, 8);
            a.sends()[0].contains(" a ")
        })
        .collect();
    assert_eq!(asks[usize::try_from(half).unwrap() - 2..], [false, true, true, true]);
}

#[test]
fn without_a_timeout_every_message_asks() {
    let mut a = Side::with(&QpAttr { timeout: AckTimeout::new(0).unwrap(), ..attributes() });
    a.post_recv(1, 0, 64);
    a.receive(&send(Opcode::RcSendOnly, 0, b"hello"));
    a.sends();
    post_unsignaled(&mut a, 1, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
}

#[test]
fn the_timer_asks_by_the_last_packet_alone_and_nothing_counts_as_lost() {
    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    post_unsignaled(&mut a, 2, 2 * MTU + 4);
    let limit = a.window.limit();
    assert_eq!(a.sends().len(), 4);
    a.at_ms(68);
    assert_eq!(a.sends(), ["SEND Last +3 a 4"]);
    assert_eq!((a.stats.local_ack_timeout_err, a.window.limit()), (0, limit));
    a.ack(3);
    assert_eq!((a.rc.deadline(), a.window.in_flight(), a.qp.outstanding_sends()), (None, 0, 0));
}

#[test]
fn an_answer_to_the_question_may_be_that_packets_were_lost() {
    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    post_unsignaled(&mut a, 2, 8);
    a.sends();
    a.at_ms(68);
    assert_eq!(a.sends(), ["SEND Only +1 a 8"]);
    a.receive(&acknowledge(0, Syndrome::Nak(userdma_wire::NakCode::PsnSequence)));
    assert_eq!(a.sends(), ["SEND Only +0 a 8", "SEND Only +1 a 8"]);
    a.ack(1);
    assert_eq!(a.rc.deadline(), None);
}

/// The error waits until everything before it is answered.
#[test]
fn a_request_that_cannot_be_sent_makes_the_one_before_it_ask() {
    let mut a = in_conversation();
    let wrong = Sge { lkey: userdma_verbs::LKey::new(1), ..a.sge(0, 8) };
    let sgl = [a.sge(0, 8)];
    let (send, flags) = (SendOp::Send, SendFlags::empty());
    a.qp.post_send(&SendWr { wr_id: 1, op: send, flags, sgl: &sgl, inline: &[] }).unwrap();
    a.post(2, send, flags, &[wrong]);
    assert_eq!(a.sends(), ["SEND Only +0 8", "SEND Only +0 a 8"]);
    a.ack(0);
    assert_eq!(a.sent_wcs(), [(2, WcStatus::LocProtErr)]);
}

/// A request that cannot be sent and is the oldest waits for nobody.
#[test]
fn the_first_packets_of_a_request_that_cannot_be_sent_do_not_ask() {
    let mut a = in_conversation();
    let sgl = [a.sge(0, MTU), Sge { lkey: userdma_verbs::LKey::new(1), ..a.sge(0, 8) }];
    a.post(1, SendOp::Send, SendFlags::empty(), &sgl);
    assert_eq!(a.sends(), ["SEND First +0 256"]);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::LocProtErr)]);
}

/// A completion that waits for no packet of its own must not wait for the timer.
#[test]
fn a_signaled_local_operation_makes_the_message_before_it_ask() {
    let mut a = Side::new();
    let op = SendOp::BindMw(binding(&mut a));
    let sgl = [a.sge(0, 8)];
    let none = SendFlags::empty();
    a.qp.post_send(&SendWr { wr_id: 1, op: SendOp::Send, flags: none, sgl: &sgl, inline: &[] }).unwrap();
    a.post(2, op, SendFlags::SIGNALED, &[]);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"], "nothing with a packet follows");

    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    assert_eq!(a.sends(), ["SEND Only +0 8"]);
    let op = SendOp::BindMw(binding(&mut a));
    a.post(2, op, SendFlags::SIGNALED, &[]);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
    a.ack(0);
    assert_eq!(a.sent_wcs(), [(2, WcStatus::Success)]);
}

#[test]
fn a_queue_that_is_to_drain_asks() {
    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    assert_eq!(a.sends(), ["SEND Only +0 8"]);
    a.modify(
        QpState::Sqd,
        &QpAttr { en_sqd_async_notify: true, ..attributes() },
        QpAttrMask::EN_SQD_ASYNC_NOTIFY,
    );
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
    a.ack(0);
    assert_eq!(a.effects.events, [AsyncEvent::SqDrained { qpn: a.qp.qpn() }]);
}

/// In a conversation too: nothing new begins that could ask later.
#[test]
fn a_message_that_ends_while_the_queue_drains_asks() {
    let mut a = in_conversation();
    a.window.on_sent(a.window.limit() - 300);
    post_unsignaled(&mut a, 1, 2 * MTU);
    assert_eq!(a.sends().len(), 1);
    a.modify(QpState::Sqd, &attributes(), QpAttrMask::empty());
    a.window.forget(a.window.limit() / 2);
    assert_eq!(a.sends(), ["SEND Last +1 a 256"]);
}

/// A window that is full of packets which nobody acknowledges must not keep the question back.
#[test]
fn the_timer_asks_though_the_window_is_full() {
    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    post_unsignaled(&mut a, 2, 8);
    a.sends();
    let limit = a.window.limit();
    a.window.on_sent(limit);
    a.at_ms(68);
    assert_eq!(a.sends(), ["SEND Only +1 a 8"]);
    a.at_ms(140);
    assert_eq!(a.stats.local_ack_timeout_err, 1);
}

#[test]
fn a_question_without_an_answer_is_a_loss() {
    let mut a = in_conversation();
    post_unsignaled(&mut a, 1, 8);
    a.sends();
    a.at_ms(68);
    a.sends();
    a.at_ms(140);
    assert_eq!(a.stats.local_ack_timeout_err, 1);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
}

#[test]
fn a_local_operation_is_executed_once_though_sending_goes_back_over_it() {
    let mut a = Side::new();
    let bind = binding(&mut a);
    let rkey = bind.rkey;
    a.post_signaled(1, SendOp::Send, 8);
    a.post(2, SendOp::BindMw(bind), SendFlags::SIGNALED, &[]);
    a.post(3, SendOp::LocalInv(rkey), SendFlags::SIGNALED, &[]);
    a.post_signaled(4, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8", "SEND Only +1 a 8"]);
    a.at_ms(68);
    assert_eq!(a.sends(), ["SEND Only +0 a 8", "SEND Only +1 a 8"], "both are lost");
    a.ack(1);
    assert_eq!(a.sent_wcs(), [1, 2, 3, 4].map(|id| (id, WcStatus::Success)));
}

/// The packet that cannot be filled is the first of its batch, which is empty again then.
#[test]
fn a_fault_at_the_start_of_a_batch_has_those_before_it_asked_for_at_once() {
    let mut a = Side::new();
    post_unsignaled(&mut a, 1, 8);
    let nowhere = Sge { lkey: LKey::new(0), ..a.sge(0, 64) };
    a.post(2, SendOp::Send, SendFlags::SIGNALED, &[nowhere]);
    assert_eq!(a.sends(), ["SEND Only +0 8", "SEND Only +0 a 8"]);
    a.ack(0);
    assert_eq!(a.sent_wcs(), [(2, WcStatus::LocProtErr)]);
}
