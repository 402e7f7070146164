//! Which devices a process has: those that `USERDMA_DEVICES` names, else those of the configuration file, else one for each
//! interface.

use std::collections::HashSet;
use std::env;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use userdma_verbs::Mtu;

use crate::DeviceInfo;
use crate::devices::{device_name, devices, interface_info};
use crate::file::{self, FileError};

/// A device as it is to be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceSpec {
    /// Its name, of its own among those of one list.
    pub name: String,
    /// Its addresses, index 0 of the GID table first; at least one.
    pub addresses: Vec<IpAddr>,
    /// The largest path MTU that its port offers, if less than its interface carries.
    pub mtu: Option<Mtu>,
    /// Bytes that may be under way to one destination, if not the usual.
    pub max_window: Option<u32>,
    /// Bytes asked for packets that wait to be received at each address, if not the usual.
    pub recv_buffer: Option<usize>,
    /// Whether verbs programs may address peers by LIDs, which are the lower halves of IPv4 addresses.
    pub lids: bool,
}

/// Why the devices of this process are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevicesError {
    /// The kernel did not list its interfaces.
    #[error("list of interfaces: {0}")]
    Interfaces(#[from] io::Error),
    /// The value of the variable is wrong.
    #[error("{DEVICES_VARIABLE}={value}: {error}")]
    Variable {
        /// Its value.
        value: String,
        /// What is wrong with it.
        error: Box<DevicesError>,
    },
    /// A word names nothing.
    #[error("`{word}` is neither an IP address nor a device; the devices here are {known}")]
    Word {
        /// The word.
        word: String,
        /// The names that would be understood.
        known: String,
    },
    /// Between commas, where an address is wanted, there is nothing.
    #[error("`{0}` has a comma without an address beside it")]
    Missing(String),
    /// There are at most separators.
    #[error("`{0}` names no device")]
    NoDevice(String),
    /// The configuration file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The variable that names devices.
pub const DEVICES_VARIABLE: &str = "USERDMA_DEVICES";

/// The devices of this process, in the order of their list. The variable counts before the file, and the file before the
/// interfaces; an empty variable is none.
///
/// # Errors
/// What is not understood is named, with the file and the line if it stands in one.
pub fn configured() -> Result<Vec<DeviceSpec>, DevicesError> {
    let wanted = env::var_os(DEVICES_VARIABLE).map(|text| text.to_string_lossy().into_owned());
    match wanted.filter(|text| !text.trim().is_empty()) {
        Some(text) => parse_devices(&text).map_err(|error| of_variable(text, error)),
        None => choose(file::path()),
    }
}

/// What is wrong with a value names the variable that has it.
fn of_variable(value: String, error: DevicesError) -> DevicesError {
    match error {
        DevicesError::Word { .. } | DevicesError::Missing(_) | DevicesError::NoDevice(_) => {
            DevicesError::Variable { value, error: Box::new(error) }
        }
        DevicesError::Interfaces(_) | DevicesError::File(_) | DevicesError::Variable { .. } => error,
    }
}

/// Devices as `127.0.0.2;10.0.0.1,2001:db8::1;storage`: devices end at semicolons, their addresses at commas. The name of a device
/// of the configuration file stands for that device, the name of an interface's for the addresses of that.
///
/// # Errors
/// A word that is neither an address nor a name, or none at all.
pub fn parse_devices(text: &str) -> Result<Vec<DeviceSpec>, DevicesError> {
    let has_names = text.split([',', ';']).map(str::trim).any(|word| !word.is_empty() && !is_address(word));
    // Files and interfaces that nobody asks for have no errors.
    let (named, interfaces) =
        if has_names { (from_file(file::path())?, devices()?) } else { Default::default() };
    parse(text, &named, &interfaces)
}

fn choose(file: Option<PathBuf>) -> Result<Vec<DeviceSpec>, DevicesError> {
    match file {
        Some(path) => Ok(file::read(&path, &devices()?)?),
        None => Ok(devices()?.into_iter().map(DeviceSpec::of).collect()),
    }
}

fn from_file(file: Option<PathBuf>) -> Result<Vec<DeviceSpec>, DevicesError> {
    file.map_or(Ok(Vec::new()), |path| Ok(file::read(&path, &devices()?)?))
}

fn parse(
    text: &str,
    named: &[DeviceSpec],
    interfaces: &[DeviceInfo],
) -> Result<Vec<DeviceSpec>, DevicesError> {
    let texts: Vec<_> = text.split(';').map(str::trim).filter(|device| !device.is_empty()).collect();
    let mut names: HashSet<String> = HashSet::new();
    let mut specs = Vec::new();
    for device in texts {
        if let Some(spec) = named.iter().find(|spec| spec.name == device) {
            if names.insert(spec.name.clone()) {
                specs.push(spec.clone());
            }
            continue;
        }
        if device.split(',').any(|word| word.trim().is_empty()) {
            return Err(DevicesError::Missing(device.to_owned()));
        }
        let addresses = device.split(',').map(|word| addresses(word.trim(), named, interfaces));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?.concat();
        specs.push(DeviceSpec::new(unique_name(&mut names, &addresses), addresses));
    }
    // A variable of a script that is not set, say: not to be taken for every device, nor for none.
    if specs.is_empty() {
        return Err(DevicesError::NoDevice(text.to_owned()));
    }
    Ok(specs)
}

/// The addresses that a word stands for.
fn addresses(
    word: &str,
    named: &[DeviceSpec],
    interfaces: &[DeviceInfo],
) -> Result<Vec<IpAddr>, DevicesError> {
    if let Ok(address) = word.parse::<IpAddr>() {
        // A GID is an address as well.
        return Ok(vec![address.to_canonical()]);
    }
    if let Some(spec) = named.iter().find(|spec| spec.name == word) {
        return Ok(spec.addresses.clone());
    }
    if let Some(info) = interfaces.iter().find(|info| info.name == word) {
        return Ok(info.addresses.clone());
    }
    let names = named.iter().map(|spec| &*spec.name).chain(interfaces.iter().map(|info| &*info.name));
    let known = names.collect::<Vec<_>>().join(", ");
    Err(DevicesError::Word { word: word.to_owned(), known })
}

fn is_address(word: &str) -> bool {
    word.parse::<IpAddr>().is_ok()
}

/// `roce_` and the interface, with a number if another device is on the same.
pub(crate) fn unique_name(taken: &mut HashSet<String>, addresses: &[IpAddr]) -> String {
    let interface = addresses.first().and_then(|&ip| userdma_link::interface_of(ip, 0).ok().flatten());
    let base = device_name(interface.as_ref().map_or("unknown", |interface| &interface.name));
    let numbered = (1..).map(|n| format!("{base}_{n}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    name
}

impl DeviceSpec {
    /// A device with the usual limits.
    pub fn new(name: String, addresses: Vec<IpAddr>) -> Self {
        Self { name, addresses, mtu: None, max_window: None, recv_buffer: None, lids: false }
    }

    /// An interface's device, as it is without configuration.
    pub fn of(info: DeviceInfo) -> Self {
        Self::new(info.name, info.addresses)
    }

    /// What it looks like on this machine; `None` if its first address is not one of this machine's.
    ///
    /// # Errors
    /// What the kernel says to the question for its interfaces.
    pub fn info(&self) -> io::Result<Option<DeviceInfo>> {
        let Some(&first) = self.addresses.first() else { return Ok(None) };
        let Some(interface) = userdma_link::interface_of(first, 0)? else { return Ok(None) };
        Ok(interface_info(&interface, self.addresses.clone()).map(|info| DeviceInfo {
            name: self.name.clone(),
            active_mtu: self.mtu.map_or(info.active_mtu, |mtu| mtu.min(info.active_mtu)),
            ..info
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn semicolons_part_devices_and_commas_their_addresses() {
        let devices = parse_devices("127.0.0.2; 127.0.0.3,::1;").unwrap();
        assert_eq!(devices.iter().map(|d| d.addresses.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["roce_lo", "roce_lo_1"]);
    }

    #[test]
    fn names_stand_for_devices_and_what_is_none_is_named() {
        let storage = DeviceSpec {
            mtu: Some(Mtu::Mtu512),
            ..DeviceSpec::new("storage".to_owned(), vec![ip("127.0.79.9"), ip("::1")])
        };
        let lo = devices().unwrap();
        let named = parse("storage;roce_lo;127.0.79.8,storage", std::slice::from_ref(&storage), &lo).unwrap();
        assert_eq!(named[0], storage);
        assert_eq!(named[1].addresses[0], ip("127.0.0.1"));
        assert_eq!(named[2].addresses, ["127.0.79.8", "127.0.79.9", "::1"].map(ip));
        let error = parse("127.0.0.2;eth9", &[storage], &lo).unwrap_err().to_string();
        assert!(
            error.starts_with("`eth9` is neither an IP address nor a device; the devices here are storage, ")
        );
        assert!(error.ends_with("roce_lo"), "{error}");
    }

    #[test]
    fn a_place_without_an_address_is_named_and_a_gid_is_an_address() {
        for text in [",", "127.0.79.1,", "::1; 127.0.79.1,,127.0.79.2"] {
            let error = parse_devices(text).unwrap_err().to_string();
            let device = text.rsplit(';').next().unwrap().trim();
            assert_eq!(error, format!("`{device}` has a comma without an address beside it"));
        }
        let devices = parse_devices("::ffff:127.0.79.1").unwrap();
        assert_eq!(
            (devices[0].name.as_str(), &devices[0].addresses[..]),
            ("roce_lo", &[ip("127.0.79.1")][..])
        );
    }

    #[test]
    fn separators_name_no_device() {
        for text in ["", ";", ";;;", " ; ; "] {
            let error = parse_devices(text).unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}` names no device"));
            let wanted = format!("USERDMA_DEVICES={text}: `{text}` names no device");
            assert_eq!(of_variable(text.to_owned(), error).to_string(), wanted);
        }
    }

    #[test]
    fn a_device_is_described_by_its_interface_and_its_own_limit() {
        let mut spec = DeviceSpec::new("a".to_owned(), vec![ip("127.0.79.1")]);
        assert_eq!(spec.info().unwrap().unwrap().active_mtu, Mtu::Mtu4096);
        spec.mtu = Some(Mtu::Mtu1024);
        let info = spec.info().unwrap().unwrap();
        assert_eq!((info.name.as_str(), info.interface.as_str(), info.active_mtu), ("a", "lo", Mtu::Mtu1024));
        spec.addresses = vec![ip("192.0.2.7")];
        assert_eq!(spec.info().unwrap(), None);
    }
}
