//! `userdma devices`: what there is to open, and what could be set up better.

mod advice;
mod port;

use std::io::Write;
use std::net::IpAddr;

use serde::Serialize;
use userdma::{DeviceInfo, Gid};
use userdma_agent::DeviceSpec;
use userdma_wire::ROCE_V2_PORT;

use crate::args::DevicesArgs;
use crate::failure::Failure;

use advice::{Advice, Probe};
pub use port::{Holder, holders};

/// Lists the devices to `out` that programs of `userdma run` find: the configured ones, or those of this machine.
///
/// # Errors
/// The configuration is wrong, the kernel does not list its interfaces, or `out` is not written.
pub fn run(args: &DevicesArgs, out: &mut impl Write) -> Result<(), Failure> {
    let specs = userdma_agent::configured().map_err(|error| Failure::new(error.to_string()))?;
    let report = Report {
        devices: specs.iter().map(Device::of).collect::<Result<_, _>>()?,
        holders: holders(ROCE_V2_PORT),
        advice: advice::all(&advice::Settings::read(), &holders(ROCE_V2_PORT)),
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)
            .map_err(|error| Failure::from(std::io::Error::from(error)))?;
        writeln!(out)?;
        return Ok(());
    }
    report.write(out)?;
    Ok(())
}

#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    /// Who has sockets on the port of RoCE v2.
    #[serde(rename = "port_4791")]
    holders: Vec<Holder>,
    advice: Vec<Advice>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    interface: String,
    state: &'static str,
    loopback: bool,
    link_mtu: u32,
    active_path_mtu: u32,
    gids: Vec<GidEntry>,
    #[serde(flatten)]
    probe: Probe,
}

#[derive(Serialize)]
struct GidEntry {
    index: usize,
    gid: String,
    address: IpAddr,
}

impl Device {
    /// What a configured device is on this machine, if it can be one.
    fn of(spec: &DeviceSpec) -> Result<Self, Failure> {
        let info = spec.info().map_err(|error| Failure::new(format!("list of interfaces: {error}")))?;
        Ok(info.as_ref().map_or_else(|| Self::impossible(spec), Self::new))
    }

    fn impossible(spec: &DeviceSpec) -> Self {
        Self {
            name: spec.name.clone(),
            interface: "none".to_owned(),
            state: "DOWN (its first address is not one of this machine, or on an interface too narrow)",
            loopback: false,
            link_mtu: 0,
            active_path_mtu: 0,
            gids: gids(&spec.addresses),
            probe: Probe::of(spec.addresses.first().copied()),
        }
    }

    fn new(info: &DeviceInfo) -> Self {
        Self {
            name: info.name.clone(),
            interface: info.interface.clone(),
            state: state(&info.interface),
            loopback: info.loopback,
            link_mtu: info.link_mtu,
            active_path_mtu: info.active_mtu.bytes(),
            gids: gids(&info.addresses),
            probe: Probe::of(info.addresses.first().copied()),
        }
    }
}

fn gids(addresses: &[IpAddr]) -> Vec<GidEntry> {
    let entry = |(index, address): (usize, &IpAddr)| GidEntry {
        index,
        gid: Gid::from(*address).to_string(),
        address: *address,
    };
    addresses.iter().enumerate().map(entry).collect()
}

/// Devices exist for interfaces that are up; one without a cable is none the less down.
fn state(interface: &str) -> &'static str {
    let operational = std::fs::read_to_string(format!("/sys/class/net/{interface}/operstate"));
    match operational.as_deref().map(str::trim) {
        Ok("down" | "lowerlayerdown" | "dormant" | "notpresent") => "DOWN (no carrier)",
        _ => "ACTIVE",
    }
}

impl Report {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        if self.devices.is_empty() {
            writeln!(out, "no devices: no interface is up and has an address that is not link-local")?;
        }
        for device in &self.devices {
            let kind = if device.loopback { "  (leads back to this machine)" } else { "" };
            writeln!(out, "{}{kind}", device.name)?;
            writeln!(out, "    interface     {}", device.interface)?;
            writeln!(out, "    state         {}", device.state)?;
            let (link, path) = (device.link_mtu, device.active_path_mtu);
            writeln!(out, "    MTU           {link} bytes on the link → path MTU {path}")?;
            for entry in &device.gids {
                let title = if entry.index == 0 { "GID" } else { "" };
                writeln!(out, "    {title:<13} [{}] {}", entry.index, entry.gid)?;
            }
            writeln!(out, "    kernel        {}", device.probe)?;
            writeln!(out)?;
        }
        if self.devices.iter().any(|device| device.loopback) {
            writeln!(
                out,
                "All of 127.0.0.0/8 is this machine: 127.0.0.2 and 127.0.0.3 can be opened as two hosts.\n"
            )?;
        }
        for holder in &self.holders {
            writeln!(out, "UDP port {ROCE_V2_PORT} of {holder}")?;
        }
        if !self.holders.is_empty() {
            writeln!(out)?;
        }
        if self.devices.is_empty() {
            return writeln!(out, "To get one: ip link set lo up");
        }
        if self.advice.is_empty() {
            return writeln!(out, "Nothing to improve.");
        }
        for advice in &self.advice {
            writeln!(out, "advice: {}", advice.what)?;
            if let Some(command) = &advice.command {
                writeln!(out, "        {command}")?;
            }
        }
        Ok(())
    }
}
