//! The agent inside the process.

use std::net::IpAddr;

use userdma_link::Link;

/// What to claim.
#[derive(Clone, Debug)]
pub struct ClaimConfig {
    /// Our addresses; at least one.
    pub addresses: Vec<IpAddr>,
    /// The UDP port: 4791 unless private.
    pub port: u16,
}

/// Why addresses were not claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No address was given.
    #[error("a device needs at least one address")]
    NoAddress,
    /// The address is not one of this machine.
    #[error("{0} is not an address of this machine")]
    NotLocal(IpAddr),
}

/// An agent that serves its own process.
#[derive(Debug)]
pub struct Embedded {}

/// What an agent hands out.
#[derive(Debug)]
pub struct Claimed {
    /// The upper ten bits of the device's QPNs.
    pub slot: u16,
    /// Links, open.
    pub links: Vec<Link>,
}

impl Embedded {
    /// Claims addresses of this machine.
    pub fn claim(config: &ClaimConfig) -> Result<Claimed, ClaimError> {
        let _ = config;
        todo!()
    }
}
