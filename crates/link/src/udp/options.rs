//! The options of the sockets: one table of what is set, why, and which test would notice.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::UdpConfig;
use super::backlog::Backlog;

/// A socket's part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Bound to the RoCE port; never sends.
    Receive,
    /// Bound to a source port; its incoming packets are unwanted.
    Transmit,
}

/// A socket's address family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
enum Value {
    Is(i32),
    TrafficClass,
    HopLimit,
}

/// One option of the table.
#[derive(Clone, Copy, Debug)]
struct SocketOption {
    name: &'static str,
    level: i32,
    option: i32,
    value: Value,
    roles: &'static [Role],
    families: &'static [Family],
    /// Whether the link works without it: then a kernel that refuses it is no error.
    optional: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and checked to be there"))]
    why: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and checked to be there"))]
    test: &'static str,
}

const BOTH: &[Role] = &[Role::Receive, Role::Transmit];
const RECEIVE: &[Role] = &[Role::Receive];
const TRANSMIT: &[Role] = &[Role::Transmit];
const ANY: &[Family] = &[Family::V4, Family::V6];
const V4: &[Family] = &[Family::V4];
const V6: &[Family] = &[Family::V6];

/// Set before the socket is bound. Segmentation and coalescing are not here: they are probed (`probe.rs`), the
/// buffers neither: they are asked for with a size ([`set_buffers`]). `SO_REUSEPORT` is missing on purpose: a
/// port that is not shared must be taken by one process only (those that are: `shared.rs`). `IP_PKTINFO` is not needed on a socket bound to one address.
const TABLE: &[SocketOption] = &[
    SocketOption {
        name: "IPV6_V6ONLY",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_V6ONLY,
        value: Value::Is(1),
        roles: BOTH,
        families: V6,
        optional: false,
        why: "a link has one address of one family; IPv4 packets are another link's",
        test: "udp::options::tests::every_option_of_the_table_holds_on_its_sockets",
    },
    SocketOption {
        name: "IP_MTU_DISCOVER",
        level: libc::IPPROTO_IP,
        option: libc::IP_MTU_DISCOVER,
        value: Value::Is(libc::IP_PMTUDISC_DO),
        roles: TRANSMIT,
        families: ANY,
        optional: false,
        why: "\"don't fragment\" makes the kernel number packets of an unconnected socket from 0, which the ICRC \
              covers; on an IPv6 socket that also speaks IPv4 the ids would count without it",
        test: "tests/ip_id.rs: segments_are_numbered_from_zero",
    },
    SocketOption {
        name: "IPV6_MTU_DISCOVER",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_MTU_DISCOVER,
        value: Value::Is(libc::IPV6_PMTUDISC_DO),
        roles: TRANSMIT,
        families: V6,
        optional: false,
        why: "a packet that is too long must fail here, where it is noticed, and not travel in fragments",
        test: "tests/ip_id.rs: a_packet_beyond_the_mtu_is_dropped_and_reported",
    },
    SocketOption {
        name: "IP_TOS",
        level: libc::IPPROTO_IP,
        option: libc::IP_TOS,
        value: Value::TrafficClass,
        roles: TRANSMIT,
        families: V4,
        optional: false,
        why: "the usual traffic class costs no control message per send",
        test: "tests/udp.rs: traffic_class_and_ecn_travel",
    },
    SocketOption {
        name: "IPV6_TCLASS",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_TCLASS,
        value: Value::TrafficClass,
        roles: TRANSMIT,
        families: V6,
        optional: false,
        why: "as IP_TOS",
        test: "tests/udp.rs: traffic_class_and_ecn_travel",
    },
    SocketOption {
        name: "IP_TTL",
        level: libc::IPPROTO_IP,
        option: libc::IP_TTL,
        value: Value::HopLimit,
        roles: TRANSMIT,
        families: V4,
        optional: false,
        why: "the usual time to live costs no control message per send",
        test: "tests/udp.rs: the_hop_limit_of_the_route_is_sent",
    },
    SocketOption {
        name: "IPV6_UNICAST_HOPS",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_UNICAST_HOPS,
        value: Value::HopLimit,
        roles: TRANSMIT,
        families: V6,
        optional: false,
        why: "as IP_TTL",
        test: "tests/udp.rs: the_hop_limit_of_the_route_is_sent",
    },
    SocketOption {
        name: "IP_MULTICAST_TTL",
        level: libc::IPPROTO_IP,
        option: libc::IP_MULTICAST_TTL,
        value: Value::HopLimit,
        roles: TRANSMIT,
        families: V4,
        optional: true,
        why: "as IP_TTL, which does not count for groups",
        test: "tests/groups.rs: the_hop_limit_of_the_route_is_sent_to_groups",
    },
    SocketOption {
        name: "IPV6_MULTICAST_HOPS",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_MULTICAST_HOPS,
        value: Value::HopLimit,
        roles: TRANSMIT,
        families: V6,
        optional: true,
        why: "as IP_MULTICAST_TTL",
        test: "tests/groups.rs: groups_of_ipv6_need_an_interface_that_has_them",
    },
    SocketOption {
        name: "IP_RECVTOS",
        level: libc::IPPROTO_IP,
        option: libc::IP_RECVTOS,
        value: Value::Is(1),
        roles: RECEIVE,
        families: V4,
        optional: false,
        why: "the low two bits say that the network is congested (ECN)",
        test: "tests/udp.rs: traffic_class_and_ecn_travel",
    },
    SocketOption {
        name: "IPV6_RECVTCLASS",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_RECVTCLASS,
        value: Value::Is(1),
        roles: RECEIVE,
        families: V6,
        optional: false,
        why: "as IP_RECVTOS",
        test: "tests/udp.rs: traffic_class_and_ecn_travel",
    },
    SocketOption {
        name: "UDP_NO_CHECK6_RX",
        level: libc::IPPROTO_UDP,
        option: UDP_NO_CHECK6_RX,
        value: Value::Is(1),
        roles: RECEIVE,
        families: V6,
        optional: false,
        why: "a kernel peer sends IPv6 packets with UDP checksum 0, which are dropped otherwise",
        test: "tests/udp.rs: ipv6_packets_without_a_udp_checksum_are_accepted",
    },
    SocketOption {
        name: "IP_MULTICAST_ALL",
        level: libc::IPPROTO_IP,
        option: libc::IP_MULTICAST_ALL,
        value: Value::Is(0),
        roles: BOTH,
        families: ANY,
        optional: true,
        why: "without it a socket sees groups that other sockets joined",
        test: "udp::options::tests::every_option_of_the_table_holds_on_its_sockets",
    },
    SocketOption {
        name: "IPV6_MULTICAST_ALL",
        level: libc::IPPROTO_IPV6,
        option: libc::IPV6_MULTICAST_ALL,
        value: Value::Is(0),
        roles: BOTH,
        families: V6,
        optional: true,
        why: "as IP_MULTICAST_ALL",
        test: "udp::options::tests::every_option_of_the_table_holds_on_its_sockets",
    },
];

