//! What the responder does with requests, and what it answers.

use userdma_verbs::{WcFlags, WcOpcode};
use userdma_wire::Opcode;

use super::*;

#[test]
fn a_send_lands_and_its_acknowledgement_is_owed_not_sent() {
    let mut b = Side::new();
    b.post_recv(7, 4096, 100);
    b.receive(&send(Opcode::RcSendOnly, 0, b"hello"));
    assert!(b.sends_with(false).is_empty());
    assert_eq!(b.rc.ack_owed_since(), Some(Time::ZERO));
    let wcs = b.recv_wcs();
    assert_eq!((wcs.len(), wcs[0].wr_id, wcs[0].byte_len, wcs[0].opcode), (1, 7, 5, WcOpcode::Recv));
    assert_eq!(b.bytes(4096, 5), b"hello");
    assert_eq!(b.sends(), ["ACK +0 0x00 msn 1"], "no credits: no receive is left");
    assert!(b.sends().is_empty());
}

#[test]
fn an_owed_acknowledgement_rides_behind_the_reply_in_one_batch() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 100);
    b.receive(&send(Opcode::RcSendOnly, 0, b"ping"));
    b.post_signaled(2, SendOp::Send, 8);
    let caps = LinkCaps { max_batch_bytes: 60_000, max_batch_packets: 64, mtu: 65_536 };
    let mut batch = TxBatch::new(&caps);
    assert_eq!(b.run(|rc, ctx| rc.fill(ctx, &mut batch, false)), Fill::Done);
    let lines: Vec<_> = batch.packets().map(describe).collect();
    assert_eq!(lines, ["SEND Only +0 a 8", "ACK +0 0x00 msn 1"]);
}

#[test]
fn one_acknowledgement_covers_many_messages_and_tells_the_credits() {
    let mut b = Side::new();
    for k in 0..20 {
        b.post_recv(k, 4096, 100);
    }
    for psn in 0..5 {
        b.receive(&send(Opcode::RcSendOnly, psn, b"x"));
    }
    assert_eq!(b.sends(), ["ACK +4 0x07 msn 5"], "15 receives left: code 7 is 12");
}

#[test]
fn a_message_of_several_packets_fills_a_scatter_list() {
    let mut b = Side::new();
    let sgl = [b.sge(4096, 10), b.sge(8192, 0), b.sge(12_288, 1000)];
    b.qp.post_recv(&RecvWr { wr_id: 1, sgl: &sgl }).unwrap();
    let data: Vec<u8> = (0..600u32).map(|i| (i * 3) as u8).collect();
    b.receive(&send(Opcode::RcSendFirst, 0, &data[..256]));
    b.receive(&send(Opcode::RcSendMiddle, 1, &data[256..512]));
    assert!(b.recv_wcs().is_empty());
    b.receive(&packet(Opcode::RcSendLastImm, 2, true, &data[512..], |w| w.imm(0xfeed)));
    let wcs = b.recv_wcs();
    assert_eq!((wcs[0].byte_len, wcs[0].imm()), (600, Some(0xfeed)));
    assert_eq!([b.bytes(4096, 10), b.bytes(12_288, 590)].concat(), data);
}

#[test]
fn a_write_needs_no_receive_and_one_with_immediate_takes_one() {
    let mut b = Side::new();
    let to = b.remote(4096);
    b.receive(&write(Opcode::RcWriteOnly, 0, to, 4, b"abcd"));
    assert!(b.recv_wcs().is_empty());
    b.post_recv(3, 0, 0);
    b.receive(&write(Opcode::RcWriteFirst, 1, to, 260, &[1; 256]));
    b.receive(&packet(Opcode::RcWriteLastImm, 2, true, &[2; 4], |w| w.imm(9)));
    let wcs = b.recv_wcs();
    assert_eq!(
        (wcs[0].wr_id, wcs[0].opcode, wcs[0].byte_len, wcs[0].imm()),
        (3, WcOpcode::RecvRdmaWithImm, 260, Some(9))
    );
    assert_eq!(b.bytes(4096, 260), [vec![1; 256], vec![2; 4]].concat());
    assert_eq!(b.sends(), ["ACK +2 0x00 msn 2"]);
}

