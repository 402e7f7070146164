//! What the fuzzers run: any bytes become a packet, or a program of packets against one device.
//!
//! A *target* is a function of bytes that panics if something is wrong. The fuzzers in `fuzz/` call it with what they
//! make up, and `tests/corpus.rs` with every file of `fuzz/corpus`, on every run of the tests.
//!
//! - [`packet`]: reading, printing and writing of any bytes.
//! - [`responder`]: requests to a queue pair that has memory to lose.
//! - [`requester`]: answers to a queue pair that has asked.
//! - [`unreliable`]: the responder's programs for an unreliable connection.
//! - [`cm`]: messages of communication management that are nearly right.
//!
//! Packets of the three in the middle carry the ICRC that fits, so that nothing stops at the door, and name PSNs, keys and
//! addresses relative to those that would be right, so that a changed byte is a near miss. After each packet the scene
//! looks at the memory that nobody may touch, at the completions, and at a second connection of the same device.

mod arena;
mod cm;
mod ledger;
mod packet;
mod peer;
mod program;
mod scene;
mod seed;

pub use cm::cm;
pub use packet::packet;
pub use seed::{border_seeds, requester_seed, responder_seed};

use arbitrary::Unstructured;
use program::Role;
use scene::Scene;
use userdma_verbs::QpType;

/// A target: panics if bytes do what bytes must not.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name of its folder in the corpus.
pub const TARGETS: [(&str, Target); 5] = [
    ("cm", cm),
    ("packet", packet),
    ("requester", requester),
    ("responder", responder),
    ("unreliable", unreliable),
];

/// Requests of a peer that obeys no rule.
///
/// # Panics
/// If the device does what it must not.
pub fn responder(bytes: &[u8]) {
    run(Role::Responder, QpType::Rc, bytes);
}

/// Answers of a peer that obeys no rule.
///
/// # Panics
/// If the device does what it must not.
pub fn requester(bytes: &[u8]) {
    run(Role::Requester, QpType::Rc, bytes);
}

/// Packets of a peer that obeys no rule, to an unreliable connection.
///
/// # Panics
/// If the device does what it must not.
pub fn unreliable(bytes: &[u8]) {
    run(Role::Responder, QpType::Uc, bytes);
}

fn run(role: Role, service: QpType, bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    // Input that ends early goes on with zeros, so that every prefix of a program is a program.
    if let Ok(program) = program::read(role, &mut input) {
        Scene::new(role, service, &program.setup).run(&program.steps);
    }
}
