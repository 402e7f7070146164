//! Network interfaces: those that are up, their addresses and MTU.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// An interface that is up and has an address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// The kernel's name, as `eth0`.
    pub name: String,
    /// The kernel's index, from 1.
    pub index: u32,
    /// Bytes of an IP packet, header included.
    pub mtu: u32,
    /// Whether it leads back to this machine only.
    pub loopback: bool,
    /// Its addresses, in the kernel's order; never empty.
    pub addrs: Vec<InterfaceAddr>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterfaceAddr {
    /// The address.
    pub ip: IpAddr,
    /// Leading bits that name the network: 0 ..= 32 or 128.
    pub prefix_len: u8,
    /// Scope of a link-local IPv6 address (the interface's index); 0 otherwise.
    pub scope_id: u32,
}

impl InterfaceAddr {
    /// Whether `ip` lies in this address's network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let host_bits = 32u32.saturating_sub(u32::from(self.prefix_len));
                (a.to_bits() ^ b.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let host_bits = 128u32.saturating_sub(u32::from(self.prefix_len));
                (a.to_bits() ^ b.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The interfaces that are up and have an IPv4 or IPv6 address, in the kernel's order. They may have changed by
/// the time of return.
///
/// # Errors
/// What the kernel says to the dump of its addresses.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    // Any datagram socket answers questions about interfaces, whatever its family.
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::DGRAM, None))?;
    let list = AddrList::read()?;
    let mut found: Vec<Interface> = Vec::new();
    for entry in list.iter().filter(|e| e.flags & libc::IFF_UP.cast_unsigned() != 0) {
        let at = match found.iter().position(|i| i.name == entry.name) {
            Some(at) => at,
            None => {
                let Some((index, mtu)) = index_and_mtu(&socket, &entry.name) else {
                    continue; // It went away after the dump.
                };
                let loopback = entry.flags & libc::IFF_LOOPBACK.cast_unsigned() != 0;
                found.push(Interface { name: entry.name, index, mtu, loopback, addrs: Vec::new() });
                found.len() - 1
            }
        };
        found[at].addrs.push(entry.addr);
    }
    Ok(found)
}

/// The interface that packets from local address `ip` belong to: the one that has it, or, as the whole of
/// 127.0.0.0/8 is local, the loopback interface whose network contains it.
///
/// # Errors
/// As [`interfaces`].
pub fn interface_of(ip: IpAddr, scope_id: u32) -> io::Result<Option<Interface>> {
    let all = interfaces()?;
    let exact = |i: &Interface| {
        i.addrs.iter().any(|a| a.ip == ip && (scope_id == 0 || a.scope_id == 0 || a.scope_id == scope_id))
    };
    let around = |i: &Interface| i.loopback && i.addrs.iter().any(|a| a.contains(ip));
    let at = all.iter().position(exact).or_else(|| all.iter().position(around));
    Ok(at.map(|at| all[at].clone()))
}

/// One address as the kernel lists it.
struct Entry {
    name: String,
    flags: u32,
    addr: InterfaceAddr,
}

/// The C library's list of addresses, freed on drop.
struct AddrList(*mut libc::ifaddrs);

impl AddrList {
    fn read() -> io::Result<Self> {
        let mut head = std::ptr::null_mut();
        // SAFETY: `head` is a valid place for the list's head; on success the list is ours until `freeifaddrs`.
        if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(head))
    }

    /// The IPv4 and IPv6 addresses.
    fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut next = self.0.cast_const();
        std::iter::from_fn(move || {
            // SAFETY: `next` is null or an element of the list, which lives as long as `self`, which the iterator
            // borrows.
            let element = unsafe { next.as_ref() }?;
            next = element.ifa_next;
            Some(Self::entry(element))
        })
        .flatten()
    }

    fn entry(element: &libc::ifaddrs) -> Option<Entry> {
        // SAFETY: the C library gives null or a socket address of the family it names, alive as long as the list.
        let (addr, mask) = unsafe { (sockaddr(element.ifa_addr)?, sockaddr(element.ifa_netmask)) };
        let (ip, scope_id) = addr;
        let prefix_len = mask.map_or(if ip.is_ipv4() { 32 } else { 128 }, |(mask, _)| prefix_len(mask));
        // SAFETY: `ifa_name` is a terminated string of the list.
        let name = unsafe { CStr::from_ptr(element.ifa_name) }.to_str().ok()?.to_owned();
        Some(Entry { name, flags: element.ifa_flags, addr: InterfaceAddr { ip, prefix_len, scope_id } })
    }
}

impl Drop for AddrList {
    fn drop(&mut self) {
        // SAFETY: the list came from `getifaddrs`, is freed once, and nothing borrows from it any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// Address and scope of an IPv4 or IPv6 socket address.
///
/// # Safety
/// `addr` is null or points to a socket address that is as long as its family says.
unsafe fn sockaddr(addr: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    // SAFETY: as the caller promises; the family is the first field of all of them.
    let family = unsafe { addr.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is; it may lie unaligned.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), v6.sin6_scope_id))
        }
        _ => None,
    }
}

fn prefix_len(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    u8::try_from(ones).unwrap_or(128) // 128 at most
}

/// Index and MTU of the interface called `name`, if it is still there.
fn index_and_mtu(socket: &Socket, name: &str) -> Option<(u32, u32)> {
    let mut request = request(name)?;
    // SAFETY: both calls read the terminated name in `request` and write a number into its union; `request` is a
    // whole `ifreq` and outlives them. The number that is read back is the one the successful call wrote.
    unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX as _, &raw mut request) != 0 {
            return None;
        }
        let index = request.ifr_ifru.ifru_ifindex;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) != 0 {
            return None;
        }
        Some((u32::try_from(index).ok()?, u32::try_from(request.ifr_ifru.ifru_mtu).ok()?))
    }
}

fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: `ifreq` is plain numbers and bytes: all zero is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char; // c_char is i8 or u8, the bits stay
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_with_its_mtu() {
        let lo = interface_of(Ipv4Addr::LOCALHOST.into(), 0).unwrap().expect("127.0.0.1 exists");
        assert!(lo.loopback);
        assert!(lo.mtu >= 1280, "{lo:?}");
        assert!(lo.index >= 1);
        assert!(lo.addrs.iter().any(|a| a.ip == IpAddr::from(Ipv4Addr::LOCALHOST) && a.prefix_len == 8));
    }

    #[test]
    fn every_address_of_127_belongs_to_loopback() {
        let lo = interface_of(Ipv4Addr::new(127, 9, 8, 7).into(), 0).unwrap().expect("loopback");
        assert!(lo.loopback);
        assert_eq!(interface_of(Ipv4Addr::new(192, 0, 2, 1).into(), 0).unwrap(), None);
    }

    #[test]
    fn networks_contain_their_hosts_only() {
        let net = |ip: &str, prefix_len| InterfaceAddr { ip: ip.parse().unwrap(), prefix_len, scope_id: 0 };
        assert!(net("10.1.2.3", 8).contains("10.200.0.1".parse().unwrap()));
        assert!(!net("10.1.2.3", 32).contains("10.1.2.4".parse().unwrap()));
        assert!(net("10.1.2.3", 0).contains("1.1.1.1".parse().unwrap()));
        assert!(net("2001:db8::1", 64).contains("2001:db8::2".parse().unwrap()));
        assert!(!net("2001:db8::1", 64).contains("2001:db8:1::2".parse().unwrap()));
        assert!(!net("::1", 0).contains("10.0.0.1".parse().unwrap()));
    }
}
