//! Devices that have their address and port alone: on private ports, and where there is no agent.

use std::io;
use std::net::IpAddr;

use userdma_link::{OpenError, UdpConfig, UdpLink, clock, interface_of, is_unicast};
use userdma_mem::LinkId;

use crate::desk::first_index;
use crate::devices::device_name;
use crate::holder::Holder;
use crate::{FellBack, Lease};

/// What to claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimConfig {
    /// Our addresses, in the order of the GID table; at least one.
    pub addresses: Vec<IpAddr>,
    /// How each link is set up: the port is 4791 unless private.
    pub udp: UdpConfig,
    /// A port to share in its place with others of the same user, if somebody else has it on any of the addresses.
    pub fallback_port: Option<u16>,
}

/// Why addresses were not claimed. None of them is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No address was given.
    #[error("a device needs an address of this machine")]
    NoAddress,
    /// More addresses than a device has links.
    #[error("{given} addresses, a device has at most {max}")]
    TooMany {
        /// Addresses given.
        given: usize,
        /// The limit.
        max: usize,
    },
    /// The same address twice.
    #[error("{0} is given twice")]
    Twice(IpAddr),
    /// A link-local address: peers could not answer without knowing the interface.
    #[error("{0} is link-local, a device needs an address that peers can route to")]
    LinkLocal(IpAddr),
    /// The address could not be had: the reason names it.
    #[error(transparent)]
    Link(#[from] OpenError),
    /// Somebody who does not share it has the port: another user, another program, or the kernel.
    #[error(
        "{ip} UDP port {port} is taken by somebody who does not share it (EADDRINUSE): stop that program, \
         use another local address, or choose a private port (`DeviceBuilder::private_port`){}",
        named(holder)
    )]
    Taken {
        /// The address.
        ip: IpAddr,
        /// The port.
        port: u16,
        /// Who has it, as far as it can be known.
        holder: Option<Holder>,
    },
    /// Every slot of the port is in use.
    #[error("{ip} UDP port {port} has 1022 devices already: use another local address, or a private port")]
    NoSlot {
        /// The address.
        ip: IpAddr,
        /// The port.
        port: u16,
    },
    /// The process that hands out the slots is there and does not answer.
    #[error(
        "process {pid}, which hands out slots of the port to this user's processes, does not answer: is it stopped?"
    )]
    Silent {
        /// The process; 0 if it is in another process namespace.
        pid: i32,
    },
    /// The agent could not do it.
    #[error("slot of the port: {0}")]
    Agent(String),
    /// The system did not give what keeps a slot.
    #[error("thread that keeps a slot: {0}")]
    Slot(io::Error),
    /// The kernel did not list its interfaces.
    #[error("list of interfaces: {0}")]
    Interfaces(io::Error),
}

fn named(holder: &Option<Holder>) -> String {
    holder.as_ref().map_or_else(String::new, |holder| format!("; {holder}"))
}

/// What an agent hands out.
#[derive(Debug)]
pub struct Claimed {
    /// The upper ten bits of the device's QPNs: 1 ..= 1022.
    pub slot: u16,
    /// The lower 14 bits of the first queue pair's: 2 ..= 16383.
    pub first_index: u16,
    /// The name of the device: that of the first address's interface.
    pub name: String,
    /// A link for each address, in their order; open.
    pub links: Vec<UdpLink>,
    /// What keeps the slot, if the port is shared.
    pub lease: Option<Lease>,
    /// Why the port is the fallback port, if it is.
    pub fell_back: Option<FellBack>,
}

/// Claims addresses for this process alone.
#[derive(Debug)]
pub struct Embedded;

impl Embedded {
    /// Addresses of a device at most.
    pub const MAX_ADDRESSES: usize = 32;

