//! What the requester does when nothing comes back: probes first, then the ACK timer, unless that was late itself.

use userdma_verbs::{AtomicOp, SendFlags, SendOp, WcStatus};
use userdma_wire::{NakCode, Opcode, Syndrome};

use super::*;

/// An end that knows a round trip of 100 µs: it probes after a millisecond of silence, and after two more.
fn acquainted() -> Side {
    let mut a = Side::new();
    a.post_signaled(0, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
    a.now = Time::from_nanos(100_000);
    a.ack(0);
    assert_eq!(a.sent_wcs(), [(0, WcStatus::Success)]);
    assert_eq!(a.rc.deadline(), None);
    a
}

fn at_us(a: &mut Side, us: u64) {
    a.now = Time::from_nanos(us * 1000);
    a.run(|rc, ctx| rc.handle_timeout(ctx));
}

fn nak(psn: u32) -> Vec<u8> {
    acknowledge(psn, Syndrome::Nak(NakCode::PsnSequence))
}

#[test]
fn after_some_silence_the_oldest_and_the_last_packet_are_sent_again_and_nothing_counts() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 4 * MTU);
    assert_eq!(a.sends().len(), 4);
    let (limit, under_way) = (a.window.limit(), a.window.in_flight());
    assert_eq!(a.rc.deadline(), Some(Time::from_nanos(1_100_000)));
    at_us(&mut a, 1099);
    assert!(a.sends().is_empty());
    at_us(&mut a, 1100);
    assert!(a.run(|rc, ctx| rc.has_work(ctx)));
    assert_eq!(a.sends(), ["SEND First +1 a 256", "SEND Last +4 a 256"]);
    assert!(a.sends().is_empty());
    assert_eq!((a.window.limit(), a.window.in_flight()), (limit, under_way));
    assert_eq!((a.stats.local_ack_timeout_err, a.stats.completer_retry_err, a.stats.sent_probes), (0, 0, 1));
    a.ack(4);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::Success)]);
    assert_eq!((a.rc.deadline(), a.window.in_flight()), (None, 0));
}

#[test]
fn there_are_two_probes_in_a_silence_then_the_ack_timer_and_its_retries() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 8);
    let sent: Vec<_> = (0..400)
        .filter(|ms| {
            at_us(&mut a, 100 + ms * 1000);
            !a.sends().is_empty()
        })
        .collect();
    assert_eq!(sent, [0, 1, 3, 68, 136, 204]);
    assert_eq!(a.stats.sent_probes, 2);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn any_answer_ends_the_silence() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 3 * MTU);
    a.sends();
    at_us(&mut a, 1100);
    a.sends();
    at_us(&mut a, 1200);
    a.ack(1);
    assert_eq!(a.rc.deadline(), Some(Time::from_nanos(2_200_000)));
    at_us(&mut a, 2200);
    assert_eq!(a.sends(), ["SEND Middle +2 a 256", "SEND Last +3 a 256"]);
    a.receive(&nak(2));
    assert_eq!(a.sends(), ["SEND Middle +2 256", "SEND Last +3 a 256"]);
    at_us(&mut a, 3200);
    assert_eq!(a.sends().len(), 2, "what was sent again is lost, too");
    at_us(&mut a, 5200);
    assert_eq!(a.sends().len(), 2);
}

/// The peer had reported the gap, so it drops what follows without a word until the oldest comes.
#[test]
fn a_resend_that_is_lost_is_found_by_the_probe() {
    let (mut a, mut b) = (acquainted(), Side::new());
    b.post_recv(1, 4096, 64);
    b.post_recv(2, 4096, 2048);
    b.receive(&send(Opcode::RcSendOnly, 0, b"hello"));
    assert_eq!(b.sends(), ["ACK +0 0x01 msn 1"]);
    a.post_signaled(1, SendOp::Send, 3 * MTU);
    a.sends();
    b.receive(&send(Opcode::RcSendMiddle, 2, &[0; 256]));
    assert_eq!(b.sends(), ["ACK +1 0x60 msn 1"]);
    a.receive(&nak(1));
    assert_eq!(a.sends().len(), 3);
    b.receive(&send(Opcode::RcSendMiddle, 2, &[0; 256]));
    b.receive(&send(Opcode::RcSendLast, 3, &[0; 256]));
    assert!(b.sends().is_empty(), "silence");
    at_us(&mut a, 1100);
    assert_eq!(a.sends(), ["SEND First +1 a 256", "SEND Last +3 a 256"]);
    b.receive(&send(Opcode::RcSendFirst, 1, &[0; 256]));
    b.receive(&send(Opcode::RcSendLast, 3, &[0; 256]));
    assert_eq!(b.sends(), ["ACK +2 0x60 msn 1"], "it takes the one and misses the next");
    a.receive(&nak(2));
    assert_eq!(a.sends(), ["SEND Middle +2 256", "SEND Last +3 a 256"]);
}

#[test]
fn nothing_is_probed_if_nothing_was_asked() {
    let mut a = acquainted();
    a.post_recv(1, 0, 64);
    a.receive(&send(Opcode::RcSendOnly, 0, b"hello"));
    let sgl = [a.sge(0, 8)];
    a.post(1, SendOp::Send, SendFlags::empty(), &sgl);
    assert!(a.sends()[0].starts_with("SEND Only +1 8"), "in a conversation it does not ask");
    at_us(&mut a, 60_000);
    assert!(a.sends().is_empty());
    assert_eq!(a.stats.sent_probes, 0);
}

