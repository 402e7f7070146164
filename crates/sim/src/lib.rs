//! Two devices in one program, joined by a network that can be as bad as a test wants, on a clock that is a number.
//!
//! A side crate for tests. Everything follows from seeds: a run that failed fails again.
//!
//! ```
//! use userdma_sim::{ConnectOptions, Pair, PairOptions};
//! use userdma_verbs::{AccessFlags, WcStatus};
//!
//! let mut pair = Pair::new(&PairOptions::default());
//! let [a, b] = pair.connect(&ConnectOptions::default());
//! let from = pair.hosts[0].memory(64, AccessFlags::empty());
//! let to = pair.hosts[1].memory(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
//! from.fill(b"sixteen bytes...");
//! pair.hosts[0].write(&a, 7, from.sge(0, 16), to.remote(0));
//! pair.drive();
//! assert_eq!(a.poll_send().iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(), [(7, WcStatus::Success)]);
//! assert_eq!(to.bytes(0, 16), b"sixteen bytes...");
//! assert!(b.poll_recv().is_empty());
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a crate for tests: a panic is a failed test")]

pub mod cm;
mod datagram;
pub mod fuzz;
mod host;
mod net;
pub mod oracle;
mod pair;
mod schedule;
mod star;

pub use datagram::QKEY;
pub use host::{Host, Memory, QpEnd};
pub use net::{Direction, Fate, Faults, NetStats, Network, Transit, arrival};
pub use pair::{ConnectOptions, Pair, PairOptions};
pub use star::{Star, StarOptions, StarStats};
