//! What a configuration comes to: sockets, and the device on them.

use std::hash::{BuildHasher, Hasher, RandomState};

use userdma_agent::{ClaimConfig, ClaimError, Claimed, Embedded};
use userdma_link::{UdpConfig, UdpLink};
use userdma_nic::{GidEntry, ShardConfig};
use userdma_verbs::{Gid, Mtu};

use crate::HostConfig;

/// Claims the addresses: a slot of a port, which leaves room for others, or a private port alone.
pub(super) fn claim(config: &HostConfig) -> Result<Claimed, ClaimError> {
    let usual = UdpConfig::default();
    let udp = UdpConfig {
        port: config.private_port.or(config.shared_port).unwrap_or(usual.port),
        recv_buffer: config.recv_buffer.unwrap_or(usual.recv_buffer),
        mtu: config.mtu.map(Mtu::link_bytes),
        ..usual
    };
    let claim = ClaimConfig { addresses: config.addresses.clone(), udp, fallback_port: config.fallback_port };
    if config.private_port.is_some() { Embedded::claim(&claim) } else { userdma_agent::claim(&claim) }
}

pub(super) fn gid_entry(link: &UdpLink) -> GidEntry {
    GidEntry {
        gid: Gid::from(link.local()),
        link: link.id(),
        local: link.local(),
        scope_id: 0,
        tx_ports: link.tx_ports(),
        port: link.port(),
    }
}

pub(super) fn shard_config(
    config: &HostConfig,
    (slot, first_index): (u16, u16),
    gids: &[GidEntry],
    links: &[UdpLink],
) -> ShardConfig {
    let usual = ShardConfig::default();
    ShardConfig {
        seed: config.seed.unwrap_or_else(random),
        slot,
        first_index,
        gids: gids.to_vec(),
        links: links.iter().map(UdpLink::caps).collect(),
        // All have the same.
        peer_port: config
            .private_port
            .or_else(|| links.first().map(UdpLink::port))
            .unwrap_or(usual.peer_port),
        max_window: config.max_window.unwrap_or(usual.max_window),
        recv_fault: config.faults.rnr,
        fault_seed: config.faults.seed,
        ..usual
    }
}

/// A number that nobody knows: the standard library's hash keys come from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
