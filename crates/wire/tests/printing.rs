//! What people see of a packet. The captures are from rxe, Linux 6.12.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::fmt::Write;

use userdma_verbs::{Msn, PKey, Psn, Qpn, RKey};
use userdma_wire::encap::EncapFrame;
use userdma_wire::{
    Aeth, Bth, Feth, Opcode, Packet, PacketWriter, ROCE_V2_PORT, Reth, Syndrome, XrcEth, packet_len,
};

/// What `print` makes of the packets of a capture.
fn print_each(file: &str, mut print: impl FnMut(&EncapFrame<'_>, &Packet<'_>) -> String) -> String {
    let mut out = String::new();
    for frame in common::frames(&common::golden(file)) {
        let Ok(parsed) = EncapFrame::parse(&frame) else { continue };
        if parsed.encap.dst_port == ROCE_V2_PORT {
            let packet = Packet::parse(parsed.transport).unwrap();
            writeln!(out, "{}", print(&parsed, &packet)).unwrap();
        }
    }
    out
}

#[test]
fn a_line_for_each_packet() {
    let mut lines = String::new();
    for file in ["rc_ops", "ud_ops", "rnr_wait", "nak_badkey_write", "mw_send_inv", "rc_ipv6"] {
        writeln!(lines, "{file}").unwrap();
        let print = |frame: &EncapFrame<'_>, packet: &Packet<'_>| format!("  {}  {packet}", frame.encap);
        lines += &print_each(&format!("rxe/{file}.pcap"), print);
    }
    insta::assert_snapshot!("lines", lines);
}

#[test]
fn every_field_of_a_packet() {
    let mut wanted = vec![
        Opcode::RcSendOnlyImm,
        Opcode::RcWriteOnly,
        Opcode::RcReadRequest,
        Opcode::RcReadResponseOnly,
        Opcode::RcAtomicAcknowledge,
        Opcode::RcCompareSwap,
    ];
    let mut fields = String::new();
    print_each("rxe/rc_ops.pcap", |_, packet| {
        if let Some(found) = wanted.iter().position(|opcode| *opcode == packet.opcode()) {
            wanted.remove(found);
            writeln!(fields, "{}\n", packet.fields(40)).unwrap();
        }
        String::new()
    });
    assert_eq!(wanted, []);
    insta::assert_snapshot!("fields", fields);
}

#[test]
fn headers_that_no_capture_has() {
    let mut room = [0; packet_len(Opcode::XrcFlush, 0)];
    let bth = Bth::new(Opcode::XrcFlush, Qpn::new(0x12), Psn::new(7), PKey::DEFAULT);
    PacketWriter::new(&mut room, &bth)
        .xrc_eth(&XrcEth::new(0x77))
        .feth(&Feth::new(2, 1))
        .reth(&Reth::new(0x1000, RKey::new(0xabcd), 64))
        .finish();
    let packet = Packet::parse(&room).unwrap();
    insta::assert_snapshot!("xrc_flush", format!("{packet}\n{}", packet.fields(0)));
}

#[test]
fn a_syndrome_that_means_nothing_is_shown_as_a_number() {
    let mut room = [0; packet_len(Opcode::RcAcknowledge, 0)];
    let bth = Bth::new(Opcode::RcAcknowledge, Qpn::new(0x12), Psn::new(7), PKey::DEFAULT);
    PacketWriter::new(&mut room, &bth).aeth(&Aeth::new(Syndrome::from_byte(0x7f), Msn::new(3))).finish();
    let line = Packet::parse(&room).unwrap().to_string();
    assert_eq!(line, "RC Acknowledge  qpn 0x000012 psn 0x000007 reserved syndrome 0x7f msn 3");
}