/// Sets what the table says for a socket of this role and family.
///
/// # Errors
/// The option that failed and what the kernel said.
pub(super) fn apply(
    socket: &impl AsFd,
    role: Role,
    family: Family,
    config: &UdpConfig,
) -> Result<(), (&'static str, io::Error)> {
    for option in rows(role, family) {
        let set = set(socket.as_fd(), option.level, option.option, option.value.resolve(config));
        if let (Err(error), false) = (set, option.optional) {
            return Err((option.name, error));
        }
    }
    Ok(())
}

fn rows(role: Role, family: Family) -> impl Iterator<Item = &'static SocketOption> {
    TABLE.iter().filter(move |row| row.roles.contains(&role) && row.families.contains(&family))
}

impl Value {
    fn resolve(self, config: &UdpConfig) -> i32 {
        match self {
            Self::Is(value) => value,
            Self::TrafficClass => config.traffic_class.into(),
            Self::HopLimit => config.hop_limit.into(),
        }
    }
}

/// A socket's buffer in the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BufferSize {
    /// Bytes that were asked for.
    pub wanted: usize,
    /// Bytes that the kernel grants, its own overhead for each packet included; less than `wanted` where
    /// `net.core.rmem_max` (or `wmem_max`) is less and the process may not exceed it.
    pub granted: usize,
}

impl BufferSize {
    /// Whether it came to less than was asked for.
    pub fn is_short(&self) -> bool {
        self.granted < self.wanted
    }
}

