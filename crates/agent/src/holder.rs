//! Who has a UDP port: what the kernel tells everybody, and what it tells only the owner and root.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A socket that is bound to the port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Holder {
    /// The address; unspecified means all.
    pub address: IpAddr,
    /// The user's number.
    pub uid: u32,
    /// Which program, if that can be known.
    pub program: Program,
}

/// What holds a port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Program {
    /// A process.
    Process {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The kernel: rdma_rxe has its socket there.
    Kernel,
    /// Another user's.
    Unknown,
}

/// The sockets that are bound to UDP port `port` on this machine, as far as they can be seen.
pub fn holders(port: u16) -> Vec<Holder> {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<_> = tables.iter().flat_map(|table| parse(table, port)).collect();
    let inodes: BTreeSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let processes = if inodes.is_empty() { Vec::new() } else { processes_with(&inodes) };
    let holder = |socket: &BoundSocket| Holder {
        address: socket.address,
        uid: socket.uid,
        program: match processes.iter().find(|(inode, _)| *inode == socket.inode) {
            Some((_, program)) => program.clone(),
            None if socket.inode == 0 => Program::Kernel,
            None => Program::Unknown,
        },
    };
    let unique: BTreeSet<_> = sockets.iter().map(holder).collect();
    // Of a port that processes share, sockets wait that are nobody's now.
    let is_shared = |holder: &Holder| {
        let is_process = |other: &Holder| matches!(other.program, Program::Process { .. });
        holder.program == Program::Unknown
            && unique.iter().any(|o| is_process(o) && (o.address, o.uid) == (holder.address, holder.uid))
    };
    unique.iter().filter(|holder| !is_shared(holder)).cloned().collect()
}

/// Who keeps others from `ip` and `port`, if that can be seen.
pub(crate) fn holder_of(ip: IpAddr, port: u16) -> Option<Holder> {
    let is_all = |other: IpAddr| other.is_unspecified() && (other.is_ipv6() || ip.is_ipv4());
    holders(port).into_iter().find(|holder| holder.address == ip || is_all(holder.address))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            address if address.is_unspecified() => f.write_str("all addresses")?,
            address => write!(f, "{address}")?,
        }
        match &self.program {
            Program::Process { pid, name } => write!(f, " belongs to {name} (process {pid})"),
            Program::Kernel => f.write_str(" belongs to the kernel (module rdma_rxe)"),
            Program::Unknown => write!(f, " belongs to a program of user {}", self.uid),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct BoundSocket {
    address: IpAddr,
    uid: u32,
    inode: u64,
}

/// The lines of `/proc/net/udp` or `udp6` whose local port is `port`.
fn parse(table: &str, port: u16) -> Vec<BoundSocket> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, local_port) = fields.get(1)?.split_once(':')?;
        if u16::from_str_radix(local_port, 16).ok()? != port {
            return None;
        }
        Some(BoundSocket {
            address: parse_address(address)?,
            uid: fields.get(7)?.parse().ok()?,
            inode: fields.get(9)?.parse().ok()?,
        })
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Hexadecimal words in the machine's order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_mut(4).enumerate() {
                chunk.copy_from_slice(&word(8 * index)?);
            }
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// The processes that hold sockets with these inodes, as far as we may look.
fn processes_with(inodes: &BTreeSet<u64>) -> Vec<(u64, Program)> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for descriptor in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let inode =
                target.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                found.push((inode, Program::Process { pid, name: name.trim().to_owned() }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2439: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 289921 2 0000000044d75fa6 0
 2440: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000044d75fa6 0
 2441: 0200007F:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2 0000000044d75fa6 0
 broken";
        let expected = [
            BoundSocket { address: IpAddr::from([127, 0, 0, 2]), uid: 1000, inode: 289_921 },
            BoundSocket { address: IpAddr::from([0; 4]), uid: 0, inode: 0 },
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(parse(table, 4791), expected);
        }
        let v6 = "head
 1: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 9 2 0 0";
        if cfg!(target_endian = "little") {
            assert_eq!(parse(v6, 4791)[0].address, IpAddr::from(Ipv6Addr::LOCALHOST));
        }
    }

    #[test]
    fn a_socket_of_ours_is_found_with_our_name() {
        let socket = std::net::UdpSocket::bind("127.0.21.2:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let found = holders(port);
        let ours = Program::Process { pid: std::process::id(), name: String::new() };
        let is_ours = |holder: &&Holder| match (&holder.program, &ours) {
            (Program::Process { pid, .. }, Program::Process { pid: our_pid, .. }) => pid == our_pid,
            _ => false,
        };
        let ours = found.iter().find(is_ours).expect("the socket is listed");
        assert_eq!(ours.address, IpAddr::from([127, 0, 21, 2]));
        assert!(ours.to_string().starts_with("127.0.21.2 belongs to "));
    }
}