#[test]
fn a_read_is_answered_in_packets_and_takes_as_many_psns() {
    let mut b = Side::new();
    let from = b.remote(0);
    b.receive(&read_request(0, from, 600));
    b.receive(&read_request(3, from, 0));
    b.receive(&read_request(4, from, 5));
    assert_eq!(
        b.sends_with(false),
        [
            "READ Response First +0 0x1f msn 1 256",
            "READ Response Middle +1 256",
            "READ Response Last +2 0x1f msn 1 88",
            "READ Response Only +3 0x1f msn 2",
            "READ Response Only +4 0x1f msn 3 5",
        ]
    );
    assert_eq!(b.rc.ack_owed_since(), None);
}

#[test]
fn atomics_execute_once_and_repeat_their_answer() {
    let mut b = Side::new();
    b.memory.store(0, 40).unwrap();
    let at = b.remote(0);
    b.receive(&fetch_add(0, at, 2));
    b.receive(&fetch_add(0, at, 2));
    assert_eq!(b.sends(), ["ATOMIC ACK +0 0x1f msn 1 was 40"], "the repetition asked before the answer left");
    b.receive(&fetch_add(0, at, 2));
    assert_eq!(b.sends(), ["ATOMIC ACK +0 0x1f msn 1 was 40"]);
    assert_eq!(b.memory.load(0), Ok(42));
    b.receive(&fetch_add(1, at, 1));
    assert_eq!(b.sends(), ["ATOMIC ACK +1 0x1f msn 2 was 42"]);
}

#[test]
fn repeated_answers_come_in_order_and_do_not_count_against_the_peers_limit() {
    let mut b = Side::with(&QpAttr { max_dest_rd_atomic: 2, ..attributes() });
    let at = b.remote(0);
    b.memory.store(0, 0).unwrap();
    for psn in [0, 1] {
        b.receive(&fetch_add(psn, at, 1));
    }
    b.sends();
    for psn in [0, 1, 2] {
        b.receive(&fetch_add(psn, at, 1));
    }
    assert_eq!(
        b.sends(),
        [
            "ATOMIC ACK +0 0x1f msn 1 was 0",
            "ATOMIC ACK +1 0x1f msn 2 was 1",
            "ATOMIC ACK +2 0x1f msn 3 was 2"
        ]
    );
}

#[test]
fn one_nak_per_gap() {
    let mut b = Side::new();
    for k in 0..4 {
        b.post_recv(k, 4096, 100);
    }
    b.receive(&send(Opcode::RcSendOnly, 1, b"x"));
    assert_eq!(b.sends(), ["ACK +0 0x60 msn 0"]);
    b.receive(&send(Opcode::RcSendOnly, 2, b"x"));
    assert!(b.sends().is_empty());
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!(b.sends(), ["ACK +0 0x03 msn 1"]);
    b.receive(&send(Opcode::RcSendOnly, 3, b"x"));
    assert_eq!(b.sends(), ["ACK +1 0x60 msn 1"], "a filled gap re-arms the NAK");
    assert_eq!(b.recv_wcs().len(), 1);
}

#[test]
fn duplicates_are_acknowledged_again_and_delivered_once() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 100);
    b.post_recv(2, 4096, 100);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    b.sends();
    b.receive(&send(Opcode::RcSendOnly, 0, b"y"));
    assert_eq!(b.sends(), ["ACK +0 0x01 msn 1"]);
    assert_eq!((b.recv_wcs().len(), b.bytes(4096, 1)), (1, b"x".to_vec()));
    assert_eq!(b.stats.duplicate_request, 1);
}

#[test]
fn the_rest_of_a_remembered_read_goes_on_with_a_middle() {
    let mut b = Side::new();
    let from = b.remote(0);
    b.receive(&read_request(0, from, 4 * MTU));
    b.sends();
    b.receive(&read_request(2, b.remote(512), 512));
    assert_eq!(b.sends(), ["READ Response Middle +2 256", "READ Response Last +3 0x1f msn 1 256"]);
    b.receive(&read_request(1, b.remote(256), 512));
    assert_eq!(b.sends(), ["READ Response Middle +1 256", "READ Response Last +2 0x1f msn 1 256"]);
    b.receive(&read_request(0, from, 4 * MTU));
    assert_eq!(b.sends()[0], "READ Response First +0 0x1f msn 1 256");
}

