//! Our side of the wire against the verbs tester `vt` of `interop/peer`, in both of its roles.
//!
//! One side is the server, the client posts operations to it; both check every byte. The protocol, the patterns and
//! what each side checks are described in `interop/peer/README.md`; operations and options are spelled as vt's.
//!
//! ```text
//! server: userdma-vt -d ADDRESS [options]
//! client: userdma-vt -d ADDRESS -s SERVER-IP -o OP[,OP...] [options]
//! ```
//! With `-n N` it is N connections at once, on as many TCP ports, each with a queue pair of its own on one device; the other
//! side is N processes.
//!
//! The status is 0 if all was right, 1 if an operation or a check failed, 2 if something could not be set up.

#![forbid(unsafe_code)]

mod client;
mod end;
mod ledger;
mod model;
mod ops;
mod options;
mod pattern;
mod peer;
mod report;
mod server;
mod side;

use std::process::ExitCode;

use options::Options;
use report::Report;
use side::{Adapter, Side};

/// What cannot be set up; a failed check is no such error.
type Setup<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("userdma-vt: {wrong}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(report) => verdict(&report),
        Err(e) => {
            println!("userdma-vt: {e}");
            ExitCode::from(2)
        }
    }
}

/// All connections of one device, at once; what they found, together.
fn run(options: &Options) -> Setup<Report> {
    let adapter = Adapter::open(options)?;
    let reports: Vec<_> = std::thread::scope(|scope| {
        let start =
            |options: Options| scope.spawn(|| connection(&adapter, options).map_err(|e| e.to_string()));
        let threads: Vec<_> = options.connections().map(start).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a connection panicked")).collect()
    });
    let mut all = Report::default();
    for report in reports {
        all.add(report??);
    }
    adapter.print_counters()?;
    Ok(all)
}

fn connection(adapter: &Adapter, options: Options) -> Setup<Report> {
    let (side, stream) = Side::connect(&options, adapter)?;
    match &options.server {
        Some(_) => client::run(&options, &side, stream),
        None => server::run(&options, &side, stream),
    }
}

fn verdict(report: &Report) -> ExitCode {
    match report.first_failure() {
        Some(failure) => {
            println!("userdma-vt: FAILED: {failure} ({} failures)", report.failures());
            ExitCode::from(1)
        }
        None => {
            println!("userdma-vt: {} operations ok", report.passed());
            ExitCode::SUCCESS
        }
    }
}
