//! What completes at the receiver, what is dropped, and that nothing is answered.

use userdma_objects::Srq;
use userdma_verbs::{AccessFlags, RKey, SrqInitAttr, Srqn, WcFlags, WcOpcode};
use userdma_wire::Opcode;

use super::*;

/// A packet of a SEND, or one of a WRITE without its RETH; `psn` counts from the first.
fn plain(opcode: Opcode, psn: u32, payload: &[u8]) -> Vec<u8> {
    packet(opcode, psn, false, payload, |w| w)
}

fn imm(opcode: Opcode, psn: u32, payload: &[u8], imm: u32) -> Vec<u8> {
    packet(opcode, psn, false, payload, |w| w.imm(imm))
}

/// The three packets of a SEND of [`MESSAGE`] bytes from `psn` on, filled with `byte`.
fn message(psn: u32, byte: u8) -> [Vec<u8>; 3] {
    [
        plain(Opcode::UcSendFirst, psn, &[byte; FULL]),
        plain(Opcode::UcSendMiddle, psn + 1, &[byte; FULL]),
        plain(Opcode::UcSendLast, psn + 2, &[byte; 10]),
    ]
}

const MESSAGE: u32 = 2 * MTU + 10;

/// What the memory holds at first.
fn untouched(offset: u64, len: usize) -> Vec<u8> {
    Side::in_reset().bytes(offset, len)
}

#[test]
fn a_send_lands_in_its_receive_and_the_first_is_reported() {
    let mut b = Side::in_reset();
    b.bring_to_rtr(&attributes());
    b.post_recv(1, 4096, 2000);
    b.post_recv(2, 8192, 2000);
    for packet in message(0, 7) {
        b.receive(&packet);
    }
    b.receive(&imm(Opcode::UcSendOnlyImm, 3, b"xyz", 0x1234_5678));
    assert_eq!(b.events(), [AsyncEvent::CommunicationEstablished { qpn: Qpn::new(0x11) }]);
    let wcs = b.recv_wcs();
    assert_eq!((wcs[0].wr_id, wcs[0].byte_len, wcs[0].opcode), (1, MESSAGE, WcOpcode::Recv));
    assert_eq!((wcs[1].wr_id, wcs[1].byte_len, wcs[1].imm_data), (2, 3, 0x1234_5678));
    assert!(wcs[1].flags.contains(WcFlags::WITH_IMM) && wcs.len() == 2);
    assert_eq!(b.bytes(4096, MESSAGE as usize), [7; MESSAGE as usize]);
    assert_eq!(b.uc.attr().rq_psn, attributes().rq_psn.add(4));
}

#[test]
fn a_write_lands_where_it_says_and_takes_a_receive_if_it_has_immediate_data() {
    let mut b = Side::new();
    let to = b.remote(4096);
    b.receive(&write(Opcode::UcWriteFirst, 0, to, MTU + 5, &[1; FULL]));
    b.receive(&plain(Opcode::UcWriteLast, 1, &[2; 5]));
    assert!(b.recv_wcs().is_empty());
    assert_eq!(b.bytes(4096 + u64::from(MTU), 5), [2; 5]);
    b.post_recv(1, 0, 0);
    b.receive(&write(Opcode::UcWriteFirst, 2, to, MTU + 5, &[3; FULL]));
    b.receive(&imm(Opcode::UcWriteLastImm, 3, &[4; 5], 99));
    let wcs = b.recv_wcs();
    assert_eq!((wcs[0].byte_len, wcs[0].imm_data, wcs[0].opcode), (MTU + 5, 99, WcOpcode::RecvRdmaWithImm));
}

#[test]
fn a_message_that_misses_a_packet_is_dropped_whole_and_the_next_uses_its_receive() {
    for missing in 0..3 {
        let mut b = Side::new();
        b.post_recv(1, 4096, 2000);
        b.post_recv(2, 8192, 2000);
        for (at, packet) in message(0, 7).iter().enumerate() {
            if at != missing {
                b.receive(packet);
            }
        }
        assert!(b.received().is_empty(), "without packet {missing}");
        for packet in message(3, 9) {
            b.receive(&packet);
        }
        assert_eq!(b.received(), [(1, MESSAGE)], "without packet {missing}");
        assert_eq!(b.bytes(4096, MESSAGE as usize), [9; MESSAGE as usize]);
        let behind = 4096 + u64::from(MESSAGE);
        assert_eq!(b.bytes(behind, 8), untouched(behind, 8));
        assert_eq!(b.bytes(8192, 8), untouched(8192, 8), "the other receive");
    }
}

