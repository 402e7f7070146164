//! Raw memory and what crosses a link: the only place below the links that dereferences pointers.
//!
//! Floor 1. Registered memory is never borrowed as a slice: the application and peers change it underneath.

mod batch;
mod buffer;
mod fault;
mod frame;
mod region;

pub use batch::{Route, TxBatch};
pub use buffer::Buffer;
pub use fault::install as install_fault_handler;
pub use frame::{Frame, FrameMeta, LinkCaps, LinkId};
pub use region::{MemError, Region};
