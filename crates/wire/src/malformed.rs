//! Why bytes are not a packet.

/// The reason why bytes cannot be read as a packet: one byte, to be counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum Malformed {
    /// Shorter than its headers and the ICRC.
    #[error("shorter than its headers")]
    TooShort,
    /// The length is no multiple of four, which a padded packet always is.
    #[error("length is no multiple of four")]
    Unaligned,
    /// A transport header version other than 0.
    #[error("unknown transport header version")]
    Version,
    /// An opcode that no service defines.
    #[error("unknown opcode")]
    Opcode,
    /// More pad bytes than bytes after the headers.
    #[error("more padding than payload")]
    PadCount,
    /// An Ethernet frame that carries neither IPv4 nor IPv6.
    #[error("not an ip packet")]
    NotIp,
    /// An IP header that contradicts itself, or an IP version that its frame does not announce.
    #[error("bad ip header")]
    IpHeader,
    /// A piece of a fragmented IP packet, or one with options or extension headers.
    #[error("ip fragment, options or extension headers")]
    IpOptions,
    /// An IP packet that carries no UDP.
    #[error("not udp")]
    NotUdp,
    /// A UDP length that contradicts the IP header or the bytes that are there.
    #[error("udp length does not fit")]
    UdpLength,
}

const _: () = assert!(size_of::<Malformed>() == 1);
