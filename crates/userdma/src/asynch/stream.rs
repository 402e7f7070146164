//! Streams of bytes over a queue pair.
//!
//! ```text
//!   RdmaStream ── poll_read, poll_write ──▶ Shared ── messages ──▶ queue pair ──▶ the peer's ring
//!                                             │ asks
//!   CqDriver ───────────── wakes ───────────▶ │
//!                                             ▼
//!                                           Flow: what may be sent, what must be told
//! ```
//!
//! [`flow`] has the protocol, [`offer`] what both sides say before.

mod blocking;
mod connect;
mod error;
mod flow;
mod gather;
mod halves;
mod offer;
mod setup;
mod shared;
mod state;
#[cfg(feature = "tokio")]
mod tokio;
mod watch;

pub use blocking::BlockingStream;
pub use connect::RdmaListener;
pub use error::StreamError;
pub use halves::{RdmaReadHalf, RdmaStream, RdmaWriteHalf};
pub use offer::StreamOffer;
pub use setup::{StreamAttr, StreamSetup};
pub(crate) use watch::Watch;
