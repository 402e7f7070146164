//! Devices without configuration: one for each interface that is up and has an address.

use std::io;
use std::net::IpAddr;

use userdma_link::Interface;
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

/// The devices of this machine: real interfaces in the kernel's order, loopback last. Interfaces without a routable
/// address, and those too narrow for the smallest packets, have none.
///
/// # Errors
/// What the kernel says to the question for its interfaces.
pub fn devices() -> io::Result<Vec<DeviceInfo>> {
    Ok(list(&userdma_link::interfaces()?))
}

/// The name of the device on `interface`.
pub(crate) fn device_name(interface: &str) -> String {
    format!("roce_{interface}")
}

fn list(interfaces: &[Interface]) -> Vec<DeviceInfo> {
    let (loopback, real): (Vec<_>, Vec<_>) = interfaces.iter().partition(|i| i.loopback);
    real.into_iter().chain(loopback).filter_map(device).collect()
}

fn device(interface: &Interface) -> Option<DeviceInfo> {
    let addresses = || interface.addrs.iter().map(|a| a.ip).filter(|ip| is_routable(*ip));
    let v4 = addresses().filter(IpAddr::is_ipv4);
    let v6 = addresses().filter(IpAddr::is_ipv6);
    let addresses: Vec<_> = v4.chain(v6).collect();
    if addresses.is_empty() { None } else { interface_info(interface, addresses) }
}

/// The device with these addresses on `interface`; `None` if that is too narrow for the smallest packets.
pub(crate) fn interface_info(interface: &Interface, addresses: Vec<IpAddr>) -> Option<DeviceInfo> {
    Some(DeviceInfo {
        name: device_name(&interface.name),
        interface: interface.name.clone(),
        addresses,
        active_mtu: Mtu::for_link(interface.mtu)?,
        link_mtu: interface.mtu,
        loopback: interface.loopback,
    })
}

/// Whether packets from an address can go anywhere. A link-local address cannot without its interface, which a GID does not
/// name.
fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use userdma_link::InterfaceAddr;

    use super::*;

    fn interface(name: &str, mtu: u32, addrs: &[&str]) -> Interface {
        let addr = |ip: &&str| InterfaceAddr { ip: ip.parse().unwrap(), prefix_len: 24, scope_id: 0 };
        Interface {
            name: name.to_owned(),
            index: 1,
            mtu,
            loopback: name == "lo",
            addrs: addrs.iter().map(addr).collect(),
        }
    }

    #[test]
    fn real_interfaces_come_first_and_ipv4_leads() {
        let lo = interface("lo", 65_536, &["127.0.0.1", "::1"]);
        let eth = interface("eth0", 1500, &["fe80::1", "2001:db8::1", "10.0.0.1"]);
        let devices = list(&[lo, eth]);
        let names: Vec<_> = devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["roce_eth0", "roce_lo"]);
        let wanted: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(devices[0].addresses, wanted);
        assert_eq!((devices[0].active_mtu, devices[1].active_mtu), (Mtu::Mtu1024, Mtu::Mtu4096));
    }

    #[test]
    fn an_interface_with_link_local_addresses_only_is_no_device() {
        assert_eq!(list(&[interface("eth1", 1500, &["fe80::2", "169.254.3.4"])]), []);
        assert_eq!(list(&[interface("thin", 300, &["10.0.0.2"])]), []);
    }

    #[test]
    fn this_machine_has_its_loopback_last() {
        let devices = devices().unwrap();
        let last = devices.last().expect("a machine has loopback");
        assert_eq!((last.name.as_str(), last.addresses[0]), ("roce_lo", IpAddr::from([127, 0, 0, 1])));
    }
}
