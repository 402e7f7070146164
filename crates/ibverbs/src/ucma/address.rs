//! Socket addresses as programs write them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use userdma_host::cm::{Address, IbAddress};
use userdma_verbs::Gid;

use super::abi::{SockaddrIn6, SockaddrStorage};

/// What an address is, and how many bytes of it there are. `None` if its family is none of ours, as `addr.c rdma_addr_size()`.
pub(super) fn parse(bytes: &[u8]) -> Option<(Address, usize)> {
    let (size, address) = match family(bytes) {
        libc::AF_INET => {
            (IN, Address::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(array(bytes, 4)?)), port(bytes)?)))
        }
        libc::AF_INET6 => (IN6, Address::Ip(SocketAddr::V6(in6(bytes)?))),
        AF_IB => (IB, Address::Ib(ib(bytes)?)),
        _ => return None,
    };
    (size <= bytes.len()).then_some((address, size))
}

/// An address in the room of an IPv6 one; `None` if it is of neither family.
pub(super) fn parse_in6(bytes: &SockaddrIn6) -> Option<Address> {
    Some(parse(&bytes.0)?.0)
}

/// An address of which the program says how long it is.
pub(super) fn parse_sized(bytes: &SockaddrStorage, size: u16) -> Option<Address> {
    parse(&bytes.0).filter(|&(_, of_family)| of_family == usize::from(size)).map(|(address, _)| address)
}

/// Whether no address is given.
pub(super) fn is_none(bytes: &SockaddrIn6) -> bool {
    family(&bytes.0) == libc::AF_UNSPEC
}

/// An address as C has it, and its bytes; nothing if there is none.
pub(super) fn build(address: Option<&Address>) -> (SockaddrStorage, u16) {
    let mut bytes = [0; 128];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let size = match address {
        None => 0,
        Some(Address::Ip(SocketAddr::V4(v4))) => {
            put(0, &family_bytes(libc::AF_INET));
            put(2, &v4.port().to_be_bytes());
            put(4, &v4.ip().octets());
            IN
        }
        Some(Address::Ip(SocketAddr::V6(v6))) => {
            put(0, &family_bytes(libc::AF_INET6));
            put(2, &v6.port().to_be_bytes());
            put(4, &v6.flowinfo().to_be_bytes());
            put(8, &v6.ip().octets());
            put(24, &v6.scope_id().to_ne_bytes());
            IN6
        }
        Some(Address::Ib(ib)) => {
            put(0, &family_bytes(AF_IB));
            put(2, &ib.pkey.to_be_bytes());
            put(4, &ib.flowinfo.to_be_bytes());
            put(8, &ib.gid.bytes());
            put(24, &ib.service_id.to_be_bytes());
            put(32, &ib.service_mask.to_be_bytes());
            put(40, &ib.scope_id.to_ne_bytes());
            IB
        }
    };
    // At most 48.
    (SockaddrStorage(bytes), u16::try_from(size).unwrap_or(0))
}

/// The same in the room of an IPv6 address, which an InfiniBand address is cut to.
pub(super) fn build_in6(address: Option<&Address>) -> SockaddrIn6 {
    let (SockaddrStorage(bytes), _) = build(address);
    let mut room = [0; IN6];
    room.copy_from_slice(&bytes[..IN6]);
    SockaddrIn6(room)
}

fn family(bytes: &[u8]) -> c_int {
    array(bytes, 0).map_or(libc::AF_UNSPEC, |family| u16::from_ne_bytes(family).into())
}

fn family_bytes(family: c_int) -> [u8; 2] {
    libc::sa_family_t::try_from(family).unwrap_or(0).to_ne_bytes()
}

fn port(bytes: &[u8]) -> Option<u16> {
    array(bytes, 2).map(u16::from_be_bytes)
}

fn in6(bytes: &[u8]) -> Option<SocketAddrV6> {
    let flowinfo = u32::from_be_bytes(array(bytes, 4)?);
    let scope_id = u32::from_ne_bytes(array(bytes, 24)?);
    Some(SocketAddrV6::new(Ipv6Addr::from(array::<16>(bytes, 8)?), port(bytes)?, flowinfo, scope_id))
}

fn ib(bytes: &[u8]) -> Option<IbAddress> {
    Some(IbAddress {
        pkey: u16::from_be_bytes(array(bytes, 2)?),
        flowinfo: u32::from_be_bytes(array(bytes, 4)?),
        gid: Gid::new(array(bytes, 8)?),
        service_id: u64::from_be_bytes(array(bytes, 24)?),
        service_mask: u64::from_be_bytes(array(bytes, 32)?),
        scope_id: u64::from_ne_bytes(array(bytes, 40)?),
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Bytes of the three forms.
const IN: usize = 16;
const IN6: usize = 28;
const IB: usize = 48;
/// The family of InfiniBand addresses.
const AF_IB: c_int = 27;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(address: Address, size: u16) {
        let (bytes, len) = build(Some(&address));
        assert_eq!((parse_sized(&bytes, size), len), (Some(address), size));
        assert_eq!(parse_sized(&bytes, size - 1), None);
        assert_eq!(parse_in6(&build_in6(Some(&address))).is_some(), size <= 28);
    }

    #[test]
    fn addresses_come_back_as_they_went() {
        round(Address::Ip("127.0.0.2:7471".parse().unwrap()), 16);
        round(Address::Ip("[2001:db8::1]:7471".parse().unwrap()), 28);
        let ib = IbAddress {
            pkey: 0xffff,
            service_id: 0x0106_1d2f,
            service_mask: u64::MAX,
            ..IbAddress::default()
        };
        round(Address::Ib(ib), 48);
    }

    #[test]
    fn what_is_no_address_is_none() {
        assert_eq!(parse_in6(&SockaddrIn6([0; 28])), None);
        assert!(is_none(&SockaddrIn6([0; 28])));
        assert_eq!(parse_sized(&SockaddrStorage([0xff; 128]), 16), None);
        assert_eq!(build(None).1, 0);
    }

    /// `struct sockaddr_in`, by hand.
    #[test]
    fn an_ipv4_address_lies_as_the_kernel_has_it() {
        let (SockaddrStorage(bytes), _) = build(Some(&Address::Ip("10.1.2.3:258".parse().unwrap())));
        assert_eq!(bytes[..8], [2, 0, 1, 2, 10, 1, 2, 3]);
    }
}