#[test]
fn a_message_that_begins_within_another_is_taken_and_the_other_given_up() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 2000);
    let [first, middle, _] = message(0, 7);
    b.receive(&first);
    b.receive(&middle);
    for packet in message(2, 9) {
        b.receive(&packet);
    }
    assert_eq!(b.received(), [(1, MESSAGE)]);
    assert_eq!(b.bytes(4096, MESSAGE as usize), [9; MESSAGE as usize]);
}

#[test]
fn the_rest_of_a_dropped_message_is_dropped_though_its_psn_is_right() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 2000);
    let [first, middle, last] = message(0, 7);
    for packet in [&first, &last, &middle, &last] {
        b.receive(packet);
    }
    assert!(b.received().is_empty());
    let to = b.remote(0);
    b.receive(&write(Opcode::UcWriteFirst, 3, to, 2 * MTU, &[1; FULL]));
    b.receive(&plain(Opcode::UcSendLast, 4, &[2; FULL]));
    b.receive(&plain(Opcode::UcWriteLast, 4, &[2; FULL]));
    assert!(b.received().is_empty(), "a WRITE does not go on with a SEND");
    assert_eq!(b.bytes(u64::from(MTU), 8), untouched(u64::from(MTU), 8));
}

#[test]
fn what_comes_twice_or_late_is_taken_once() {
    let mut b = Side::new();
    for wr_id in 1..=4 {
        b.post_recv(wr_id, 4096 * wr_id, 2000);
    }
    let [first, middle, last] = message(0, 7);
    for packet in [&first, &first, &middle, &first, &middle, &last, &last, &first] {
        b.receive(packet);
    }
    assert_eq!(b.received(), [(1, MESSAGE)]);
    assert_eq!(b.stats.duplicate_request, 5);
    b.receive(&plain(Opcode::UcSendOnly, 4, b"later"));
    b.receive(&plain(Opcode::UcSendOnly, 3, b"early"));
    b.receive(&plain(Opcode::UcSendOnly, 4, b"later"));
    assert_eq!(b.received(), [(2, 5)], "what was overtaken is lost, so that order is kept");
    b.receive(&plain(Opcode::UcSendOnly, 0xff_0000, b"far"));
    assert_eq!(b.received(), [(3, 3)], "so far behind is ahead");
}

#[test]
fn without_a_receive_a_message_is_dropped_and_nobody_waits() {
    let mut b = Side::new();
    let to = b.remote(4096);
    for packet in message(0, 7) {
        b.receive(&packet);
    }
    b.receive(&write(Opcode::UcWriteFirst, 3, to, MTU + 5, &[3; FULL]));
    b.receive(&imm(Opcode::UcWriteLastImm, 4, &[4; 5], 99));
    assert_eq!((b.stats.drop_no_receive, b.stats.sent_pkts), (2, 0));
    assert_ne!(b.bytes(4096 + u64::from(MTU), 5), [4; 5], "the packet with the immediate data is dropped");
    b.post_recv(1, 4096, 2000);
    b.receive(&plain(Opcode::UcSendOnly, 5, b"now"));
    assert_eq!((b.received(), b.uc.state()), (vec![(1, 3)], QpState::Rts));
}

/// `packets` to a fresh receiver with one receive of 64 bytes: all without effect, and the next message is fine.
fn dropped(name: &str, packets: impl FnOnce(&Side) -> Vec<Vec<u8>>) {
    let mut b = Side::new();
    b.post_recv(1, 8192, 64);
    let (packets, before) = (packets(&b), b.bytes(0, 64 << 10));
    for packet in &packets {
        b.receive(packet);
    }
    assert_eq!(b.bytes(0, 64 << 10), before, "{name}: nothing was written");
    assert_eq!((b.stats.drop_refused, b.stats.sent_pkts), (1, 0), "{name}");
    assert_eq!((b.uc.state(), b.events().len()), (QpState::Rts, 0), "{name}");
    b.receive(&plain(Opcode::UcSendOnly, u32::try_from(packets.len()).unwrap(), b"fine"));
    assert_eq!(b.received(), [(1, 4)], "{name}");
}

