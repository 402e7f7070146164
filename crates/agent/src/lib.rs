//! What a host has once: the addresses, the slots of the QPN space, the sockets.
//!
//! Floor 4. Any number of processes of one user share an address and its port 4791. Each device has a *slot*, the upper ten bits
//! of its QPNs, and the socket to which the kernel steers the slot's packets.
//!
//! ```text
//!   process 1            process 2            process 3
//!   agent ◀── claims ─── lease                lease         one agent for each user and network namespace:
//!   lease                parks ◀── sockets ── parks         the process that was first, then any other
//!   slot 1: socket       slot 2: socket       slot 3: socket
//!      ▲                    ▲                    ▲
//!      └────────────────────┴── the kernel, by destination QPN ── UDP port 4791 of an address
//! ```
//!
//! Where a machine has a [service](serve), it is the agent for all users.
//!
//! [`claim`] gets a slot; [`Embedded`] claims a port that is not shared. Where somebody else has 4791, the processes of a user may meet
//! on a [`private_port`], which they share in the same way.

#![forbid(unsafe_code)]

mod client;
mod desk;
mod devices;
mod embedded;
mod file;
mod group;
mod gsi;
mod holder;
mod lease;
mod locks;
mod mad;
mod message;
mod names;
mod neighbor;
mod packet;
mod park;
mod private;
mod registry;
mod server;
mod service;
mod setting;
mod shared;
mod spec;
mod wait;

pub use devices::{DeviceInfo, devices};
pub use embedded::{ClaimConfig, ClaimError, Claimed, Embedded};
pub use file::{CONFIG_VARIABLE, FileError, path as config_path};
pub use gsi::{GsiFrame, PortError, PortRequest, PortSpace, Reservation, Will};
pub use holder::{Holder, Program, holders};
pub use lease::Lease;
pub use private::{FellBack, private_port};
pub use registry::{Home, Member, Registry, Services};
pub use service::keeper::keep;
pub use service::{ServiceConfig, ServiceError, ServiceEvent, serve};
pub use shared::claim;
pub use spec::{DEVICES_VARIABLE, DeviceSpec, DevicesError, configured, parse_devices};
