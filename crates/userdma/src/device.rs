//! Devices.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use userdma_host::{DeviceInfo, FaultStats, Faults, Host, HostConfig, Stats};
use userdma_verbs::{AsyncEvent, DeviceAttr, Gid, PortAttr};

use crate::asynch::Watch;
use crate::connect::Connections;
use crate::{CompChannel, Cq, Error, Pd};

/// The devices of this machine: one for each interface that is up and has an address, loopback last.
///
/// # Errors
/// What the kernel says to the question for its interfaces.
///
/// ```
/// for device in userdma::devices()? {
///     println!("{}: {:?}, MTU {}", device.name, device.addresses, device.active_mtu.bytes());
/// }
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn devices() -> io::Result<Vec<DeviceInfo>> {
    userdma_host::devices()
}

/// An open device. Clones are the same device; it closes when the last clone and everything made from it are gone.
#[derive(Clone)]
pub struct Device {
    pub(crate) host: Host,
    pub(crate) connections: Arc<Connections>,
    /// Of its streams.
    pub(crate) watch: Arc<Watch>,
}

/// What is asked of a device before it is opened.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("userdma-doc-{}.pcapng", std::process::id()));
/// let device = userdma::Device::builder()
///     .address([127, 0, 21, 1])
///     .faults("loss=0.01,seed=7")
///     .capture(&path)
///     .open()?;
/// assert_eq!(device.name(), "roce_lo");
/// # Ok::<_, userdma::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeviceBuilder {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    private_port: Option<u16>,
    capture: Option<PathBuf>,
    faults: Option<String>,
    seed: Option<u64>,
    max_window: Option<u32>,
    recv_buffer: Option<usize>,
}

/// Its name and addresses.
impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.gids().map(Gid::ip).collect();
        write!(f, "Device({} {addresses:?})", self.name())
    }
}

impl Device {
    /// Opens a device by name (`"roce_eth0"`), by address (`"127.0.0.2"`) or by several addresses, separated by
    /// commas (`"10.0.0.1,2001:db8::1"`).
    ///
    /// # Errors
    /// [`Error::Open`] names the address if it is not this machine's, or its port taken by somebody who does not share it: another
    /// user, another program, or the kernel.
    ///
    /// ```
    /// let device = userdma::Device::open("127.0.21.2")?;
    /// // Devices of one user share an address, in one process or in many.
    /// let other = userdma::Device::open("127.0.21.2")?;
    /// assert_eq!(device.gids().next(), other.gids().next());
    /// # Ok::<_, userdma::Error>(())
    /// ```
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
    ///
    /// # Errors
    /// The device is not usable.
    pub fn attr(&self) -> Result<DeviceAttr, Error> {
        Ok(self.host.control(|shard, _| shard.device_attr())?)
    }

