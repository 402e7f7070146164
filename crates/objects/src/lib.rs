//! The verbs objects as plain data structures: protection domains, memory regions and windows with the one access
//! check, completion queues, work queues.
//!
//! Floor 2: no IO, no clock, no unsafe code.

#![forbid(unsafe_code)]

mod access;
mod cq;
mod mr;
mod pd;
mod qp;
mod sgl;
mod wqe;

pub use access::{AccessFault, RemoteAccess};
pub use cq::{Arm, CompChannel, Cq, Pushed};
pub use mr::{MrKeys, MrTable};
pub use pd::{PdId, PdTable};
pub use qp::{QpShared, RecvQueue};
pub use sgl::{SgCursor, SglError, gather, scatter, sgl_len};
pub use wqe::{Wqe, WqeRef, WqeRing};
