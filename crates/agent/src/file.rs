//! The configuration file `userdma.toml`: devices by name.
//!
//! ```toml
//! [[device]]
//! name = "storage"              # as programs see it; `roce_` and the interface if absent
//! addresses = ["127.0.0.2"]     # or: interface = "eth0"
//! mtu = 1024                    # the largest path MTU, if less than the interface carries
//! wire = "rocev2"               # what there is
//! max_window = 131072           # bytes under way to one destination, at most
//! recv_buffer = 4194304         # bytes asked for packets that wait to be received
//! lids = true                   # LIDs, for programs that know no other address
//! ```
//!
//! It is not looked for in the current directory: programs change theirs, and one job's processes have several.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use toml::Spanned;
use userdma_verbs::Mtu;

use crate::spec::unique_name;
use crate::{DeviceInfo, DeviceSpec, Embedded};

/// Why a configuration file says nothing. No device of it is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file that was named could not be read.
    #[error("{path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{path}:{line}: {what}", path = .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The field, its value, and what would be right.
        what: String,
    },
}

/// The variable that names the file; empty for none.
pub const CONFIG_VARIABLE: &str = "USERDMA_CONFIG";

/// The file to be read: the one that [`CONFIG_VARIABLE`] names, whether it is there or not, else
/// `$XDG_CONFIG_HOME/userdma/userdma.toml` or `~/.config/userdma/userdma.toml` if that is there.
pub fn path() -> Option<PathBuf> {
    if let Some(named) = env::var_os(CONFIG_VARIABLE) {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty());
    }
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("userdma/userdma.toml")).filter(|path| path.exists())
}