#[test]
fn a_wrong_message_is_dropped_and_the_connection_goes_on() {
    const END: u64 = 64 << 10;
    dropped("too long for the receive", |_| vec![plain(Opcode::UcSendOnly, 0, &[1; 65])]);
    dropped("first packet too short", |_| vec![plain(Opcode::UcSendFirst, 0, &[1; 60])]);
    dropped("only packet too long", |_| vec![plain(Opcode::UcSendOnly, 0, &[1; FULL + 1])]);
    dropped("key", |b| {
        let to = b.remote(4096);
        let to = RemoteAddr { rkey: RKey::new(to.rkey.get() ^ 1), ..to };
        vec![write(Opcode::UcWriteOnly, 0, to, 4, &[1; 4])]
    });
    dropped("range", |b| vec![write(Opcode::UcWriteOnly, 0, b.remote(END - 3), 4, &[1; 4])]);
    dropped("range of a later packet", |b| {
        let to = b.remote(END - u64::from(MTU));
        vec![write(Opcode::UcWriteFirst, 0, to, MTU + 1, &[1; FULL]), plain(Opcode::UcWriteLast, 1, &[1])]
    });
    dropped("longer than announced", |b| vec![write(Opcode::UcWriteOnly, 0, b.remote(0), 3, &[1; 4])]);
    dropped("shorter than announced", |b| vec![write(Opcode::UcWriteOnly, 0, b.remote(0), 5, &[1; 4])]);
    dropped("longer than any message", |b| {
        vec![write(Opcode::UcWriteFirst, 0, b.remote(0), (1 << 31) + 1, &[1; FULL])]
    });
}

#[test]
fn a_write_that_the_queue_pair_does_not_grant_is_dropped() {
    let mut b = Side::with(&QpAttr { qp_access_flags: AccessFlags::empty(), ..attributes() });
    let (to, before) = (b.remote(4096), b.bytes(4096, 4));
    b.receive(&write(Opcode::UcWriteOnly, 0, to, 4, &[1; 4]));
    assert_eq!((b.bytes(4096, 4), b.stats.drop_refused, b.uc.state()), (before, 1, QpState::Rts));
}

#[test]
fn a_receive_that_leads_nowhere_ends_the_queue_pair() {
    let mut b = Side::new();
    let sgl = [Sge { lkey: LKey::new(0x7777), ..b.sge(0, 64) }];
    b.qp.post_recv(&RecvWr { wr_id: 1, sgl: &sgl }).unwrap();
    b.post_recv(2, 4096, 64);
    b.receive(&plain(Opcode::UcSendOnly, 0, b"x"));
    let wcs: Vec<_> = b.recv_wcs().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(wcs, [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!((b.uc.state(), b.stats.sent_pkts), (QpState::Err, 0));
}

#[test]
fn a_write_leaves_the_receive_of_an_abandoned_message_alone() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 2000);
    b.receive(&message(0, 7)[0]);
    let to = b.remote(0);
    b.receive(&write(Opcode::UcWriteOnly, 3, to, 4, &[1; 4]));
    assert!(b.recv_wcs().is_empty());
    b.receive(&plain(Opcode::UcSendOnly, 4, b"yes"));
    assert_eq!(b.received(), [(1, 3)]);
}

#[test]
fn receives_come_from_a_shared_queue_and_the_last_is_told() {
    let srq = Arc::new(Srq::new(Srqn::new(5), PdId(1), &SrqInitAttr { max_wr: 16, max_sge: 4 }));
    let mut b = Side::in_reset();
    let init = QpInitAttr { qp_type: QpType::Uc, cap: b.qp.cap(), sq_sig_all: false };
    b.qp = QpShared::with_srq(b.qp.qpn(), b.qp.pd(), &init, Arc::clone(&srq));
    b.bring_to_rtr(&attributes());
    for (wr_id, offset) in [(1, 4096), (2, 8192)] {
        srq.post_recv(&RecvWr { wr_id, sgl: &[b.sge(offset, 2000)] }).unwrap();
    }
    b.receive(&message(0, 7)[0]);
    b.receive(&plain(Opcode::UcSendOnly, 3, b"next"));
    assert_eq!((b.received(), srq.recv_count()), (vec![(1, 4)], 1), "the abandoned message's receive");
    let _ = b.events();
    b.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    assert_eq!(b.events(), [AsyncEvent::QpLastWqeReached { qpn: Qpn::new(0x11) }]);
    assert_eq!((b.recv_wcs().len(), srq.recv_count()), (0, 1), "others go on with it");
}

#[test]
fn a_half_received_message_gives_its_receive_back_flushed() {
    let mut b = Side::new();
    b.post_recv(1, 4096, 2000);
    b.receive(&message(0, 7)[0]);
    b.receive(&message(0, 7)[2]);
    b.modify(QpState::Err, &attributes(), QpAttrMask::empty());
    let wcs = b.recv_wcs();
    assert_eq!((wcs.len(), wcs[0].wr_id, wcs[0].status), (1, 1, WcStatus::WrFlushErr));
}
