//! Queue pair 1: which packets are management datagrams, where they go, and what happens when nobody takes them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::IpAddr;

use userdma_mem::{Frame, FrameMeta, LinkCaps, LinkId, TxBatch};
use userdma_nic::{GidEntry, Management, ManagementError, Shard, ShardConfig};
use userdma_verbs::{Gid, PKey, Psn, QKey, Qpn, Time};
use userdma_wire::gsi::{self, PACKET_LEN};
use userdma_wire::mad::MAD_LEN;
use userdma_wire::{Bth, Deth, IcrcCheck, Opcode, Packet, PacketWriter, Pseudo, packet_len};

const CAPS: LinkCaps = LinkCaps { max_batch_bytes: 65_507, max_batch_packets: 64, mtu: 1500 };
const TX_PORT: u16 = 50_001;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A device with an IPv4 and an IPv6 address.
fn device() -> Shard {
    let gid = |link: u8, address: &str| GidEntry {
        gid: Gid::from(ip(address)),
        link: LinkId(link),
        local: ip(address),
        scope_id: 0,
        tx_ports: [TX_PORT; 8],
        port: 4791,
    };
    Shard::new(ShardConfig {
        gids: vec![gid(0, "10.0.0.1"), gid(1, "fd00::1")],
        links: vec![CAPS, CAPS],
        ..ShardConfig::default()
    })
}

fn mad(byte: u8) -> [u8; MAD_LEN] {
    [byte; MAD_LEN]
}

/// Everything that the device sends now: link, destination, packets.
fn sent(shard: &mut Shard) -> Vec<(LinkId, IpAddr, Vec<Vec<u8>>)> {
    let mut batch = TxBatch::new(&CAPS);
    let mut all = Vec::new();
    while let Some(link) = shard.poll_transmit(Time::ZERO, &mut batch) {
        let packets = batch.packets().map(<[u8]>::to_vec).collect();
        all.push((link, batch.route().unwrap().remote, packets));
        batch.clear();
    }
    all
}

fn received(shard: &mut Shard) -> Vec<Management> {
    std::iter::from_fn(|| shard.poll_management()).collect()
}

/// Hands the device a packet from 10.0.0.2; which counters it moved.
fn deliver(shard: &mut Shard, bytes: &[u8]) -> Vec<&'static str> {
    let before = *shard.stats();
    let meta = FrameMeta {
        link: LinkId(0),
        remote: ip("10.0.0.2"),
        remote_port: TX_PORT,
        local: ip("10.0.0.1"),
        local_port: 4791,
        traffic_class: 0,
        segment: 0,
    };
    shard.handle_frame(Time::ZERO, Frame { bytes, meta });
    assert_eq!(sent(shard), [], "nobody answers by itself");
    let after = *shard.stats();
    let moved = before.iter().zip(after.iter()).filter(|(before, after)| before.1 != after.1);
    moved.map(|(_, (name, _))| name).collect()
}

/// A packet from 10.0.0.2 with this payload, and the ICRC that belongs to it.
fn packet(opcode: Opcode, qpn: Qpn, pkey: PKey, qkey: QKey, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; packet_len(opcode, payload.len())];
    let writer = PacketWriter::new(&mut bytes, &Bth::new(opcode, qpn, Psn::new(3), pkey));
    let is_ud = opcode != Opcode::RcSendOnly;
    let writer = if is_ud { writer.deth(&Deth::new(qkey, Qpn::new(1))) } else { writer };
    let writer = if opcode == Opcode::UdSendOnlyImm { writer.imm(7) } else { writer };
    writer.payload(payload.len()).copy_from_slice(payload);
    Pseudo::new(ip("10.0.0.2"), ip("10.0.0.1"), TX_PORT, 4791).seal(&mut bytes, 0);
    bytes
}

fn good(byte: u8) -> Vec<u8> {
    packet(Opcode::UdSendOnly, Qpn::GSI, PKey::DEFAULT, QKey::GSI, &mad(byte))
}

#[test]
fn a_datagram_comes_with_both_addresses() {
    let mut shard = device();
    assert_eq!(deliver(&mut shard, &good(5)), [] as [&str; 0]);
    let expected = Management { from: ip("10.0.0.2"), to: ip("10.0.0.1"), mad: mad(5) };
    assert_eq!(received(&mut shard), [expected]);
}

