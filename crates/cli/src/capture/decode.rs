//! From a captured frame to the packets in it.

use std::borrow::Cow;

use userdma_wire::encap::{Encap, EncapFrame};
use userdma_wire::{IcrcCheck, Malformed, Packet};

use super::file::CapturedFrame;

/// What a frame turned out to be.
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'a> {
    /// A RoCE v2 packet.
    Packet {
        /// What carried it.
        encap: Encap,
        /// The packet.
        packet: Packet<'a>,
        /// What its ICRC says.
        icrc: Icrc,
        /// Its place in the super-packet that was captured in its stead, if that is what happened.
        segment: Option<usize>,
    },
    /// Sent to the port of RoCE v2, but no packet.
    Malformed {
        /// What carried it.
        encap: Encap,
        /// Its bytes.
        bytes: &'a [u8],
        /// What is wrong.
        reason: Malformed,
    },
    /// Something else: ARP, TCP, another port.
    Other,
}

/// What an ICRC says in a capture, where the IP header is there to see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Icrc {
    /// It fits.
    Good,
    /// It does not fit.
    Bad,
    /// It would fit if the IPv4 identification were this one: what a sender does who cannot know it, or chance.
    OtherId(u16),
    /// The packet's end was not captured.
    NotCaptured,
}

impl std::fmt::Display for Icrc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Good => f.write_str("icrc good"),
            Self::Bad => f.write_str("ICRC BAD"),
            Self::OtherId(id) => write!(f, "icrc fits unknown ip id {id}"),
            Self::NotCaptured => f.write_str("icrc not captured"),
        }
    }
}

/// A captured frame as Ethernet, filled with zeros to the length it had on the wire.
#[derive(Debug)]
pub struct Prepared<'a> {
    ethernet: Cow<'a, [u8]>,
    cut_bytes: usize,
}

impl<'a> Prepared<'a> {
    /// Prepares a frame; `None` if its link type is not understood.
    pub fn new(frame: &'a CapturedFrame) -> Option<Self> {
        let mut ethernet = frame.link.as_ethernet(&frame.bytes)?;
        // Lengths in a damaged file may be anything: no IP packet needs more.
        let cut_bytes = frame.original_len.saturating_sub(frame.bytes.len()).min(1 << 16);
        if cut_bytes > 0 {
            let len = ethernet.len() + cut_bytes;
            ethernet.to_mut().resize(len, 0);
        }
        Some(Self { ethernet, cut_bytes })
    }

    /// Bytes that were on the wire and not captured.
    pub fn cut_bytes(&self) -> usize {
        self.cut_bytes
    }

    /// Calls `sink` for what is in the frame: once, or for each packet of a super-packet. `port` is the UDP port of
    /// RoCE v2, 4791 but for private ones.
    pub fn decode(&self, port: u16, mut sink: impl FnMut(Decoded<'_>)) {
        let parsed = match EncapFrame::parse(&self.ethernet) {
            Ok(parsed) if parsed.encap.dst_port == port => parsed,
            Ok(_) | Err(_) => return sink(Decoded::Other),
        };
        let encap = parsed.encap;
        match Packet::parse(parsed.transport) {
            Err(reason) => sink(Decoded::Malformed { encap, bytes: parsed.transport, reason }),
            Ok(packet) if self.cut_bytes > 0 => {
                sink(Decoded::Packet { encap, packet, icrc: Icrc::NotCaptured, segment: None });
            }
            Ok(packet) => match check_icrc(&encap, &packet) {
                Icrc::Bad | Icrc::OtherId(_) if packet.payload().len() > MAX_MTU => {
                    split(&encap, packet, &mut sink);
                }
                icrc @ (Icrc::Good | Icrc::Bad | Icrc::OtherId(_) | Icrc::NotCaptured) => {
                    sink(Decoded::Packet { encap, packet, icrc, segment: None });
                }
            },
        }
    }
}

fn check_icrc(encap: &Encap, packet: &Packet<'_>) -> Icrc {
    match encap.pseudo().verify(packet, encap.ipv4_id) {
        IcrcCheck::Good => Icrc::Good,
        IcrcCheck::GoodWithId(id) => Icrc::OtherId(id),
        IcrcCheck::Bad => Icrc::Bad,
    }
}

/// A packet that is longer than any path MTU allows was captured before the kernel cut it: it is several packets of
/// equal length, the last may be shorter. Their length is the one that makes the first one's ICRC right.
fn split(encap: &Encap, whole: Packet<'_>, sink: &mut impl FnMut(Decoded<'_>)) {
    let head = whole.info().header_len;
    let fits = |mtu: &usize| {
        let first = whole.bytes().get(..head + mtu + 4)?;
        let first = Packet::parse(first).ok()?;
        (check_icrc(encap, &first) == Icrc::Good).then_some(head + mtu + 4)
    };
    let Some(len) = MTUS.iter().find_map(fits) else {
        return sink(Decoded::Packet { encap: *encap, packet: whole, icrc: Icrc::Bad, segment: None });
    };
    for (index, bytes) in whole.bytes().chunks(len).enumerate() {
        let mut encap = *encap;
        if encap.is_ipv4() {
            // At most 64 KiB of segments: the index is small.
            encap.ipv4_id = encap.ipv4_id.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX));
        }
        match Packet::parse(bytes) {
            Ok(packet) => {
                let icrc = check_icrc(&encap, &packet);
                sink(Decoded::Packet { encap, packet, icrc, segment: Some(index) });
            }
            Err(reason) => sink(Decoded::Malformed { encap, bytes, reason }),
        }
    }
}

const MTUS: [usize; 5] = [4096, 2048, 1024, 512, 256];
const MAX_MTU: usize = MTUS[0];
