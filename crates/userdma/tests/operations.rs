//! Every operation between two devices.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use common::{ALL, Options, Side, pair, pair_with, pattern};
use userdma::{AccessFlags, Inline, Mtu, QpState, RtrAttr, SendFlags, WcOpcode, WcStatus};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
/// Around every boundary of an MTU of 1024 and 4096, and more than a batch.
const SIZES: [usize; 10] = [0, 1, 3, 1023, 1024, 1025, 4096, 4097, 20_480, 1 << 20];

#[test]
fn messages_arrive_whole() {
    let (a, b) = pair(220);
    let (from, to) = (a.mr(1 << 20, 1), b.mr(1 << 20, 2));
    for (i, len) in SIZES.into_iter().enumerate() {
        let id = i as u64;
        b.qp.post_recv(100 + id, &to.slice(..)).unwrap();
        a.qp.post_send(id, &from.slice(..len), SIGNALED).unwrap();
        let wc = b.done(100 + id);
        assert_eq!((wc.opcode, wc.byte_len as usize, wc.imm()), (WcOpcode::Recv, len, None));
        assert_eq!(to.to_vec(..len).unwrap(), pattern(len, 1));
        assert_eq!(a.done(id).opcode, WcOpcode::Send);
    }
}

#[test]
fn messages_carry_immediate_data_and_fill_lists_in_order() {
    let (a, b) = pair(221);
    let (from, to) = (a.mr(10_000, 3), b.mr(10_000, 0));
    let pieces: Vec<_> =
        [(9_000, 1000), (0, 1), (500, 0), (100, 3999)].map(|(at, len)| from.slice(at..at + len)).into();
    let places: Vec<_> = [(0, 10), (5000, 4500), (20, 600)].map(|(at, len)| to.slice(at..at + len)).into();
    b.qp.post_recv(7, &places).unwrap();
    a.qp.post_send_with_imm(1, &pieces, 0xdead_beef, SIGNALED | SendFlags::SOLICITED).unwrap();
    let wc = b.done(7);
    assert_eq!((wc.byte_len, wc.imm()), (5000, Some(0xdead_beef)));
    a.done(1);
    let all = pattern(10_000, 3);
    let sent = [&all[9_000..], &all[..1], &all[100..4099]].concat();
    let got =
        [to.to_vec(..10).unwrap(), to.to_vec(5000..9500).unwrap(), to.to_vec(20..510).unwrap()].concat();
    assert_eq!(got, sent);
}

#[test]
fn inline_data_is_taken_at_post_time() {
    let (a, b) = pair(33);
    let to = b.mr(512, 0);
    let mut bytes = pattern(512, 9);
    b.qp.post_recv(1, &to.slice(..)).unwrap();
    a.qp.post_send(2, Inline(&bytes), SIGNALED).unwrap();
    bytes.fill(0);
    b.done(1);
    assert_eq!(to.to_vec(..).unwrap(), pattern(512, 9));
    a.done(2);
}

#[test]
fn writes_and_reads_reach_the_peers_memory() {
    let (a, b) = pair(34);
    let (mine, theirs) = (a.mr(1 << 20, 4), b.mr(1 << 20, 5));
    let remote = theirs.remote();
    for (i, len) in SIZES.into_iter().enumerate() {
        let id = i as u64;
        a.qp.post_write(id, &mine.slice(..len), remote, SIGNALED).unwrap();
        assert_eq!(a.done(id).opcode, WcOpcode::RdmaWrite);
        assert_eq!(theirs.to_vec(..len).unwrap(), pattern(len, 4));
    }
    theirs.write(0, &pattern(1 << 20, 6)).unwrap();
    for (i, len) in SIZES.into_iter().enumerate() {
        let (id, at) = (i as u64, (1 << 20) - len);
        a.qp.post_read(id, &mine.slice(at..), remote.at(at as u64), SIGNALED).unwrap();
        let wc = a.done(id);
        assert_eq!((wc.opcode, wc.byte_len as usize), (WcOpcode::RdmaRead, len));
        assert_eq!(mine.to_vec(at..).unwrap(), pattern(1 << 20, 6)[at..]);
    }
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let (a, b) = pair(35);
    let (mine, theirs) = (a.mr(5000, 7), b.mr(5000, 8));
    b.qp.post_recv(5, ()).unwrap();
    a.qp.post_write_with_imm(1, &mine.slice(..), theirs.remote(), 42, SIGNALED).unwrap();
    let wc = b.done(5);
    assert_eq!((wc.opcode, wc.byte_len, wc.imm()), (WcOpcode::RecvRdmaWithImm, 5000, Some(42)));
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(5000, 7));
    a.done(1);
}

