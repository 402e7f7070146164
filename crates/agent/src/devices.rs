//! Devices without configuration: one for each interface that is up and has an address.

use std::io;
use std::net::IpAddr;

use userdma_verbs::Mtu;

/// A device that can be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceInfo {
    /// Its name: `roce_` and the interface's.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Its addresses, one GID each: IPv4 first; never link-local.
    pub addresses: Vec<IpAddr>,
    /// The largest path MTU that the interface carries.
    pub active_mtu: Mtu,
    /// The interface's MTU in bytes.
    pub link_mtu: u32,
    /// Whether it leads back to this machine only.
    pub loopback: bool,
}

/// The devices of this machine: real interfaces in the kernel's order, loopback last.
pub fn devices() -> io::Result<Vec<DeviceInfo>> {
    todo!()
}