/// Reads the devices of a file; `interfaces` has the devices without configuration.
pub(crate) fn read(path: &Path, interfaces: &[DeviceInfo]) -> Result<Vec<DeviceSpec>, FileError> {
    let text = text_of(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    parse(&text, interfaces).map_err(|Wrong { at, what }| {
        let before = text.get(..at).unwrap_or(&text);
        FileError::Line { path: path.to_owned(), line: 1 + before.matches('\n').count(), what }
    })
}

/// The text of a regular file, if it is short. Nothing else is a configuration: a pipe may never end, and neither does `/dev/zero`.
fn text_of(path: &Path) -> io::Result<String> {
    // A pipe that nobody writes to is not waited for.
    let file =
        fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // Bytes first: what is cut off at the end of the last one that is read is too long, and not wrong.
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        let what = format!("it is longer than {MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// What is wrong, and at which byte.
#[derive(Debug, Eq, PartialEq)]
struct Wrong {
    at: usize,
    what: String,
}

impl Wrong {
    fn at(span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { at: span.start, what: what.into() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Spanned<Device>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: Option<Spanned<String>>,
    addresses: Option<Spanned<Vec<Spanned<String>>>>,
    interface: Option<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    wire: Option<Spanned<String>>,
    max_window: Option<Spanned<i64>>,
    recv_buffer: Option<Spanned<i64>>,
    #[serde(default)]
    lids: bool,
}

fn parse(text: &str, interfaces: &[DeviceInfo]) -> Result<Vec<DeviceSpec>, Wrong> {
    let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    let mut names = HashSet::new();
    // The names that are given count before those that are made.
    for name in file.device.iter().filter_map(|device| device.get_ref().name.as_ref()) {
        check_name(name)?;
        if !names.insert(name.get_ref().clone()) {
            return Err(Wrong::at(
                &name.span(),
                format!("name = {:?}: another device has it", name.get_ref()),
            ));
        }
    }
    file.device.iter().map(|device| device.get_ref().spec(&device.span(), &mut names, interfaces)).collect()
}

/// What the parser of the language says, with the line that it says it of.
fn syntax(text: &str, error: &toml::de::Error) -> Wrong {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(at..).and_then(|rest| rest.lines().next()).unwrap_or("");
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let line = format!("{}{line}", text.get(start..at).unwrap_or(""));
    Wrong { at, what: format!("`{}`: {}", line.trim(), error.message().replace('\n', ", ")) }
}

/// Names stand in paths and in C arrays.
fn check_name(name: &Spanned<String>) -> Result<(), Wrong> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let text = name.get_ref();
    if (1..64).contains(&text.len()) && text.chars().all(is_plain) && !text.starts_with('.') {
        return Ok(());
    }
    let what =
        format!("name = {text:?}: 1 to 63 letters, digits, `_`, `-` and `.` are possible, not `.` first");
    Err(Wrong::at(&name.span(), what))
}

impl Device {
    fn spec(
        &self,
        span: &Range<usize>,
        names: &mut HashSet<String>,
        interfaces: &[DeviceInfo],
    ) -> Result<DeviceSpec, Wrong> {
        self.check_wire()?;
        let addresses = self.addresses(span, interfaces)?;
        Ok(DeviceSpec {
            name: match &self.name {
                Some(name) => name.get_ref().clone(),
                None => unique_name(names, &addresses),
            },
            addresses,
            mtu: self.mtu.as_ref().map(mtu).transpose()?,
            max_window: bytes("max_window", self.max_window.as_ref(), LEAST_WINDOW)?,
            recv_buffer: bytes("recv_buffer", self.recv_buffer.as_ref(), LEAST_BUFFER)?.map(|n| n as usize),
            lids: self.lids,
        })
    }

    fn check_wire(&self) -> Result<(), Wrong> {
        let Some(wire) = &self.wire else { return Ok(()) };
        let why = match wire.get_ref().as_str() {
            "rocev2" => return Ok(()),
            "rocev1" | "iwarp" | "ib" => "it is not there yet, \"rocev2\" is",
            _ => "there is no such wire, \"rocev2\" is possible",
        };
        Err(Wrong::at(&wire.span(), format!("wire = {:?}: {why}", wire.get_ref())))
    }

    fn addresses(&self, span: &Range<usize>, interfaces: &[DeviceInfo]) -> Result<Vec<IpAddr>, Wrong> {
        match (&self.addresses, &self.interface) {
            (Some(list), None) => given(list),
            (None, Some(name)) => of_interface(name, interfaces),
            (None, None) => Err(Wrong::at(span, "a device needs `addresses` or `interface`")),
            (Some(_), Some(name)) => Err(Wrong::at(
                &name.span(),
                format!(
                    "interface = {:?}: `addresses` says it already, one of the two is possible",
                    name.get_ref()
                ),
            )),
        }
    }
}

fn given(list: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<IpAddr>, Wrong> {
    let count = list.get_ref().len();
    if !(1..=Embedded::MAX_ADDRESSES).contains(&count) {
        let what = format!("addresses: there are {count}, 1 to {} are possible", Embedded::MAX_ADDRESSES);
        return Err(Wrong::at(&list.span(), what));
    }
    let parse = |text: &Spanned<String>| {
        let what = || format!("addresses: {:?} is not an IP address", text.get_ref());
        text.get_ref().parse().map_err(|_| Wrong::at(&text.span(), what()))
    };
    list.get_ref().iter().map(parse).collect()
}

fn of_interface(name: &Spanned<String>, interfaces: &[DeviceInfo]) -> Result<Vec<IpAddr>, Wrong> {
    let found = interfaces.iter().find(|info| info.interface == *name.get_ref());
    found.map(|info| info.addresses.clone()).ok_or_else(|| {
        let known = interfaces.iter().map(|info| &*info.interface).collect::<Vec<_>>().join(", ");
        let name_text = name.get_ref();
        Wrong::at(
            &name.span(),
            format!("interface = {name_text:?}: it is not up or has no address; there are {known}"),
        )
    })
}

fn mtu(value: &Spanned<i64>) -> Result<Mtu, Wrong> {
    Mtu::ALL.into_iter().find(|mtu| i64::from(mtu.bytes()) == *value.get_ref()).ok_or_else(|| {
        let what = format!("mtu = {}: 256, 512, 1024, 2048 and 4096 are possible", value.get_ref());
        Wrong::at(&value.span(), what)
    })
}

/// A number of bytes from `least` to 2^30.
fn bytes(field: &str, value: Option<&Spanned<i64>>, least: u32) -> Result<Option<u32>, Wrong> {
    let Some(value) = value else { return Ok(None) };
    let bytes = u32::try_from(*value.get_ref()).ok().filter(|bytes| (least..=1 << 30).contains(bytes));
    bytes.map(Some).ok_or_else(|| {
        let what = format!("{field} = {}: {least} to 1073741824 bytes are possible", value.get_ref());
        Wrong::at(&value.span(), what)
    })
}

/// Bytes of a configuration, at most.
const MAX_BYTES: u64 = 1 << 20;
/// The least window that a device works with: four packets of 4 KiB and a little.
const LEAST_WINDOW: u32 = 17 << 10;
/// The least buffer that holds a batch.
const LEAST_BUFFER: u32 = 64 << 10;

#[cfg(test)]
mod tests;
