//! What becomes of datagrams that arrive.

use std::net::{Ipv4Addr, Ipv6Addr};

use userdma_verbs::{LKey, QpState, RecvWr, Sge, WcFlags, WcOpcode, WcStatus};

use super::{OWN_KEY, PEER, PEER_KEY, Side, completions, datagram, ends, peer};

#[test]
fn where_a_datagram_came_from_stands_before_it() {
    let mut side = Side::new();
    side.post_recv(1, 1000, 40 + 5);
    let bytes = datagram(OWN_KEY, Some(9), b"hello");
    side.arrive_from(&bytes, Ipv4Addr::new(127, 0, 0, 3).into(), Ipv4Addr::new(127, 0, 0, 2).into());
    let [wc] = completions(&side.recv_cq)[..] else { panic!("one completion") };
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (1, WcStatus::Success, WcOpcode::Recv));
    assert_eq!((wc.byte_len, wc.src_qp, wc.imm()), (45, PEER, Some(9)));
    assert!(wc.flags.contains(WcFlags::GRH) && wc.sl == userdma_verbs::Wc::SL_IPV4);
    assert_eq!(side.bytes(1040, 5), b"hello");
    let header = side.bytes(1000, 40);
    assert_eq!(header[..20], [0; 20]);
    // 20 of IPv4, 8 of UDP, BTH, DETH, immediate data, 5 and 3 of padding, ICRC.
    assert_eq!(
        header[20..32],
        [0x45, 0x68, 0, 20 + 8 + 12 + 8 + 4 + 8 + 4, 0, 0, 0x40, 0, 64, 17, header[30], header[31]]
    );
    assert_eq!(header[32..], [127, 0, 0, 3, 127, 0, 0, 2]);
    let sum: u32 = header[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum is right");
}

#[test]
fn over_ipv6_it_is_the_ipv6_header() {
    let mut side = Side::new();
    side.post_recv(1, 0, 100);
    let (remote, local): (Ipv6Addr, Ipv6Addr) = ("fd99::3".parse().unwrap(), "fd99::2".parse().unwrap());
    side.arrive_from(&datagram(OWN_KEY, None, b"six!"), remote.into(), local.into());
    let header = side.bytes(0, 40);
    assert_eq!(header[..8], [0x66, 0x80, 0, 0, 0, 8 + 12 + 8 + 4 + 4, 17, 64]);
    assert_eq!((&header[8..24], &header[24..]), (&remote.octets()[..], &local.octets()[..]));
    assert_eq!(side.bytes(40, 4), b"six!");
    assert_eq!(completions(&side.recv_cq)[0].byte_len, 44);
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let mut side = Side::new();
    side.arrive(OWN_KEY, b"no receive");
    assert_eq!(side.stats.drop_no_receive, 1);
    side.post_recv(1, 0, 40 + 4);
    side.arrive(PEER_KEY, b"key");
    assert_eq!(side.stats.qkey_viol_cntr, 1);
    side.arrive(OWN_KEY, b"long!");
    assert_eq!(side.stats.drop_too_long, 1);
    assert!(completions(&side.recv_cq).is_empty());
    assert_eq!(side.bytes(0, 8), [0, 1, 2, 3, 4, 5, 6, 7], "nothing was written");
    side.arrive(OWN_KEY, b"fits");
    assert_eq!(ends(&side.recv_cq), [(1, WcStatus::Success)], "the receive was kept");
}

#[test]
fn a_receive_into_nowhere_ends_the_queue_pair() {
    let mut side = Side::new();
    let wrong = [Sge { lkey: LKey::new(99), ..side.sge(0, 100) }];
    side.qp.post_recv(&RecvWr { wr_id: 1, sgl: &wrong }).unwrap();
    side.post_recv(2, 0, 100);
    side.post(3, 8, &peer());
    side.arrive(OWN_KEY, b"data");
    assert_eq!(ends(&side.recv_cq), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(ends(&side.send_cq), [(3, WcStatus::WrFlushErr)]);
    assert_eq!(side.ud.state(), QpState::Err);
}
