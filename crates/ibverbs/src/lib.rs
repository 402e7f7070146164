//! `libibverbs.so.1`: the C interface of verbs programs, over the process's own device.
//!
//! Floor 6. A shell without decisions: each function looks at its pointers, converts, calls the host, converts back. Programs
//! that were compiled against the distribution's `<infiniband/verbs.h>` run as they are:
//!
//! ```text
//!   program ── symbols with versions (symbols, oldest, private) ─┐
//!      │                                                         ├── one module for each kind of object ── host
//!      └────── tables of the context, QP and CQ (abi) ───────────┘
//! ```
//!
//! The same file stands in front of the C library where programs look for devices (hooks).
//!
//! Objects are boxes whose first field is the C structure, so that a pointer to one is a pointer to the other. What C promises
//! (that pointers come from here and have not been given up) is the safety of everything in this crate.

#[macro_use]
mod export;

mod abi;
mod acks;
mod ah;
mod answer;
mod channel;
mod context;
mod convert;
mod cq;
mod cq_ex;
mod devices;
mod event;
mod explain;
mod fork_lock;
mod hooks;
mod lids;
mod log;
mod marshal;
mod mr;
mod multicast;
mod mw;
mod names;
mod oldest;
mod pd;
mod port;
mod post;
mod private;
mod qp;
mod query;
mod settings;
mod signals;
mod srq;
mod symbols;
mod trace;
mod ucma;
mod unsupported;
mod wr;
