//! Devices.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use userdma_host::{DeviceInfo, Host, Stats};
use userdma_verbs::{AsyncEvent, DeviceAttr, Gid, PortAttr};

use crate::{CompChannel, Cq, Error, Pd};

/// The devices of this machine: one for each interface that is up and has an address, loopback last.
pub fn devices() -> io::Result<Vec<DeviceInfo>> {
    userdma_host::devices()
}

/// An open device. Clones are the same device; it closes when the last clone and everything made from it are gone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) host: Host,
}

/// What is asked of a device before it is opened.
#[derive(Clone, Debug, Default)]
pub struct DeviceBuilder {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    private_port: Option<u16>,
    capture: Option<PathBuf>,
    faults: Option<String>,
    seed: Option<u64>,
    max_window: Option<u32>,
}

impl Device {
    /// Opens a device by name (`"roce_eth0"`), by address (`"127.0.0.2"`) or by several addresses, separated by
    /// commas (`"10.0.0.1,2001:db8::1"`).
    ///
    /// # Errors
    /// [`Error::Open`] names the address if it is not ours, or taken by another process.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::builder().name(name).open()
    }

    /// A device to be opened with more than a name.
    pub fn builder() -> DeviceBuilder {
        DeviceBuilder::default()
    }

    /// Its name, as `roce_lo`.
    pub fn name(&self) -> &str {
        self.host.name()
    }

    /// The GID table; the index is `sgid_index`.
    pub fn gids(&self) -> impl Iterator<Item = Gid> + '_ {
        self.host.gids().iter().map(|e| e.gid)
    }

    /// Its limits.
    pub fn attr(&self) -> Result<DeviceAttr, Error> {
        todo!()
    }

    /// Its port.
    pub fn port_attr(&self) -> Result<PortAttr, Error> {
        todo!()
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        todo!()
    }

    /// A completion queue of at least `cqe` entries that callers poll, or wait for alone.
    pub fn create_cq(&self, cqe: u32) -> Result<Cq, Error> {
        let _ = cqe;
        todo!()
    }

    /// A completion queue of at least `cqe` entries that reports to `channel`.
    pub fn create_cq_on(&self, cqe: u32, channel: &CompChannel) -> Result<Cq, Error> {
        let _ = (cqe, channel);
        todo!()
    }

    /// A completion channel, on which several completion queues can be waited for.
    pub fn create_comp_channel(&self) -> Result<CompChannel, Error> {
        todo!()
    }

    /// The oldest asynchronous event, if there is one.
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, Error> {
        todo!()
    }

    /// Waits for an asynchronous event; `None` once `timeout` has passed (never, if `None`).
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        let _ = timeout;
        todo!()
    }

    /// What the device has counted. Names follow the kernel's `hw_counters`.
    pub fn stats(&self) -> Result<Stats, Error> {
        todo!()
    }

    /// Writes every packet from now on to the pcapng file `path`.
    pub fn start_capture(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let _ = path.as_ref();
        todo!()
    }

    /// Ends the capture and completes the file; whether there was one.
    pub fn stop_capture(&self) -> Result<bool, Error> {
        todo!()
    }
}

impl DeviceBuilder {
    /// By name or address, as [`Device::open`].
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }

    /// One more address: IPv4 or IPv6, a GID each, in this order.
    #[must_use]
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// A UDP port other than 4791: only devices with the same port are reached.
    #[must_use]
    pub fn private_port(mut self, port: u16) -> Self {
        self.private_port = Some(port);
        self
    }

    /// Writes every packet to this pcapng file.
    #[must_use]
    pub fn capture(mut self, path: impl Into<PathBuf>) -> Self {
        self.capture = Some(path.into());
        self
    }

    /// What a bad network does to received packets, as `"loss=0.01,dup=0.001,reorder=0.01,delay=1ms,seed=7"`.
    #[must_use]
    pub fn faults(mut self, faults: &str) -> Self {
        self.faults = Some(faults.to_owned());
        self
    }

    /// Seed of everything random in the device.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Bytes that may be under way to one destination, at most.
    #[must_use]
    pub fn max_window(mut self, bytes: u32) -> Self {
        self.max_window = Some(bytes);
        self
    }

    /// Opens it.
    pub fn open(self) -> Result<Device, Error> {
        todo!()
    }
}
