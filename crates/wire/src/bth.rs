//! The base transport header (BTH), which every InfiniBand transport packet starts with.
//!
//! ```text
//!  0: opcode   1: SE M pad(2) version(4)   2-3: P_Key
//!  4: FECN BECN reserved(6)                5-7: destination QP
//!  8: A reserved(7)                        9-11: PSN
//! ```
//! As `rxe_hdr.h struct rxe_bth`.

use userdma_verbs::{PKey, Psn, Qpn};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::U24;
use crate::opcode::Opcode;

/// The base transport header, 12 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bth {
    opcode: u8,
    flags: u8,
    pkey: U16,
    congestion: u8,
    qpn: U24,
    ack: u8,
    psn: U24,
}

impl Bth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// A header without padding, solicited event, acknowledge request or congestion marks.
    ///
    /// The migration bit is set: path migration is never armed, and its resting state is "migrated".
    pub const fn new(opcode: Opcode, qpn: Qpn, psn: Psn, pkey: PKey) -> Self {
        Self {
            opcode: opcode as u8,
            flags: MIGREQ,
            pkey: U16::from_bytes(pkey.get().to_be_bytes()),
            congestion: 0,
            qpn: U24::new(qpn.get()),
            ack: 0,
            psn: U24::new(psn.get()),
        }
    }

    /// The opcode as it stands in the header.
    pub const fn opcode_byte(&self) -> u8 {
        self.opcode
    }

    /// The opcode, or `None` if no service defines it.
    pub const fn opcode(&self) -> Option<Opcode> {
        Opcode::from_byte(self.opcode)
    }

    /// Whether the sender asks for a solicited event with the message's completion.
    pub const fn solicited(&self) -> bool {
        self.flags & SOLICITED != 0
    }

    /// The migration bit.
    pub const fn migreq(&self) -> bool {
        self.flags & MIGREQ != 0
    }

    /// Pad bytes between payload and ICRC: 0 ..= 3.
    pub const fn pad_count(&self) -> u8 {
        (self.flags >> PAD_SHIFT) & 0x3
    }

    /// The transport header version, 0 in everything known: 0 ..= 15.
    pub const fn version(&self) -> u8 {
        self.flags & VERSION
    }

    /// The partition key.
    pub const fn pkey(&self) -> PKey {
        PKey::new(self.pkey.get())
    }

    /// Forward explicit congestion notification.
    pub const fn fecn(&self) -> bool {
        self.congestion & FECN != 0
    }

    /// Backward explicit congestion notification.
    pub const fn becn(&self) -> bool {
        self.congestion & BECN != 0
    }

    /// The destination queue pair.
    pub const fn qpn(&self) -> Qpn {
        Qpn::new(self.qpn.get())
    }

    /// Whether the requester asks for an acknowledgement of this packet.
    pub const fn ack_req(&self) -> bool {
        self.ack & ACK_REQ != 0
    }

    /// The packet sequence number.
    pub const fn psn(&self) -> Psn {
        Psn::new(self.psn.get())
    }

    /// Reserved bits as they stand in the header: six beside the congestion marks, seven beside the
    /// acknowledge request. Senders write zeros; nobody checks them.
    pub const fn reserved(&self) -> (u8, u8) {
        (self.congestion & 0x3f, self.ack & 0x7f)
    }

    /// Sets the opcode.
    pub const fn set_opcode(&mut self, opcode: Opcode) {
        self.opcode = opcode as u8;
    }

    /// Sets the solicited event bit.
    pub const fn set_solicited(&mut self, on: bool) {
        set(&mut self.flags, SOLICITED, on);
    }

    /// Sets the migration bit.
    pub const fn set_migreq(&mut self, on: bool) {
        set(&mut self.flags, MIGREQ, on);
    }

    /// Sets the number of pad bytes; only the low two bits of `pad` are taken.
    pub const fn set_pad_count(&mut self, pad: u8) {
        self.flags = self.flags & !(0x3 << PAD_SHIFT) | (pad & 0x3) << PAD_SHIFT;
    }

    /// Sets the partition key.
    pub const fn set_pkey(&mut self, pkey: PKey) {
        self.pkey = U16::from_bytes(pkey.get().to_be_bytes());
    }

    /// Sets the forward congestion mark.
    pub const fn set_fecn(&mut self, on: bool) {
        set(&mut self.congestion, FECN, on);
    }

    /// Sets the backward congestion mark.
    pub const fn set_becn(&mut self, on: bool) {
        set(&mut self.congestion, BECN, on);
    }

    /// Sets the destination queue pair.
    pub const fn set_qpn(&mut self, qpn: Qpn) {
        self.qpn = U24::new(qpn.get());
    }

    /// Sets the acknowledge request.
    pub const fn set_ack_req(&mut self, on: bool) {
        set(&mut self.ack, ACK_REQ, on);
    }

    /// Sets the packet sequence number.
    pub const fn set_psn(&mut self, psn: Psn) {
        self.psn = U24::new(psn.get());
    }

    /// Sets the reserved bits, as [`Bth::reserved`] gives them. Only re-encoding of foreign packets needs it.
    pub const fn set_reserved(&mut self, beside_congestion: u8, beside_ack: u8) {
        self.congestion = self.congestion & 0xc0 | beside_congestion & 0x3f;
        self.ack = self.ack & ACK_REQ | beside_ack & 0x7f;
    }
}

const SOLICITED: u8 = 0x80;
const MIGREQ: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const VERSION: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

const fn set(byte: &mut u8, mask: u8, on: bool) {
    *byte = if on { *byte | mask } else { *byte & !mask };
}

const _: () = assert!(Bth::LEN == 12);
