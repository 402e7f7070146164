//! The invariant CRC of RoCE v2.
//!
//! CRC-32 (the one of Ethernet) over eight bytes of ones in place of an LRH, the IP and UDP headers, and the
//! packet from BTH to padding. What routers change is replaced by ones: IPv4 type of service, time to live
//! and checksum, or IPv6 traffic class, flow label and hop limit; the UDP checksum; and the BTH's byte with
//! the congestion marks. Stored with its low byte first. As `rxe_icrc.c rxe_icrc_hdr()`.

use std::net::IpAddr;

use crc32fast::Hasher;

use crate::ICRC_LEN;
use crate::bth::Bth;
use crate::crc_algebra::{register_after, solve_two_bytes, two_bytes};
use crate::packet::Packet;

/// The masked IP and UDP headers of one flow, ready for the CRC of each of its packets.
#[derive(Clone, Copy, Debug)]
pub struct Pseudo {
    /// Eight bytes of ones, the IP header, the UDP header; lengths and identification are zero here.
    bytes: [u8; PSEUDO_MAX],
    /// How many of the bytes count: [`PSEUDO_V4`] or [`PSEUDO_V6`].
    len: usize,
}

/// What a packet's ICRC says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum IcrcCheck {
    /// It fits: over IPv6, or over IPv4 with the identification that was expected.
    Good,
    /// It fits an IPv4 packet with this identification. Whether to believe that is [`crate::IdWindow`]'s part.
    GoodWithId(u16),
    /// It does not fit.
    Bad,
}

impl Pseudo {
    /// The flow from `src`:`src_port` to `dst`:`dst_port`. IPv4-mapped IPv6 addresses mean IPv4.
    pub fn new(src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16) -> Self {
        let mut bytes = [0xff; PSEUDO_MAX];
        let len = match (src.to_canonical(), dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ip = &mut bytes[LRH_LEN..LRH_LEN + 20];
                ip.copy_from_slice(&[
                    0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
                ]);
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                PSEUDO_V4
            }
            _ => {
                let ip = &mut bytes[LRH_LEN..LRH_LEN + 40];
                ip[..8].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                ip[8..24].copy_from_slice(&userdma_verbs::Gid::from(src).bytes());
                ip[24..40].copy_from_slice(&userdma_verbs::Gid::from(dst).bytes());
                PSEUDO_V6
            }
        };
        let udp = &mut bytes[len - 8..len];
        udp[0..2].copy_from_slice(&src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&dst_port.to_be_bytes());
        Self { bytes, len }
    }

    /// Whether the flow runs over IPv4, whose identification the ICRC covers.
    pub const fn is_ipv4(&self) -> bool {
        self.len == PSEUDO_V4
    }

    /// The ICRC of a packet whose bytes from BTH to padding are `covered`; `ipv4_id` counts over IPv4 only.
    ///
    /// `covered` holds at least a BTH; with less, the result means nothing.
    #[inline]
    pub fn icrc(&self, covered: &[u8], ipv4_id: u16) -> u32 {
        transport_crc(extend_icrc, self.headers_crc(udp_len(covered.len()), ipv4_id), covered)
    }

    /// The CRC of everything before the BTH.
    fn headers_crc(&self, udp_len: u16, ipv4_id: u16) -> u32 {
        let mut head = self.bytes;
        if self.is_ipv4() {
            head[LRH_LEN + 2..LRH_LEN + 4].copy_from_slice(&udp_len.wrapping_add(20).to_be_bytes());
            head[LRH_LEN + 4..LRH_LEN + 6].copy_from_slice(&ipv4_id.to_be_bytes());
        } else {
            head[LRH_LEN + 4..LRH_LEN + 6].copy_from_slice(&udp_len.to_be_bytes());
        }
        let len = self.len;
        head[len - 4..len - 2].copy_from_slice(&udp_len.to_be_bytes());
        crc32fast::hash(&head[..len])
    }

    /// Computes the ICRC of a packet and stores it in its last four bytes.
    ///
    /// # Panics
    /// If `packet` is shorter than an ICRC.
    #[inline]
    pub fn seal(&self, packet: &mut [u8], ipv4_id: u16) {
        seal_with(packet, |covered| self.icrc(covered, ipv4_id));
    }

    /// Checks a packet's ICRC. Over IPv4 `id_hint` is tried first; if it does not fit, the identification
    /// that makes it fit is solved for. The hint is ignored over IPv6.
    ///
    /// A UDP socket does not show the identification. Any other bit that is wrong in the packet passes for a
    /// foreign identification once in 65,536 times, which is why [`IcrcCheck::GoodWithId`] is not yet `Good`.
    #[inline]
    pub fn verify(&self, packet: &Packet<'_>, id_hint: u16) -> IcrcCheck {
        self.judge(self.icrc(packet.covered(), id_hint), packet, id_hint)
    }

    /// What a packet's ICRC says beside the one that it should have with `id_hint`.
    #[inline]
    fn judge(&self, expected: u32, packet: &Packet<'_>, id_hint: u16) -> IcrcCheck {
        let diff = expected ^ packet.icrc();
        if diff == 0 {
            IcrcCheck::Good
        } else if self.is_ipv4() {
            solve_id(diff, packet.covered().len(), id_hint)
        } else {
            IcrcCheck::Bad
        }
    }

    /// Whether a packet whose ICRC is bad for this flow would be good had `other_src` sent it: then an address
    /// translation stands between the peers. Over IPv4 the answer is wrongly yes once in 65,536 times.
    ///
    /// Not for the data path.
    pub fn would_fit(&self, other_src: IpAddr, packet: &Packet<'_>, id_hint: u16) -> bool {
        let mut other = *self;
        match other_src.to_canonical() {
            IpAddr::V4(src) if self.is_ipv4() => {
                other.bytes[LRH_LEN + 12..LRH_LEN + 16].copy_from_slice(&src.octets())
            }
            IpAddr::V6(src) if !self.is_ipv4() => {
                other.bytes[LRH_LEN + 8..LRH_LEN + 24].copy_from_slice(&src.octets())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return false,
        }
        other.verify(packet, id_hint) != IcrcCheck::Bad
    }
}

