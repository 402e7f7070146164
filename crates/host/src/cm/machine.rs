//! The machine as identifiers see it: the process's devices, and routes as the kernel knows them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use userdma_mgmt::cm::{NumberChange, Outgoing, PortId};
use userdma_mgmt::rdma::{CmError, Device, PortRequest, Reservation, System, WillChange};
use userdma_verbs::Time;

use super::errand::{Errand, Errands, Handle};
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
    open: HashMap<PortId, Handle>,
    closed: Vec<Handle>,
    /// Of the call that runs.
    pub(super) errands: Errands,
}

impl Machine {
    pub(super) fn new(devices: Arc<dyn Devices>, inbox: &Arc<Inbox>) -> Self {
        let inbox = Arc::clone(inbox);
        Self {
            devices,
            inbox,
            list: Vec::new(),
            guids: Vec::new(),
            listed_at: None,
            open: HashMap::new(),
            closed: Vec::new(),
            errands: Errands::default(),
        }
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

    /// Devices that do not work any more.
    pub(super) fn failed(&self) -> Vec<PortId> {
        let has_failed = |host: &Handle| (**host).as_ref().check().is_err();
        self.open.iter().filter(|(_, host)| has_failed(host)).map(|(&port, _)| port).collect()
    }

    /// Tells what is to be sent if the process dies.
    pub(super) fn set_will(&self, change: &WillChange) {
        let Some(host) = self.open.get(&change.port) else { return };
        let will = change.will.as_ref().map(|will| Will { from: will.from, to: will.to, mad: will.mad });
        (**host).as_ref().set_will(change.conn.0, will.as_ref());
    }

    /// Keeps a queue pair's number from being given again, or lets it go.
    pub(super) fn guard_number(&self, change: NumberChange) {
        let Some(host) = self.open.get(&change.port) else { return };
        let NumberChange { qpn, is_guarded, .. } = change;
        // A device that does not work gives no numbers.
        let _ = (**host).as_ref().control(move |shard, _| shard.guard_qpn(qpn, is_guarded));
    }

    /// Has the agent tell a peer again that a connection has ended.
    pub(super) fn open_will(&self, ended: &WillChange) {
        if let (Some(host), Some(will)) = (self.open.get(&ended.port), &ended.will) {
            let will = Will { from: will.from, to: will.to, mad: will.mad };
            (**host).as_ref().open_will(ended.conn.0, &will);
        }
    }

    /// Lets go of a device. It may be its last user, and take a while to end: it does when [`Machine::take_closed`] is dropped.
    pub(super) fn close(&mut self, port: PortId) {
        if let Some(handle) = self.open.remove(&port) {
            (*handle).as_ref().clear_management_sink();
            self.closed.push(handle);
        }
    }

    /// Devices that were let go, to be dropped without the lock.
    pub(super) fn take_closed(&mut self) -> Vec<Handle> {
        std::mem::take(&mut self.closed)
    }

    /// A device that is open, and stays so as long as somebody has this.
    pub(super) fn handle(&self, port: PortId) -> Result<Handle, CmError> {
        self.open.get(&port).cloned().ok_or(open_error(port, libc::ENODEV))
    }

    fn opened(&self, port: PortId) -> Result<&Host, CmError> {
        self.open.get(&port).map(|host| (**host).as_ref()).ok_or(open_error(port, libc::ENODEV))
    }
}

impl System for Machine {
    fn devices(&self) -> &[(PortId, Vec<IpAddr>)] {
        &self.list
    }

    fn open(&mut self, port: PortId) -> Result<Device, CmError> {
        let Some(opened) = self.errands.opened(port) else {
            let devices = Arc::clone(&self.devices);
            return Err(self.errands.want(Errand::Open { port, devices }));
        };
        let handle = opened?;
        let host = (*handle).as_ref();
        let inbox = Arc::downgrade(&self.inbox);
        let sink = move |management| inbox.upgrade().is_some_and(|inbox| inbox.put(port, management));
        // The agent was told when it was opened: nothing waits.
        host.set_management_sink(sink).map_err(|_| open_error(port, libc::ENODEV))?;
        let attr = host.control(|shard, _| shard.port_attr()).map_err(|_| open_error(port, libc::ENODEV))?;
        let device = Device {
            slot: host.slot(),
            guid: u64::from_be_bytes(self.guids.get(port.0 as usize).copied().unwrap_or_default()),
            addresses: host.gids().iter().map(|gid| gid.local).collect(),
            mtu: attr.active_mtu,
        };
        self.open.insert(port, handle);
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
        if let Some(reserved) = self.errands.reserved(port, request) {
            return reserved;
        }
        let host = self.handle(port)?;
        Err(self.errands.want(Errand::Reserve { port, host, request: *request }))
    }

    fn begin_listening(&mut self, port: PortId, reservation: u32) -> Result<(), CmError> {
        if let Some(asked) = self.errands.listening(port, reservation) {
            return asked;
        }
        let host = self.handle(port)?;
        Err(self.errands.want(Errand::BeginListening { port, host, reservation }))
    }

    fn release(&mut self, port: PortId, reservation: u32) {
        if self.errands.take_back(port, reservation) {
            return;
        }
        if let Ok(host) = self.opened(port) {
            host.release_port(reservation);
        }
    }

    fn unlisten(&mut self, port: PortId, service_id: u64, on: Option<IpAddr>) {
        if let Ok(host) = self.opened(port) {
            host.unlisten(service_id, u64::MAX, on);
        }
    }
}

/// The address from which the kernel would send to `to`. Nothing is sent. By system calls: a library in front of the C library's
/// (librspreload) would make something else of the socket, and ask us for it.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut to = to;
    to.set_port(ANY_PORT);
    net::connect(&socket, &to)?;
    let local = SocketAddr::try_from(net::getsockname(&socket)?)?;
    Ok(local.ip())
}

/// Why a device is of no use.
pub(super) fn open_error(port: PortId, errno: i32) -> CmError {
    CmError::Open { device: port.0 as usize, errno }
}

/// What the agent says.
pub(super) fn refused(port: u16, error: &io::Error) -> CmError {
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
