//! The oracle: random verbs programs on two devices, under random faults, and a model that knows what must be true.
//!
//! A *program* makes one or two connections between two hosts. Each of their directions (a *flow*) posts work requests
//! of every kind, in phases; between phases everything comes to rest. Then the model is asked:
//!
//! - Each work request completed once, in order; an unsignaled one only in error. Statuses are those that the program
//!   asked for by its deliberate mistakes, and after the first error everything is flushed.
//! - Each receive got the message that its place in the order gives it: bytes, length, immediate data, invalidated key.
//! - Every byte of every buffer is what a sequential execution leaves behind, also the bytes that nobody should have
//!   touched. Where the standard leaves a choice (a READ without a fence behind it, work that was under way when its
//!   connection failed) each byte must be one of the possible ones.
//! - A connection's failure is its own: others have no error and no event.
//! - In the end nothing is on its way, no timer runs, and every object can be destroyed.
//!
//! A connection that has failed is made anew, through RESET. Sides stop sending (SQD) and go on.
//!
//! What the oracle is worth is shown by `planted/run` of this crate: it plants faults in a copy of the tree, one at a
//! time, and the oracle must find each.
//!
//! Randomness comes from one seed, which a failure names. Not here: overflowing completion queues.

mod check;
mod close;
mod draw;
mod plan;
mod report;
mod shadow;
mod world;

use std::fmt;

pub use report::Report;
use world::World;

/// What was not as it must be.
#[derive(Debug)]
pub struct Failure {
    /// The program's seed.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// Every packet and every action of the program, oldest first.
    pub trace: Vec<String>,
}

/// The end of the trace and the reason; with `{:#}` the whole trace.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = if f.alternate() { 0 } else { self.trace.len().saturating_sub(TRACE_LINES) };
        writeln!(f, "the last {} of {} lines:", self.trace.len() - skipped, self.trace.len())?;
        for line in &self.trace[skipped..] {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "program {:#x}: {}", self.seed, self.what)?;
        write!(f, "again with USERDMA_ORACLE_SEED={:#x} USERDMA_ORACLE_COUNT=1", self.seed)
    }
}

/// Runs the program of one seed; what it did, or what was wrong with it. A failed program is run again with a trace.
pub fn run(seed: u64) -> Result<Report, Box<Failure>> {
    match World::new(seed, false).run() {
        Ok(report) => Ok(report),
        Err(what) => {
            let mut world = World::new(seed, true);
            let again = world.run_in_place();
            let trace = world.take_trace();
            let what = match again {
                Err(again) if again == what => what,
                other => format!("{what} (but the second run ended with {other:?})"),
            };
            Err(Box::new(Failure { seed, what, trace }))
        }
    }
}

/// Every packet and every action of a program, whatever became of it.
pub fn trace(seed: u64) -> Vec<String> {
    let mut world = World::new(seed, true);
    let result = world.run_in_place();
    let mut trace = world.take_trace();
    trace.push(format!("program {seed:#x}: {result:?}"));
    trace
}

/// Runs `count` programs, with seeds from `first` on; what they did together, or the first failure.
pub fn run_many(first: u64, count: u64) -> Result<Report, Box<Failure>> {
    let mut total = Report::default();
    for index in 0..count {
        total += run(first.wrapping_add(index))?;
    }
    Ok(total)
}

const TRACE_LINES: usize = 400;
