//! Management: what queue pair 1 of a device is for. Connections are made here.
//!
//! Floor 3: no IO and no clock. Time, datagrams and randomness are arguments.

#![forbid(unsafe_code)]

pub mod cm;
pub mod queue;
pub mod rdma;
