//! What holds for every input, not just for captured ones.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use userdma_verbs::{Msn, PKey, Psn, QKey, Qpn, RKey};
use userdma_wire::encap::EncapFrame;
use userdma_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, FlowIcrc, Grh, IcrcCheck, Ieth, ImmDt, Opcode,
    OwnedPacket, Packet, PacketWriter, Pseudo, Reth, Syndrome, XrcEth, extend_icrc, packet_len, seal_packet,
};
use zerocopy::{FromBytes, IntoBytes};

fn any_opcode() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(Opcode::ALL)
}

/// A packet that `Packet::parse` accepts: any opcode, any bits in the fields, any payload.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    (any_opcode(), 0usize..300, vec(any::<u8>(), 400)).prop_map(|(opcode, payload_len, noise)| {
        let mut bytes = noise[..packet_len(opcode, payload_len)].to_vec();
        bytes[0] = opcode as u8;
        let pad = payload_len.wrapping_neg() & 3;
        bytes[1] = bytes[1] & 0xc0 | u8::try_from(pad).unwrap() << 4;
        bytes
    })
}

fn any_flow() -> impl Strategy<Value = (IpAddr, IpAddr, u16)> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>()
        .prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)))
        .prop_filter("mapped addresses mean IPv4", |(a, b)| *a == a.to_canonical() && *b == b.to_canonical());
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|((src, dst), port)| (src, dst, port))
}

fn touch_everything(packet: &Packet<'_>) {
    let parts = [packet.covered().len(), packet.payload().len(), packet.pad().len(), packet.pad_len()];
    assert_eq!(parts[0], packet.info().header_len + parts[1] + parts[2]);
    assert_eq!(parts[2], parts[3]);
    let _ = (packet.to_string(), packet.fields(40).to_string(), packet.icrc());
    let owned = OwnedPacket::from(packet);
    assert_eq!(owned.encode(), packet.bytes());
    assert_eq!(owned.ext.headers(), packet.info().headers);
}

