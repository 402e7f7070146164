//! The verbs objects as plain data structures: protection domains, memory regions and windows with the one access
//! check, completion queues, work queues, shared receive queues.
//!
//! Floor 2: no IO, no clock, no unsafe code. What callers share with the device ([`QpShared`], [`Srq`],
//! [`Cq`], [`CompChannel`]) is safe on any thread; the tables ([`MrTable`], [`PdTable`]) leave locking to their owner.

#![forbid(unsafe_code)]

mod access;
mod ah;
mod channel;
mod cq;
mod failure;
mod key;
mod mr;
mod mw;
mod pd;
mod post;
mod qp;
mod rq;
mod sgl;
mod srq;
mod sync;
mod wqe;

pub use access::{AccessFault, RemoteAccess};
pub use ah::{Ah, UdAddr};
pub use channel::CompChannel;
pub use cq::{Arm, Cq, Pushed};
pub use failure::Failure;
pub use mr::{MrKeys, MrTable};
pub use pd::{PdId, PdTable};
pub use qp::QpShared;
pub use rq::RecvQueue;
pub use sgl::{SgCursor, SglError, gather, scatter, sgl_len};
pub use srq::{Srq, Taken};
pub use wqe::{Wqe, WqeRef, WqeRing};
