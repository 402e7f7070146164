//! The workspace's own checks: `cargo xtask floors`, `cargo xtask cite` and `cargo xtask oracle`.
#![forbid(unsafe_code)]

mod cite;
mod floors;
mod oracle;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        Some("floors") => floors::run(root),
        Some("cite") => cite::run(root),
        Some("oracle") => oracle::run(root, std::env::args().skip(2)),
        Some(other) => Err(format!("no task is called '{other}'; there are floors, cite and oracle")),
        None => Err("which task: floors (dependencies and unsafe code), cite (citations) or oracle \
                     (random programs; --help)?"
            .into()),
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
