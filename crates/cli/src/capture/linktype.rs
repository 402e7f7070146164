//! What a captured frame starts with, and the way from there to Ethernet.

use std::borrow::Cow;

/// A link type, as numbered for capture files.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LinkType(pub u32);

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// An IP packet, version 4 or 6.
    pub const RAW: Self = Self(101);
    /// A Linux "cooked" header of 16 bytes, as captures on the interface `any` have.
    pub const LINUX_SLL: Self = Self(113);
    /// An IPv4 packet.
    pub const IPV4: Self = Self(228);
    /// An IPv6 packet.
    pub const IPV6: Self = Self(229);
    /// A Linux "cooked" header of 20 bytes.
    pub const LINUX_SLL2: Self = Self(276);

    /// The frame with an Ethernet header in place of its own; `None` if the link type is not understood or the
    /// frame is shorter than its header.
    pub fn as_ethernet(self, frame: &[u8]) -> Option<Cow<'_, [u8]>> {
        let (ethertype, ip) = match self {
            Self::ETHERNET => return Some(Cow::Borrowed(frame)),
            Self::RAW => (ip_ethertype(frame)?, frame),
            Self::IPV4 => (ETHERTYPE_IPV4, frame),
            Self::IPV6 => (ETHERTYPE_IPV6, frame),
            Self::LINUX_SLL => (*frame.get(14..16)?.first_chunk()?, frame.get(16..)?),
            Self::LINUX_SLL2 => (*frame.first_chunk()?, frame.get(20..)?),
            _ => return None,
        };
        let mut ethernet = vec![0; 12];
        ethernet.extend(ethertype);
        ethernet.extend(ip);
        Some(Cow::Owned(ethernet))
    }

    /// Whether frames of this type can be decoded.
    pub fn is_known(self) -> bool {
        [Self::ETHERNET, Self::RAW, Self::LINUX_SLL, Self::IPV4, Self::IPV6, Self::LINUX_SLL2].contains(&self)
    }
}

fn ip_ethertype(packet: &[u8]) -> Option<[u8; 2]> {
    match packet.first()? >> 4 {
        6 => Some(ETHERTYPE_IPV6),
        _ => Some(ETHERTYPE_IPV4),
    }
}

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_header_becomes_ethernet() {
        let ip = [0x45, 1, 2, 3];
        let mut expected = [0; 12].to_vec();
        expected.extend([8, 0, 0x45, 1, 2, 3]);
        let mut sll = [0; 14].to_vec();
        sll.extend([8, 0]);
        sll.extend(ip);
        let mut sll2 = [8, 0].to_vec();
        sll2.extend([0; 18]);
        sll2.extend(ip);
        for (link, frame) in [
            (LinkType::RAW, &ip[..]),
            (LinkType::IPV4, &ip[..]),
            (LinkType::LINUX_SLL, &sll[..]),
            (LinkType::LINUX_SLL2, &sll2[..]),
        ] {
            assert!(link.is_known());
            assert_eq!(link.as_ethernet(frame).as_deref(), Some(&expected[..]), "{link:?}");
        }
        assert_eq!(
            LinkType::RAW.as_ethernet(&[0x60, 9]).as_deref().map(|f| f[12..].to_vec()),
            Some(vec![0x86, 0xdd, 0x60, 9])
        );
    }

    #[test]
    fn what_is_shorter_than_its_header_is_nothing() {
        for link in [LinkType::RAW, LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
            assert_eq!(link.as_ethernet(&[]), None);
        }
        assert_eq!(LinkType(105).as_ethernet(&[0; 64]), None);
    }
}
