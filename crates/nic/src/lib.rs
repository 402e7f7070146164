//! The device as a machine: object tables, dispatch of packets to queue pairs, the ready list, timers.
//!
//! Floor 4: no IO, no clock, no unsafe code. Packets, doorbells and the time go in; packets, completions, events and
//! the next deadline come out.
//!
//! ```text
//!   verbs calls ──▶ object tables ─┐
//!   doorbells ───▶ handle_doorbells│      ┌──▶ poll_transmit   batches for one destination
//!   frames ──────▶ handle_frame ───┼─ QPs ┼──▶ poll_event      asynchronous events
//!   the time ────▶ handle_timeout ─┘      ├──▶ poll_channel    channels to make readable
//!                                         └──▶ poll_timeout    when to come back
//!                   completions go straight into the `Cq` that callers poll
//! ```

#![forbid(unsafe_code)]

mod config;
mod control;
mod dispatch;
mod doorbell;
mod gsi;
mod inbound;
mod modify;
mod multicast;
mod qp;
mod shard;
mod srq;
mod timer;
mod transport;
mod unreliable;
mod windows;

pub use config::{GidEntry, ShardConfig};
pub use control::{AhId, CreateAhError};
pub use doorbell::Doorbells;
pub use gsi::{Management, ManagementError};
pub use multicast::AttachError;
pub use shard::Shard;
