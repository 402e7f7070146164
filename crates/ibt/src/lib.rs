//! The InfiniBand transport as a machine: requester, responder and completer of a queue pair.
//!
//! Floor 3: no IO, no clock, no unsafe code. A packet, a doorbell or the time goes in; packets, completions and the
//! next deadline come out. The sequence of checks follows the kernel's `drivers/infiniband/sw/rxe`.

#![forbid(unsafe_code)]

mod attr;
mod congestion;
mod ctx;
mod data;
mod departures;
mod landing;
mod out;
mod pace;
mod rc;
mod receives;
mod segment;
mod standing;
mod stats;
mod uc;
mod ud;

pub use congestion::Window;
pub use ctx::{Ctx, Effects};
pub(crate) use out::Out;
pub use out::{Fill, Path};
pub use pace::{Ask, Destination, Paces, Room};
pub use rc::Rc;
pub use stats::Stats;
pub use uc::Uc;
pub use ud::Ud;
