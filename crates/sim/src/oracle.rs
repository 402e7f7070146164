//! The oracle: random verbs programs on two devices, under random faults, and a model that knows what must be true.
//!
//! A *program* makes up to six connections, between two hosts or within one device, which may share completion queues,
//! shared receive queues, protection domains and regions. Each of their directions (a *flow*) posts work requests of every kind, in phases;
//! between phases everything comes to rest. Then the model is asked:
//!
//! - Each work request completed once, in order; an unsignaled one only in error. Statuses are those that the program
//!   asked for by its deliberate mistakes, and after the first error everything is flushed.
//! - Each receive got the message that its place in the order gives it: bytes, length, immediate data, invalidated key.
//! - Every byte of every buffer is what a sequential execution leaves behind, also the bytes that nobody should have
//!   touched. Where the standard leaves a choice (a READ without a fence behind it, work that was under way when its
//!   connection failed) each byte must be one of the possible ones.
//! - A connection's failure is its own: others have no error and no event.
//! - Receives of a shared receive queue are taken in the order of posting, by whichever message comes first, and each that
//!   was taken completes. Its limit is told once, and so is the last one of a queue pair that fails.
//! - A completion queue that overflows was full, says so once, takes its queue pairs to ERR, and loses nothing that it
//!   held. One that is large enough for what is posted never does.
//! - In the end nothing is on its way, no timer runs, and every object can be destroyed.
//!
//! A connection that has failed is made anew, through RESET or with other queue pairs. Sides stop sending (SQD) and go
//! on; hosts stand still for a while.
//!
//! Randomness comes from one seed. A program that fails is [reduced](shrink): phases, requests and faults of the network
//! are left out, and messages made shorter, as long as it fails in the same way. What is left is a [`Case`], which is
//! a line of text and can be run again.
//!
//! What the oracle is worth is shown by `planted/run` of this crate: it plants faults in a copy of the tree, one at a
//! time, and the oracle must find each.

mod blunder;
mod case;
mod check;
mod close;
mod draw;
mod drive;
mod mistake;
mod plan;
mod refuse;
mod report;
mod setup;
mod shadow;
mod shared;
mod shrink;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use case::{Case, RequestId, parse_seed};
pub use report::Report;
pub use shrink::shrink;
use world::World;

/// What was not as it must be.
#[derive(Debug)]
pub struct Failure {
    /// The program.
    pub case: Case,
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
        writeln!(f, "program {}: {}", self.case, self.what)?;
        write!(f, "again with cargo xtask oracle --case {}", self.case)
    }
}

/// Runs a program; what it did, or what was wrong with it. A failed program is run again with a trace.
///
/// # Errors
/// What is wrong.
pub fn run(case: &Case) -> Result<Report, Box<Failure>> {
    match attempt(case, false).result {
        Ok(report) => Ok(report),
        Err(what) => {
            let again = attempt(case, true);
            let what = match again.result {
                Err(again) if again == what => what,
                other => format!("{what} (but the second run ended with {:?})", other.map(drop)),
            };
            Err(Box::new(Failure { case: case.clone(), what, trace: again.trace }))
        }
    }
}

/// Every packet and every action of a program, whatever became of it.
pub fn trace(case: &Case) -> Vec<String> {
    let attempt = attempt(case, true);
    let mut trace = attempt.trace;
    trace.push(match attempt.result {
        Ok(report) => format!("program {case}\n{report}"),
        Err(what) => format!("program {case}: {what}"),
    });
    trace
}

/// Runs `count` programs, with seeds from `first` on; what they did together, or the first failure.
///
/// # Errors
/// What is wrong with the first program that fails.
pub fn run_many(first: u64, count: u64) -> Result<Report, Box<Failure>> {
    let mut total = Report::default();
    for index in 0..count {
        total += run(&Case::whole(first.wrapping_add(index)))?;
    }
    Ok(total)
}

/// What became of a program.
struct Attempt {
    result: Result<Report, String>,
    trace: Vec<String>,
    /// Everything that it posted, and the faults that it met.
    requests: Vec<RequestId>,
    faults: u64,
}

/// Runs a program. A panic is a failure like others.
fn attempt(case: &Case, trace: bool) -> Attempt {
    let mut world = World::new(case, trace);
    let result = catch_unwind(AssertUnwindSafe(|| world.run_in_place())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of an unknown kind")))
    });
    Attempt {
        trace: world.take_trace(),
        requests: world.requests().collect(),
        faults: world.pair.net.faults_drawn(),
        result: result.map(|()| std::mem::take(&mut world.report)),
    }
}

const TRACE_LINES: usize = 400;
