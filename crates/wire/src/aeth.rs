//! The ACK extended transport header (AETH) and its syndrome.
//!
//! Bits 7..5 of the syndrome name its kind (0 ACK, 1 RNR NAK, 3 NAK; the rest is reserved), bits 4..0 are
//! a credit code, a timer code or a NAK code. As `rxe_hdr.h`, `AETH_TYPE_MASK` and following.

use userdma_verbs::{Msn, RnrTimer};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::U24;

/// The ACK extended transport header, 4 bytes: the responder's verdict and its message sequence number.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Aeth {
    syndrome: u8,
    msn: U24,
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// A header with this verdict and message sequence number.
    pub const fn new(syndrome: Syndrome, msn: Msn) -> Self {
        Self { syndrome: syndrome.to_byte(), msn: U24::new(msn.get()) }
    }

    /// The verdict.
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte(self.syndrome)
    }

    /// The verdict as it stands in the header.
    pub const fn syndrome_byte(&self) -> u8 {
        self.syndrome
    }

    /// The number of messages that the responder has finished.
    pub const fn msn(&self) -> Msn {
        Msn::new(self.msn.get())
    }
}

/// What a responder says about a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Syndrome {
    /// Everything up to the PSN was received.
    Ack {
        /// The credit code: 0 ..= 31. [`Syndrome::NO_CREDITS`] means that the responder counts none.
        credits: u8,
    },
    /// Receiver not ready: ask again after the time that the code names.
    Rnr {
        /// The encoded delay.
        timer: RnrTimer,
    },
    /// A refusal.
    Nak(NakCode),
    /// A byte that means nothing.
    Reserved(u8),
}

impl Syndrome {
    /// The credit code of a responder that limits nobody.
    pub const NO_CREDITS: u8 = 31;

    /// An ACK without end-to-end credits.
    pub const ACK: Self = Self::Ack { credits: Self::NO_CREDITS };

    /// Reads the byte; never fails, what means nothing is [`Syndrome::Reserved`].
    pub const fn from_byte(byte: u8) -> Self {
        let low = byte & VALUE;
        match byte & KIND {
            KIND_ACK => Self::Ack { credits: low },
            KIND_RNR => match RnrTimer::new(low) {
                Some(timer) => Self::Rnr { timer },
                None => Self::Reserved(byte),
            },
            KIND_NAK => match NakCode::from_code(low) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    /// The byte on the wire. Credits keep their low five bits.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => KIND_ACK | credits & VALUE,
            Self::Rnr { timer } => KIND_RNR | timer.code(),
            Self::Nak(code) => KIND_NAK | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Why a responder refuses a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing before this one; its PSN is the one expected.
    PsnSequence = 0,
    /// A request that makes no sense: opcode order, length, alignment, too many READs.
    InvalidRequest = 1,
    /// The key does not allow this access.
    RemoteAccess = 2,
    /// The responder failed for a reason of its own.
    RemoteOperational = 3,
    /// A reliable datagram domain that does not fit. Unused in the services built here.
    InvalidRd = 4,
}

impl NakCode {
    /// The refusal with this code, or `None` if it is reserved.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::PsnSequence),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccess),
            3 => Some(Self::RemoteOperational),
            4 => Some(Self::InvalidRd),
            _ => None,
        }
    }

    /// The refusal in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PsnSequence => "psn sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
            Self::InvalidRd => "invalid rd request",
        }
    }
}

const KIND: u8 = 0xe0;
const VALUE: u8 = 0x1f;
const KIND_ACK: u8 = 0x00;
const KIND_RNR: u8 = 0x20;
const KIND_NAK: u8 = 0x60;

const _: () = assert!(Aeth::LEN == 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_survives_reading_and_writing() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        }
    }

    #[test]
    fn syndromes_are_what_captures_show() {
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x2c), Syndrome::Rnr { timer: RnrTimer::new(12).unwrap() });
        assert_eq!(Syndrome::from_byte(0x65), Syndrome::Reserved(0x65));
        assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::from_byte(0x80), Syndrome::Reserved(0x80));
    }
}
