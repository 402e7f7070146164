//! Building packets on the data path: into room of exactly the right size, without allocation.

use zerocopy::{Immutable, IntoBytes};

use crate::ICRC_LEN;
use crate::aeth::Aeth;
use crate::bth::Bth;
use crate::ext::{AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use crate::opcode::Opcode;

/// Bytes of a packet from BTH to ICRC with this opcode and payload: headers, payload, padding, ICRC.
pub const fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    opcode.info().header_len + payload_len.next_multiple_of(4) + ICRC_LEN
}

/// Writes one packet's headers into room of [`packet_len`] bytes.
///
/// Headers go in the order of the wire; then [`PacketWriter::payload`] or [`PacketWriter::finish`] sets
/// the pad count and zeroes the padding. The caller fills the payload and then calls
/// [`crate::Pseudo::seal`] on the whole room.
///
/// ```
/// # use userdma_wire::*;
/// # use userdma_verbs::{PKey, Psn, Qpn, RKey};
/// # let pseudo = Pseudo::new([127, 0, 0, 2].into(), [127, 0, 0, 3].into(), 50_000, 4791);
/// let mut room = [0; packet_len(Opcode::RcWriteOnly, 5)];
/// let bth = Bth::new(Opcode::RcWriteOnly, Qpn::new(0x11), Psn::new(1), PKey::DEFAULT);
/// PacketWriter::new(&mut room, &bth)
///     .reth(&Reth::new(0x1000, RKey::new(7), 5))
///     .payload(5)
///     .copy_from_slice(b"hello");
/// pseudo.seal(&mut room, 0);
/// ```
///
/// # Panics
/// Every method panics if the room is too short for what it writes: that is a caller's bug, not
/// something a peer can cause.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> PacketWriter<'a> {
    /// Begins a packet with its BTH. `bytes` has exactly [`packet_len`] bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8], bth: &Bth) -> Self {
        Self { bytes, at: 0 }.put(bth)
    }

    /// Appends a RETH.
    #[inline]
    #[must_use]
    pub fn reth(self, header: &Reth) -> Self {
        self.put(header)
    }

    /// Appends an AtomicETH.
    #[inline]
    #[must_use]
    pub fn atomic_eth(self, header: &AtomicEth) -> Self {
        self.put(header)
    }

    /// Appends an AETH.
    #[inline]
    #[must_use]
    pub fn aeth(self, header: &Aeth) -> Self {
        self.put(header)
    }

    /// Appends an AtomicAckETH.
    #[inline]
    #[must_use]
    pub fn atomic_ack_eth(self, header: &AtomicAckEth) -> Self {
        self.put(header)
    }

    /// Appends immediate data, given in host order.
    #[inline]
    #[must_use]
    pub fn imm(self, data: u32) -> Self {
        self.put(&ImmDt::new(data))
    }

    /// Appends an IETH.
    #[inline]
    #[must_use]
    pub fn ieth(self, header: &Ieth) -> Self {
        self.put(header)
    }

    /// Appends a DETH.
    #[inline]
    #[must_use]
    pub fn deth(self, header: &Deth) -> Self {
        self.put(header)
    }

    /// Appends an XRCETH.
    #[inline]
    #[must_use]
    pub fn xrc_eth(self, header: &XrcEth) -> Self {
        self.put(header)
    }

    /// Appends a FETH.
    #[inline]
    #[must_use]
    pub fn feth(self, header: &Feth) -> Self {
        self.put(header)
    }

    /// Ends the headers of a packet with `len` bytes of payload, and returns the payload's place.
    #[inline]
    pub fn payload(self, len: usize) -> &'a mut [u8] {
        self.split(len).1
    }

    /// As [`PacketWriter::payload`]; returns the finished headers, from the BTH on, and the payload's place.
    #[inline]
    pub fn split(self, len: usize) -> (&'a mut [u8], &'a mut [u8]) {
        debug_assert_eq!(
            Some(self.at),
            Opcode::from_byte(self.bytes[0]).map(|opcode| opcode.info().header_len),
            "headers that the opcode does not carry, or too few of them"
        );
        let pad_len = len.wrapping_neg() & 3;
        debug_assert_eq!(
            self.bytes.len(),
            self.at + len + pad_len + ICRC_LEN,
            "room does not fit the packet"
        );
        self.bytes[1] = self.bytes[1] & !0x30 | PAD_BITS[pad_len];
        let (headers, rest) = self.bytes.split_at_mut(self.at);
        let (payload, rest) = rest.split_at_mut(len);
        rest[..pad_len].fill(0);
        (headers, payload)
    }

    /// Ends a packet without payload.
    #[inline]
    pub fn finish(self) {
        self.payload(0);
    }

    #[inline]
    fn put<H: IntoBytes + Immutable>(mut self, header: &H) -> Self {
        let end = self.at + size_of::<H>();
        self.bytes[self.at..end].copy_from_slice(header.as_bytes());
        self.at = end;
        self
    }
}

/// The BTH's second byte by pad count, its other bits zero.
const PAD_BITS: [u8; 4] = [0x00, 0x10, 0x20, 0x30];
