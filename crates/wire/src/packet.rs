//! A received transport packet: references into its bytes.

use userdma_verbs::{QKey, Qpn};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::ICRC_LEN;
use crate::aeth::Aeth;
use crate::bth::Bth;
use crate::ext::{AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use crate::mad;
use crate::malformed::Malformed;
use crate::opcode::{ExtHeaders, Opcode, OpcodeInfo};

/// A transport packet from BTH to ICRC, whose lengths are proven and whose bytes stay where they are.
///
/// Its ICRC is not checked; that is [`crate::Pseudo::verify`]. Neither is the length of its payload
/// against the path MTU: breaking that rule earns an answer, so the transport asks
/// [`crate::PayloadRule::allows`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    bth: &'a Bth,
    opcode: Opcode,
    info: &'static OpcodeInfo,
    payload_end: usize,
}

impl<'a> Packet<'a> {
    /// Reads the bytes of one packet, from the BTH to the ICRC.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong; no access to any of the headers may follow.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (bth, _) = Bth::ref_from_prefix(bytes).map_err(|_| Malformed::TooShort)?;
        if bth.version() != 0 {
            return Err(Malformed::Version);
        }
        let opcode = bth.opcode().ok_or(Malformed::Opcode)?;
        let info = opcode.info();
        let after_headers = bytes.len().checked_sub(info.header_len + ICRC_LEN).ok_or(Malformed::TooShort)?;
        if !bytes.len().is_multiple_of(4) {
            return Err(Malformed::Unaligned);
        }
        let payload_len = after_headers.checked_sub(bth.pad_count().into()).ok_or(Malformed::PadCount)?;
        Ok(Self { bytes, bth, opcode, info, payload_end: info.header_len + payload_len })
    }

    /// The base transport header.
    pub const fn bth(&self) -> &'a Bth {
        self.bth
    }

    /// The opcode.
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// What the opcode implies.
    pub const fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// The whole packet, from BTH to ICRC.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The RDMA header of a WRITE's first packet, a READ request, a FLUSH or an atomic WRITE.
    pub fn reth(&self) -> Option<&'a Reth> {
        self.header(ExtHeaders::RETH)
    }

    /// The header of an atomic request.
    pub fn atomic_eth(&self) -> Option<&'a AtomicEth> {
        self.header(ExtHeaders::ATOMIC)
    }

    /// The header of an acknowledgement or READ response.
    pub fn aeth(&self) -> Option<&'a Aeth> {
        self.header(ExtHeaders::AETH)
    }

    /// The result of an atomic.
    pub fn atomic_ack_eth(&self) -> Option<&'a AtomicAckEth> {
        self.header(ExtHeaders::ATOMIC_ACK)
    }

    /// The immediate data in host order.
    pub fn imm(&self) -> Option<u32> {
        self.header::<ImmDt>(ExtHeaders::IMM).map(ImmDt::data)
    }

    /// The key to invalidate.
    pub fn ieth(&self) -> Option<&'a Ieth> {
        self.header(ExtHeaders::IETH)
    }

    /// The datagram header.
    pub fn deth(&self) -> Option<&'a Deth> {
        self.header(ExtHeaders::DETH)
    }

    /// The XRC header of a request.
    pub fn xrc_eth(&self) -> Option<&'a XrcEth> {
        self.header(ExtHeaders::XRCETH)
    }

    /// The FLUSH header.
    pub fn feth(&self) -> Option<&'a Feth> {
        self.header(ExtHeaders::FETH)
    }

    /// The payload as a management datagram, if the packet goes to queue pair 1 with its queue key.
    pub fn mad(&self) -> Option<mad::Words<'a>> {
        let is_gsi = self.deth()?.qkey() == QKey::GSI && self.bth.qpn() == Qpn::GSI;
        is_gsi.then(|| mad::Words::new(self.payload()))
    }

    /// The payload without its padding.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.info.header_len..self.payload_end).unwrap_or_default()
    }

    /// Pad bytes after the payload: 0 ..= 3.
    pub const fn pad_len(&self) -> usize {
        self.bth.pad_count() as usize
    }

    /// The pad bytes themselves: zeros from a good sender.
    pub fn pad(&self) -> &'a [u8] {
        self.covered().get(self.payload_end..).unwrap_or_default()
    }

    /// The received invariant CRC.
    pub fn icrc(&self) -> u32 {
        // `parse` proved that the packet is longer than its ICRC, so the default never shows.
        self.bytes.last_chunk().copied().map(u32::from_le_bytes).unwrap_or_default()
    }

    /// The bytes that the invariant CRC covers here: from the BTH to the padding.
    pub fn covered(&self) -> &'a [u8] {
        self.bytes.get(..self.bytes.len() - ICRC_LEN).unwrap_or_default()
    }

    /// The extension header, if the opcode carries it. Always `Some` then, since `parse` proved the length.
    #[inline]
    fn header<H>(&self, which: ExtHeaders) -> Option<&'a H>
    where
        H: FromBytes + Immutable + KnownLayout + Unaligned,
    {
        let at = self.info.offset_of(which)?;
        H::ref_from_prefix(self.bytes.get(at..)?).ok().map(|(header, _)| header)
    }
}
