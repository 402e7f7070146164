//! Devices that share their address and port with others of the same user.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use userdma_link::{OpenError, UdpConfig, UdpLink};
use userdma_mem::LinkId;

use crate::client::{self, Failure};
use crate::desk::FIRST_INDEX;
use crate::embedded::{check_addresses, name_of};
use crate::holder::holder_of;
use crate::lease::Lease;
use crate::message::{Place, Refusal};
use crate::{ClaimConfig, ClaimError, Claimed, Embedded};

/// Claims a slot on addresses of this machine from the user's agent.
///
/// Where there can be no agent, because the system has no Unix sockets or another user is in the way, the addresses are claimed
/// for this process alone, as [`Embedded::claim`] does.
///
/// # Errors
/// An address whose port somebody else has, with his name as far as it can be known, or that this machine has not. Nothing stays
/// claimed.
pub fn claim(config: &ClaimConfig) -> Result<Claimed, ClaimError> {
    let addresses = check_addresses(config)?;
    let place = Place { port: config.udp.port, addresses };
    match client::claim(&place) {
        Ok(granted) => {
            let (slot, first_index) = (granted.slot, granted.first_index.max(FIRST_INDEX));
            let (lease, sockets) = Lease::keep(place.clone(), granted).map_err(ClaimError::Slot)?;
            let links = (0u8..).zip(place.addresses.iter().zip(sockets));
            let links = links.map(|(id, (ip, socket))| open(&lease, id, *ip, socket, &config.udp));
            let links = links.collect::<Result<Vec<_>, _>>()?;
            let name = name_of(place.addresses[0])?;
            Ok(Claimed { slot, first_index, name, links, lease: Some(lease) })
        }
        Err(Failure::NoAgent(why)) => {
            tracing::warn!(why, "no agent: the address is this process's alone");
            Embedded::claim(config)
        }
        Err(Failure::Silent { pid }) => Err(ClaimError::Silent { pid }),
        Err(Failure::Refused(refusal)) => Err(refused(refusal, &place)),
    }
}

fn open(
    lease: &Lease,
    id: u8,
    ip: IpAddr,
    socket: OwnedFd,
    config: &UdpConfig,
) -> Result<UdpLink, OpenError> {
    let mut link = UdpLink::open_member(LinkId(id), ip, socket, config)?;
    link.set_neighbors(Box::new(lease.neighbor(id)));
    Ok(link)
}

fn refused(refusal: Refusal, place: &Place) -> ClaimError {
    let port = place.port;
    match refusal {
        Refusal::Taken(ip) => ClaimError::Taken { ip, port, holder: holder_of(ip, port) },
        Refusal::Early => ClaimError::Agent(
            "a process that has one does not tell the agent, which is new: is it stopped?".to_owned(),
        ),
        Refusal::NotLocal(ip) => OpenError::AddrNotAvailable { ip }.into(),
        Refusal::NoSlot(ip) => ClaimError::NoSlot { ip, port },
        Refusal::Other(why) => ClaimError::Agent(why),
    }
}
