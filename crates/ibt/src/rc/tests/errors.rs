//! Wrong requests and wrong memory: the exact NAK, the completions, the event, and silence afterwards.

use userdma_verbs::{AsyncEvent, QpAttr, WcStatus};
use userdma_wire::{NakCode, Opcode, Syndrome};

use super::*;

const INVALID: u8 = 0x61;
const ACCESS: u8 = 0x62;
const OPERATIONAL: u8 = 0x63;

/// Sends `packets` to a fresh responder with one receive of 2000 bytes; the NAK must be about the last.
fn refused(name: &str, syndrome: u8, packets: impl FnOnce(&Side) -> Vec<Vec<u8>>) {
    let mut b = Side::new();
    b.post_recv(1, 8192, 2000);
    let packets = packets(&b);
    let before = b.bytes(0, 8192);
    for packet in &packets {
        b.receive(packet);
    }
    let last = packets.len() - 1;
    let sent = b.sends();
    assert_eq!(
        sent.last().unwrap().split(" msn").next().unwrap(),
        format!("ACK +{last} {syndrome:#04x}"),
        "{name}"
    );
    assert_eq!(b.rc.state(), QpState::Err, "{name}");
    assert_eq!(b.recv_wcs().len(), 1, "{name}: the receive is flushed, or carries the error");
    assert_eq!(b.bytes(0, 8192), before, "{name}: nothing was written");
    b.receive(&send(Opcode::RcSendOnly, packets.len() as u32, b"x"));
    assert!(b.sends().is_empty(), "{name}: silent afterwards");
}

#[test]
fn requests_that_break_the_protocol_earn_an_invalid_request() {
    let mtu = [7; MTU as usize];
    refused("Middle first", INVALID, |_| vec![send(Opcode::RcSendMiddle, 0, &mtu)]);
    refused("First, then Only", INVALID, |_| {
        vec![send(Opcode::RcSendFirst, 0, &mtu), send(Opcode::RcSendOnly, 1, b"x")]
    });
    refused("First, then a WRITE Last", INVALID, |_| {
        vec![send(Opcode::RcSendFirst, 0, &mtu), send(Opcode::RcWriteLast, 1, b"x")]
    });
    refused("First shorter than the MTU", INVALID, |_| vec![send(Opcode::RcSendFirst, 0, &mtu[..200])]);
    refused("Only longer than the MTU", INVALID, |_| vec![send(Opcode::RcSendOnly, 0, &[7; 300])]);
    refused("Last of no bytes", INVALID, |_| {
        vec![send(Opcode::RcSendFirst, 0, &mtu), send(Opcode::RcSendLast, 1, b"")]
    });
    refused("WRITE shorter than it says", INVALID, |b| {
        vec![write(Opcode::RcWriteOnly, 0, b.remote(0), 16, &[7; 8])]
    });
    refused("WRITE longer than it says", INVALID, |b| {
        vec![write(Opcode::RcWriteOnly, 0, b.remote(0), 4, &[7; 8])]
    });
    refused("WRITE First that is all", INVALID, |b| {
        vec![write(Opcode::RcWriteFirst, 0, b.remote(0), MTU, &mtu)]
    });
    refused("READ of more than 2^31 bytes", INVALID, |b| vec![read_request(0, b.remote(0), (1 << 31) + 1)]);
    refused("atomic not on 8 bytes", INVALID, |b| vec![fetch_add(0, b.remote(4), 1)]);
}

#[test]
fn keys_and_ranges_that_do_not_fit_earn_a_remote_access_error() {
    let wrong = |b: &Side| RemoteAddr { rkey: RKey::new(b.key.get() ^ 0x5500), ..b.remote(0) };
    refused("WRITE, wrong key", ACCESS, |b| vec![write(Opcode::RcWriteOnly, 0, wrong(b), 1, b"x")]);
    refused("READ, wrong key", ACCESS, |b| vec![read_request(0, wrong(b), 1)]);
    refused("atomic, wrong key", ACCESS, |b| vec![fetch_add(0, wrong(b), 1)]);
    refused("WRITE past the end", ACCESS, |b| {
        vec![write(Opcode::RcWriteOnly, 0, b.remote((64 << 10) - 1), 2, b"xy")]
    });
    refused("WRITE that would leave the range later", ACCESS, |b| {
        vec![write(Opcode::RcWriteFirst, 0, b.remote((64 << 10) - 300), 600, &[1; 256])]
    });
    refused("READ before the start", ACCESS, |b| {
        vec![read_request(0, RemoteAddr { addr: b.memory.addr() - 1, ..b.remote(0) }, 8)]
    });
    refused("invalidation of a region's key", ACCESS, |b| vec![send_inv(0, b.key.as_rkey(), b"")]);
}

#[test]
fn zero_bytes_need_no_key() {
    let mut b = Side::new();
    let nowhere = RemoteAddr { addr: 0, rkey: RKey::new(0x5555) };
    b.receive(&write(Opcode::RcWriteOnly, 0, nowhere, 0, b""));
    b.receive(&read_request(1, nowhere, 0));
    assert_eq!(b.sends(), ["READ Response Only +1 0x1f msn 2"]);
}

#[test]
fn a_queue_pair_without_the_right_refuses_the_operation() {
    let mut b = Side::with(&QpAttr { qp_access_flags: AccessFlags::REMOTE_READ, ..attributes() });
    b.receive(&read_request(0, b.remote(0), 4));
    b.receive(&write(Opcode::RcWriteOnly, 1, b.remote(0), 1, b"x"));
    assert_eq!(b.sends(), ["READ Response Only +0 0x1f msn 1 4", "ACK +1 0x61 msn 1"]);
    assert_eq!(b.events(), [AsyncEvent::QpRequestError { qpn: Qpn::new(0x11) }]);
}

