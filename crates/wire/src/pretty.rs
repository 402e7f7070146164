//! Packets in words: one line each, or every field.

use std::fmt;

use crate::aeth::{Aeth, Syndrome};
use crate::opcode::{Operation, PayloadRule};
use crate::packet::Packet;

/// One line: `RC SEND Only  qpn 0x000019 psn 0x001000 ack 64 bytes`.
impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.bth();
        write!(f, "{}  qpn {} psn {}", self.info().name, bth.qpn(), bth.psn())?;
        for (on, word) in [
            (bth.solicited(), " solicited"),
            (bth.fecn(), " fecn"),
            (bth.becn(), " becn"),
            (bth.ack_req(), " ack"),
        ] {
            f.write_str(if on { word } else { "" })?;
        }
        if let Some(xrc) = self.xrc_eth() {
            write!(f, " srqn {:#08x}", xrc.srqn())?;
        }
        if let Some(deth) = self.deth() {
            write!(f, " from {} qkey {}", deth.src_qp(), deth.qkey())?;
        }
        if let Some(feth) = self.feth() {
            write!(f, " placement {} selectivity {}", feth.placement(), feth.selectivity())?;
        }
        if let Some(reth) = self.reth() {
            write!(f, " va {:#x} rkey {} dma_len {}", reth.va(), reth.rkey(), reth.dma_len())?;
        }
        if let Some(atomic) = self.atomic_eth() {
            write!(f, " va {:#x} rkey {}", atomic.va(), atomic.rkey())?;
            if self.info().op == Operation::CompareSwap {
                write!(f, " compare {:#x} swap {:#x}", atomic.compare(), atomic.swap_add())?;
            } else {
                write!(f, " add {:#x}", atomic.swap_add())?;
            }
        }
        if let Some(aeth) = self.aeth() {
            write!(f, " {} msn {}", aeth.syndrome(), aeth.msn().get())?;
        }
        if let Some(atomic) = self.atomic_ack_eth() {
            write!(f, " original {:#x}", atomic.orig())?;
        }
        if let Some(imm) = self.imm() {
            write!(f, " imm {imm:#010x}")?;
        }
        if let Some(ieth) = self.ieth() {
            write!(f, " invalidate {}", ieth.rkey())?;
        }
        if self.info().payload == PayloadRule::None && self.payload().is_empty() {
            return Ok(());
        }
        if let Some(mad) = self.mad() {
            return write!(f, " {mad}");
        }
        match self.payload().len() {
            1 => f.write_str(" 1 byte"),
            len => write!(f, " {len} bytes"),
        }
    }
}

/// `ACK`, `ACK credits 5`, `RNR NAK 0.64 ms`, `NAK remote access error`.
impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack { credits: Self::NO_CREDITS } => f.write_str("ACK"),
            Self::Ack { credits } => write!(f, "ACK credits {credits}"),
            Self::Rnr { timer } => write!(f, "RNR NAK {:?}", timer.duration()),
            Self::Nak(code) => write!(f, "NAK {}", code.as_str()),
            Self::Reserved(byte) => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

/// Every field of a packet, a header a line, and the payload's first bytes. Ends without a line break.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    packet: Packet<'a>,
    payload_max: usize,
}

impl<'a> Packet<'a> {
    /// The packet for printing with every field and at most `payload_max` bytes of its payload.
    pub const fn fields(&self, payload_max: usize) -> Fields<'a> {
        Fields { packet: *self, payload_max }
    }
}

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base_header(f)?;
        self.extension_headers(f)?;
        self.payload(f)?;
        write!(f, "\nICRC        {:#010x}", self.packet.icrc())
    }
}

impl Fields<'_> {
    fn base_header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.packet.bth();
        write!(f, "BTH         opcode {:#04x} {}", bth.opcode_byte(), self.packet.info().name)?;
        write!(f, ", solicited {}, migrated {}", u8::from(bth.solicited()), u8::from(bth.migreq()))?;
        write!(f, ", pad {}, version {}", bth.pad_count(), bth.version())?;
        write!(f, "\n            pkey {}, fecn {}", bth.pkey(), u8::from(bth.fecn()))?;
        write!(f, ", becn {}, qpn {}", u8::from(bth.becn()), bth.qpn())?;
        write!(f, ", ack request {}, psn {}", u8::from(bth.ack_req()), bth.psn())?;
        match bth.reserved() {
            (0, 0) => Ok(()),
            (a, b) => write!(f, ", reserved {a:#04x} {b:#04x}"),
        }
    }

    fn extension_headers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = &self.packet;
        if let Some(xrc) = packet.xrc_eth() {
            write!(f, "\nXRCETH      srqn {:#08x}", xrc.srqn())?;
        }
        if let Some(deth) = packet.deth() {
            write!(f, "\nDETH        qkey {}, source qp {}", deth.qkey(), deth.src_qp())?;
        }
        if let Some(feth) = packet.feth() {
            write!(f, "\nFETH        placement {}, selectivity {}", feth.placement(), feth.selectivity())?;
        }
        if let Some(reth) = packet.reth() {
            let (va, length) = (reth.va(), reth.dma_len());
            write!(f, "\nRETH        va {va:#018x}, rkey {}, dma_len {length}", reth.rkey())?;
        }
        if let Some(atomic) = packet.atomic_eth() {
            write!(f, "\nAtomicETH   va {:#018x}, rkey {}", atomic.va(), atomic.rkey())?;
            write!(f, "\n            swap or add {:#018x}", atomic.swap_add())?;
            write!(f, ", compare {:#018x}", atomic.compare())?;
        }
        if let Some(aeth) = packet.aeth() {
            ack_header(f, aeth)?;
        }
        if let Some(atomic) = packet.atomic_ack_eth() {
            write!(f, "\nAtomicAck   original {:#018x}", atomic.orig())?;
        }
        if let Some(imm) = packet.imm() {
            write!(f, "\nImmDt       {imm:#010x}")?;
        }
        if let Some(ieth) = packet.ieth() {
            write!(f, "\nIETH        rkey {}", ieth.rkey())?;
        }
        Ok(())
    }

    fn payload(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.packet.payload();
        if payload.is_empty() {
            return Ok(());
        }
        if let Some(mad) = self.packet.mad() {
            write!(f, "\n{}", mad.fields())?;
        }
        write!(f, "\npayload     {} bytes", payload.len())?;
        let shown = &payload[..payload.len().min(self.payload_max)];
        for (row, line) in shown.chunks(16).enumerate() {
            write!(f, "\n    {:#06x} ", row * 16)?;
            for column in 0..16 {
                let gap = if column == 8 { "  " } else { " " };
                match line.get(column) {
                    Some(byte) => write!(f, "{gap}{byte:02x}")?,
                    None => write!(f, "{gap}  ")?,
                }
            }
            f.write_str("  ")?;
            for &byte in line {
                let is_shown = byte.is_ascii_graphic() || byte == b' ';
                write!(f, "{}", if is_shown { char::from(byte) } else { '.' })?;
            }
        }
        match payload.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more"),
        }
    }
}

fn ack_header(f: &mut fmt::Formatter<'_>, aeth: &Aeth) -> fmt::Result {
    let syndrome = aeth.syndrome();
    write!(f, "\nAETH        syndrome {:#04x} {syndrome}, msn {}", aeth.syndrome_byte(), aeth.msn().get())
}