    /// Its port.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn port_attr(&self) -> Result<PortAttr, Error> {
        Ok(self.host.control(|shard, _| shard.port_attr())?)
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// There are too many, or the device is not usable.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Pd::alloc_on(self)
    }

    /// A completion queue of at least `cqe` entries that callers poll, or wait for alone. It needs a place for every receive and
    /// every signaled send that may be outstanding on its queue pairs, 256 for one with the usual sizes: a queue that
    /// overflows takes its connections with it.
    ///
    /// # Errors
    /// [`Error::CreateCq`] says which size is possible.
    pub fn create_cq(&self, cqe: u32) -> Result<Cq, Error> {
        let channel = self.create_comp_channel()?;
        Cq::create(self, cqe, &channel, true)
    }

    /// A completion queue of at least `cqe` entries that reports to `channel`.
    ///
    /// # Errors
    /// [`Error::CreateCq`] says which size is possible.
    pub fn create_cq_on(&self, cqe: u32, channel: &CompChannel) -> Result<Cq, Error> {
        if !channel.is_of(self) {
            return Err(Error::OtherDevice("completion channel"));
        }
        Cq::create(self, cqe, channel, false)
    }

    /// A completion channel, on which several completion queues can be waited for.
    ///
    /// # Errors
    /// The system gives no descriptor, or the device is not usable.
    pub fn create_comp_channel(&self) -> Result<CompChannel, Error> {
        CompChannel::create(self)
    }

    /// The oldest asynchronous event, if there is one.
    ///
    /// # Errors
    /// The process is a child of the device's.
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, Error> {
        Ok(self.host.poll_event()?)
    }

    /// Waits for an asynchronous event; `None` once `timeout` has passed (never, if `None`), or if another thread was
    /// faster or a signal handler ran.
    ///
    /// # Errors
    /// The process is a child of the device's.
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        Ok(self.host.wait_event(timeout)?)
    }

    /// What the device has counted. Names follow the kernel's `hw_counters`.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(self.host.stats()?)
    }

    /// What injected faults have done so far; zeros without any.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn fault_stats(&self) -> Result<FaultStats, Error> {
        Ok(self.host.fault_stats()?)
    }

    /// Writes every packet from now on to the pcapng file `path`.
    ///
    /// # Errors
    /// The file could not be made.
    pub fn start_capture(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.host.start_capture(path.as_ref())?)
    }

    /// Ends the capture and completes the file; whether there was one.
    ///
    /// # Errors
    /// The file is not complete.
    pub fn stop_capture(&self) -> Result<bool, Error> {
        Ok(self.host.stop_capture()?)
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

    /// A UDP port that this device has alone: only devices with the same port are reached.
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

    /// Bytes that may be under way to one destination, at most: 1 MiB if nothing is said, 17 KiB at least.
    #[must_use]
    pub fn max_window(mut self, bytes: u32) -> Self {
        self.max_window = Some(bytes);
        self
    }

    /// Bytes asked of the kernel for packets that wait to be received at each address: 4 MiB if nothing is said. An
    /// unprivileged process gets `net.core.rmem_max` at most.
    #[must_use]
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.recv_buffer = Some(bytes);
        self
    }

    /// Opens it.
    ///
    /// # Errors
    /// A name or a fault that is not understood, or an address that is taken or not this machine's, is named.
    pub fn open(self) -> Result<Device, Error> {
        let mut addresses = Vec::new();
        for name in self.names.iter().flat_map(|names| names.split(',')) {
            addresses.extend(resolve(name.trim())?);
        }
        addresses.extend(&self.addresses);
        let faults = self.faults.as_deref().unwrap_or("").parse::<Faults>();
        let config = HostConfig {
            addresses,
            private_port: self.private_port,
            faults: faults.map_err(|error| Error::Faults(error.to_string()))?,
            mtu: None,
            capture: self.capture,
            seed: self.seed,
            max_window: self.max_window,
            recv_buffer: self.recv_buffer,
            ..HostConfig::default()
        };
        Ok(Device { host: Host::open(&config)?, connections: Arc::default(), watch: Arc::default() })
    }
}

/// The addresses that a name stands for.
fn resolve(name: &str) -> Result<Vec<IpAddr>, Error> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    if name.parse::<SocketAddr>().is_ok() {
        return Err(Error::Port(name.to_owned()));
    }
    let device = devices()?.into_iter().find(|device| device.name == name);
    device.map(|device| device.addresses).ok_or_else(|| Error::Name(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use userdma_verbs::AccessFlags;

    use super::*;

    #[test]
    fn names_are_addresses_or_devices() {
        assert_eq!(resolve("127.0.0.2").unwrap(), [IpAddr::from([127, 0, 0, 2])]);
        assert!(resolve("roce_lo").unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
        let error = resolve("eth99").unwrap_err().to_string();
        assert_eq!(error, "`eth99` is neither a device, as `roce_eth0`, nor an IP address");
    }

    #[test]
    fn what_is_printed_of_devices_and_slices_is_short() {
        let device = Device::builder().address([127, 0, 21, 60]).address([127, 0, 21, 61]).open().unwrap();
        assert_eq!(format!("{device:?}"), "Device(roce_lo [127.0.21.60, 127.0.21.61])");
        let mr = device.alloc_pd().unwrap().alloc(64, AccessFlags::empty()).unwrap();
        let text = format!("MrSlice(8..16 of {:?})", mr.lkey());
        assert_eq!(format!("{:?}", mr.slice(8..16)), text);
    }

    #[test]
    fn a_fault_that_is_not_understood_is_named() {
        let error = Device::builder().address([127, 0, 21, 9]).faults("loss=2").open().unwrap_err();
        assert_eq!(error.to_string(), "faults: loss=2: a probability from 0 to 1 is wanted");
    }
}
