//! What the requester sends, and what answers do to it.

use userdma_verbs::{AtomicOp, Psn, QpAttr, SendFlags, SendOp, WcStatus};
use userdma_wire::{NakCode, Opcode, Syndrome};

use super::*;

fn ok(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, WcStatus)> {
    ids.into_iter().map(|id| (id, WcStatus::Success)).collect()
}

#[test]
fn messages_are_cut_at_the_path_mtu() {
    let mut a = Side::new();
    let to = a.remote(0);
    a.post_signaled(1, SendOp::Send, 2 * MTU + 1);
    a.post_signaled(2, SendOp::WriteWithImm(to, 5), 2 * MTU);
    a.post_signaled(3, SendOp::Send, MTU);
    a.post_signaled(4, SendOp::Write(to), 0);
    assert_eq!(
        a.sends(),
        [
            "SEND First +0 256",
            "SEND Middle +1 256",
            "SEND Last +2 a 1",
            "WRITE First +3 dma 512 256",
            "WRITE Last with Immediate +4 a 256",
            "SEND Only +5 a 256",
            "WRITE Only +6 a dma 0",
        ]
    );
    assert!(a.sends().is_empty());
    assert!(a.sent_wcs().is_empty());
    a.ack(6);
    assert_eq!(a.sent_wcs(), ok([1, 2, 3, 4]));
    assert_eq!((a.rc.deadline(), a.window.in_flight()), (None, 0));
}

#[test]
fn an_acknowledgement_in_mid_message_completes_nothing_and_unsignaled_sends_are_silent() {
    let mut a = Side::new();
    let sgl = [a.sge(0, 3 * MTU)];
    a.post(1, SendOp::Send, SendFlags::empty(), &sgl);
    a.post(2, SendOp::Send, SendFlags::SIGNALED | SendFlags::SOLICITED, &sgl[..0]);
    assert_eq!(a.sends().last().map(String::as_str), Some("SEND Only +3 a s"));
    a.ack(1);
    assert_eq!(a.sent_wcs(), []);
    a.ack(2);
    assert_eq!(a.sent_wcs(), []);
    a.ack(3);
    assert_eq!(a.sent_wcs(), ok([2]));
}

#[test]
fn a_sequence_nak_goes_back_to_its_psn_and_continues_with_a_middle() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 4 * MTU);
    assert_eq!(a.sends().len(), 4);
    a.receive(&acknowledge(1, Syndrome::Nak(NakCode::PsnSequence)));
    assert_eq!(a.sends(), ["SEND Middle +1 256", "SEND Middle +2 256", "SEND Last +3 a 256"]);
    a.ack(3);
    assert_eq!(a.sent_wcs(), ok([1]));
}

#[test]
fn resent_payload_is_the_right_part_of_the_list() {
    let mut a = Side::new();
    let sgl = [a.sge(100, 200), a.sge(1000, 300), a.sge(5000, 12)];
    a.post(1, SendOp::Send, SendFlags::SIGNALED, &sgl);
    assert_eq!(a.sends().len(), 2);
    a.receive(&acknowledge(1, Syndrome::Nak(NakCode::PsnSequence)));
    let mut batch = TxBatch::new(&LinkCaps { max_batch_bytes: 60_000, max_batch_packets: 64, mtu: 65_536 });
    a.run(|rc, ctx| rc.fill(ctx, &mut batch, false));
    let bytes = batch.bytes().to_vec();
    let payload = Packet::parse(&bytes).unwrap().payload().to_vec();
    assert_eq!(payload, [a.bytes(1056, 244), a.bytes(5000, 12)].concat());
}

#[test]
fn silence_resends_from_the_oldest_unanswered_packet_until_the_retries_are_used_up() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 2 * MTU);
    a.post_signaled(2, SendOp::Send, 8);
    assert_eq!(a.sends().len(), 3);
    a.ack(0);
    for ms in [5, 20] {
        a.at_ms(ms);
        assert_eq!(a.sends().len(), 2, "probes, which are no retries");
    }
    for round in 1..=3 {
        a.at_ms(68 * round - 2);
        assert!(a.sends().is_empty(), "67 ms have not passed");
        a.at_ms(68 * round);
        assert_eq!(a.sends(), ["SEND Last +1 a 256", "SEND Only +2 a 8"]);
    }
    a.at_ms(68 * 4);
    assert!(a.sends().is_empty());
    assert_eq!(a.sent_wcs(), [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!((a.rc.state(), a.rc.deadline()), (QpState::Err, None));
}

#[test]
fn progress_restores_the_retries() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8 * MTU);
    a.sends();
    for k in 0..7 {
        for _ in 0..3 {
            let deadline = a.rc.deadline().unwrap();
            a.at_ms(deadline.nanos() / 1_000_000 + 1);
            assert!(!a.sends().is_empty());
        }
        a.ack(k);
    }
    a.ack(7);
    assert_eq!(a.sent_wcs(), ok([1]));
}

