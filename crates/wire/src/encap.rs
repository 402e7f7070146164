//! What carries a transport packet over Ethernet: Ethernet, IPv4 or IPv6, and UDP headers, both ways.
//!
//! For captures and taps. On the data path the kernel reads and writes these headers. One VLAN tag is
//! understood; IP fragments, options and extension headers are not.

use std::fmt;
use std::net::IpAddr;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::icrc::Pseudo;
use crate::inet_checksum::InetChecksum;
use crate::malformed::Malformed;

/// Ethernet header without VLAN tag, 14 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthHeader {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// What follows: 0x0800 IPv4, 0x86dd IPv6, 0x8100 a VLAN tag.
    pub ethertype: U16,
}

/// IPv4 header without options, 20 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version 4 and header length in words, 5 without options.
    pub version_ihl: u8,
    /// Type of service: six bits of DSCP, two of ECN.
    pub tos: u8,
    /// Bytes from this header to the payload's end.
    pub total_len: U16,
    /// Identification.
    pub id: U16,
    /// Three flags (0x4000 is "don't fragment") and the fragment offset.
    pub flags_fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// What follows: 17 is UDP.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

/// IPv6 header, 40 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version 6 (4 bits), traffic class (8), flow label (20).
    pub version_class_flow: U32,
    /// Bytes after this header.
    pub payload_len: U16,
    /// What follows: 17 is UDP.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

/// UDP header, 8 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port: on RoCE v2 a number that spreads flows over paths.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Bytes of this header and the payload.
    pub len: U16,
    /// Checksum, or 0 for none.
    pub checksum: U16,
}

/// A checksum in a header that is to be written, or was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// What it has to be.
    Computed,
    /// This value, right or wrong; 0 in UDP means "none".
    Given(u16),
}

/// Everything that the carrying headers say, but for lengths and what never changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Encap {
    /// Source MAC address.
    pub src_mac: [u8; 6],
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
    /// The VLAN tag (priority and VLAN id), if there is one.
    pub vlan: Option<u16>,
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// IPv4 type of service or IPv6 traffic class; its low two bits are ECN.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits; 0 over IPv4.
    pub flow_label: u32,
    /// IPv4 identification; 0 over IPv6.
    pub ipv4_id: u16,
    /// The IPv4 flag "don't fragment". The ICRC covers it: it is set in every RoCE v2 packet.
    pub ipv4_dont_fragment: bool,
    /// IPv4 header checksum.
    pub ipv4_checksum: Checksum,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// UDP checksum.
    pub udp_checksum: Checksum,
}

/// An Ethernet frame with a UDP packet in it, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct EncapFrame<'a> {
    /// What its headers say.
    pub encap: Encap,
    /// The UDP payload.
    pub transport: &'a [u8],
    /// What follows the IP packet: Ethernet padding.
    pub trailer: &'a [u8],
}

