//! Wrong requests, packet by packet, to any responder: what it answers, and what `docs/wrong-requests.md` says about it.
//!
//! The tester that plays both roles against `vt` is the program `userdma-vt`.

#![forbid(unsafe_code)]

pub mod probe;
