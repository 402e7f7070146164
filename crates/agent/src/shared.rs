//! Devices that share their address and port with others of the same user.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use userdma_link::{OpenError, UdpConfig, UdpLink};
use userdma_mem::LinkId;

use crate::client::{self, Failure, Granted};
use crate::desk::FIRST_INDEX;
use crate::embedded::{check_addresses, name_of};
use crate::holder::holder_of;
use crate::lease::Lease;
use crate::message::{Place, Refusal};
use crate::{ClaimConfig, ClaimError, Claimed, Embedded, FellBack};

/// Claims a slot on addresses of this machine from the user's agent. If somebody else has the port of one of them, and there is a
/// fallback port, the slot is on that, and [`Claimed::fell_back`] says so.
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
    match client::claim(&place, config.fallback_port) {
        Ok(granted) => keep(config, place, granted),
        Err(Failure::NoAgent(why)) => {
            tracing::warn!(why, "no agent: the address is this process's alone");
            claim_alone(config)
        }
        Err(Failure::Silent { pid }) => Err(ClaimError::Silent { pid }),
        Err(Failure::Refused(refusal)) => Err(refused(refusal, &place)),
    }
}

/// Opens links on the sockets of a slot.
fn keep(config: &ClaimConfig, usual: Place, granted: Granted) -> Result<Claimed, ClaimError> {
    let (slot, first_index) = (granted.slot, granted.first_index.max(FIRST_INDEX));
    let fell_back = granted.taken.zip(config.fallback_port);
    let fell_back = fell_back.map(|(ip, instead)| fell_back_on(ip, usual.port, instead));
    let port = fell_back.as_ref().map_or(usual.port, |fell_back| fell_back.instead);
    let udp = UdpConfig { port, ..config.udp };
    let place = Place { port, ..usual };
    let (lease, sockets) = Lease::keep(place.clone(), granted).map_err(ClaimError::Slot)?;
    let links = (0u8..).zip(place.addresses.iter().zip(sockets));
    let links = links.map(|(id, (ip, socket))| open(&lease, id, *ip, socket, &udp));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let name = name_of(place.addresses[0])?;
    Ok(Claimed { slot, first_index, name, links, lease: Some(lease), fell_back })
}

/// Claims the addresses for this process, with the fallback port if somebody has the usual one.
fn claim_alone(config: &ClaimConfig) -> Result<Claimed, ClaimError> {
    match (Embedded::claim(config), config.fallback_port) {
        (Err(ClaimError::Link(OpenError::AddrInUse { ip, port })), Some(instead)) => {
            let udp = UdpConfig { port: instead, ..config.udp };
            let claimed = Embedded::claim(&ClaimConfig { udp, ..config.clone() })?;
            Ok(Claimed { fell_back: Some(fell_back_on(ip, port, instead)), ..claimed })
        }
        (claimed, _) => claimed,
    }
}

fn fell_back_on(ip: IpAddr, port: u16, instead: u16) -> FellBack {
    FellBack { ip, port, instead, holder: holder_of(ip, port) }
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
