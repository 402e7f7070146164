//! A packet as a value that owns everything: for tools and tests, not for the data path.

use userdma_verbs::{PKey, Psn, Qpn};
use zerocopy::IntoBytes;

use crate::aeth::Aeth;
use crate::bth::Bth;
use crate::ext::{AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use crate::malformed::Malformed;
use crate::opcode::{ExtHeaders, Opcode};
use crate::packet::Packet;

/// A transport packet, taken apart; [`OwnedPacket::encode`] puts it together again.
///
/// A packet that was read encodes to the same bytes. A changed one encodes to what it says, sense or
/// nonsense, so that tests can build wrong packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedPacket {
    /// The opcode.
    pub opcode: Opcode,
    /// The solicited event bit.
    pub solicited: bool,
    /// The migration bit.
    pub migreq: bool,
    /// The partition key.
    pub pkey: PKey,
    /// The forward congestion mark.
    pub fecn: bool,
    /// The backward congestion mark.
    pub becn: bool,
    /// The destination queue pair.
    pub qpn: Qpn,
    /// The acknowledge request.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
    /// Reserved bits of the BTH, as [`Bth::reserved`] gives them.
    pub reserved: (u8, u8),
    /// The extension headers.
    pub ext: OwnedExt,
    /// The payload.
    pub payload: Vec<u8>,
    /// The pad bytes: at most three, zeros from a good sender.
    pub pad: Vec<u8>,
    /// The invariant CRC, as received or as computed by the caller.
    pub icrc: u32,
}

/// The extension headers of an [`OwnedPacket`], in the order of the wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnedExt {
    /// Shared receive queue of an XRC request.
    pub xrc_eth: Option<XrcEth>,
    /// Datagram header.
    pub deth: Option<Deth>,
    /// FLUSH header.
    pub feth: Option<Feth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic_eth: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Atomic result.
    pub atomic_ack_eth: Option<AtomicAckEth>,
    /// Immediate data in host order.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<Ieth>,
}

impl OwnedPacket {
    /// A packet with this BTH and payload, no extension headers, fitting zero padding, and ICRC 0.
    pub fn new(opcode: Opcode, qpn: Qpn, psn: Psn, payload: &[u8]) -> Self {
        Self {
            opcode,
            solicited: false,
            migreq: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            qpn,
            ack_req: false,
            psn,
            reserved: (0, 0),
            ext: OwnedExt::default(),
            payload: payload.to_vec(),
            pad: vec![0; payload.len().wrapping_neg() & 3],
            icrc: 0,
        }
    }

    /// Reads the bytes of one packet, from BTH to ICRC.
    ///
    /// # Errors
    /// As [`Packet::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        Packet::parse(bytes).map(|packet| Self::from(&packet))
    }

    /// The bytes of the packet, from BTH to ICRC.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(self.bth().as_bytes());
        self.ext.encode(&mut out);
        out.extend_from_slice(&self.payload);
        out.extend_from_slice(&self.pad);
        out.extend_from_slice(&self.icrc.to_le_bytes());
        out
    }

    /// The base transport header.
    pub fn bth(&self) -> Bth {
        let mut bth = Bth::new(self.opcode, self.qpn, self.psn, self.pkey);
        bth.set_solicited(self.solicited);
        bth.set_migreq(self.migreq);
        bth.set_fecn(self.fecn);
        bth.set_becn(self.becn);
        bth.set_ack_req(self.ack_req);
        bth.set_reserved(self.reserved.0, self.reserved.1);
        // Two bits hold what a packet can hold; a longer pad, made by a test, keeps its low bits.
        bth.set_pad_count(self.pad.len().to_le_bytes()[0] & 0x3);
        bth
    }
}

impl From<&Packet<'_>> for OwnedPacket {
    fn from(packet: &Packet<'_>) -> Self {
        let bth = packet.bth();
        Self {
            opcode: packet.opcode(),
            solicited: bth.solicited(),
            migreq: bth.migreq(),
            pkey: bth.pkey(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            qpn: bth.qpn(),
            ack_req: bth.ack_req(),
            psn: bth.psn(),
            reserved: bth.reserved(),
            ext: OwnedExt {
                xrc_eth: packet.xrc_eth().copied(),
                deth: packet.deth().copied(),
                feth: packet.feth().copied(),
                reth: packet.reth().copied(),
                atomic_eth: packet.atomic_eth().copied(),
                aeth: packet.aeth().copied(),
                atomic_ack_eth: packet.atomic_ack_eth().copied(),
                imm: packet.imm(),
                ieth: packet.ieth().copied(),
            },
            payload: packet.payload().to_vec(),
            pad: packet.pad().to_vec(),
            icrc: packet.icrc(),
        }
    }
}

impl OwnedExt {
    /// Which headers are there.
    pub fn headers(&self) -> ExtHeaders {
        let mut headers = ExtHeaders::empty();
        headers.set(ExtHeaders::XRCETH, self.xrc_eth.is_some());
        headers.set(ExtHeaders::DETH, self.deth.is_some());
        headers.set(ExtHeaders::FETH, self.feth.is_some());
        headers.set(ExtHeaders::RETH, self.reth.is_some());
        headers.set(ExtHeaders::ATOMIC, self.atomic_eth.is_some());
        headers.set(ExtHeaders::AETH, self.aeth.is_some());
        headers.set(ExtHeaders::ATOMIC_ACK, self.atomic_ack_eth.is_some());
        headers.set(ExtHeaders::IMM, self.imm.is_some());
        headers.set(ExtHeaders::IETH, self.ieth.is_some());
        headers
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let imm = self.imm.map(ImmDt::new);
        let parts: [Option<&[u8]>; 9] = [
            self.xrc_eth.as_ref().map(IntoBytes::as_bytes),
            self.deth.as_ref().map(IntoBytes::as_bytes),
            self.feth.as_ref().map(IntoBytes::as_bytes),
            self.reth.as_ref().map(IntoBytes::as_bytes),
            self.atomic_eth.as_ref().map(IntoBytes::as_bytes),
            self.aeth.as_ref().map(IntoBytes::as_bytes),
            self.atomic_ack_eth.as_ref().map(IntoBytes::as_bytes),
            imm.as_ref().map(IntoBytes::as_bytes),
            self.ieth.as_ref().map(IntoBytes::as_bytes),
        ];
        for part in parts.into_iter().flatten() {
            out.extend_from_slice(part);
        }
    }
}
