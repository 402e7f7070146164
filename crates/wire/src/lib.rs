//! Packet formats: InfiniBand transport headers, their opcodes, the invariant CRC, and what carries them.
//!
//! Floor 1: bytes only, no IO, no clock, no state beyond [`IdWindow`]. Nothing that comes from the
//! network makes this crate panic; a packet that cannot be read is a [`Malformed`], one byte that says why.
//!
//! ```text
//!  Ethernet | IPv4 or IPv6 | UDP 4791 | BTH | extension headers | payload | pad | ICRC
//!  '--------- encap ----------------'   '------------- Packet -----------------------'
//! ```

#![forbid(unsafe_code)]

mod aeth;
mod bth;
mod build;
mod cnp;
mod crc_algebra;
pub mod encap;
mod ext;
mod field;
mod grh;
pub mod gsi;
mod icrc;
mod id_window;
mod inet_checksum;
pub mod mad;
mod malformed;
mod network_header;
mod opcode;
mod owned;
mod packet;
mod pretty;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use bth::Bth;
pub use build::{PacketWriter, packet_len};
pub use cnp::{CNP_LEN, write_cnp};
pub use ext::{AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
pub use grh::Grh;
pub use icrc::{Crc32, FlowIcrc, IcrcCheck, Pseudo, extend_icrc, seal_packet};
pub use id_window::{IcrcVerdict, IdVerdict, IdWindow};
pub use malformed::Malformed;
pub use network_header::NetworkHeader;
pub use opcode::{ExtHeaders, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Service};
pub use owned::{OwnedExt, OwnedPacket};
pub use packet::Packet;
pub use pretty::Fields;

/// The UDP destination port of RoCE v2.
pub const ROCE_V2_PORT: u16 = 4791;

/// Bytes of the invariant CRC at the end of a packet.
pub const ICRC_LEN: usize = 4;
