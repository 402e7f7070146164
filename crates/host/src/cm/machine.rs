//! The machine as identifiers see it: the process's devices, and routes as the kernel knows them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use userdma_mgmt::cm::{Outgoing, PortId};
use userdma_mgmt::rdma::{CmError, Device, PortRequest, PortSpace, Reservation, System, WillChange};
use userdma_verbs::Time;

use super::inbox::Inbox;
use super::{DeviceEntry, Devices};
use crate::{Host, Will};

/// The devices, those that are open, and their way to the inbox.
pub(super) struct Machine {
    devices: Arc<dyn Devices>,
    inbox: Arc<Inbox>,
    list: Vec<(PortId, Vec<IpAddr>)>,
    guids: Vec<[u8; 8]>,
    listed_at: Option<Time>,
    open: HashMap<PortId, Arc<dyn AsRef<Host> + Send + Sync>>,
}

impl Machine {
    pub(super) fn new(devices: Arc<dyn Devices>, inbox: &Arc<Inbox>) -> Self {
        let inbox = Arc::clone(inbox);
        Self { devices, inbox, list: Vec::new(), guids: Vec::new(), listed_at: None, open: HashMap::new() }
    }

    /// Asks for the devices again, unless that was done just now.
    pub(super) fn refresh(&mut self, now: Time) {
        if self.listed_at.is_some_and(|at| now.since(at) < LISTED_FOR) {
            return;
        }
        self.listed_at = Some(now);
        let entries = self.devices.list();
        self.guids = entries.iter().map(|entry| entry.guid).collect();
        let entry = |(place, entry): (u32, DeviceEntry)| (PortId(place), entry.addresses);
        self.list = (0..).zip(entries).map(entry).collect();
    }

    /// The device, if it is open.
    pub(super) fn host(&self, port: PortId) -> Option<Host> {
        self.open.get(&port).map(|host| (**host).as_ref().clone())
    }

    /// Sends a datagram; `false` if its device does not work any more.
    pub(super) fn send(&self, out: &Outgoing) -> bool {
        let Some(host) = self.open.get(&out.port) else { return true };
        let host = (**host).as_ref();
        match host.send_management(out.from, out.to, &out.mad) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "a management datagram was not sent");
                host.check().is_ok()
            }
        }
    }

    /// Tells what is to be sent if the process dies.
    pub(super) fn set_will(&self, change: &WillChange) {
        let Some(host) = self.open.get(&change.port) else { return };
        let will = change.will.as_ref().map(|will| Will { from: will.from, to: will.to, mad: will.mad });
        (**host).as_ref().set_will(change.conn.0, will.as_ref());
    }

    /// Lets go of a device.
    pub(super) fn close(&mut self, port: PortId) {
        self.open.remove(&port);
    }

    fn opened(&self, port: PortId) -> Result<&Host, CmError> {
        let gone = CmError::Open { device: port.0 as usize, errno: libc::ENODEV };
        self.open.get(&port).map(|host| (**host).as_ref()).ok_or(gone)
    }
}

impl System for Machine {
    fn devices(&self) -> &[(PortId, Vec<IpAddr>)] {
        &self.list
    }

    fn open(&mut self, port: PortId) -> Result<Device, CmError> {
        let place = port.0 as usize;
        let failed = |errno| CmError::Open { device: place, errno };
        let shared = self.devices.open(place).map_err(failed)?;
        let host = (*shared).as_ref();
        let inbox = Arc::downgrade(&self.inbox);
        let sink = move |management| {
            if let Some(inbox) = inbox.upgrade() {
                inbox.put(port, management);
            }
        };
        host.set_management_sink(sink).map_err(|error| {
            tracing::error!(%error, "device {place}: no connections");
            failed(libc::ENODEV)
        })?;
        let attr = host.control(|shard, _| shard.port_attr()).map_err(|_| failed(libc::ENODEV))?;
        let device = Device {
            slot: host.slot(),
            guid: u64::from_be_bytes(self.guids.get(place).copied().unwrap_or_default()),
            addresses: host.gids().iter().map(|gid| gid.local).collect(),
            mtu: attr.active_mtu,
        };
        self.open.insert(port, shared);
        Ok(device)
    }

    fn sources(&self, to: SocketAddr) -> Result<Vec<IpAddr>, CmError> {
        let best = source(to).map_err(|error| CmError::System(errno(&error)))?;
        let mut sources = vec![best];
        if let Ok(Some(interface)) = userdma_link::interface_of(best, 0) {
            sources.extend(interface.addrs.iter().map(|address| address.ip).filter(|&ip| ip != best));
        }
        Ok(sources)
    }

    fn reserve(&mut self, port: PortId, request: &PortRequest) -> Result<Reservation, CmError> {
        self.opened(port)?.reserve_port(request).map_err(|error| refused(request.port, &error))
    }

    fn begin_listening(&mut self, port: PortId, reservation: u32) -> Result<(), CmError> {
        self.opened(port)?.begin_listening(reservation).map_err(|error| refused(0, &error))
    }

    fn release(&mut self, port: PortId, reservation: u32) {
        if let Ok(host) = self.opened(port) {
            host.release_port(reservation);
        }
    }

    fn listen(&mut self, port: PortId, service_id: u64, on: Option<IpAddr>) -> Result<(), CmError> {
        let refused = |error: io::Error| refused(PortSpace::port_of(service_id), &error);
        self.opened(port)?.listen(service_id, u64::MAX, on).map_err(refused)
    }

    fn unlisten(&mut self, port: PortId, service_id: u64, on: Option<IpAddr>) {
        if let Ok(host) = self.opened(port) {
            host.unlisten(service_id, u64::MAX, on);
        }
    }
}

/// The address from which the kernel would send to `to`. Nothing is sent.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = to;
    to.set_port(ANY_PORT);
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

fn refused(port: u16, error: &io::Error) -> CmError {
    match errno(error) {
        libc::EADDRINUSE => CmError::PortTaken(port),
        libc::EADDRNOTAVAIL => CmError::NoPort,
        errno => CmError::System(errno),
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// How long a list of devices is good.
const LISTED_FOR: Duration = Duration::from_secs(1);
/// A route does not depend on it.
const ANY_PORT: u16 = 4791;