#[test]
fn atomics_change_the_peers_word_and_give_back_the_old() {
    let (a, b) = pair(36);
    let (mine, theirs) = (a.mr(16, 0), b.mr(64, 0));
    theirs.store(8, 1000).unwrap();
    let remote = theirs.remote().at(8);
    a.qp.post_fetch_add(1, &mine.slice(..8), remote, 5, SIGNALED).unwrap();
    assert_eq!(a.done(1).opcode, WcOpcode::FetchAdd);
    a.qp.post_compare_swap(2, &mine.slice(8..), remote, 1005, 7, SIGNALED).unwrap();
    assert_eq!(a.done(2).opcode, WcOpcode::CompSwap);
    assert_eq!((mine.load(0).unwrap(), mine.load(8).unwrap(), theirs.load(8).unwrap()), (1000, 1005, 7));
    a.qp.post_compare_swap(3, &mine.slice(..8), remote, 1005, 9, SIGNALED).unwrap();
    a.done(3);
    assert_eq!((mine.load(0).unwrap(), theirs.load(8).unwrap()), (7, 7), "no match, no swap");
}

/// Binds a window on `b`, and tells what `a` gets for a WRITE through it: before, while, and after it is valid.
#[test]
fn a_window_opens_a_part_of_a_region_until_it_is_invalidated() {
    let (a, b) = pair(37);
    let mine = a.mr(64, 1);
    let theirs = b.pd.alloc(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND).unwrap();
    let mw = b.pd.alloc_mw().unwrap();
    let part = theirs.slice(1024..1088);
    let remote = b.qp.post_bind_mw(1, &mw, &part, AccessFlags::REMOTE_WRITE, SIGNALED).unwrap();
    assert_eq!(b.done(1).opcode, WcOpcode::BindMw);
    assert_eq!(remote.rkey, mw.rkey());
    a.qp.post_write(1, &mine.slice(..), remote, SIGNALED).unwrap();
    a.done(1);
    assert_eq!(theirs.to_vec(1024..1088).unwrap(), pattern(64, 1));

    // The peer's SEND closes it.
    b.qp.post_recv(2, ()).unwrap();
    a.qp.post_send_with_inv(2, (), remote.rkey, SIGNALED).unwrap();
    let wc = b.done(2);
    assert_eq!((wc.invalidated_rkey, wc.flags), (remote.rkey, userdma::WcFlags::WITH_INV));
    a.done(2);
    a.qp.post_write(3, &mine.slice(..), remote, SIGNALED).unwrap();
    assert_eq!(a.next().status, WcStatus::RemAccessErr);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Err, QpState::Err));
}

#[test]
fn a_window_can_be_closed_by_its_own_side_and_bound_again() {
    let (a, b) = pair(38);
    let mine = a.mr(64, 1);
    let theirs = b.pd.alloc(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND).unwrap();
    let mw = b.pd.alloc_mw().unwrap();
    for round in 0..5 {
        let part = theirs.slice(round * 64..round * 64 + 64);
        let remote = b.qp.post_bind_mw(1, &mw, &part, AccessFlags::REMOTE_WRITE, SIGNALED).unwrap();
        b.done(1);
        a.qp.post_write(2, &mine.slice(..), remote, SIGNALED).unwrap();
        a.done(2);
        b.qp.post_local_inv(3, remote.rkey, SIGNALED).unwrap();
        assert_eq!(b.done(3).opcode, WcOpcode::LocalInv);
    }
    assert_eq!(theirs.to_vec(..320).unwrap(), pattern(64, 1).repeat(5));
    let held = theirs.deregister().unwrap_err();
    assert!(held.to_string().contains("still used"), "the window holds what it was bound to: {held}");
    drop(mw);
    held.mr.deregister().unwrap();
}