    /// Claims addresses of this machine: opens a link on each.
    ///
    /// # Errors
    /// An address that another process has, or that this machine has not, is named. Nothing stays claimed.
    pub fn claim(config: &ClaimConfig) -> Result<Claimed, ClaimError> {
        let addresses = check_addresses(config)?;
        let links = (0u8..).zip(&addresses).map(|(id, ip)| UdpLink::open(LinkId(id), *ip, 0, &config.udp));
        let links = links.collect::<Result<Vec<_>, _>>()?;
        Ok(Claimed {
            slot: SLOT,
            first_index: first_index(clock::now()),
            name: name_of(addresses[0])?,
            links,
            lease: None,
            fell_back: None,
        })
    }
}

/// The addresses in their plain form: one at least, each once, none that peers cannot route to.
pub(crate) fn check_addresses(config: &ClaimConfig) -> Result<Vec<IpAddr>, ClaimError> {
    let addresses: Vec<IpAddr> = config.addresses.iter().map(IpAddr::to_canonical).collect();
    if addresses.is_empty() {
        return Err(ClaimError::NoAddress);
    }
    if addresses.len() > Embedded::MAX_ADDRESSES {
        return Err(ClaimError::TooMany { given: addresses.len(), max: Embedded::MAX_ADDRESSES });
    }
    for (i, ip) in addresses.iter().enumerate() {
        check_address(*ip, &addresses[..i])?;
    }
    Ok(addresses)
}

/// The name of a device whose first address is `first`.
pub(crate) fn name_of(first: IpAddr) -> Result<String, ClaimError> {
    let interface = interface_of(first, 0).map_err(ClaimError::Interfaces)?;
    Ok(device_name(interface.as_ref().map_or("unknown", |i| &i.name)))
}

fn check_address(ip: IpAddr, before: &[IpAddr]) -> Result<(), ClaimError> {
    let link_local = match ip {
        IpAddr::V4(_) => false, // It has no scope, so a route may lead there.
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if link_local {
        return Err(ClaimError::LinkLocal(ip));
    }
    if !is_unicast(ip) {
        return Err(OpenError::NotUnicast { ip }.into());
    }
    if before.contains(&ip) {
        return Err(ClaimError::Twice(ip));
    }
    Ok(())
}

/// The slot of a process that is alone on its address. Slot 0 has QPN 0 and 1.
const SLOT: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(addresses: &[&str]) -> Result<Claimed, ClaimError> {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Embedded::claim(&ClaimConfig { addresses, ..ClaimConfig::default() })
    }

    #[test]
    fn an_address_is_claimed_once_and_free_again_afterwards() {
        let claimed = claim(&["127.0.11.2"]).unwrap();
        assert_eq!((claimed.slot, claimed.name.as_str(), claimed.links.len()), (1, "roce_lo", 1));
        assert_eq!(claimed.links[0].port(), 4791);
        let error = claim(&["127.0.11.2"]).unwrap_err().to_string();
        assert!(error.contains("127.0.11.2") && error.contains("taken"), "{error}");
        claim(&["127.0.11.3"]).unwrap();
        drop(claimed);
        claim(&["127.0.11.2"]).unwrap();
    }

    #[test]
    fn one_taken_address_of_two_claims_neither() {
        let first = claim(&["127.0.11.5"]).unwrap();
        claim(&["127.0.11.4", "127.0.11.5"]).unwrap_err();
        drop(first);
        claim(&["127.0.11.4", "127.0.11.5"]).unwrap();
    }

    #[test]
    fn bad_addresses_are_named() {
        let error = |addresses: &[&str]| claim(addresses).unwrap_err().to_string();
        assert_eq!(error(&[]), "a device needs an address of this machine");
        assert_eq!(error(&["127.0.11.6", "::ffff:127.0.11.6"]), "127.0.11.6 is given twice");
        assert!(error(&["fe80::1"]).starts_with("fe80::1 is link-local"));
        assert!(error(&["192.0.2.7"]).starts_with("192.0.2.7 is not an address of this machine"));
        for ip in ["0.0.0.0", "::", "224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1"] {
            assert_eq!(
                error(&[ip]),
                format!("{ip} does not name one host: a link needs one local unicast address")
            );
        }
    }
}