#[test]
fn a_read_from_the_future_of_its_psn_is_not_repeated() {
    let mut b = Side::new();
    let from = b.remote(0);
    b.receive(&read_request(0, from, 8));
    b.sends();
    b.receive(&read_request(0, from, 4 * MTU));
    assert!(b.sends().is_empty());
    assert_eq!(b.stats.drop_duplicate, 1);
}

#[test]
fn without_a_receive_the_peer_is_told_once_to_wait() {
    let mut b = Side::new();
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    b.receive(&send(Opcode::RcSendOnly, 1, b"y"));
    assert_eq!(b.sends(), ["ACK +0 0x2c msn 0"], "RNR with timer 12, and nothing for what follows");
    b.post_recv(1, 4096, 100);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!(b.sends(), ["ACK +0 0x00 msn 1"]);
    assert_eq!(b.recv_wcs().len(), 1);
}

#[test]
fn of_refusals_that_wait_behind_a_read_the_last_one_is_sent() {
    let mut b = Side::new();
    b.receive(&read_request(0, b.remote(0), 300));
    for _ in 0..3 {
        b.receive(&send(Opcode::RcSendOnly, 2, b"x"));
    }
    b.receive(&write(Opcode::RcWriteOnly, 2, b.remote(0), 1, b"x"));
    b.receive(&write(Opcode::RcWriteOnly, 4, b.remote(0), 1, b"x"));
    for _ in 0..3 {
        b.receive(&send(Opcode::RcSendOnly, 3, b"x"));
    }
    let read = ["READ Response First +0 0x1f msn 1 256", "READ Response Last +1 0x1f msn 1 44"];
    assert_eq!(b.sends(), [read[0], read[1], "ACK +3 0x2c msn 2"]);
}

#[test]
fn send_with_invalidate_ends_a_window_and_says_so() {
    let mut b = Side::new();
    let mw = b.mrs.alloc_mw(PdId(1)).unwrap();
    let rkey = mw.with_variant(mw.get().to_le_bytes()[0].wrapping_add(1));
    let bind = userdma_verbs::BindMw {
        mw,
        rkey,
        mr: b.key,
        addr: b.memory.addr(),
        length: 4096,
        access: AccessFlags::REMOTE_WRITE,
    };
    b.post(1, SendOp::BindMw(bind), SendFlags::SIGNALED, &[]);
    assert!(b.sends().is_empty());
    assert_eq!(b.sent_wcs(), [(1, WcStatus::Success)]);
    let through = RemoteAddr { addr: b.memory.addr(), rkey };
    b.receive(&write(Opcode::RcWriteOnly, 0, through, 1, b"x"));
    b.post_recv(5, 8192, 10);
    b.receive(&send_inv(1, rkey, b"bye"));
    let wc = b.recv_wcs()[0];
    assert_eq!((wc.status, wc.flags, wc.invalidated_rkey), (WcStatus::Success, WcFlags::WITH_INV, rkey));
    b.sends();
    b.receive(&write(Opcode::RcWriteOnly, 2, through, 1, b"x"));
    assert_eq!(b.sends(), ["ACK +2 0x62 msn 2"]);
}

#[test]
fn a_receive_that_is_denied_stays_for_the_next_try() {
    use userdma_verbs::dice::{Dice, Stream};

    let mut b = Side::new();
    b.rc.set_recv_fault(Dice::new(0.5, Stream::new(7, 1)));
    (0..8).for_each(|wr_id| b.post_recv(wr_id, 4096, 100));
    let mut dice = Dice::new(0.5, Stream::new(7, 1));
    let (mut psn, mut answers) = (0, Vec::new());
    while psn < 8 {
        b.receive(&send(Opcode::RcSendOnly, psn, b"hello"));
        let answer = b.sends().concat();
        let is_denied = dice.cast();
        assert_eq!(answer.contains("0x2c"), is_denied, "RNR NAK with timer 12: {answer}");
        psn += u32::from(!is_denied);
        answers.push(answer);
    }
    assert!(answers.len() > 8, "something was denied");
    let ids: Vec<u64> = b.recv_wcs().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, (0..8).collect::<Vec<_>>(), "no receive is lost");
    // What needs no receive meets no such fault.
    b.rc.set_recv_fault(Dice::new(1.0, Stream::new(7, 1)));
    let to = b.remote(4096);
    b.receive(&write(Opcode::RcWriteOnly, 8, to, 3, b"abc"));
    assert_eq!(b.sends(), ["ACK +8 0x00 msn 9"]);
}