#[test]
fn an_old_psn_does_not_open_what_the_queue_pair_does_not_grant() {
    let no_right = QpAttr { qp_access_flags: AccessFlags::REMOTE_WRITE, ..attributes() };
    let no_reads = QpAttr { max_dest_rd_atomic: 0, ..attributes() };
    for attr in [no_right, no_reads] {
        let mut b = Side::with(&attr);
        b.receive(&read_request(0xff_fff0, b.remote(0), 64));
        assert!(b.sends().is_empty());
        assert_eq!((b.rc.state(), b.stats.drop_duplicate), (QpState::Rts, 1));
    }
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let mut b = Side::with(&QpAttr { max_dest_rd_atomic: 2, ..attributes() });
    for psn in 0..3 {
        b.receive(&read_request(psn, b.remote(0), 4));
    }
    assert_eq!(b.sends().last().unwrap(), "ACK +2 0x61 msn 2");
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides() {
    let mut b = Side::new();
    b.post_recv(1, 8192, 100);
    b.post_recv(2, 8192, 100);
    b.receive(&send(Opcode::RcSendFirst, 0, &[7; 256]));
    assert_eq!(b.sends(), [format!("ACK +0 {INVALID:#04x} msn 0")]);
    let statuses: Vec<_> = b.recv_wcs().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(statuses, [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert!(b.events().is_empty(), "the completion says it");
}

#[test]
fn a_receive_whose_region_is_gone_fails_here_and_tells_the_peer_that_it_was_not_its_fault() {
    let mut b = Side::new();
    b.post_recv(1, 8192, 100);
    b.mrs.deregister(b.key).unwrap();
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!(b.sends(), [format!("ACK +0 {OPERATIONAL:#04x} msn 0")]);
    assert_eq!(b.recv_wcs()[0].status, WcStatus::LocProtErr);
}

#[test]
fn a_region_that_goes_away_while_a_read_is_answered_ends_it_with_a_nak() {
    let mut b = Side::new();
    b.receive(&read_request(0, b.remote(0), 600));
    b.mrs.deregister(b.key).unwrap();
    assert_eq!(b.sends(), ["ACK +0 0x62 msn 1"]);
    assert_eq!(b.rc.state(), QpState::Err);
}

#[test]
fn a_repeated_read_whose_key_has_ended_is_dropped_and_the_connection_lives() {
    let mut b = Side::new();
    let from = b.remote(0);
    b.receive(&read_request(0, from, 8));
    assert_eq!(b.sends().len(), 1);
    b.mrs.deregister(b.key).unwrap();
    b.receive(&read_request(0, from, 8));
    assert!(b.sends().is_empty());
    assert_eq!((b.rc.state(), b.stats.drop_duplicate), (QpState::Rts, 1));
}

#[test]
fn naks_fail_their_request_and_flush_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccess, WcStatus::RemAccessErr),
        (NakCode::RemoteOperational, WcStatus::RemOpErr),
    ] {
        let mut a = Side::new();
        for id in 1..=3 {
            a.post_signaled(id, SendOp::Send, 8);
        }
        a.post_recv(9, 0, 8);
        a.sends();
        a.receive(&acknowledge(1, Syndrome::Nak(code)));
        assert_eq!(a.sent_wcs(), [(1, WcStatus::Success), (2, status), (3, WcStatus::WrFlushErr)]);
        assert_eq!(a.recv_wcs()[0].status, WcStatus::WrFlushErr);
        assert!(a.sends().is_empty());
    }
}

#[test]
fn a_local_error_waits_until_what_was_before_it_is_answered() {
    let mut a = Side::new();
    a.post_signaled(1, SendOp::Send, 8);
    let bad = [Sge { lkey: LKey::new(0xdead_0000), ..a.sge(0, 8) }];
    a.post(2, SendOp::Send, SendFlags::empty(), &bad);
    a.post_signaled(3, SendOp::Send, 8);
    assert_eq!(a.sends(), ["SEND Only +0 a 8"]);
    assert_eq!(a.sent_wcs(), []);
    a.ack(0);
    assert_eq!(
        a.sent_wcs(),
        [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)],
        "errors complete, signaled or not"
    );
}

#[test]
fn a_read_into_memory_that_may_not_be_written_is_never_sent() {
    let mut a = Side::new();
    let from = a.remote(0);
    let keys = a.mrs.register(PdId(1), a.memory.clone(), a.memory.addr(), AccessFlags::empty()).unwrap();
    let sgl = [Sge { lkey: keys.lkey, ..a.sge(0, 8) }];
    a.post(1, SendOp::Read(from), SendFlags::SIGNALED, &sgl);
    assert!(a.sends().is_empty());
    assert_eq!(a.sent_wcs(), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn a_response_of_the_wrong_length_or_kind_is_a_bad_response() {
    let mut a = Side::new();
    let from = a.remote(0);
    a.post_signaled(1, SendOp::Read(from), 600);
    a.sends();
    a.receive(&read_response(Opcode::RcReadResponseFirst, 0, &[1; 100]));
    assert_eq!(a.sent_wcs(), [(1, WcStatus::BadRespErr)]);

    let mut a = Side::new();
    a.post_signaled(1, SendOp::Read(from), 8);
    a.sends();
    a.receive(&atomic_response(0, 1));
    assert_eq!(a.sent_wcs(), [(1, WcStatus::BadRespErr)]);
}
