//! Raw memory and what crosses a link: the only place below the links that dereferences pointers.
//!
//! Floor 1. Registered memory is never borrowed as a slice: the application and peers change it underneath.

mod batch;
mod buffer;
mod fault;
mod frame;
mod raw;
mod region;
mod routine;

pub use batch::{Route, TxBatch};
pub use buffer::Buffer;
pub use fault::{install as install_fault_handler, unblock as unblock_fault_signals};
pub use frame::{Frame, FrameMeta, LinkCaps, LinkId};
pub use region::{MemError, Region};
pub use routine::crc32;