#[test]
fn a_read_is_asked_for_again_from_where_its_data_ended_and_stays_out_of_the_second_packet() {
    let mut a = acquainted();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 4 * MTU);
    a.post_signaled(2, SendOp::Send, MTU);
    a.post_signaled(3, SendOp::Read(from), 8);
    a.sends();
    a.receive(&read_response(Opcode::RcReadResponseFirst, 1, &[7; 256]));
    at_us(&mut a, 1100);
    assert_eq!(a.sends(), ["READ Request +2 a dma 768", "SEND Only +5 a 256"]);
    for psn in 2..5 {
        a.receive(&read_response(Opcode::RcReadResponseMiddle, psn, &[7; 256]));
    }
    a.ack(5);
    a.receive(&read_response(Opcode::RcReadResponseOnly, 6, &[7; 8]));
    assert_eq!(a.sent_wcs(), [1, 2, 3].map(|id| (id, WcStatus::Success)));
    assert_eq!((a.rc.deadline(), a.window.in_flight()), (None, 0));
}

#[test]
fn an_atomic_is_probed_by_itself() {
    let mut a = acquainted();
    let at = a.remote(0);
    a.post_signaled(1, SendOp::Atomic(at, AtomicOp::FetchAdd { add: 1 }), 8);
    a.sends();
    at_us(&mut a, 1100);
    assert_eq!(a.sends(), ["FETCH_ADD +1 a"]);
    a.receive(&atomic_response(1, 5));
    assert_eq!(a.sent_wcs(), [(1, WcStatus::Success)]);
}

#[test]
fn a_wait_that_the_peer_asked_for_is_no_silence() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    a.receive(&rnr(1, 20)); // 10.24 ms
    at_us(&mut a, 9000);
    assert!(a.sends().is_empty());
    assert_eq!(a.stats.sent_probes, 0);
}

#[test]
fn without_a_timeout_nothing_is_sent_again_by_itself() {
    let mut a = Side::with(&QpAttr { timeout: AckTimeout::new(0).unwrap(), ..attributes() });
    for wr_id in 0..2 {
        a.post_signaled(wr_id, SendOp::Send, 8);
        a.sends();
        if wr_id == 0 {
            a.ack(0);
        }
    }
    assert_eq!(a.rc.deadline(), None);
    a.at_ms(1_000_000);
    assert!(a.sends().is_empty());
}

#[test]
fn a_probe_that_is_due_ends_with_its_reason() {
    let ends: [fn(&mut Side); 3] = [
        |a| a.ack(1),
        |a| a.receive(&rnr(1, 20)),
        |a| a.modify(QpState::Err, &attributes(), QpAttrMask::empty()),
    ];
    for end in ends {
        let mut a = acquainted();
        a.post_signaled(1, SendOp::Send, 8);
        a.sends();
        at_us(&mut a, 1100);
        end(&mut a);
        assert!(!a.run(|rc, ctx| rc.has_work(ctx)));
        assert!(a.sends().is_empty());
    }
}

#[test]
fn while_the_queue_drains_probes_go_on() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    a.modify(QpState::Sqd, &attributes(), QpAttrMask::empty());
    at_us(&mut a, 1100);
    assert_eq!(a.sends(), ["SEND Only +1 a 8"]);
}

/// Late by more than a quarter of the timeout: we were not running, and the answer may wait in the socket.
#[test]
fn an_ack_timer_that_is_handled_late_starts_again_once_and_takes_no_retry() {
    let mut a = Side::with(&QpAttr { retry_cnt: 0, ..attributes() });
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    at_us(&mut a, 67_109 + 60_000);
    assert_eq!((a.stats.late_ack_timers, a.stats.local_ack_timeout_err), (1, 0));
    assert_eq!(a.sends(), ["SEND Only +0 a 8"], "the probe, which was late as well");
    at_us(&mut a, 67_109 + 60_000 + 67_108);
    a.sends();
    let deadline = Time::from_nanos((67_109 + 60_000 + 67_108) * 1000 + 864);
    assert_eq!(a.rc.deadline(), Some(deadline), "a whole timeout more");
    at_us(&mut a, 67_109 + 60_000 + 67_109 + 60_000);
    assert_eq!(a.sent_wcs(), [(1, WcStatus::RetryExcErr)], "late again, but once is all");
}

#[test]
fn an_answer_or_a_retry_excuses_anew() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 2 * MTU);
    a.sends();
    at_us(&mut a, 100_000);
    a.ack(0);
    at_us(&mut a, 200_000);
    assert_eq!((a.stats.late_ack_timers, a.stats.local_ack_timeout_err), (2, 0));
    at_us(&mut a, 300_000);
    assert_eq!((a.stats.late_ack_timers, a.stats.local_ack_timeout_err), (2, 1));
    a.sends();
    at_us(&mut a, 400_000);
    assert_eq!((a.stats.late_ack_timers, a.stats.local_ack_timeout_err), (3, 1));
}

#[test]
fn an_ack_timer_that_is_hardly_late_counts() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    at_us(&mut a, 67_109 + 16_000);
    assert_eq!((a.stats.late_ack_timers, a.stats.local_ack_timeout_err), (0, 1));
}

#[test]
fn a_loss_makes_the_window_smaller_however_many_packets_lie_since_the_last_one() {
    let mut a = acquainted();
    a.post_signaled(1, SendOp::Send, 2 * MTU);
    a.sends();
    a.receive(&nak(1));
    a.sends();
    a.ack(2);
    let limit = a.window.limit();
    assert!(limit < Window::INITIAL);
    // As if half of the space of PSNs had gone by without a loss.
    let later = Psn::new(PSN).add((1 << 23) + 3);
    (a.rc.req.next_psn, a.rc.req.una_psn, a.rc.req.max_psn) = (later, later, later);
    a.post_signaled(2, SendOp::Send, 2 * MTU);
    a.sends();
    a.receive(&nak((1 << 23) + 3));
    assert!(a.window.limit() < limit);
}
