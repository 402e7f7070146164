//! From a destination to a device, and to a path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use userdma_verbs::{Gid, PKey};

use super::Ids;
use super::bind::{check_scope, device_with, with_port};
use crate::cm::PortId;
use crate::rdma::entry::{Entry, State};
use crate::rdma::system::{PortRequest, System};
use crate::rdma::{Address, CmError, CmId, EventKind, PathRecord};

impl Ids {
    /// Finds the device from which `dst` is reached, and binds to it: to `src` if it is given, else to the address from which
    /// the machine would send. [`EventKind::AddrResolved`] or [`EventKind::AddrError`] follows at once: nobody is asked. As
    /// `cma.c rdma_resolve_addr()`.
    ///
    /// # Errors
    /// It is neither new nor bound, the families differ, or there is no way to `dst` at all.
    pub fn resolve_addr(
        &mut self,
        system: &mut impl System,
        id: CmId,
        src: Option<Address>,
        dst: Address,
    ) -> Result<(), CmError> {
        let to = match dst {
            Address::Ip(to) => to,
            // A GID as such leads to no device.
            Address::Ib(to) => return self.entry(id).and(Err(CmError::NoDevice(to.gid.ip()))),
        };
        let is_new = self.entry(id)?.state == State::Idle;
        if let Some(src) = src.filter(|src| is_new && !is_any(src)) {
            self.bind(system, id, src)?;
        }
        let entry = self.entry(id)?;
        let is_right = matches!(entry.state, State::Idle | State::AddrBound);
        entry.check(is_right, "resolve address", "a new or bound identifier")?;
        let wanted = entry.src.as_ref().or(src.as_ref().filter(|_| is_new));
        if wanted.is_some_and(|src| src.ip().is_none_or(|src| src.is_ipv4() != to.is_ipv4())) {
            return Err(CmError::State { call: "resolve address", wanted: "two addresses of one family" });
        }
        check_scope(to)?;
        match self.attach(system, id, to) {
            Ok(()) => {
                let entry = self.entry_mut(id)?;
                (entry.dst, entry.state) = (Some(dst), State::AddrResolved);
                self.tell(id, EventKind::AddrResolved, 0);
            }
            Err(error @ (CmError::NoDevice(_) | CmError::Open { .. })) => {
                let entry = self.entry_mut(id)?;
                entry.state = State::AddrBound;
                entry.src.get_or_insert(unbound(to).into());
                self.tell(id, EventKind::AddrError, -error.errno());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Chooses the device and the address to send from, and takes a port there unless there is one.
    fn attach(&mut self, system: &mut impl System, id: CmId, to: SocketAddr) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        if entry.port.is_some() {
            return Ok(());
        }
        let (device, ip) = choose(system, to)?;
        self.open(system, device)?;
        let entry = self.entry(id)?;
        let bound = entry.src.and_then(|src| src.ip()).map_or(0, |src| src.port());
        let request = PortRequest {
            space: entry.space,
            port: 0,
            address: ip.to_canonical(),
            reuse_address: entry.reuse_address,
            af_only: true,
        };
        let (port, held) = match bound {
            0 => self.reserve_on(system, device, &request)?,
            bound => (bound, Vec::new()),
        };
        let entry = self.entry_mut(id)?;
        entry.held.extend(held);
        (entry.src, entry.port) = (Some(with_port(source(ip, to), port).into()), Some(device));
        Ok(())
    }

    /// Makes up the path, as there is nobody who could be asked for it. [`EventKind::RouteResolved`] follows at once. As
    /// `cma.c rdma_resolve_route()`, `cma_resolve_iboe_route()`.
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn resolve_route(&mut self, id: CmId) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        entry.check(entry.state == State::AddrResolved, "resolve route", "a resolved address")?;
        let path = self.path_of(entry)?;
        let entry = self.entry_mut(id)?;
        (entry.path, entry.state) = (Some(path), State::RouteResolved);
        self.tell(id, EventKind::RouteResolved, 0);
        Ok(())
    }

    fn path_of(&self, entry: &Entry) -> Result<PathRecord, CmError> {
        let unresolved = CmError::State { call: "resolve route", wanted: "a resolved address" };
        let (from, to) = entry.ends().ok_or(unresolved)?;
        let device = entry.port.and_then(|port| self.devices.get(&port)).ok_or(unresolved)?;
        Ok(PathRecord {
            sgid: Gid::from(from),
            dgid: Gid::from(to),
            flow_label: flow_label(entry),
            hop_limit: HOP_LIMIT,
            traffic_class: entry.tos,
            sl: 0,
            pkey: PKey::DEFAULT,
            mtu: device.mtu,
            rate: RATE_CURRENT,
            packet_life_time: PACKET_LIFE_TIME,
        })
    }
}

/// The device and its address from which `to` is reached.
fn choose(system: &impl System, to: SocketAddr) -> Result<(PortId, IpAddr), CmError> {
    // To an address of this process: from the same address, as on every host.
    if let Some(device) = device_with(system, to.ip()) {
        return Ok((device, to.ip().to_canonical()));
    }
    let sources = system.sources(to)?;
    let best = sources.iter().find_map(|&ip| Some((device_with(system, ip)?, ip.to_canonical())));
    let ip = sources.first().copied().unwrap_or(to.ip());
    best.or_else(|| loopback(system, to.ip())).ok_or(CmError::NoDevice(ip))
}

/// The whole of 127.0.0.0/8 is reached from each of its addresses.
fn loopback(system: &impl System, to: IpAddr) -> Option<(PortId, IpAddr)> {
    let to = to.to_canonical();
    let is_near = |ip: &IpAddr| to.is_loopback() && ip.is_loopback() && ip.is_ipv4() == to.is_ipv4();
    let near = |(device, ips): &(PortId, Vec<IpAddr>)| {
        Some((*device, ips.iter().map(|ip| ip.to_canonical()).find(is_near)?))
    };
    system.devices().iter().find_map(near)
}

/// `ip` in the form of the family that the destination is written in.
fn source(ip: IpAddr, to: SocketAddr) -> SocketAddr {
    match (ip, to) {
        (IpAddr::V4(v4), SocketAddr::V6(_)) => (v4.to_ipv6_mapped(), 0).into(),
        (IpAddr::V6(v6), SocketAddr::V6(to)) => SocketAddrV6::new(v6, 0, 0, to.scope_id()).into(),
        (ip, _) => (ip, 0).into(),
    }
}

/// What an identifier is bound to whose destination no device reaches.
fn unbound(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn is_any(src: &Address) -> bool {
    src.ip().is_some_and(|ip| ip.ip().is_unspecified() && ip.port() == 0)
}

/// What chooses the UDP source port of both sides: what the address says, else a sum of the ports, as requests captured from
/// Linux 6.12 carry it.
fn flow_label(entry: &Entry) -> u32 {
    let ip = |address: Option<Address>| address.and_then(|address| address.ip());
    let port = |address| u32::from(ip(address).map_or(0, |ip| ip.port()));
    let asked = match ip(entry.src) {
        Some(SocketAddr::V6(v6)) => u32::from_be(v6.flowinfo()) & FLOW_LABEL_MASK,
        Some(SocketAddr::V4(_)) | None => 0,
    };
    if asked == 0 { (port(entry.src) * 31 + port(entry.dst)) & FLOW_LABEL_MASK } else { asked }
}

const FLOW_LABEL_MASK: u32 = 0xf_ffff;
/// Hosts' usual one.
pub(super) const HOP_LIMIT: u8 = 64;
/// `IB_RATE_PORT_CURRENT`, as requests captured from Linux 6.12 have it.
const RATE_CURRENT: u8 = 0;
/// 0.27 s, as requests captured from Linux 6.12 have it: their ACK timeout is one more.
pub(super) const PACKET_LIFE_TIME: u8 = 16;
