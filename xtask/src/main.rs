//! The workspace's own checks: `cargo xtask floors`, `cite`, `fuzz` and `coverage`.
#![forbid(unsafe_code)]

mod cite;
mod coverage;
mod floors;
mod fuzz;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let command = std::env::args().nth(1);
    let rest: Vec<String> = std::env::args().skip(2).collect();
    let outcome = match command.as_deref() {
        Some("floors") => floors::run(root),
        Some("cite") => cite::run(root),
        Some("coverage") => coverage::run(root),
        Some("fuzz") => fuzz::run(root, &rest),
        Some(other) => Err(format!("no task is called '{other}'; there are floors, cite, coverage and fuzz")),
        None => {
            Err("which task: floors (dependencies and unsafe code), cite (citations), fuzz or coverage?"
                .into())
        }
    };
    match outcome {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for complaint in &complaints {
                eprintln!("error: {complaint}");
            }
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
