//! Unreliable connections: what arrives is whole, in order, and comes once; what does not, nobody waits for.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Options, Side, pair_with, pattern};
use userdma::{Error, Inline, PostError, QpAttr, QpAttrMask, QpState, QpType, SendFlags, WcOpcode, WcStatus};

fn unreliable(net: u8, faults: &'static str) -> (Side, Side) {
    let options = Options { qp: |qp| qp.service(QpType::Uc), faults, ..Options::default() };
    pair_with(net, &options)
}

#[test]
fn messages_and_writes_of_every_size_arrive() {
    let (a, b) = unreliable(87, "");
    let (from, to) = (a.mr(64 << 10, 1), b.mr(64 << 10, 2));
    for (wr_id, len) in (0..).zip([0, 1, 255, 4096, 4097, 60_000]) {
        b.qp.post_recv(wr_id, &to.slice(..)).unwrap();
        a.qp.post_send_with_imm(wr_id, &from.slice(..len), 7, SendFlags::SIGNALED).unwrap();
        assert_eq!(a.done(wr_id).opcode, WcOpcode::Send);
        let wc = b.done(wr_id);
        assert_eq!((wc.byte_len as usize, wc.imm_data), (len, 7));
        assert_eq!(to.to_vec(..len).unwrap(), pattern(64 << 10, 1)[..len]);

        to.write(0, &pattern(64 << 10, 2)).unwrap();
        b.qp.post_recv(wr_id, &to.slice(..0)).unwrap();
        a.qp.post_write_with_imm(wr_id, &from.slice(..len), to.remote(), 8, SendFlags::SIGNALED).unwrap();
        a.done(wr_id);
        let wc = b.done(wr_id);
        assert_eq!((wc.byte_len as usize, wc.imm_data, wc.opcode), (len, 8, WcOpcode::RecvRdmaWithImm));
        let found = to.to_vec(..).unwrap();
        assert_eq!((&found[..len], &found[len..]), (&pattern(len, 1)[..], &pattern(64 << 10, 2)[len..]));
    }
}

#[test]
fn what_arrives_over_a_bad_network_is_whole_in_order_and_comes_once() {
    let (a, b) = unreliable(88, "loss=0.02,dup=0.05,reorder=0.05,seed=11");
    const LEN: usize = 10_000;
    const COUNT: u32 = 400;
    let (from, to) = (a.mr(LEN, 1), b.mr(64 * LEN, 2));
    let slot = |n: u64| n as usize % 64 * LEN..(n as usize % 64 + 1) * LEN;
    (0..64).for_each(|n| b.qp.post_recv(n, &to.slice(slot(n))).unwrap());
    let (mut expected, mut arrived) = (0, 0);
    for number in 0..COUNT {
        from.write(0, &pattern(LEN, number as u8)).unwrap();
        a.qp.post_send_with_imm(0, &from.slice(..), number, SendFlags::SIGNALED).unwrap();
        a.done(0);
        while let Some(wc) = b.cq.wait_for(1, Some(Duration::from_millis(2))).unwrap().pop() {
            assert_eq!((wc.status, wc.byte_len as usize), (WcStatus::Success, LEN));
            assert!(wc.imm_data >= expected, "{} after {expected}", wc.imm_data);
            assert!(to.to_vec(slot(wc.wr_id)).unwrap() == pattern(LEN, wc.imm_data as u8));
            (expected, arrived) = (wc.imm_data + 1, arrived + 1);
            b.qp.post_recv(wc.wr_id, &to.slice(slot(wc.wr_id))).unwrap();
        }
    }
    assert!(arrived > COUNT / 2, "{arrived} of {COUNT} arrived");
    assert!(arrived < COUNT, "the network was too good to show anything");
}

#[test]
fn there_are_no_reads_and_a_send_that_fails_can_be_recovered_from() {
    let (a, b) = unreliable(89, "");
    let (mine, theirs) = (a.mr(8, 1), b.mr(8, 2));
    let refused = a.qp.post_read(1, &mine.slice(..), theirs.remote(), SendFlags::SIGNALED);
    assert!(matches!(refused, Err(Error::Post(PostError::Operation(_)))), "{refused:?}");
    let refused = a.qp.post_fetch_add(1, &mine.slice(..), theirs.remote(), 1, SendFlags::SIGNALED);
    assert!(matches!(refused, Err(Error::Post(PostError::Operation(_)))), "{refused:?}");

    a.qp.post_local_inv(2, theirs.rkey(), SendFlags::empty()).unwrap();
    let wc = a.next();
    assert_eq!((wc.wr_id, wc.status), (2, WcStatus::LocQpOpErr));
    assert_eq!(a.qp.state(), QpState::Sqe);
    b.qp.post_send(3, Inline(b"to whom it may concern"), SendFlags::SIGNALED).unwrap();
    b.done(3);
    let attr = QpAttr { qp_state: QpState::Rts, ..QpAttr::default() };
    a.qp.modify(&attr, QpAttrMask::STATE).unwrap();
    b.qp.post_recv(4, &theirs.slice(..)).unwrap();
    a.qp.post_send(5, &mine.slice(..), SendFlags::SIGNALED).unwrap();
    a.done(5);
    b.done(4);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(8, 1));
}

#[test]
fn without_a_receive_a_message_is_lost_and_the_next_one_is_not() {
    let (a, b) = unreliable(90, "");
    let to = b.mr(64, 2);
    a.qp.post_send(1, Inline(b"lost"), SendFlags::SIGNALED).unwrap();
    a.done(1);
    let lost = || b.device.stats().unwrap().drop_no_receive;
    while lost() == 0 {
        let _ = b.cq.poll_one().unwrap();
    }
    b.qp.post_recv(2, &to.slice(..)).unwrap();
    a.qp.post_send(3, Inline(b"found"), SendFlags::SIGNALED).unwrap();
    assert_eq!(b.done(2).byte_len, 5);
}