/// The packet with zeros as padding and an ICRC that is computed piece by piece.
fn in_pieces(flow: &mut FlowIcrc, packet: &Packet<'_>, id: u16) -> Vec<u8> {
    let mut bytes = packet.bytes().to_vec();
    let (headers, payload) = (packet.info().header_len, packet.payload());
    let icrc = flow.begin(&bytes[..headers], bytes.len(), id);
    let (first, second) = payload.split_at(payload.len() / 3);
    let icrc = extend_icrc(extend_icrc(icrc, first), second);
    bytes[headers + payload.len()..].fill(0);
    seal_packet(&mut bytes, icrc, payload.len());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic_the_readers(bytes in vec(any::<u8>(), 0..200), ones in any::<bool>()) {
        if let Ok(packet) = Packet::parse(&bytes) {
            touch_everything(&packet);
            let pseudo = Pseudo::new(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into(), 1, 4791);
            let _ = pseudo.verify(&packet, u16::from(ones));
        }
        let _ = EncapFrame::parse(&bytes);
    }

    #[test]
    fn no_frame_with_a_good_start_panics_the_reader(tail in vec(any::<u8>(), 0..120), is_v6 in any::<bool>()) {
        let start: &[u8] = if is_v6 { &[0x86, 0xdd, 0x60] } else { &[0x08, 0x00, 0x45] };
        let frame = [&[0; 12], start, &tail].concat();
        if let Ok(parsed) = EncapFrame::parse(&frame) {
            let _ = Packet::parse(parsed.transport);
        }
    }

    #[test]
    fn packets_survive_reading_and_writing(bytes in any_packet()) {
        touch_everything(&Packet::parse(&bytes).unwrap());
    }

    #[test]
    fn a_shortened_packet_is_refused_or_still_whole(bytes in any_packet(), keep in any::<proptest::sample::Index>()) {
        if let Ok(packet) = Packet::parse(&bytes[..keep.index(bytes.len())]) {
            touch_everything(&packet);
        }
    }

    #[test]
    fn a_base_header_returns_what_was_put_in(
        opcode in any_opcode(), qpn in 0u32..1 << 24, psn in 0u32..1 << 24, pkey in any::<u16>(),
        flags in any::<[bool; 5]>(), pad in 0u8..4, reserved in (0u8..64, 0u8..128),
    ) {
        let mut bth = Bth::new(Opcode::Cnp, Qpn::new(0), Psn::new(0), PKey::new(0));
        bth.set_opcode(opcode);
        bth.set_qpn(Qpn::new(qpn));
        bth.set_psn(Psn::new(psn));
        bth.set_pkey(PKey::new(pkey));
        bth.set_solicited(flags[0]);
        bth.set_migreq(flags[1]);
        bth.set_fecn(flags[2]);
        bth.set_becn(flags[3]);
        bth.set_ack_req(flags[4]);
        bth.set_pad_count(pad);
        bth.set_reserved(reserved.0, reserved.1);
        let bth = Bth::read_from_bytes(bth.as_bytes()).unwrap();
        prop_assert_eq!(bth.opcode(), Some(opcode));
        prop_assert_eq!((bth.qpn().get(), bth.psn().get(), bth.pkey().get()), (qpn, psn, pkey));
        let read = [bth.solicited(), bth.migreq(), bth.fecn(), bth.becn(), bth.ack_req()];
        prop_assert_eq!(read, flags);
        prop_assert_eq!((bth.pad_count(), bth.version(), bth.reserved()), (pad, 0, reserved));
    }

    #[test]
    fn extension_headers_return_what_was_put_in(
        a in any::<u64>(), b in any::<u64>(), c in any::<u64>(), key in any::<u32>(), n24 in 0u32..1 << 24,
        len in any::<u32>(), byte in any::<u8>(),
    ) {
        let rkey = RKey::new(key);
        let reth = Reth::new(a, rkey, len);
        prop_assert_eq!((reth.va(), reth.rkey(), reth.dma_len()), (a, rkey, len));
        let atomic = AtomicEth::new(a, rkey, b, c);
        prop_assert_eq!((atomic.va(), atomic.rkey(), atomic.swap_add(), atomic.compare()), (a, rkey, b, c));
        prop_assert_eq!(AtomicAckEth::new(a).orig(), a);
        prop_assert_eq!(ImmDt::new(len).data(), len);
        prop_assert_eq!(Ieth::new(rkey).rkey(), rkey);
        let deth = Deth::new(QKey::new(key), Qpn::new(n24));
        prop_assert_eq!((deth.qkey().get(), deth.src_qp().get()), (key, n24));
        prop_assert_eq!(XrcEth::new(n24).srqn(), n24);
        let feth = Feth::new(byte & 0xf, byte >> 4 & 3);
        prop_assert_eq!((feth.placement(), feth.selectivity()), (byte & 0xf, byte >> 4 & 3));
        let aeth = Aeth::new(Syndrome::from_byte(byte), Msn::new(n24));
        prop_assert_eq!((aeth.syndrome_byte(), aeth.msn().get()), (byte, n24));
        prop_assert_eq!(Grh::read_from_bytes(&[byte; 40]).unwrap().hop_limit(), byte);
    }

    #[test]
    fn the_icrc_is_the_plain_ones((src, dst, port) in any_flow(), bytes in any_packet(), id in any::<u16>()) {
        let mut bytes = bytes;
        let pseudo = Pseudo::new(src, dst, port, 4791);
        pseudo.seal(&mut bytes, id);
        let packet = Packet::parse(&bytes).unwrap();
        let plain = common::plain_icrc(&common::ip_packet(src, dst, port, 4791, id, packet.covered()));
        prop_assert_eq!(packet.icrc(), plain);
        prop_assert_eq!(pseudo.verify(&packet, id), IcrcCheck::Good);
    }

    /// Many packets, so that what is remembered is used and replaced.
    #[test]
    fn a_flow_that_remembers_seals_and_verifies_as_one_that_does_not(
        (src, dst, port) in any_flow(),
        packets in vec((any_packet(), 0u16..20), 40),
    ) {
        let pseudo = Pseudo::new(src, dst, port, 4791);
        let (mut sender, mut receiver) = (FlowIcrc::new(pseudo), FlowIcrc::new(pseudo));
        for (mut bytes, id) in packets.iter().chain(&packets).cloned() {
            sender.seal(&mut bytes, id);
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.icrc(), pseudo.icrc(packet.covered(), id));
            let in_pieces = in_pieces(&mut sender, &packet, id);
            prop_assert_eq!(pseudo.verify(&Packet::parse(&in_pieces).unwrap(), id), IcrcCheck::Good);
            prop_assert_eq!(receiver.verify(&packet, id), IcrcCheck::Good);
            prop_assert_eq!(receiver.verify(&packet, 7), pseudo.verify(&packet, 7));
        }
    }

    #[test]
    fn every_id_is_found_from_every_hint(bytes in any_packet(), id in any::<u16>(), hint in any::<u16>()) {
        let mut bytes = bytes;
        let pseudo = Pseudo::new([10, 99, 0, 1].into(), [10, 99, 0, 2].into(), 50_000, 4791);
        pseudo.seal(&mut bytes, id);
        let found = match pseudo.verify(&Packet::parse(&bytes).unwrap(), hint) {
            IcrcCheck::Good => hint,
            IcrcCheck::GoodWithId(found) => found,
            IcrcCheck::Bad => panic!("id {id:#x} not found from hint {hint:#x}"),
        };
        prop_assert_eq!(found, id);
    }

    #[test]
    fn a_flipped_bit_is_never_good((src, dst, port) in any_flow(), bytes in any_packet(), bit in any::<usize>()) {
        let mut bytes = bytes;
        let pseudo = Pseudo::new(src, dst, port, 4791);
        pseudo.seal(&mut bytes, 7);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        match pseudo.verify(&packet, 7) {
            IcrcCheck::Good => prop_assert_eq!(bit / 8, 4, "only the congestion marks may change"),
            IcrcCheck::GoodWithId(id) => prop_assert!(src.is_ipv4() && id != 7),
            IcrcCheck::Bad => prop_assert_ne!(bit / 8, 4),
        }
    }

    #[test]
    fn a_translated_source_is_recognised(bytes in any_packet(), id in any::<u16>(), seen in any::<u32>()) {
        let mut bytes = bytes;
        let (sender, receiver) = (Ipv4Addr::new(192, 168, 1, 5), Ipv4Addr::new(10, 0, 0, 1));
        Pseudo::new(sender.into(), receiver.into(), 50_000, 4791).seal(&mut bytes, id);
        let packet = Packet::parse(&bytes).unwrap();
        let as_seen = Pseudo::new(Ipv4Addr::from(seen).into(), receiver.into(), 50_000, 4791);
        prop_assert!(as_seen.would_fit(sender.into(), &packet, 0));
        prop_assert!(!as_seen.would_fit(Ipv6Addr::LOCALHOST.into(), &packet, 0));
    }
}

