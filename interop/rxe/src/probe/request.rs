//! A request as bytes, with everything that may be wrong about it.

use super::Target;

/// The headers behind the BTH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ext {
    /// None.
    None,
    /// RETH: `len` bytes at `off` in the target's region, with its key or another one.
    Reth {
        /// Offset in the region.
        off: u64,
        /// The length that the header says.
        len: u32,
        /// Whether the key is one that nobody has.
        wrong_key: bool,
    },
    /// AtomicETH of a COMPARE_SWAP at `off`.
    Cas {
        /// Offset in the region.
        off: u64,
        /// Whether the key is one that nobody has.
        wrong_key: bool,
    },
    /// AETH of an acknowledgement.
    Aeth(u32),
    /// FETH (visible to all, a range) and RETH of `len` bytes at the region's start.
    Flush {
        /// The length that the header says.
        len: u32,
    },
    /// IETH.
    Ieth(u32),
}

/// A request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The opcode, defined or not.
    pub opcode: u8,
    /// The PSN.
    pub psn: u32,
    /// Headers behind the BTH.
    pub ext: Ext,
    /// Payload.
    pub payload: Vec<u8>,
    /// Pad bytes that the BTH counts, and pad bytes that are there; what fits if `None`.
    pub pad: Option<(u8, usize)>,
    /// The acknowledge request bit.
    pub ack_req: bool,
    /// The partition key.
    pub pkey: u16,
    /// Another destination than the target.
    pub qpn: Option<u32>,
    /// The transport header version.
    pub version: u8,
    /// Whether a bit of the ICRC is flipped.
    pub bad_icrc: bool,
}

impl Request {
    /// A request that asks for an acknowledgement, right in everything that is not said here.
    pub fn new(opcode: u8, psn: u32, ext: Ext, payload: &[u8]) -> Self {
        Self {
            opcode,
            psn,
            ext,
            payload: payload.to_vec(),
            pad: None,
            ack_req: true,
            pkey: 0xffff,
            qpn: None,
            version: 0,
            bad_icrc: false,
        }
    }

    /// A SEND Only.
    pub fn send(psn: u32, payload: &[u8]) -> Self {
        Self::new(0x04, psn, Ext::None, payload)
    }

    /// A WRITE Only.
    pub fn write(psn: u32, off: u64, payload: &[u8]) -> Self {
        // Payloads are single packets.
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Self::new(0x0a, psn, Ext::Reth { off, len, wrong_key: false }, payload)
    }

    /// The bytes from BTH to ICRC. In place of the ICRC stands what is to be changed in the right one.
    pub(super) fn encode(&self, target: &Target) -> Vec<u8> {
        let fitting = self.payload.len().wrapping_neg() & 3;
        let (pad_count, pad_len) = self.pad.unwrap_or((fitting.to_le_bytes()[0], fitting));
        let mut out = vec![self.opcode, 0x40 | pad_count << 4 | self.version];
        out.extend_from_slice(&self.pkey.to_be_bytes());
        out.extend_from_slice(&self.qpn.unwrap_or(target.qpn).to_be_bytes());
        out.extend_from_slice(&(u32::from(self.ack_req) << 31 | self.psn).to_be_bytes());
        self.ext.encode(target, &mut out);
        out.extend_from_slice(&self.payload);
        out.resize(out.len() + pad_len, 0);
        out.extend_from_slice(&[u8::from(self.bad_icrc), 0, 0, 0]);
        out
    }
}

impl Ext {
    fn encode(self, target: &Target, out: &mut Vec<u8>) {
        let key = |wrong: bool| if wrong { target.rkey ^ 0x5500 } else { target.rkey };
        let mut memory = |off: u64, rkey: u32| {
            out.extend_from_slice(&target.addr.wrapping_add(off).to_be_bytes());
            out.extend_from_slice(&rkey.to_be_bytes());
        };
        match self {
            Self::None => {}
            Self::Reth { off, len, wrong_key } => {
                memory(off, key(wrong_key));
                out.extend_from_slice(&len.to_be_bytes());
            }
            Self::Cas { off, wrong_key } => {
                memory(off, key(wrong_key));
                out.extend_from_slice(&1_u64.to_be_bytes());
                out.extend_from_slice(&2_u64.to_be_bytes());
            }
            Self::Aeth(word) | Self::Ieth(word) => out.extend_from_slice(&word.to_be_bytes()),
            Self::Flush { len } => {
                out.extend_from_slice(&1_u32.to_be_bytes());
                let reth = Self::Reth { off: 0, len, wrong_key: false };
                reth.encode(target, out);
            }
        }
    }
}
