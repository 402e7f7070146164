//! A packet in words: the parts of a line that people read.

use std::fmt::Write;

use userdma_wire::{Operation, Packet, PayloadRule, Syndrome};

/// What a packet says besides its name, QPN and PSN: flags, extension headers, payload length.
pub fn details(packet: &Packet<'_>) -> String {
    let mut out = String::new();
    let bth = packet.bth();
    for (on, word) in [
        (bth.ack_req(), "ack req"),
        (bth.solicited(), "solicited"),
        (bth.fecn(), "fecn"),
        (bth.becn(), "becn"),
    ] {
        if on {
            push(&mut out, word);
        }
    }
    headers(packet, &mut out);
    if let Some(mad) = packet.mad() {
        push(&mut out, &mad.to_string());
    } else if packet.info().payload != PayloadRule::None || !packet.payload().is_empty() {
        push(&mut out, &bytes(packet.payload().len()));
    }
    out
}

fn headers(packet: &Packet<'_>, out: &mut String) {
    if let Some(xrc) = packet.xrc_eth() {
        push(out, &format!("srqn {:#08x}", xrc.srqn()));
    }
    if let Some(deth) = packet.deth() {
        push(out, &format!("from qpn {} qkey {}", deth.src_qp(), deth.qkey()));
    }
    if let Some(feth) = packet.feth() {
        push(out, &format!("placement {} selectivity {}", feth.placement(), feth.selectivity()));
    }
    if let Some(reth) = packet.reth() {
        push(out, &format!("va {:#x} rkey {} length {}", reth.va(), reth.rkey(), reth.dma_len()));
    }
    if let Some(atomic) = packet.atomic_eth() {
        push(out, &format!("va {:#x} rkey {}", atomic.va(), atomic.rkey()));
        if packet.info().op == Operation::CompareSwap {
            push(out, &format!("compare {:#x} swap {:#x}", atomic.compare(), atomic.swap_add()));
        } else {
            push(out, &format!("add {:#x}", atomic.swap_add()));
        }
    }
    if let Some(aeth) = packet.aeth() {
        push(out, &format!("{} msn {}", verdict(aeth.syndrome()), aeth.msn().get()));
    }
    if let Some(atomic) = packet.atomic_ack_eth() {
        push(out, &format!("original {:#x}", atomic.orig()));
    }
    if let Some(imm) = packet.imm() {
        push(out, &format!("imm {imm:#010x}"));
    }
    if let Some(ieth) = packet.ieth() {
        push(out, &format!("invalidates rkey {}", ieth.rkey()));
    }
}

/// What a responder says: `ACK credits 31`, `RNR NAK 0.64 ms`, `NAK remote access error`.
pub fn verdict(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack { credits } => format!("ACK credits {credits}"),
        Syndrome::Rnr { timer } => {
            // At most 655,360: exact as a floating point number.
            format!("RNR NAK {} ms", timer.duration().as_micros() as f64 / 1000.0)
        }
        Syndrome::Nak(code) => format!("NAK {}", code.as_str()),
        Syndrome::Reserved(byte) => format!("reserved syndrome {byte:#04x}"),
    }
}

/// `1 byte`, `64 bytes`.
pub fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// The first bytes of something that could not be read.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes.iter().take(16) {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x} ");
    }
    if bytes.len() > 16 {
        out.push('…');
    }
    out.trim_end().to_owned()
}

fn push(out: &mut String, word: &str) {
    if !out.is_empty() {
        out.push_str("  ");
    }
    out.push_str(word);
}