#[test]
fn timeout_zero_waits_for_ever() {
    let mut a = Side::with(&QpAttr { timeout: AckTimeout::new(0).unwrap(), ..attributes() });
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    assert_eq!(a.rc.deadline(), None);
    a.at_ms(1_000_000);
    assert!(a.sends().is_empty());
}

#[test]
fn rnr_waits_for_the_encoded_time_and_nothing_else_resends_meanwhile() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.post_signaled(2, SendOp::Send, 8);
    a.sends();
    a.receive(&rnr(0, 20)); // 10.24 ms
    assert!(a.sends().is_empty());
    a.post_signaled(3, SendOp::Send, 8);
    a.at_ms(10);
    assert!(a.sends().is_empty());
    assert_eq!(a.rc.deadline(), Some(Time::from_nanos(10_240_000)));
    a.at_ms(11);
    assert_eq!(a.sends(), ["SEND Only +0 a 8", "SEND Only +1 a 8", "SEND Only +2 a 8"]);
}

#[test]
fn a_sequence_nak_behind_an_rnr_nak_is_no_loss_and_takes_no_retry() {
    let mut a = Side::with(&QpAttr { retry_cnt: 0, ..attributes() });
    a.post_signaled(1, SendOp::Send, 2 * MTU);
    a.sends();
    a.receive(&rnr(0, 12)); // 0.64 ms
    a.receive(&acknowledge(0, Syndrome::Nak(NakCode::PsnSequence)));
    assert!(a.sends().is_empty());
    assert_eq!((a.rc.state(), a.window.limit()), (QpState::Rts, Window::INITIAL));
    a.at_ms(1);
    assert_eq!(a.sends(), ["SEND First +0 256", "SEND Last +1 a 256"]);
    a.ack(1);
    assert_eq!(a.sent_wcs(), ok([1]));
}

#[test]
fn rnr_gives_up_after_rnr_retry_and_seven_is_for_ever() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    for k in 1..=2 {
        a.receive(&rnr(0, 1));
        a.at_ms(k);
        assert_eq!(a.sends().len(), 1);
    }
    a.receive(&rnr(0, 1));
    assert_eq!(a.sent_wcs(), [(1, WcStatus::RnrRetryExcErr)]);

    let mut a = Side::with(&QpAttr { rnr_retry: 7, ..attributes() });
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    for k in 1..=50 {
        a.receive(&rnr(0, 1));
        a.at_ms(k);
        assert_eq!(a.sends().len(), 1);
    }
}

#[test]
fn a_peer_that_asks_to_wait_is_alive_so_the_retries_are_new() {
    let mut a = Side::with(&QpAttr { retry_cnt: 1, rnr_retry: 7, ..attributes() });
    a.post_signaled(1, SendOp::Send, 8);
    a.sends();
    for k in 1..=10 {
        a.at_ms(70 * k); // the timeout is 67 ms
        assert_eq!(a.sends(), ["SEND Only +0 a 8"], "resend {k}");
        a.receive(&rnr(0, 1));
        a.at_ms(70 * k + 1);
        assert_eq!(a.sends().len(), 1);
    }
    assert!(a.sent_wcs().is_empty());
}

#[test]
fn answers_to_nothing_are_counted_and_ignored() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    a.post_signaled(2, SendOp::Send, 8);
    a.sends();
    a.ack(2); // never sent
    a.ack(0);
    a.ack(0); // again
    a.receive(&acknowledge(0, Syndrome::Nak(NakCode::RemoteAccess))); // about what is done
    a.receive(&rnr(0, 1));
    assert_eq!(a.sent_wcs(), ok([1]));
    assert_eq!((a.stats.unexpected_response, a.rc.state()), (4, QpState::Rts));
    a.ack(1);
    assert_eq!(a.sent_wcs(), ok([2]));
}

