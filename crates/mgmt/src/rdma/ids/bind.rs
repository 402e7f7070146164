//! Binding an identifier to an address and a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand::RngExt;

use super::Ids;
use crate::cm::PortId;
use crate::rdma::entry::{Entry, Held, State};
use crate::rdma::system::{PortRequest, System};
use crate::rdma::{Address, CmError, CmId, IbAddress, PortSpace};

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// To one device.
    One(PortId),
    /// To all.
    All,
}

impl Ids {
    /// Binds an identifier to an address of a device, or to all (a wildcard), and to a port, or to one that is free (0). As
    /// `cma.c rdma_bind_addr()`.
    ///
    /// A wildcard opens all devices. Those that cannot be opened are left out if others can.
    ///
    /// # Errors
    /// It is bound already, no device has the address, or somebody has the port.
    pub fn bind(&mut self, system: &mut impl System, id: CmId, to: Address) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        entry.check(entry.state == State::Idle, "bind", "an identifier that is not bound")?;
        match to {
            Address::Ip(ip) => self.bind_ip(system, id, ip),
            Address::Ib(ib) => self.bind_ib(id, ib),
        }
    }

    fn bind_ip(&mut self, system: &mut impl System, id: CmId, to: SocketAddr) -> Result<(), CmError> {
        check_scope(to)?;
        let place = place_of(system, to.ip())?;
        let entry = self.entry(id)?;
        check_space(entry, place)?;
        let request = PortRequest {
            space: entry.space,
            port: to.port(),
            address: to.ip().to_canonical(),
            reuse_address: entry.reuse_address,
            af_only: entry.is_af_only(&to.into()),
        };
        let (port, held) = match place {
            Place::One(device) => self.reserve_on(system, device, &request)?,
            Place::All => self.reserve_on_all(system, &PortRequest { address: any(to.ip()), ..request })?,
        };
        let entry = self.entry_mut(id)?;
        entry.af_only = Some(request.af_only);
        entry.src = Some(with_port(to, port).into());
        entry.port = match place {
            Place::One(device) => Some(device),
            Place::All => None,
        };
        (entry.held, entry.state) = (held, State::AddrBound);
        Ok(())
    }

    /// Binds to any GID and a service of `rdma_cm`: there are no GIDs but those that IP addresses stand for, so no more can
    /// be done with it than on a kernel without InfiniBand. As `cma.c cma_select_ib_ps()`.
    fn bind_ib(&mut self, id: CmId, to: IbAddress) -> Result<(), CmError> {
        if !to.gid.is_zero() {
            return Err(CmError::NoDevice(to.gid.ip()));
        }
        let entry = self.entry_mut(id)?;
        let mask = to.service_mask & IP_SERVICE_MASK;
        let is_of = |space: PortSpace| {
            (entry.space == PortSpace::Ib || entry.space == space)
                && to.service_id & mask == space.service_id(0) & mask
        };
        if ![PortSpace::Ib, PortSpace::Tcp, PortSpace::Udp].into_iter().any(is_of) {
            return Err(CmError::Service);
        }
        (entry.src, entry.state) = (Some(Address::Ib(to)), State::AddrBound);
        Ok(())
    }

    /// Reserves a port on one device.
    pub(super) fn reserve_on(
        &mut self,
        system: &mut impl System,
        device: PortId,
        request: &PortRequest,
    ) -> Result<(u16, Vec<Held>), CmError> {
        self.open(system, device)?;
        let reservation = system.reserve(device, request)?;
        Ok((reservation.port, vec![Held { port: device, reservation: reservation.id, listens: false }]))
    }

    /// Reserves the same port on all devices that can be opened.
    fn reserve_on_all(
        &mut self,
        system: &mut impl System,
        request: &PortRequest,
    ) -> Result<(u16, Vec<Held>), CmError> {
        let (mut open, mut error) = (Vec::new(), None);
        let devices: Vec<_> = system.devices().iter().map(|&(device, _)| device).collect();
        for device in devices {
            match self.open(system, device) {
                Ok(_) => open.push(device),
                Err(failed) => error = Some(failed),
            }
        }
        let Some((&first, others)) = open.split_first() else {
            // Without devices a port belongs to whoever names it.
            let free = self.rng.random_range(EPHEMERAL);
            let port = if request.port == 0 { free } else { request.port };
            return error.map_or(Ok((port, Vec::new())), Err);
        };
        for _ in 0..ATTEMPTS {
            let (port, mut held) = self.reserve_on(system, first, request)?;
            match reserve_others(system, others, &PortRequest { port, ..*request }, &mut held) {
                Ok(()) => return Ok((port, held)),
                Err(failed) => {
                    release(system, &held);
                    if request.port != 0 {
                        return Err(failed);
                    }
                }
            }
        }
        Err(CmError::NoPort)
    }
}

fn place_of(system: &impl System, ip: IpAddr) -> Result<Place, CmError> {
    if ip.to_canonical().is_unspecified() {
        return Ok(Place::All);
    }
    match device_with(system, ip) {
        Some(device) => Ok(Place::One(device)),
        // To the kernel every loopback address is a wildcard: `cma.c cma_any_addr()`.
        None if ip.to_canonical().is_loopback() => Ok(Place::All),
        None => Err(CmError::NoDevice(ip)),
    }
}

fn reserve_others(
    system: &mut impl System,
    devices: &[PortId],
    request: &PortRequest,
    held: &mut Vec<Held>,
) -> Result<(), CmError> {
    for &port in devices {
        let reservation = system.reserve(port, request)?.id;
        held.push(Held { port, reservation, listens: false });
    }
    Ok(())
}

/// Gives ports back.
pub(super) fn release(system: &mut impl System, held: &[Held]) {
    for held in held {
        system.release(held.port, held.reservation);
    }
}

/// The device that has an address.
pub(super) fn device_with(system: &impl System, ip: IpAddr) -> Option<PortId> {
    let ip = ip.to_canonical();
    let has = |addresses: &[IpAddr]| addresses.iter().any(|own| own.to_canonical() == ip);
    system.devices().iter().find(|(_, addresses)| has(addresses)).map(|&(device, _)| device)
}

/// `to` with another port.
pub(super) fn with_port(to: SocketAddr, port: u16) -> SocketAddr {
    let mut bound = to;
    bound.set_port(port);
    bound
}

/// A link-local address needs the interface that it belongs to. As `cma.c cma_check_linklocal()`.
pub(super) fn check_scope(to: SocketAddr) -> Result<(), CmError> {
    match to {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(CmError::Value { what: "scope of a link-local address", value: 0, allowed: "an interface" })
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => Ok(()),
    }
}

/// The port space of IP over InfiniBand has no devices here. As `cma.c cma_acquire_dev_by_src_ip()`.
fn check_space(entry: &Entry, place: Place) -> Result<(), CmError> {
    let is_right = entry.space != PortSpace::Ipoib || matches!(place, Place::All);
    entry.check(is_right, "bind", "a port space of Ethernet")
}

/// The wildcard of an address's family.
pub(super) fn any(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// `RDMA_IB_IP_PS_MASK`.
const IP_SERVICE_MASK: u64 = 0xffff_ffff_ffff_0000;
/// Where the kernel takes ports from that nobody names, unless it is told otherwise.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Ports that are tried until one is free on all devices.
const ATTEMPTS: u32 = 64;
