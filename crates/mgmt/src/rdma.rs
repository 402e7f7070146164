//! Connections between IP addresses and ports, as the kernel's `rdma_cm` makes them: what a `rdma_cm_id` is.

mod address;
mod error;
mod event;
mod query;

pub use address::{Address, IbAddress, PortSpace};
pub use error::CmError;
pub use event::{ConnParam, Ece, Event, EventKind, Param, UdParam};
pub use query::{CmId, CmOption, PathRecord, Query};