#[test]
fn unsignaled_operations_end_with_the_next_signaled_one() {
    let (a, b) = pair(39);
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 2));
    let empty = SendFlags::empty();
    for _ in 0..10 {
        a.qp.post_write(1, &mine.slice(..32), theirs.remote(), empty).unwrap();
    }
    a.qp.post_read(2, &mine.slice(32..), theirs.remote(), empty | SendFlags::FENCE).unwrap();
    a.qp.post_write(3, Inline(b"last"), theirs.remote(), SIGNALED | SendFlags::FENCE).unwrap();
    a.done(3);
    assert_eq!(a.cq.poll_one().unwrap(), None);
    assert_eq!(mine.to_vec(32..).unwrap(), pattern(32, 1), "the READ saw the WRITEs before it");
    mine.deregister().unwrap();
}

#[test]
fn every_path_mtu_works_and_ipv6_too() {
    for (net, path_mtu) in (40..).zip(Mtu::ALL) {
        let rtr = RtrAttr { path_mtu: Some(path_mtu), ..RtrAttr::default() };
        round_trip(&pair_with(net, &Options { rtr, ..Options::default() }));
    }
    let port = 47_910;
    let open = |ip: &str| userdma::Device::builder().name(ip).private_port(port).open().unwrap();
    let a = open("::1");
    // One address: the device talks to itself.
    round_trip(&common::connect(&a, &a, &Options::default()));
}

#[test]
fn one_device_talks_to_itself() {
    let device = userdma::Device::open("127.0.45.2").unwrap();
    round_trip(&common::connect(&device, &device, &Options::default()));
}

fn round_trip((a, b): &(Side, Side)) {
    let (mine, theirs) = (a.mr(100_000, 1), b.mr(100_000, 2));
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    a.qp.post_send(2, &mine.slice(..), SIGNALED).unwrap();
    b.done(1);
    a.done(2);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(100_000, 1));
    theirs.write(0, &pattern(100_000, 3)).unwrap();
    a.qp.post_read(3, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(3);
    assert_eq!(mine.to_vec(..).unwrap(), pattern(100_000, 3));
}

#[test]
fn what_the_peer_may_not_do_is_refused_and_both_sides_are_told() {
    let (a, b) = pair(46);
    let mine = a.mr(64, 1);
    let theirs = b.pd.alloc(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ).unwrap();
    a.qp.post_read(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(1);
    a.qp.post_write(2, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.qp.post_write(3, &mine.slice(..), theirs.remote(), SendFlags::empty()).unwrap();
    assert_eq!(a.next().status, WcStatus::RemAccessErr);
    let flushed = a.next();
    assert_eq!((flushed.wr_id, flushed.status), (3, WcStatus::WrFlushErr), "even unsignaled");
    let event = b.device.wait_event(common::LONG).unwrap();
    assert_eq!(event, Some(userdma::AsyncEvent::QpAccessError { qpn: b.qp.qpn() }));
    assert_eq!(theirs.to_vec(..).unwrap(), vec![0; 64]);
}

#[test]
fn vectors_come_back_when_nothing_uses_them() {
    let (a, b) = pair(47);
    let from = a.pd.register(pattern(3000, 1), ALL).unwrap();
    let to = b.pd.register(vec![0; 3000], ALL).unwrap();
    b.qp.post_recv(1, &to.slice(..)).unwrap();
    let busy = to.into_vec().unwrap_err();
    assert!(busy.to_string().contains("1 other"), "the posted receive: {busy}");
    a.qp.post_send(2, &from.slice(..), SIGNALED).unwrap();
    b.done(1);
    a.done(2);
    assert_eq!(busy.mr.into_vec().unwrap(), pattern(3000, 1));
    assert_eq!(from.into_vec().unwrap(), pattern(3000, 1));
}