impl<'a> EncapFrame<'a> {
    /// Takes an Ethernet frame apart. Checksums are read, not judged.
    ///
    /// # Errors
    /// [`Malformed`] if it is no whole IPv4 or IPv6 packet with UDP directly in it.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let (eth, rest) = read::<EthHeader>(frame)?;
        let (vlan, ethertype, rest) = match eth.ethertype.get() {
            ETHERTYPE_VLAN => {
                let (tag, rest) = read::<[U16; 2]>(rest)?;
                (Some(tag[0].get()), tag[1].get(), rest)
            }
            ethertype => (None, ethertype, rest),
        };
        let mut parsed = match ethertype {
            ETHERTYPE_IPV4 => Self::parse_ipv4(rest)?,
            ETHERTYPE_IPV6 => Self::parse_ipv6(rest)?,
            _ => return Err(Malformed::NotIp),
        };
        parsed.encap.src_mac = eth.src;
        parsed.encap.dst_mac = eth.dst;
        parsed.encap.vlan = vlan;
        Ok(parsed)
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (ip, rest) = read::<Ipv4Header>(bytes)?;
        match ip.version_ihl {
            0x45 => {}
            0x46..=0x4f => return Err(Malformed::IpOptions),
            _ => return Err(Malformed::IpHeader),
        }
        let flags = ip.flags_fragment.get();
        if flags & !FLAG_DONT_FRAGMENT != 0 {
            return Err(Malformed::IpOptions);
        }
        if ip.protocol != PROTOCOL_UDP {
            return Err(Malformed::NotUdp);
        }
        let len = usize::from(ip.total_len.get()).checked_sub(IPV4_LEN).ok_or(Malformed::IpHeader)?;
        let (payload, trailer) = rest.split_at_checked(len).ok_or(Malformed::TooShort)?;
        let encap = Encap {
            traffic_class: ip.tos,
            hop_limit: ip.ttl,
            ipv4_id: ip.id.get(),
            ipv4_dont_fragment: flags & FLAG_DONT_FRAGMENT != 0,
            ipv4_checksum: Checksum::Given(ip.checksum.get()),
            ..Encap::udp(ip.src.into(), ip.dst.into(), 0, 0)
        };
        Self::parse_udp(encap, payload, trailer)
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (ip, rest) = read::<Ipv6Header>(bytes)?;
        let [first, second, third, fourth] = ip.version_class_flow.get().to_be_bytes();
        if first >> 4 != 6 {
            return Err(Malformed::IpHeader);
        }
        match ip.next_header {
            PROTOCOL_UDP => {}
            0 | 43 | 44 | 60 => return Err(Malformed::IpOptions),
            _ => return Err(Malformed::NotUdp),
        }
        let len = ip.payload_len.get().into();
        let (payload, trailer) = rest.split_at_checked(len).ok_or(Malformed::TooShort)?;
        let encap = Encap {
            traffic_class: first << 4 | second >> 4,
            hop_limit: ip.hop_limit,
            flow_label: u32::from_be_bytes([0, second & 0xf, third, fourth]),
            ipv4_dont_fragment: false,
            ..Encap::udp(ip.src.into(), ip.dst.into(), 0, 0)
        };
        Self::parse_udp(encap, payload, trailer)
    }

    fn parse_udp(mut encap: Encap, bytes: &'a [u8], trailer: &'a [u8]) -> Result<Self, Malformed> {
        let (udp, transport) = read::<UdpHeader>(bytes)?;
        if usize::from(udp.len.get()) != bytes.len() {
            return Err(Malformed::UdpLength);
        }
        encap.src_port = udp.src_port.get();
        encap.dst_port = udp.dst_port.get();
        encap.udp_checksum = Checksum::Given(udp.checksum.get());
        Ok(Self { encap, transport, trailer })
    }
}

impl Encap {
    /// A UDP packet from `src` to `dst`, as our sockets send it: identification 0, "don't fragment", checksums
    /// computed, locally administered MAC addresses. IPv4-mapped addresses mean IPv4.
    pub fn udp(src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16) -> Self {
        Self {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            src: src.to_canonical(),
            dst: dst.to_canonical(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            ipv4_id: 0,
            ipv4_dont_fragment: true,
            ipv4_checksum: Checksum::Computed,
            src_port,
            dst_port,
            udp_checksum: Checksum::Computed,
        }
    }

    /// Whether the packet travels over IPv4.
    pub const fn is_ipv4(&self) -> bool {
        self.src.is_ipv4() && self.dst.is_ipv4()
    }

    /// The two ECN bits: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 0x3
    }

