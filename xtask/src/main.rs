//! The workspace's own checks: `cargo xtask floors`, `cite`, `icount`, `oracle`, `fuzz`, `coverage` and `dist`.
#![forbid(unsafe_code)]

mod cite;
mod coverage;
mod dist;
mod floors;
mod fuzz;
mod glibc;
mod icount;
mod oracle;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) =
        arguments.split_first().map_or((None, &[][..]), |(command, rest)| (Some(&**command), rest));
    let outcome = match command {
        Some("floors") => floors::run(root),
        Some("cite") => cite::run(root),
        Some("coverage") => coverage::run(root),
        Some("dist") => dist::run(root, rest),
        Some("fuzz") => fuzz::run(root, rest),
        Some("icount") => icount::run(root, rest),
        Some("oracle") => oracle::run(root, rest.iter().cloned()),
        Some(other) => Err(format!("no task is called '{other}'; {TASKS}")),
        None => Err(format!("which task? {TASKS}")),
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

const TASKS: &str = "there are floors (dependencies and unsafe code), cite (citations), icount (instructions of a \
                     message), oracle (random programs), fuzz, coverage and dist (the archive)";
