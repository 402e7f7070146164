//! Connections between IP addresses and ports, as the kernel's `rdma_cm` makes them: what a `rdma_cm_id` is.

mod address;
mod attr;
mod entry;
mod error;
mod event;
mod ids;
mod query;
mod system;

pub use address::{Address, IbAddress, PortSpace};
pub use error::CmError;
pub use event::{ConnParam, Ece, Event, EventKind, Param, UdParam};
pub use ids::{Ids, Listening, WillChange};
pub use query::{CmId, CmOption, PathRecord, Query};
pub use system::{Device, PortRequest, Reservation, System};
