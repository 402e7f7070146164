//! Making the sockets of a link: one that receives, eight that send.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::options::{self, BufferSize, Family, Role};
use super::{TX_SOCKETS, UdpConfig, shared};
use crate::guard::GuardedFd;

/// Why a link could not be opened. Nothing stays open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody has the port.
    #[error(
        "{ip} UDP port {port} is taken, by another process or by this one (EADDRINUSE): close it there, \
         use another local address, or choose a private port (`DeviceBuilder::private_port`)"
    )]
    AddrInUse {
        /// The address.
        ip: IpAddr,
        /// The port.
        port: u16,
    },
    /// This machine does not have the address.
    #[error("{ip} is not an address of this machine (EADDRNOTAVAIL): use one that `ip address` lists")]
    AddrNotAvailable {
        /// The address.
        ip: IpAddr,
    },
    /// The address is no single host's.
    #[error("{ip} does not name one host: a link needs one local unicast address")]
    NotUnicast {
        /// The address.
        ip: IpAddr,
    },
    /// The kernel refused something else.
    #[error("{ip} UDP port {port}: {what}: {source}")]
    Io {
        /// The address.
        ip: IpAddr,
        /// The port, 0 for a transmit socket.
        port: u16,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// The kernel's error number for the same reason, if there is one.
    pub fn errno(&self) -> i32 {
        match self {
            Self::AddrInUse { .. } => libc::EADDRINUSE,
            Self::AddrNotAvailable { .. } => libc::EADDRNOTAVAIL,
            Self::NotUnicast { .. } => libc::EINVAL,
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The sockets of a link.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) receive: GuardedFd,
    pub(super) receive_port: u16,
    pub(super) receive_buffer: BufferSize,
    pub(super) transmit: [GuardedFd; TX_SOCKETS],
    pub(super) transmit_ports: [u16; TX_SOCKETS],
    pub(super) transmit_buffer: BufferSize,
}

impl Sockets {
    /// Sockets of which the receiving one has the port alone.
    pub(super) fn open(ip: IpAddr, scope_id: u32, config: &UdpConfig) -> Result<Self, OpenError> {
        let local = Local::unicast(ip, scope_id)?;
        let (receive, receive_buffer) = local.socket(Role::Receive, config)?;
        receive.bind(&local.at(config.port).into()).map_err(|e| local.bind_error(config.port, e))?;
        Self::with_receive(local, receive, receive_buffer, config)
    }

    /// Sockets of which the receiving one is the member of a group on `ip`.
    pub(super) fn open_member(ip: IpAddr, member: OwnedFd, config: &UdpConfig) -> Result<Self, OpenError> {
        let local = Local::unicast(ip, 0)?;
        let receive = Socket::from(member);
        let buffer = options::set_buffers(&receive.as_fd(), Role::Receive, config.recv_buffer)
            .map_err(|e| local.io(config.port, "buffer size", e))?;
        shared::take_over(&receive).map_err(|e| local.io(config.port, "socket", e))?;
        Self::with_receive(local, receive, buffer, config)
    }

    fn with_receive(
        local: Local,
        receive: Socket,
        receive_buffer: BufferSize,
        config: &UdpConfig,
    ) -> Result<Self, OpenError> {
        let receive_port = local.port_of(&receive)?;
        let mut ports = PortSearch::new(local.ip);
        let mut transmit_buffer = BufferSize::default();
        let mut transmit = Vec::with_capacity(TX_SOCKETS);
        let mut transmit_ports = [0; TX_SOCKETS];
        for port in &mut transmit_ports {
            let (socket, buffer) = local.socket(Role::Transmit, config)?;
            ports.bind(&socket, local)?;
            *port = local.port_of(&socket)?;
            transmit_buffer = buffer;
            transmit.push(OwnedFd::from(socket).into());
        }
        // The loop made as many as the array holds.
        let transmit = transmit.try_into().map_err(|_| local.io(0, "socket", io::ErrorKind::Other.into()))?;
        let receive = OwnedFd::from(receive).into();
        Ok(Self { receive, receive_port, receive_buffer, transmit, transmit_ports, transmit_buffer })
    }
}

/// Whether an address may be one host's: it is neither a wildcard, nor a group's, nor that of all hosts of a network
/// (255.255.255.255), to all of which the kernel binds sockets.
pub fn is_unicast(ip: IpAddr) -> bool {
    let is_of_all_hosts = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(ip.is_unspecified() || ip.is_multicast() || is_of_all_hosts)
}

/// The address that all sockets of a link are bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    ip: IpAddr,
    scope_id: u32,
}