/// A flow whose packets come one after another: as [`Pseudo`], and remembers what the headers of the last ones came to.
/// Small packets of a connection are of few sizes, and the headers are most of what their ICRC covers.
#[derive(Clone, Copy, Debug)]
pub struct FlowIcrc {
    pseudo: Pseudo,
    memo: [Remembered; MEMO],
    crc32: Crc32,
}

/// A way to go on with the CRC-32 of Ethernet: from the CRC of everything before some bytes, 0 before the first, to that of
/// everything up to their end.
pub type Crc32 = fn(u32, &[u8]) -> u32;

/// The CRC of the headers before the BTH for one length, and identification 0; length 0 for none.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    udp_len: u16,
    crc: u32,
}

impl FlowIcrc {
    /// A flow with these headers.
    pub const fn new(pseudo: Pseudo) -> Self {
        Self::with_crc32(pseudo, extend_icrc)
    }

    /// The same, with another way to compute it: a faster one, say.
    pub const fn with_crc32(pseudo: Pseudo, crc32: Crc32) -> Self {
        Self { pseudo, memo: [Remembered { udp_len: 0, crc: 0 }; MEMO], crc32 }
    }

    /// As [`Pseudo::seal`].
    ///
    /// # Panics
    /// If `packet` is shorter than an ICRC.
    #[inline]
    pub fn seal(&mut self, packet: &mut [u8], ipv4_id: u16) {
        seal_with(packet, |covered| self.icrc(covered, ipv4_id));
    }

    /// As [`Pseudo::verify`].
    #[inline]
    pub fn verify(&mut self, packet: &Packet<'_>, id_hint: u16) -> IcrcCheck {
        let expected = self.icrc(packet.covered(), id_hint);
        self.pseudo.judge(expected, packet, id_hint)
    }

    /// The ICRC as far as the end of `headers`, those from the BTH on of a packet of `len` bytes, the ICRC's four among them:
    /// for whoever goes on with it over the payload ([`extend_icrc`], or any other CRC-32 of Ethernet) and ends with
    /// [`seal_packet`].
    #[inline]
    pub fn begin(&mut self, headers: &[u8], len: usize, ipv4_id: u16) -> u32 {
        transport_crc(self.crc32, self.headers_crc(udp_len(len - ICRC_LEN), ipv4_id), headers)
    }

