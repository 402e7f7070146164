//! The workspace's own checks: `cargo xtask floors` and `cargo xtask cite`.
#![forbid(unsafe_code)]

mod cite;
mod floors;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        Some("floors") => floors::run(root),
        Some("cite") => cite::run(root),
        Some(other) => Err(format!("no task is called '{other}'; there are floors and cite")),
        None => Err("which task: floors (dependencies and unsafe code) or cite (citations)?".into()),
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
