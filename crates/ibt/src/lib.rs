//! The InfiniBand transport as a machine: requester, responder and completer of a queue pair.
//!
//! Floor 3: no IO, no clock, no unsafe code. A packet, a doorbell or the time goes in; packets, completions and the
//! next deadline come out. The sequence of checks follows the kernel's `drivers/infiniband/sw/rxe`.

#![forbid(unsafe_code)]

mod congestion;
mod ctx;
mod rc;
mod stats;

pub use congestion::Window;
pub use ctx::{Ctx, Effects};
pub use rc::{Fill, Path, Rc};
pub use stats::Stats;
