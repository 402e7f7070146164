//! The process's network interface: joins the device, which is a machine, with links, threads and the clock.
//!
//! Floor 5. Nobody owns the device for long: whoever posts, polls or waits drives it for a moment, and a thread that
//! sleeps in `epoll` takes over when nobody does.
//!
//! ```text
//!   post_send ──┐
//!   poll_cq ────┼──▶ gate (one at a time, nobody waits) ──▶ Progress: commands, doorbells, timeouts,
//!   get_event ──┤                                           receive a batch, transmit a few, tell channels
//!   thread ─────┘
//! ```

#![deny(unsafe_code)]

mod bell;
pub mod call;
mod channel;
pub mod cm;
mod command;
mod config;
mod crowd;
mod drive;
mod error;
mod events;
mod exit;
mod fork;
mod gate;
mod host;
mod lease;
mod management;
mod multicast;
mod owner;
mod progress;
mod shared;
mod sleep;
mod sync;
mod transmit;
mod vec_mr;
mod wait;
mod waiters;

pub use channel::{Channel, EventError};
pub use config::HostConfig;
pub use error::{HostError, OpenError, PostFailure};
pub use events::EventQueue;
pub use host::Host;
pub use management::SendManagementError;
pub use multicast::AttachFailure;
pub use progress::spawn_thread;
pub use userdma_agent::{
    CONFIG_VARIABLE, ClaimError, DEVICES_VARIABLE, DeviceInfo, DeviceSpec, DevicesError, FellBack,
    PortRequest, Reservation, Will, config_path, configured, devices, parse_devices, private_port,
};
pub use userdma_ibt::Stats;
pub use userdma_link::{Backlog, FaultStats, Faults};
pub use userdma_nic::{AhId, AttachError, CreateAhError, GidEntry, Management, ManagementError, Shard};
pub use vec_mr::VecMr;
pub use wait::uptime;