#[test]
fn psns_wrap() {
    let mut a = Side::with(&QpAttr { sq_psn: Psn::new(PSN).sub(PSN + 2), ..attributes() });
    a.post_signaled(1, SendOp::Send, 4 * MTU);
    let psns: Vec<_> = a.sends().iter().map(|l| l.split(' ').nth(2).unwrap().to_owned()).collect();
    assert_eq!(psns, ["-4098", "-4097", "-4096", "-4095"]);
    a.ack(0u32.wrapping_sub(4095));
    assert_eq!(a.sent_wcs(), ok([1]));
}

#[test]
fn a_read_lands_in_its_list_and_acknowledges_what_was_before_it() {
    let mut a = Side::new();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Send, 8);
    let sgl = [a.sge(8192, 300), a.sge(16384, 300)];
    a.post(2, SendOp::Read(from), SendFlags::SIGNALED, &sgl);
    assert_eq!(a.sends(), ["SEND Only +0 a 8", "READ Request +1 a dma 600"]);
    let data: Vec<u8> = (0..600u32).map(|i| (i * 7) as u8).collect();
    a.receive(&read_response(Opcode::RcReadResponseFirst, 1, &data[..256]));
    assert_eq!(a.sent_wcs(), ok([1]));
    a.receive(&read_response(Opcode::RcReadResponseMiddle, 2, &data[256..512]));
    a.receive(&read_response(Opcode::RcReadResponseLast, 3, &data[512..]));
    assert_eq!(a.sent_wcs(), ok([2]));
    assert_eq!([a.bytes(8192, 300), a.bytes(16384, 300)].concat(), data);
}

#[test]
fn a_lost_read_response_is_asked_for_again_once_and_may_begin_with_a_middle() {
    let mut a = Side::new();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 4 * MTU);
    a.sends();
    let data = [9; 256];
    a.receive(&read_response(Opcode::RcReadResponseFirst, 0, &data));
    a.receive(&read_response(Opcode::RcReadResponseMiddle, 2, &data));
    assert_eq!(a.sends(), ["READ Request +1 a dma 768"]);
    a.receive(&read_response(Opcode::RcReadResponseLast, 3, &data));
    assert!(a.sends().is_empty(), "one request for one gap");
    a.receive(&read_response(Opcode::RcReadResponseMiddle, 1, &data));
    a.receive(&read_response(Opcode::RcReadResponseMiddle, 2, &data));
    a.receive(&read_response(Opcode::RcReadResponseLast, 3, &data));
    assert_eq!(a.sent_wcs(), ok([1]));
}

#[test]
fn an_acknowledgement_beyond_an_unanswered_read_means_that_its_response_was_lost() {
    let mut a = Side::new();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 8);
    a.post_signaled(2, SendOp::Send, 8);
    a.sends();
    a.ack(1);
    assert_eq!(a.sends(), ["READ Request +0 a dma 8", "SEND Only +1 a 8"]);
    assert_eq!(a.sent_wcs(), []);
    a.receive(&read_response(Opcode::RcReadResponseOnly, 0, &[1; 8]));
    a.ack(1);
    assert_eq!(a.sent_wcs(), ok([1, 2]));
}

#[test]
fn reads_and_atomics_keep_to_the_peers_limit() {
    let mut a = Side::with(&QpAttr { max_rd_atomic: 2, ..attributes() });
    let from = a.remote(0);
    for id in 0..2 {
        a.post_signaled(id, SendOp::Read(from), 8);
    }
    a.post_signaled(2, SendOp::Atomic(from, AtomicOp::FetchAdd { add: 1 }), 8);
    a.post_signaled(3, SendOp::Send, 8);
    assert_eq!(a.sends(), ["READ Request +0 a dma 8", "READ Request +1 a dma 8"]);
    a.receive(&read_response(Opcode::RcReadResponseOnly, 0, &[1; 8]));
    assert_eq!(a.sends(), ["FETCH_ADD +2 a", "SEND Only +3 a 8"]);
}

#[test]
fn an_atomic_gives_the_value_before() {
    let mut a = Side::new();
    let at = a.remote(0);
    a.post_signaled(1, SendOp::Atomic(at, AtomicOp::CompareSwap { compare: 1, swap: 2 }), 8);
    assert_eq!(a.sends(), ["COMPARE_SWAP +0 a"]);
    a.receive(&atomic_response(0, 0x1122_3344_5566_7788));
    assert_eq!(a.sent_wcs(), ok([1]));
    assert_eq!(a.bytes(0, 8), 0x1122_3344_5566_7788u64.to_ne_bytes());
}

