//! What connections by IP address put before the program's private data, in REQ and SIDR_REQ.
//!
//! ```text
//!   0: version, 0    1: IP version in the upper four bits    2-3: source port
//!   4-19: source address    20-35: destination address, IPv4 in the last four bytes
//! ```
//! As `cma.c struct cma_hdr`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::BadMad;

/// The private-data header of connections by IP address, 36 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address, of the same family.
    pub destination: IpAddr,
}

impl IpHeader {
    /// Bytes of the header.
    pub const LEN: usize = 36;
    /// Bytes that are left for the program in a REQ.
    pub const REQ_DATA_LEN: usize = 92 - Self::LEN;
    /// Bytes that are left for the program in a SIDR_REQ.
    pub const SIDR_REQ_DATA_LEN: usize = 216 - Self::LEN;

    /// Reads the header that private data begin with.
    ///
    /// # Errors
    /// Fewer than 36 bytes, another version, or neither IPv4 nor IPv6.
    pub fn parse(private_data: &[u8]) -> Result<Self, BadMad> {
        let Some(&bytes) = private_data.first_chunk::<{ Self::LEN }>() else {
            return Err(BadMad::Field { field: "ip_header_len", value: private_data.len() as u64 });
        };
        let [version, ip_version, port_high, port_low, addresses @ ..] = bytes;
        if version != 0 {
            return Err(BadMad::Field { field: "ip_header_version", value: version.into() });
        }
        let address = |at| address(&addresses, at, ip_version >> 4);
        let (Some(source), Some(destination)) = (address(0), address(16)) else {
            return Err(BadMad::Field { field: "ip_version", value: (ip_version >> 4).into() });
        };
        Ok(Self { source_port: u16::from_be_bytes([port_high, port_low]), source, destination })
    }

    /// The 36 bytes. If the addresses are of two families, an IPv4 one is written as IPv4-mapped IPv6.
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let is_v4 = self.source.is_ipv4() && self.destination.is_ipv4();
        bytes[1] = if is_v4 { 4 << 4 } else { 6 << 4 };
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[4..20].copy_from_slice(&address_bytes(self.source, is_v4));
        bytes[20..36].copy_from_slice(&address_bytes(self.destination, is_v4));
        bytes
    }
}

fn address(bytes: &[u8; 32], at: usize, ip_version: u8) -> Option<IpAddr> {
    let bytes: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    match ip_version {
        4 => {
            let [.., a, b, c, d] = bytes;
            Some(Ipv4Addr::new(a, b, c, d).into())
        }
        6 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

fn address_bytes(address: IpAddr, as_v4: bool) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) if as_v4 => {
            let [a, b, c, d] = v4.octets();
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        }
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