    /// The flow that the ICRC covers.
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::new(self.src, self.dst, self.src_port, self.dst_port)
    }

    /// Bytes of all headers together.
    pub const fn header_len(&self) -> usize {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        let ip = if self.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        size_of::<EthHeader>() + tag + ip + UDP_LEN
    }

    /// Appends the headers of a packet that carries `transport` as its UDP payload; the payload itself is
    /// the caller's to append.
    ///
    /// A payload that no IP packet can carry gets lengths of 65535.
    pub fn write_headers(&self, out: &mut Vec<u8>, transport: &[u8]) {
        let eth =
            |ethertype| EthHeader { dst: self.dst_mac, src: self.src_mac, ethertype: U16::new(ethertype) };
        let ethertype = if self.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        match self.vlan {
            Some(tag) => {
                out.extend_from_slice(eth(ETHERTYPE_VLAN).as_bytes());
                out.extend_from_slice([U16::new(tag), U16::new(ethertype)].as_bytes());
            }
            None => out.extend_from_slice(eth(ethertype).as_bytes()),
        }
        let udp_len = len16(UDP_LEN + transport.len());
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out.extend_from_slice(self.ipv4(src.octets(), dst.octets(), udp_len).as_bytes());
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_) | IpAddr::V6(_)) => {
                out.extend_from_slice(self.ipv6(udp_len).as_bytes());
            }
        }
        let mut udp = UdpHeader {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(self.dst_port),
            len: U16::new(udp_len),
            checksum: U16::ZERO,
        };
        udp.checksum = U16::new(match self.udp_checksum {
            Checksum::Given(value) => value,
            Checksum::Computed => self.udp_checksum(&udp, transport),
        });
        out.extend_from_slice(udp.as_bytes());
    }

    /// The IPv6 header, or 20 zeros and the IPv4 header, of a packet with `transport_len` bytes from BTH to ICRC.
    pub(crate) fn network_header(&self, transport_len: usize) -> [u8; 40] {
        let mut area = [0; 40];
        let udp_len = len16(UDP_LEN + transport_len);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ip = self.ipv4(src.octets(), dst.octets(), udp_len);
                area[40 - IPV4_LEN..].copy_from_slice(ip.as_bytes());
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_) | IpAddr::V6(_)) => {
                area.copy_from_slice(self.ipv6(udp_len).as_bytes());
            }
        }
        area
    }

    fn ipv4(&self, src: [u8; 4], dst: [u8; 4], udp_len: u16) -> Ipv4Header {
        let mut ip = Ipv4Header {
            version_ihl: 0x45,
            tos: self.traffic_class,
            total_len: U16::new(len16(IPV4_LEN + usize::from(udp_len))),
            id: U16::new(self.ipv4_id),
            flags_fragment: U16::new(if self.ipv4_dont_fragment { FLAG_DONT_FRAGMENT } else { 0 }),
            ttl: self.hop_limit,
            protocol: PROTOCOL_UDP,
            checksum: U16::ZERO,
            src,
            dst,
        };
        ip.checksum = U16::new(match self.ipv4_checksum {
            Checksum::Given(value) => value,
            Checksum::Computed => InetChecksum::new().add(ip.as_bytes()).finish(),
        });
        ip
    }

    fn ipv6(&self, udp_len: u16) -> Ipv6Header {
        let version_class_flow = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        Ipv6Header {
            version_class_flow: U32::new(version_class_flow),
            payload_len: U16::new(udp_len),
            next_header: PROTOCOL_UDP,
            hop_limit: self.hop_limit,
            src: userdma_verbs::Gid::from(self.src).bytes(),
            dst: userdma_verbs::Gid::from(self.dst).bytes(),
        }
    }

    /// Over addresses, protocol, length, header and payload; 0 means "none", so it is sent as all ones.
    fn udp_checksum(&self, udp: &UdpHeader, transport: &[u8]) -> u16 {
        let mut sum = InetChecksum::new();
        for address in [self.src, self.dst] {
            sum = match address {
                IpAddr::V4(v4) => sum.add(&v4.octets()),
                IpAddr::V6(v6) => sum.add(&v6.octets()),
            };
        }
        sum = sum.add(&[0, PROTOCOL_UDP]).add(udp.len.as_bytes()).add(udp.as_bytes()).add(transport);
        match sum.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// `10.99.0.2:49777 > 10.99.0.1:4791`
impl fmt::Display for Encap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = std::net::SocketAddr::new(self.src, self.src_port);
        let dst = std::net::SocketAddr::new(self.dst, self.dst_port);
        write!(f, "{src} > {dst}")
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_UDP: u8 = 17;
const FLAG_DONT_FRAGMENT: u16 = 0x4000;
const IPV4_LEN: usize = size_of::<Ipv4Header>();
const IPV6_LEN: usize = size_of::<Ipv6Header>();
const UDP_LEN: usize = size_of::<UdpHeader>();

const _: () = assert!(size_of::<EthHeader>() == 14 && IPV4_LEN == 20 && IPV6_LEN == 40 && UDP_LEN == 8);

fn read<H: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Result<(&H, &[u8]), Malformed> {
    H::ref_from_prefix(bytes).map_err(|_| Malformed::TooShort)
}

fn len16(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
