//! What identifiers need to know of the machine, and ask of it while a call runs.

use std::net::{IpAddr, SocketAddr};

use userdma_verbs::Mtu;

use crate::cm::PortId;
use crate::rdma::{CmError, PortSpace};

/// A device as connections see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    /// The upper ten bits of the local communication ids that belong to it; 0 if it shares its addresses with nobody.
    pub slot: u16,
    /// Its GUID.
    pub guid: u64,
    /// Its addresses, in the order of its GIDs.
    pub addresses: Vec<IpAddr>,
    /// What its port carries.
    pub mtu: Mtu,
}

/// A port of an address that connections come to or from: what the kernel's `cma.c cma_get_port()` looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortRequest {
    /// Each port space has ports of its own.
    pub space: PortSpace,
    /// The port; 0 for one of 32768 ..= 60999 that nobody has.
    pub port: u16,
    /// One of the device's addresses, or an unspecified one, which stands for all of its family; `::` also for those of
    /// IPv4, unless `af_only`.
    pub address: IpAddr,
    /// Others that want this, too, may have the port as long as none of them listens.
    pub reuse_address: bool,
    /// `::` stands for addresses of IPv6 only.
    pub af_only: bool,
}

/// A port that is reserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reservation {
    /// By which the device names it.
    pub id: u32,
    /// The port.
    pub port: u16,
}

/// The machine: its devices and routes, and the ports of its addresses, which all processes share.
pub trait System {
    /// The process's devices and their addresses, whether open or not.
    fn devices(&self) -> &[(PortId, Vec<IpAddr>)];

    /// Opens a device, or tells of one that is open.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&mut self, port: PortId) -> Result<Device, CmError>;

    /// The addresses from which the machine would send to `to`, the best first.
    ///
    /// # Errors
    /// There is no way.
    fn sources(&self, to: SocketAddr) -> Result<Vec<IpAddr>, CmError>;

    /// Reserves a port of an open device.
    ///
    /// # Errors
    /// [`CmError::PortTaken`] or [`CmError::NoPort`], as the kernel distinguishes them.
    fn reserve(&mut self, port: PortId, request: &PortRequest) -> Result<Reservation, CmError>;

    /// A reserved port, which may be shared, is to be listened on: then nobody else may have it.
    ///
    /// # Errors
    /// Somebody has it.
    fn begin_listening(&mut self, port: PortId, reservation: u32) -> Result<(), CmError>;

    /// Gives a port back.
    fn release(&mut self, port: PortId, reservation: u32);

    /// Requests for a service that come to the device, or to one of its addresses, are not wanted any more. Once for each time that
    /// the machine agreed to what [`Ids::listen`] wants.
    ///
    /// [`Ids::listen`]: crate::rdma::Ids::listen
    fn unlisten(&mut self, port: PortId, service_id: u64, on: Option<IpAddr>);
}
