//! What a host has once: the addresses, the slots of the QPN space, the sockets.
//!
//! Floor 4. For now the agent is embedded in each process: it claims the device's own addresses, so that 127.0.0.2
//! and 127.0.0.3 are two hosts, and a second process on the same address is told that it is taken.

#![forbid(unsafe_code)]

mod devices;
mod embedded;

pub use devices::{DeviceInfo, devices};
pub use embedded::{ClaimConfig, ClaimError, Claimed, Embedded};