impl Local {
    /// The address of one host.
    pub(super) fn unicast(ip: IpAddr, scope_id: u32) -> Result<Self, OpenError> {
        if !is_unicast(ip) {
            return Err(OpenError::NotUnicast { ip });
        }
        Ok(Self { ip, scope_id })
    }

    /// A group, and the index of the interface that it is joined on.
    pub(super) fn group(ip: IpAddr, interface: u32) -> Self {
        Self { ip, scope_id: interface }
    }

    pub(super) fn at(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope_id).into(),
        }
    }

    /// A nonblocking socket with the options of its role, its buffer as it comes, not bound yet. `port` is for errors.
    pub(super) fn plain_socket(self, role: Role, port: u16, config: &UdpConfig) -> Result<Socket, OpenError> {
        let (domain, family) =
            if self.ip.is_ipv4() { (Domain::IPV4, Family::V4) } else { (Domain::IPV6, Family::V6) };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))
            .map_err(|e| self.io(port, "socket", e))?;
        options::apply(&socket, role, family, config).map_err(|(what, e)| self.io(port, what, e))?;
        Ok(socket)
    }

    /// A nonblocking socket with its options and its buffer, not bound yet.
    fn socket(self, role: Role, config: &UdpConfig) -> Result<(Socket, BufferSize), OpenError> {
        let port = if role == Role::Receive { config.port } else { 0 };
        let socket = self.plain_socket(role, port, config)?;
        let wanted = match role {
            Role::Receive => config.recv_buffer,
            Role::Transmit => config.send_buffer,
        };
        let buffer = options::set_buffers(&socket.as_fd(), role, wanted)
            .map_err(|e| self.io(port, "buffer size", e))?;
        Ok((socket, buffer))
    }

    pub(super) fn port_of(self, socket: &Socket) -> Result<u16, OpenError> {
        let addr = socket.local_addr().map_err(|e| self.io(0, "getsockname", e))?;
        Ok(addr.as_socket().map_or(0, |addr| addr.port()))
    }

    pub(super) fn bind_error(self, port: u16, error: io::Error) -> OpenError {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => OpenError::AddrInUse { ip: self.ip, port },
            Some(libc::EADDRNOTAVAIL) => OpenError::AddrNotAvailable { ip: self.ip },
            _ => self.io(port, "bind", error),
        }
    }

    pub(super) fn io(self, port: u16, what: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { ip: self.ip, port, what, source }
    }
}

/// Looks for free source ports.
struct PortSearch {
    next: u16,
    tries: u32,
}

impl PortSearch {
    /// Starts at a place that differs between processes and addresses, so that they seldom meet.
    fn new(ip: IpAddr) -> Self {
        let octets = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let hash = octets
            .iter()
            .fold(std::process::id(), |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        // 14 bits, the width of the range.
        let offset = u16::try_from(hash >> 8 & 0x3fff).unwrap_or(0);
        Self { next: SOURCE_PORTS.start() + offset, tries: 0 }
    }

    /// Binds `socket` to the next free port of the range, or, if many in a row are taken, to any that the
    /// kernel gives.
    fn bind(&mut self, socket: &Socket, local: Local) -> Result<(), OpenError> {
        while self.tries < MAX_TRIES {
            self.tries += 1;
            let port = self.next;
            self.next = port.checked_add(1).unwrap_or(*SOURCE_PORTS.start());
            match socket.bind(&local.at(port).into()) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(local.bind_error(port, error)),
            }
        }
        socket.bind(&local.at(0).into()).map_err(|e| local.bind_error(0, e))
    }
}

/// The source ports that RoCE v2 asks for, all of them in the dynamic range.
const SOURCE_PORTS: RangeInclusive<u16> = 0xc000..=0xffff;
/// Ports that are tried for all sockets of a link together.
const MAX_TRIES: u32 = 256;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_search_goes_round_within_the_range() {
        let ip = Ipv4Addr::LOCALHOST.into();
        let local = Local { ip, scope_id: 0 };
        let mut search = PortSearch { next: 0xffff, tries: 0 };
        let socket = || Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let (a, b) = (socket(), socket());
        search.bind(&a, local).unwrap();
        search.bind(&b, local).unwrap();
        for socket in [&a, &b] {
            assert!(SOURCE_PORTS.contains(&local.port_of(socket).unwrap()));
        }
        assert!(SOURCE_PORTS.contains(&PortSearch::new(ip).next));
    }

    #[test]
    fn after_many_taken_ports_any_will_do() {
        let local = Local { ip: Ipv4Addr::LOCALHOST.into(), scope_id: 0 };
        let mut search = PortSearch { next: 0xc000, tries: MAX_TRIES };
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        search.bind(&socket, local).unwrap();
        assert_ne!(local.port_of(&socket).unwrap(), 0);
    }
}
