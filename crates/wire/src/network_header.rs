//! What a receiver of datagrams finds in the first 40 bytes of its buffer: the IP header that the packet came with.
//!
//! Over IPv6 it fills them, in the place of a GRH; over IPv4 it stands in the last 20, behind zeros, as `rxe_resp.c execute()`
//! and adapters write it.

use std::net::IpAddr;

use crate::encap::Encap;
use crate::inet_checksum::InetChecksum;
use crate::malformed::Malformed;

/// The header in front of a received datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NetworkHeader {
    /// Who sent it.
    pub src: IpAddr,
    /// The address that it came to.
    pub dst: IpAddr,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits; 0 over IPv4.
    pub flow_label: u32,
}

impl NetworkHeader {
    /// Bytes in front of a datagram.
    pub const LEN: usize = 40;

    /// The header of a packet with `transport_len` bytes from BTH to ICRC. Its checksum is right; an IPv4 identification is 0.
    pub fn write(&self, transport_len: usize) -> [u8; Self::LEN] {
        Encap {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            ..Encap::udp(self.src, self.dst, 0, 0)
        }
        .network_header(transport_len)
    }

    /// Reads an IPv6 header, or an IPv4 header behind 20 bytes of anything. Those bytes may look like IPv6: what looks like both
    /// is IPv4 if its checksum is right.
    ///
    /// # Errors
    /// `IpHeader` if it looks like neither, `NotUdp` if something else than UDP follows an IPv6 header.
    pub fn read(area: &[u8; Self::LEN]) -> Result<Self, Malformed> {
        let [first, second, third, fourth, _, _, next, hop_limit, ..] = *area;
        let [ipv6_version, ipv4] = [first >> 4, area[20]];
        if is_ipv4(ipv6_version, ipv4, area) {
            let address = |at: usize| IpAddr::from([area[at], area[at + 1], area[at + 2], area[at + 3]]);
            let (src, dst) = (address(32), address(36));
            return Ok(Self { src, dst, traffic_class: area[21], hop_limit: area[28], flow_label: 0 });
        }
        if ipv6_version != 6 {
            return Err(Malformed::IpHeader);
        }
        if next != PROTOCOL_UDP {
            return Err(Malformed::NotUdp);
        }
        let address = |at: usize| IpAddr::from(std::array::from_fn::<u8, 16, _>(|i| area[at + i]));
        Ok(Self {
            src: address(8),
            dst: address(24),
            traffic_class: first << 4 | second >> 4,
            hop_limit,
            flow_label: u32::from_be_bytes([0, second & 0xf, third, fourth]),
        })
    }
}

fn is_ipv4(ipv6_version: u8, version_ihl: u8, area: &[u8; NetworkHeader::LEN]) -> bool {
    if ipv6_version == 6 {
        version_ihl & 0xf == 5 && InetChecksum::new().add(&area[20..]).finish() == 0
    } else {
        version_ihl >> 4 == 4
    }
}

const PROTOCOL_UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(src: &str, dst: &str) -> NetworkHeader {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        NetworkHeader { src, dst, traffic_class: 0x68, hop_limit: 9, flow_label: 0 }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let v6 = NetworkHeader { flow_label: 0x1_2345, ..header("fd99::2", "fd99::1") };
        for header in [header("10.99.0.2", "10.99.0.1"), v6] {
            assert_eq!(NetworkHeader::read(&header.write(280)), Ok(header));
        }
    }

    #[test]
    fn a_header_that_came_with_a_datagram_from_a_kernel() {
        // IPv4 header captured from rxe, Linux 6.12.
        let ipv4 = [
            0x45, 0x00, 0x00, 0x6c, 0xf3, 0x29, 0x40, 0x00, 0x40, 0x11, 0x32, 0x8f, 0x0a, 0x63, 0x00, 0x02,
            0x0a, 0x63, 0x00, 0x01,
        ];
        let mut area = [0; 40];
        area[20..].copy_from_slice(&ipv4);
        let expected = NetworkHeader { traffic_class: 0, hop_limit: 64, ..header("10.99.0.2", "10.99.0.1") };
        assert_eq!(NetworkHeader::read(&area), Ok(expected));
        // Rubbish before it that looks like IPv6.
        area[0] = 0x60;
        assert_eq!(NetworkHeader::read(&area), Ok(expected));
        // And with a wrong checksum it is IPv6, of something that is not UDP.
        area[30] ^= 1;
        assert_eq!(NetworkHeader::read(&area), Err(Malformed::NotUdp));
    }

    #[test]
    fn an_address_that_looks_like_ipv4_is_none() {
        // Its middle stands where IPv4 has its version and length.
        let v6 = header("fd99::4500:0:0:2", "fd99::1");
        assert_eq!(v6.write(100)[20], 0);
        let v6 = header("fd99::2:0:4500:0", "fd99::1");
        assert_eq!(v6.write(100)[20], 0x45);
        assert_eq!(NetworkHeader::read(&v6.write(100)), Ok(v6));
    }

    #[test]
    fn zeros_are_no_header() {
        assert_eq!(NetworkHeader::read(&[0; 40]), Err(Malformed::IpHeader));
    }
}
