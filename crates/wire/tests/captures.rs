//! Every RoCE v2 packet of the captures, which were taken from rxe, Linux 6.12: reading, printing, writing,
//! and both ways to check the invariant CRC.

mod common;

use std::collections::HashMap;
use std::net::IpAddr;

use userdma_verbs::Time;
use userdma_wire::encap::EncapFrame;
use userdma_wire::{IcrcCheck, IcrcVerdict, IdWindow, Malformed, OwnedPacket, Packet, ROCE_V2_PORT};
use zerocopy::IntoBytes;

/// What a file of captures holds.
#[derive(Debug, Default, Eq, PartialEq)]
struct Counts {
    packets: u32,
    good: u32,
    bad: u32,
    /// Bad ones to which the solver gives another identification.
    solved_otherwise: u32,
    other_frames: u32,
}

fn check_frames(path: &std::path::Path, counts: &mut Counts) {
    for (index, frame) in common::frames(path).iter().enumerate() {
        let at = format!("{} frame {}", path.display(), index + 1);
        match EncapFrame::parse(frame) {
            Ok(parsed) if parsed.encap.dst_port == ROCE_V2_PORT => check_packet(&at, frame, parsed, counts),
            Ok(_) | Err(_) => counts.other_frames += 1,
        }
    }
}

fn check_packet(at: &str, frame: &[u8], parsed: EncapFrame<'_>, counts: &mut Counts) {
    counts.packets += 1;
    let packet = Packet::parse(parsed.transport).unwrap_or_else(|error| panic!("{at}: {error}"));
    check_printing(at, &packet);
    check_writing(at, frame, &parsed, &packet);
    check_icrc(at, frame, &parsed, &packet, counts);
}

fn check_printing(at: &str, packet: &Packet<'_>) {
    let line = packet.to_string();
    assert!(line.starts_with(packet.info().name) && !line.contains('\n'), "{at}: {line}");
    let fields = packet.fields(64).to_string();
    assert!(fields.starts_with("BTH ") && fields.lines().count() >= 3, "{at}: {fields}");
}

fn check_writing(at: &str, frame: &[u8], parsed: &EncapFrame<'_>, packet: &Packet<'_>) {
    let encoded = OwnedPacket::from(packet).encode();
    assert_eq!(encoded, parsed.transport, "{at}: the packet");
    assert_eq!(OwnedPacket::from(packet).ext.headers(), packet.info().headers, "{at}");
    let mut rebuilt = Vec::new();
    parsed.encap.write_headers(&mut rebuilt, &encoded);
    rebuilt.extend_from_slice(&encoded);
    rebuilt.extend_from_slice(parsed.trailer);
    assert_eq!(rebuilt, frame, "{at}: the frame");
    assert_eq!(packet.bth().as_bytes(), &parsed.transport[..12]);
}

fn check_icrc(at: &str, frame: &[u8], parsed: &EncapFrame<'_>, packet: &Packet<'_>, counts: &mut Counts) {
    let encap = &parsed.encap;
    let (pseudo, id) = (encap.pseudo(), encap.ipv4_id);
    let ip_packet = &frame[14..frame.len() - parsed.trailer.len() - 4];
    let expected = common::plain_icrc(ip_packet);
    if expected != packet.icrc() {
        counts.bad += 1;
        match pseudo.verify(packet, id) {
            IcrcCheck::Good => panic!("{at}: a bad packet passes"),
            IcrcCheck::GoodWithId(other) => {
                assert_ne!(other, id, "{at}");
                counts.solved_otherwise += 1;
            }
            IcrcCheck::Bad => {}
        }
        return;
    }
    counts.good += 1;
    assert_eq!(pseudo.icrc(packet.covered(), id), expected, "{at}: against the plain CRC");
    assert_eq!(pseudo.verify(packet, id), IcrcCheck::Good, "{at}");
    let mut sealed = parsed.transport.to_vec();
    sealed[packet.covered().len()..].fill(0);
    pseudo.seal(&mut sealed, id);
    assert_eq!(sealed, parsed.transport, "{at}: sealed again");
    if encap.is_ipv4() {
        for hint in [0, id ^ 1, !id, id.wrapping_add(1), id.swap_bytes()] {
            let expected = if hint == id { IcrcCheck::Good } else { IcrcCheck::GoodWithId(id) };
            assert_eq!(pseudo.verify(packet, hint), expected, "{at}: hint {hint:#06x}");
        }
    }
}

#[test]
fn every_captured_packet_is_read_printed_written_and_verified() {
    let mut total = Counts::default();
    for path in common::captures("rxe").iter().chain(&common::captures("rxe4096")) {
        let mut counts = Counts::default();
        check_frames(path, &mut counts);
        let corrupt = path.ends_with("corrupt.pcap");
        assert_eq!(counts.bad, if corrupt { 14 } else { 0 }, "{}: {counts:?}", path.display());
        total.packets += counts.packets;
        total.good += counts.good;
        total.bad += counts.bad;
        total.solved_otherwise += counts.solved_otherwise;
    }
    assert_eq!(total, Counts { packets: 1996, good: 1982, bad: 14, ..Counts::default() });
}

/// Written by hand to provoke rxe. It answers the one of odd length, as a packet of eight bytes; here a packet
/// is a whole number of words, and what is not is dropped with the other two.
#[test]
fn of_the_probes_three_are_malformed() {
    let mut refused = Vec::new();
    let mut packets = 0;
    for frame in common::frames(&common::golden("probe_errors.pcap")) {
        match EncapFrame::parse(&frame) {
            Ok(parsed) if parsed.encap.dst_port == ROCE_V2_PORT => match Packet::parse(parsed.transport) {
                Ok(packet) => {
                    packets += 1;
                    assert_eq!(OwnedPacket::from(&packet).encode(), parsed.transport);
                }
                Err(reason) => refused.push(reason),
            },
            Ok(_) | Err(_) => {}
        }
    }
    assert_eq!(packets, 99);
    assert_eq!(refused, [Malformed::Version, Malformed::Opcode, Malformed::Unaligned]);
}

/// A receiver that sees no identifications, as a UDP socket does not: what the window lets pass.
#[test]
fn the_identifications_of_a_kernel_stay_in_the_window() {
    let (mut passed, mut unlikely, mut bad) = (0, Vec::new(), 0);
    for path in common::captures("rxe").iter().chain(&common::captures("rxe4096")) {
        let mut windows = HashMap::<IpAddr, IdWindow>::new();
        for (at, frame) in common::timed_frames(path) {
            let Ok(parsed) = EncapFrame::parse(&frame) else { continue };
            let Ok(packet) = Packet::parse(parsed.transport) else { continue };
            let now = Time::ZERO + at;
            let window = windows.entry(parsed.encap.src).or_default();
            match window.verify(now, &parsed.encap.pseudo(), &packet, 0) {
                IcrcVerdict::Good => passed += 1,
                IcrcVerdict::UnlikelyId(id) => unlikely.push((path.clone(), id)),
                IcrcVerdict::Bad => bad += 1,
            }
        }
    }
    assert_eq!((passed, unlikely.as_slice(), bad), (1982, &[][..], 14));
}
