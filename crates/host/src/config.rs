//! How a device is opened.

use std::net::IpAddr;
use std::path::PathBuf;

use userdma_link::Faults;
use userdma_verbs::Mtu;

/// How a device is opened: its addresses and what is different from the usual.
#[derive(Clone, Debug, Default)]
pub struct HostConfig {
    /// Our addresses, one GID each, index 0 first: IPv4, IPv6 or both. At least one.
    pub addresses: Vec<IpAddr>,
    /// A UDP port that is not shared, usually other than 4791: then only devices configured alike can be reached.
    pub private_port: Option<u16>,
    /// A UDP port that is shared with others of the same user in place of 4791: then only devices configured alike can be
    /// reached. [`private_port`](crate::private_port) is one that each user has.
    pub shared_port: Option<u16>,
    /// As `shared_port`, but only if somebody else has the port that it would be otherwise: [`Host::fell_back`](crate::Host::fell_back).
    pub fallback_port: Option<u16>,
    /// What a bad network does to the packets we receive; nothing by default.
    pub faults: Faults,
    /// The largest path MTU that the port offers, if less than the interface carries.
    pub mtu: Option<Mtu>,
    /// A capture file to write from the start.
    pub capture: Option<PathBuf>,
    /// Seed of everything random in the device; the system's randomness if `None`.
    pub seed: Option<u64>,
    /// Bytes that may be under way to one destination, if not the usual.
    pub max_window: Option<u32>,
    /// Bytes asked for packets that wait to be received at each address, if not the usual.
    pub recv_buffer: Option<usize>,
}