/// What the writer of the data path makes of an owned packet's parts.
fn written(owned: &OwnedPacket) -> Vec<u8> {
    let mut room = vec![0xee; packet_len(owned.opcode, owned.payload.len())];
    let mut writer = PacketWriter::new(&mut room, &owned.bth());
    let ext = owned.ext;
    if let Some(header) = ext.xrc_eth {
        writer = writer.xrc_eth(&header);
    }
    if let Some(header) = ext.deth {
        writer = writer.deth(&header);
    }
    if let Some(header) = ext.feth {
        writer = writer.feth(&header);
    }
    if let Some(header) = ext.reth {
        writer = writer.reth(&header);
    }
    if let Some(header) = ext.atomic_eth {
        writer = writer.atomic_eth(&header);
    }
    if let Some(header) = ext.aeth {
        writer = writer.aeth(&header);
    }
    if let Some(header) = ext.atomic_ack_eth {
        writer = writer.atomic_ack_eth(&header);
    }
    if let Some(data) = ext.imm {
        writer = writer.imm(data);
    }
    if let Some(header) = ext.ieth {
        writer = writer.ieth(&header);
    }
    writer.payload(owned.payload.len()).copy_from_slice(&owned.payload);
    let icrc_at = room.len() - 4;
    room[icrc_at..].copy_from_slice(&owned.icrc.to_le_bytes());
    room
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_writer_writes_what_the_owned_packet_encodes(bytes in any_packet()) {
        let mut owned = OwnedPacket::parse(&bytes).unwrap();
        owned.pad.fill(0);
        prop_assert_eq!(written(&owned), owned.encode());
    }
}

#[test]
#[should_panic(expected = "headers that the opcode does not carry")]
#[cfg(debug_assertions)]
fn the_writer_notices_a_missing_header() {
    let mut room = [0; packet_len(Opcode::RcWriteOnly, 0)];
    let bth = Bth::new(Opcode::RcWriteOnly, Qpn::new(0), Psn::new(0), PKey::DEFAULT);
    PacketWriter::new(&mut room, &bth).finish();
}

#[test]
fn mapped_addresses_mean_ipv4() {
    let (a, b) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let mapped = Pseudo::new(a.to_ipv6_mapped().into(), b.to_ipv6_mapped().into(), 1, 2);
    assert!(mapped.is_ipv4());
    assert_eq!(mapped.icrc(&[0; 16], 3), Pseudo::new(a.into(), b.into(), 1, 2).icrc(&[0; 16], 3));
}

#[test]
fn the_table_agrees_with_the_numbers() {
    for byte in 0..=u8::MAX {
        if let Some(opcode) = Opcode::from_byte(byte) {
            assert_eq!(opcode as u8, byte);
            assert_ne!(opcode.info().name, "unknown");
            assert_eq!(opcode.info().header_len, 12 + opcode.info().headers.len_bytes());
            assert_eq!(packet_len(opcode, 5), opcode.info().header_len + 8 + 4);
        }
    }
    assert_eq!(Opcode::ALL.len(), 25 + 12 + 2 + 1 + 25);
}

#[test]
fn xrc_is_rc_with_one_more_header_in_requests() {
    for &opcode in Opcode::ALL.iter().filter(|opcode| **opcode as u8 >> 5 == 5) {
        let (xrc, rc) = (opcode.info(), Opcode::from_byte(opcode as u8 & 0x1f).unwrap().info());
        assert_eq!((xrc.op, xrc.position, xrc.payload), (rc.op, rc.position, rc.payload));
        assert_eq!(xrc.header_len, rc.header_len + if rc.is_request() { XrcEth::LEN } else { 0 });
        assert_eq!(xrc.name, format!("X{}", rc.name));
    }
}