    /// As [`Pseudo::icrc`].
    #[inline]
    pub fn icrc(&mut self, covered: &[u8], ipv4_id: u16) -> u32 {
        transport_crc(self.crc32, self.headers_crc(udp_len(covered.len()), ipv4_id), covered)
    }

    /// The CRC of everything before the BTH.
    #[inline]
    fn headers_crc(&mut self, udp_len: u16, ipv4_id: u16) -> u32 {
        // Lengths are multiples of four.
        let slot = &mut self.memo[usize::from(udp_len >> 2) % MEMO];
        if slot.udp_len != udp_len {
            *slot = Remembered { udp_len, crc: self.pseudo.headers_crc(udp_len, 0) };
        }
        // The packets of a batch have identifications in a row.
        if self.pseudo.is_ipv4() {
            slot.crc ^ two_bytes::<AFTER_ID_V4>(ipv4_id.to_be_bytes())
        } else {
            slot.crc
        }
    }
}

/// Goes on with an ICRC over the next bytes of its packet. See [`FlowIcrc::begin`].
#[inline]
pub fn extend_icrc(icrc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(icrc);
    hasher.update(bytes);
    hasher.finalize()
}

/// Ends a packet with `icrc`, which covers its headers and its `payload_len` bytes of payload: goes on over the
/// padding and stores it in the last four bytes. See [`FlowIcrc::begin`].
///
/// # Panics
/// If `packet` is shorter than an ICRC.
#[inline]
pub fn seal_packet(packet: &mut [u8], icrc: u32, payload_len: usize) {
    let padding = &[0; 3][..payload_len.wrapping_neg() & 3];
    seal_with(packet, |_| if padding.is_empty() { icrc } else { extend_icrc(icrc, padding) });
}

/// The length in the UDP header of a packet of which the ICRC covers so many bytes. An IP packet has at most 65535 bytes: a
/// longer one is nobody's packet, and any result will do.
#[inline]
fn udp_len(covered_len: usize) -> u16 {
    u16::try_from(covered_len + ICRC_LEN + 8).unwrap_or(u16::MAX)
}

/// Goes on with the CRC of a packet from its BTH on.
#[inline]
fn transport_crc(crc32: Crc32, headers: u32, covered: &[u8]) -> u32 {
    // An acknowledgement has sixteen bytes, and no more.
    if let Ok(acknowledgement) = covered.try_into() {
        return masked_crc::<16>(headers, acknowledgement);
    }
    match covered.split_first_chunk() {
        Some((bth, [])) => masked_crc::<{ Bth::LEN }>(headers, bth),
        Some((bth, rest)) => crc32(masked_crc::<{ Bth::LEN }>(headers, bth), rest),
        // Nobody's packet.
        None => headers,
    }
}

/// The same for a BTH and the few bytes after it.
#[inline]
fn masked_crc<const N: usize>(headers: u32, start: &[u8; N]) -> u32 {
    let mut masked = *start;
    masked[MASKED] = 0xff;
    // The register is kept inverted between two steps.
    !register_after(!headers, &masked)
}

#[inline]
fn seal_with(packet: &mut [u8], icrc: impl FnOnce(&[u8]) -> u32) {
    let covered_len = packet.len() - ICRC_LEN;
    let (covered, stored) = packet.split_at_mut(covered_len);
    stored.copy_from_slice(&icrc(covered).to_le_bytes());
}

/// The identification that explains the difference between the ICRC with `id_hint` and the received one.
#[cold]
fn solve_id(diff: u32, covered_len: usize, id_hint: u16) -> IcrcCheck {
    match solve_two_bytes(diff, AFTER_ID_V4 + covered_len) {
        Some(pair) => IcrcCheck::GoodWithId(id_hint ^ u16::from_be_bytes(pair)),
        None => IcrcCheck::Bad,
    }
}

const LRH_LEN: usize = 8;
const PSEUDO_V4: usize = LRH_LEN + 20 + 8;
const PSEUDO_V6: usize = LRH_LEN + 40 + 8;
const PSEUDO_MAX: usize = PSEUDO_V6;
/// Bytes of the IPv4 header after its identification, and the UDP header.
const AFTER_ID_V4: usize = 14 + 8;
/// The byte of the BTH with the congestion marks.
const MASKED: usize = 4;
/// Lengths that a flow remembers.
const MEMO: usize = 8;