/// Asks for a buffer for what the role does: first beyond the system's limit, which takes a privilege, then within.
/// A transmit socket's other buffer, for packets that nobody will read, is made as small as it gets.
///
/// # Errors
/// What the kernel says to the question how much it came to.
pub(super) fn set_buffers(socket: &impl AsFd, role: Role, wanted: usize) -> io::Result<BufferSize> {
    let fd = socket.as_fd();
    let size = i32::try_from(wanted).unwrap_or(i32::MAX);
    let (force, plain) = match role {
        Role::Receive => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        Role::Transmit => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    };
    if role == Role::Transmit {
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    }
    set(fd, libc::SOL_SOCKET, force, size).or_else(|_| set(fd, libc::SOL_SOCKET, plain, size))?;
    // The kernel tells the double of what it granted, as it counts its overhead.
    let granted = usize::try_from(get(fd, libc::SOL_SOCKET, plain)? / 2).unwrap_or(0);
    Ok(BufferSize { wanted, granted })
}

/// Sets an option whose value is a number.
pub(super) fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, which outlives the call.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), I32_LEN) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An option's value that is a number.
pub(super) fn get(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = I32_LEN;
    // SAFETY: the kernel writes at most the four bytes of `value`, and the length into `len`; both outlive the call.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Packets that the socket dropped for want of room in its buffer since it was made, modulo 2^32.
pub(super) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(memory_info(fd)?[SK_MEMINFO_DROPS])
}

/// What waits in the socket's receive buffer.
pub(super) fn backlog(fd: BorrowedFd<'_>) -> io::Result<Backlog> {
    let info = memory_info(fd)?;
    Ok(Backlog { used: info[SK_MEMINFO_RMEM_ALLOC], limit: info[SK_MEMINFO_RCVBUF] })
}

fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; SK_MEMINFO_VARS]> {
    let mut info = [0u32; SK_MEMINFO_VARS];
    let mut len = SK_MEMINFO_LEN;
    // SAFETY: the kernel writes at most `len` bytes into `info`, and the length into `len`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

const I32_LEN: libc::socklen_t = 4;
const UDP_NO_CHECK6_RX: i32 = 102;
const SO_MEMINFO: i32 = 55;
const SK_MEMINFO_VARS: usize = 9;
const SK_MEMINFO_LEN: libc::socklen_t = 9 * 4;
const SK_MEMINFO_RMEM_ALLOC: usize = 0;
const SK_MEMINFO_RCVBUF: usize = 1;
const SK_MEMINFO_DROPS: usize = 8;

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    fn socket(family: Family) -> Option<Socket> {
        let domain = if family == Family::V4 { Domain::IPV4 } else { Domain::IPV6 };
        let made = Socket::new(domain, Type::DGRAM, None).ok();
        if made.is_none() {
            eprintln!("SKIPPED for {family:?}: this system has no such sockets");
        }
        made
    }

    #[test]
    fn every_option_of_the_table_holds_on_its_sockets() {
        let config = UdpConfig { traffic_class: 0x68, hop_limit: 17, ..UdpConfig::default() };
        for (role, family) in [Role::Receive, Role::Transmit]
            .into_iter()
            .flat_map(|role| [(role, Family::V4), (role, Family::V6)])
        {
            let Some(socket) = socket(family) else { continue };
            apply(&socket, role, family, &config).unwrap();
            for row in rows(role, family) {
                let value = get(socket.as_fd(), row.level, row.option).unwrap();
                assert_eq!(value, row.value.resolve(&config), "{role:?} {family:?} {}", row.name);
            }
        }
    }

    #[test]
    fn every_option_has_a_reason_and_a_test() {
        for row in TABLE {
            assert!(row.why.len() > 8 || row.why.starts_with("as IP"), "{}", row.name);
            assert!(row.test.contains("test"), "{}", row.name);
        }
    }

    #[test]
    fn a_buffer_says_what_it_came_to() {
        let Some(socket) = socket(Family::V4) else { return };
        let size = set_buffers(&socket, Role::Receive, 100_000).unwrap();
        assert_eq!(size, BufferSize { wanted: 100_000, granted: 100_000 });
        assert!(!size.is_short());
        let tx = set_buffers(&socket, Role::Transmit, 50_000).unwrap();
        assert_eq!(tx.granted, 50_000);
        assert!(get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap() < 8192);
    }
}