#[test]
fn a_fence_waits_for_reads_before_it() {
    let mut a = Side::new();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 8);
    let sgl = [a.sge(0, 8)];
    a.post(2, SendOp::Send, SendFlags::SIGNALED | SendFlags::FENCE, &sgl);
    assert_eq!(a.sends(), ["READ Request +0 a dma 8"]);
    a.receive(&read_response(Opcode::RcReadResponseOnly, 0, &[1; 8]));
    assert_eq!(a.sends(), ["SEND Only +1 a 8"]);
}

#[test]
fn the_window_bounds_what_is_under_way_and_the_packet_that_fills_it_asks_for_an_acknowledgement() {
    let mut a = Side::new();
    a.window = Window::new(17 << 10);
    a.post_signaled(1, SendOp::Send, 60 * MTU);
    let first = a.sends();
    assert_eq!(first.len(), 34, "17 KiB of packets that count 512");
    assert!(a.rc.is_window_blocked() && first.last().unwrap().contains(" a "), "{first:?}");
    a.ack(9);
    assert_eq!(a.sends().len(), 10);
}

#[test]
fn a_long_read_is_asked_for_in_pieces_of_half_a_window() {
    let mut a = Side::new();
    a.window = Window::new(17 << 10);
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 51 * MTU);
    assert_eq!(a.sends(), ["READ Request +0 a dma 4352", "READ Request +17 a dma 4352"]);
    for psn in 0..17 {
        a.receive(&read_response(Opcode::RcReadResponseMiddle, psn, &[1; 256]));
    }
    assert_eq!(a.sends(), ["READ Request +34 a dma 4352"]);
}

#[test]
fn a_read_is_asked_for_again_in_the_same_pieces_though_the_window_has_changed() {
    let mut a = Side::new();
    a.window = Window::new(34 << 10);
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 100 * MTU);
    assert_eq!(a.sends(), ["READ Request +0 a dma 8704", "READ Request +34 a dma 8704"]);
    for psn in 0..5 {
        a.receive(&read_response(Opcode::RcReadResponseMiddle, psn, &[1; 256]));
    }
    a.at_ms(68);
    assert_eq!(a.window.limit(), 17 << 10);
    assert_eq!(a.sends(), ["READ Request +5 a dma 7424", "READ Request +34 a dma 8704"]);
}

#[test]
fn inline_data_needs_no_region_and_is_resent_from_the_copy() {
    let mut a = Side::new();
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED | SendFlags::INLINE,
        sgl: &[],
        inline: b"inline",
    };
    a.qp.post_send(&wr).unwrap();
    a.run(|rc, ctx| rc.handle_doorbell(ctx));
    assert_eq!(a.sends(), ["SEND Only +0 a 6"]);
    a.at_ms(68);
    assert_eq!(a.sends(), ["SEND Only +0 a 6"]);
}

#[test]
fn an_acknowledgement_of_the_first_transmission_after_going_back_is_taken() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 4 * MTU);
    a.sends();
    a.at_ms(68);
    a.ack(2);
    assert_eq!(a.sends(), ["SEND Last +3 a 256"]);
    a.ack(3);
    assert_eq!((a.sent_wcs(), a.window.in_flight()), (ok([1]), 0));
}

/// A local operation takes no PSN, and sending may have gone back to before it when the answer comes after all.
#[test]
fn a_late_answer_passes_over_a_local_operation_that_sending_went_back_to() {
    let late: [fn(&mut Side); 2] = [
        |a| a.at_ms(70),
        |a| a.receive(&acknowledge(0, Syndrome::Rnr { timer: userdma_verbs::RnrTimer::new(1).unwrap() })),
    ];
    for goes_back in late {
        let mut a = Side::new();
        let mw = a.mrs.alloc_mw(a.qp.pd()).unwrap();
        let rkey = mw.with_variant(9);
        let (mr, addr) = (a.sge(0, 8).lkey, a.sge(0, 8).addr);
        let bind = userdma_verbs::BindMw { mw, rkey, mr, addr, length: 8, access: AccessFlags::REMOTE_READ };
        a.post_signaled(1, SendOp::Send, 8);
        a.post(2, SendOp::BindMw(bind), SendFlags::SIGNALED, &[]);
        a.post_signaled(3, SendOp::Send, 8);
        assert_eq!(a.sends().len(), 2);
        goes_back(&mut a);
        a.ack(0);
        assert_eq!(a.sent_wcs(), ok([1, 2]), "the bind was done before");
        a.ack(1);
        assert_eq!(a.sent_wcs(), ok([3]));
        assert_eq!((a.rc.state(), a.window.in_flight()), (QpState::Rts, 0));
    }
}