#[test]
fn what_is_no_management_datagram_is_counted_and_dropped() {
    let mut shard = device();
    let (ud, key, member) = (Opcode::UdSendOnly, QKey::GSI, PKey::DEFAULT);
    let mut bad_icrc = good(1);
    bad_icrc[100] ^= 1;
    bad_icrc[101] ^= 1;
    let cases = [
        ("drop_icrc", bad_icrc),
        ("drop_opcode", packet(Opcode::UdSendOnlyImm, Qpn::GSI, member, key, &mad(1))),
        ("drop_opcode", packet(Opcode::RcSendOnly, Qpn::GSI, member, key, &mad(1))),
        ("drop_pkey", packet(ud, Qpn::GSI, PKey::new(0x1234), key, &mad(1))),
        ("qkey_viol_cntr", packet(ud, Qpn::GSI, member, QKey::new(0x8001_0001), &mad(1))),
        ("drop_malformed", packet(ud, Qpn::GSI, member, key, &mad(1)[..255])),
        ("drop_malformed", packet(ud, Qpn::GSI, member, key, &[0; 512])),
        ("drop_malformed", packet(ud, Qpn::GSI, member, key, &[])),
        ("drop_qpn", packet(ud, Qpn::new(0), member, key, &mad(1))),
        // Index 1 of the device's own slot is nobody.
        ("drop_qpn", packet(ud, Qpn::new(1 << 14 | 1), member, key, &mad(1))),
    ];
    for (counter, bytes) in cases {
        assert_eq!(deliver(&mut shard, &bytes), [counter]);
    }
    for len in 0..PACKET_LEN {
        let moved = deliver(&mut shard, &good(1)[..len]);
        assert!(moved == ["drop_malformed"] || moved == ["drop_icrc"], "{len} bytes: {moved:?}");
    }
    assert_eq!(received(&mut shard), []);
}

#[test]
fn those_that_nobody_takes_are_dropped_beyond_a_bound() {
    let mut shard = device();
    for _ in 0..4096 {
        assert_eq!(deliver(&mut shard, &good(1)), [] as [&str; 0]);
    }
    assert_eq!(deliver(&mut shard, &good(2)), ["drop_management"]);
    assert_eq!(received(&mut shard).len(), 4096);
    shard.note_lost_management(2);
    assert_eq!((received(&mut shard), shard.stats().drop_management), (vec![], 3));
}

#[test]
fn what_is_sent_has_the_keys_and_counts_up() {
    let mut shard = device();
    for byte in [1, 2] {
        shard.send_management(ip("10.0.0.1"), ip("10.0.0.9"), &mad(byte)).unwrap();
    }
    shard.send_management(ip("fd00::1"), ip("fd00::9"), &mad(3)).unwrap();
    assert!(!shard.is_idle(), "it has a turn");
    let all = sent(&mut shard);
    let to: Vec<_> = all.iter().map(|(link, remote, packets)| (link.0, *remote, packets.len())).collect();
    assert_eq!(to, [(0, ip("10.0.0.9"), 2), (1, ip("fd00::9"), 1)]);
    let mut psn = 0;
    for (link, remote, packets) in &all {
        let local = shard.gids()[usize::from(link.0)].local;
        let pseudo = Pseudo::new(local, *remote, TX_PORT, 4791);
        for (index, bytes) in (0u16..).zip(packets) {
            let packet = Packet::parse(bytes).unwrap();
            assert_eq!(pseudo.verify(&packet, index), IcrcCheck::Good);
            assert_eq!((packet.bth().qpn(), packet.deth().unwrap().src_qp()), (Qpn::GSI, Qpn::GSI));
            assert_eq!(packet.bth().psn(), Psn::new(psn));
            psn += 1;
            assert_eq!(gsi::mad_of(&packet), Ok(&mad(u8::try_from(psn).unwrap())));
        }
    }
    assert_eq!((psn, shard.is_idle(), shard.stats().sent_pkts), (3, true, 3));
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut shard = device();
    let mut refused = |from: &str, to: &str| shard.send_management(ip(from), ip(to), &mad(1)).unwrap_err();
    assert_eq!(refused("10.0.0.7", "10.0.0.9"), ManagementError::NotOurs(ip("10.0.0.7")));
    for (from, to) in [("10.0.0.1", "fd00::9"), ("fd00::1", "10.0.0.9"), ("10.0.0.1", "224.0.0.1")] {
        assert_eq!(refused(from, to), ManagementError::NoRoute { from: ip(from), to: ip(to) });
    }
    for _ in 0..4096 {
        shard.send_management(ip("10.0.0.1"), ip("10.0.0.9"), &mad(1)).unwrap();
    }
    assert_eq!(shard.send_management(ip("10.0.0.1"), ip("10.0.0.9"), &mad(1)), Err(ManagementError::Full));
    assert_eq!(sent(&mut shard).iter().map(|(_, _, packets)| packets.len()).sum::<usize>(), 4096);
    shard.send_management(ip("10.0.0.1"), ip("10.0.0.9"), &mad(1)).unwrap();
    assert_eq!(sent(&mut shard).len(), 1);
}

/// What one device sends is what the other takes.
#[test]
fn two_devices_understand_each_other() {
    let (mut ours, mut other) = (device(), device());
    ours.send_management(ip("10.0.0.1"), ip("10.0.0.2"), &mad(9)).unwrap();
    let [(_, remote, packets)] = &sent(&mut ours)[..] else { panic!("one batch") };
    let meta = FrameMeta {
        link: LinkId(0),
        remote: ip("::ffff:10.0.0.1"),
        remote_port: TX_PORT,
        local: *remote,
        local_port: 4791,
        traffic_class: 0,
        segment: 0,
    };
    other.handle_frame(Time::ZERO, Frame { bytes: &packets[0], meta });
    let expected = Management { from: ip("10.0.0.1"), to: ip("10.0.0.2"), mad: mad(9) };
    assert_eq!(received(&mut other), [expected]);
}
