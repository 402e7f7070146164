//! The headers that a UDP socket hides, made up again so that a capture shows whole Ethernet packets.
//!
//! What the kernel certainly puts there is right: lengths, addresses, ports, traffic class, checksums, "don't
//! fragment". Hardware addresses are invented.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ethernet, IPv6 and UDP headers: the longest.
pub(super) const MAX_LEN: usize = 14 + 40 + 8;

/// What the headers say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) source: (IpAddr, u16),
    pub(super) destination: (IpAddr, u16),
    /// Type of service or traffic class.
    pub(super) traffic_class: u8,
    /// Time to live or hop limit.
    pub(super) hop_limit: u8,
    /// IPv4 identification; IPv6 has none.
    pub(super) ip_id: u16,
    /// What UDP carries: at most 65,507 bytes on IPv4, 65,527 on IPv6.
    pub(super) payload: &'a [u8],
}

/// Header bytes in a buffer of fixed size.
#[derive(Debug)]
pub(super) struct Headers {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Headers {
    /// The headers of `datagram`; `None` if its addresses are of two families or it is too long.
    pub(super) fn of(datagram: &Datagram<'_>) -> Option<Self> {
        let mut headers = Self { bytes: [0; MAX_LEN], len: 0 };
        let udp_len = u16::try_from(UDP_LEN + datagram.payload.len()).ok()?;
        let pseudo = match (datagram.source.0, datagram.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                headers.ethernet(source.octets(), destination.octets(), ETHERTYPE_IPV4);
                headers.ipv4(datagram, source, destination, udp_len)?;
                sum(&source.octets(), sum(&destination.octets(), 0))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                headers.ethernet(tail(source), tail(destination), ETHERTYPE_IPV6);
                headers.ipv6(datagram, source, destination, udp_len);
                sum(&source.octets(), sum(&destination.octets(), 0))
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
        };
        headers.udp(datagram, udp_len, pseudo + u64::from(PROTOCOL_UDP) + u64::from(udp_len));
        Some(headers)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        // All that is pushed has a fixed length, and together they are MAX_LEN at most.
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Locally administered hardware addresses that end like the network addresses.
    fn ethernet(&mut self, source: [u8; 4], destination: [u8; 4], ethertype: u16) {
        for end in [destination, source] {
            self.push(&[0x02, 0x00]);
            self.push(&end);
        }
        self.push(&ethertype.to_be_bytes());
    }

    fn ipv4(&mut self, d: &Datagram<'_>, source: Ipv4Addr, destination: Ipv4Addr, udp_len: u16) -> Option<()> {
        let start = self.len;
        self.push(&[0x45, d.traffic_class]);
        self.push(&udp_len.checked_add(IPV4_LEN)?.to_be_bytes());
        self.push(&d.ip_id.to_be_bytes());
        self.push(&DONT_FRAGMENT.to_be_bytes());
        self.push(&[d.hop_limit, PROTOCOL_UDP, 0, 0]);
        self.push(&source.octets());
        self.push(&destination.octets());
        let checksum = fold(sum(&self.bytes[start..self.len], 0));
        self.bytes[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }

    fn ipv6(&mut self, d: &Datagram<'_>, source: Ipv6Addr, destination: Ipv6Addr, udp_len: u16) {
        self.push(&(6 << 28 | u32::from(d.traffic_class) << 20).to_be_bytes());
        self.push(&udp_len.to_be_bytes());
        self.push(&[PROTOCOL_UDP, d.hop_limit]);
        self.push(&source.octets());
        self.push(&destination.octets());
    }

    fn udp(&mut self, d: &Datagram<'_>, udp_len: u16, pseudo: u64) {
        let ports = [d.source.1, d.destination.1, udp_len];
        let words: u64 = ports.iter().map(|&word| u64::from(word)).sum();
        let checksum = match fold(sum(d.payload, pseudo + words)) {
            0 => 0xffff, // 0 would mean that there is none.
            other => other,
        };
        for word in ports.into_iter().chain([checksum]) {
            self.push(&word.to_be_bytes());
        }
    }
}

/// Adds 16-bit words in network order; an odd last byte is the high half of a word.
fn sum(bytes: &[u8], start: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let total: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    start + total + rest.first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// The complement of the ones' complement sum.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 16 bits are left.
    !u16::try_from(sum).unwrap_or(0)
}

fn tail(ip: Ipv6Addr) -> [u8; 4] {
    let [.., a, b, c, d] = ip.octets();
    [a, b, c, d]
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
const IPV4_LEN: u16 = 20;
const UDP_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram<'a>(source: &str, destination: &str, payload: &'a [u8]) -> Datagram<'a> {
        Datagram {
            source: (source.parse().unwrap(), 0xc001),
            destination: (destination.parse().unwrap(), 4791),
            traffic_class: 0x6a,
            hop_limit: 33,
            ip_id: 0x0102,
            payload,
        }
    }

    #[test]
    fn an_ipv4_header_has_every_field_and_sums_to_zero() {
        let payload = [7; 45];
        let headers = Headers::of(&datagram("127.0.0.2", "127.0.0.3", &payload)).unwrap();
        let ip = &headers.bytes()[14..34];
        assert_eq!(headers.bytes()[..14], [2, 0, 127, 0, 0, 3, 2, 0, 127, 0, 0, 2, 8, 0]);
        assert_eq!(ip[..10], [0x45, 0x6a, 0, 73, 1, 2, 0x40, 0, 33, 17]);
        assert_eq!(ip[12..], [127, 0, 0, 2, 127, 0, 0, 3]);
        assert_eq!(fold(sum(ip, 0)), 0, "a header with its checksum sums to zero");
        assert_eq!(headers.bytes()[34..40], [0xc0, 1, 0x12, 0xb7, 0, 53]);
    }

    #[test]
    fn a_udp_checksum_sums_to_zero_with_the_pseudo_header() {
        for (source, destination) in [("127.0.0.2", "127.0.0.3"), ("2001:db8::1", "fe80::2")] {
            for len in [0, 1, 2, 4111, 4112] {
                let payload = vec![0xf9; len];
                let headers = Headers::of(&datagram(source, destination, &payload)).unwrap();
                let bytes = headers.bytes();
                let (pseudo, udp) = if source.contains(':') { (22..54, 54) } else { (26..34, 34) };
                let mut total = sum(&bytes[pseudo], 17 + 8 + len as u64);
                total = sum(&payload, sum(&bytes[udp..], total));
                assert_eq!(fold(total), 0, "{source}, {len} bytes");
            }
        }
    }

    #[test]
    fn an_ipv6_header_has_every_field() {
        let headers = Headers::of(&datagram("2001:db8::1", "2001:db8::2", &[1, 2, 3])).unwrap();
        let bytes = headers.bytes();
        assert_eq!(bytes.len(), MAX_LEN);
        assert_eq!(bytes[12..22], [0x86, 0xdd, 0x66, 0xa0, 0, 0, 0, 11, 17, 33]);
    }

    #[test]
    fn what_cannot_be_a_datagram_has_no_headers() {
        assert!(Headers::of(&datagram("127.0.0.1", "::1", &[])).is_none());
        assert!(Headers::of(&datagram("127.0.0.1", "127.0.0.2", &[0; 65_507])).is_some());
        assert!(Headers::of(&datagram("127.0.0.1", "127.0.0.2", &[0; 65_508])).is_none());
        assert!(Headers::of(&datagram("::1", "::1", &[0; 65_528])).is_none());
    }
}
