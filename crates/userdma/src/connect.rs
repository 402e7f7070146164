//! Connections by address and port: who listens, who connects, what both sides say.
//!
//! ```text
//!   Listener, Request, Connection ── calls ──▶ host::cm::Manager, one for each device that connects
//!            ▲                                        │ events
//!            └───────────── Queue ◀───────────────────┘
//! ```

mod attr;
mod connection;
mod error;
mod events;
mod id;
mod listener;
mod manager;
mod qp;
mod wait;

pub use attr::{ConnAttr, Depths};
pub use connection::Connection;
pub(crate) use connection::Link;
pub use error::ConnectError;
pub use listener::{Listener, Request};
pub(crate) use manager::Connections;
pub use qp::Connect;
pub(crate) use wait::{block_on, poll_blocking};
