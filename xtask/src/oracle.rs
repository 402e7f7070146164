//! `cargo xtask oracle`: builds the oracle with optimisation and the core's own checks, and runs it on all processors.

use std::path::Path;
use std::process::Command;

/// Builds and runs it with the arguments behind `oracle`. What it prints is its own; the complaint is that it failed.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> Result<Vec<String>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command.args([
        "run",
        "--quiet",
        "--profile",
        "oracle",
        "--package",
        "userdma-sim",
        "--bin",
        "oracle",
        "--",
    ]);
    let status = command.args(args).status().map_err(|error| format!("cargo cannot be started: {error}"))?;
    Ok(if status.success() { Vec::new() } else { vec![format!("the oracle ended with {status}")] })
}
