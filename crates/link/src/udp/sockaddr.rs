//! Socket addresses as the kernel lays them out, written and read as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A `sockaddr_in` or `sockaddr_in6`: family in the machine's byte order, port and address in the network's.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SockAddr {
    bytes: [u8; Self::CAPACITY],
}

impl SockAddr {
    /// Room for either kind: `sockaddr_in6` has 28 bytes.
    pub(super) const CAPACITY: usize = 32;
    /// The same as the kernel counts it.
    pub(super) const CAPACITY_U32: libc::socklen_t = 32;
    const V4_LEN: libc::socklen_t = 16;
    const V6_LEN: libc::socklen_t = 28;

    /// No address, to be filled by the kernel.
    pub(super) const EMPTY: Self = Self { bytes: [0; Self::CAPACITY] };

    /// The address.
    pub(super) fn new(ip: IpAddr, port: u16, scope_id: u32) -> Self {
        let mut addr = Self::EMPTY;
        addr.bytes[2..4].copy_from_slice(&port.to_be_bytes());
        match ip {
            IpAddr::V4(ip) => {
                addr.bytes[..2].copy_from_slice(&FAMILY_V4.to_ne_bytes());
                addr.bytes[4..8].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                addr.bytes[..2].copy_from_slice(&FAMILY_V6.to_ne_bytes());
                addr.bytes[8..24].copy_from_slice(&ip.octets());
                addr.bytes[24..28].copy_from_slice(&scope_id.to_ne_bytes());
            }
        }
        addr
    }

    /// How many bytes of it count: never more than it has.
    pub(super) fn len(&self) -> libc::socklen_t {
        match self.family() {
            FAMILY_V4 => Self::V4_LEN,
            FAMILY_V6 => Self::V6_LEN,
            _ => 0,
        }
    }

    fn family(&self) -> libc::sa_family_t {
        let [a, b, ..] = self.bytes;
        libc::sa_family_t::from_ne_bytes([a, b])
    }

    /// Address and port, if the kernel wrote `len` bytes of an IPv4 or IPv6 address. An IPv4 address in IPv6 form
    /// becomes IPv4.
    pub(super) fn decode(&self, len: libc::socklen_t) -> Option<(IpAddr, u16)> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        let family = self.family();
        if family == FAMILY_V4 && len >= Self::V4_LEN {
            return Some((Ipv4Addr::new(b[4], b[5], b[6], b[7]).into(), port));
        }
        if family == FAMILY_V6 && len >= Self::V6_LEN {
            let (ip, _) = b[8..].split_first_chunk::<16>()?;
            return Some((Ipv6Addr::from(*ip).to_canonical(), port));
        }
        None
    }
}

/// `AF_INET` and `AF_INET6` as wide as they are here.
const FAMILY_V4: libc::sa_family_t = 2;
const FAMILY_V6: libc::sa_family_t = 10;

const _: () = {
    assert!(FAMILY_V4 as i32 == libc::AF_INET && FAMILY_V6 as i32 == libc::AF_INET6);
    assert!(SockAddr::V4_LEN as usize == size_of::<libc::sockaddr_in>());
    assert!(SockAddr::V6_LEN as usize == size_of::<libc::sockaddr_in6>());
    assert!(SockAddr::CAPACITY_U32 as usize == size_of::<SockAddr>());
};

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6};

    use super::*;

    /// The bytes as another implementation lays them out.
    fn theirs(addr: SocketAddr) -> Vec<u8> {
        let addr = socket2::SockAddr::from(addr);
        // SAFETY: the pointer leads to that many initialised bytes, which live as long as `addr`.
        unsafe { std::slice::from_raw_parts(addr.as_ptr().cast::<u8>(), addr.len() as usize) }.to_vec()
    }

    #[test]
    fn addresses_are_laid_out_as_the_kernel_wants_them() {
        let v6: Ipv6Addr = "fe80::1:2".parse().unwrap();
        for addr in ["127.0.0.2:4791".parse().unwrap(), SocketAddr::V6(SocketAddrV6::new(v6, 4791, 0, 3))] {
            let scope_id = if let SocketAddr::V6(v6) = addr { v6.scope_id() } else { 0 };
            let ours = SockAddr::new(addr.ip(), addr.port(), scope_id);
            let len = ours.len();
            assert_eq!(ours.bytes[..len as usize], theirs(addr));
            assert_eq!(ours.decode(len), Some((addr.ip(), addr.port())));
        }
    }

    #[test]
    fn short_or_foreign_addresses_are_none() {
        let addr = SockAddr::new(Ipv4Addr::LOCALHOST.into(), 1, 0);
        assert_eq!(addr.decode(8), None);
        assert_eq!(SockAddr::EMPTY.len(), 0);
        assert_eq!(SockAddr::EMPTY.decode(28), None);
    }
}
