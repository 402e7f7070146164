//! `cargo xtask coverage`: how many lines of the connections' heart the tests reach, corpus of the fuzzers
//! included.
//!
//! The compiler counts (`-C instrument-coverage`), and LLVM's own tools read the counts. Their format changes with
//! LLVM's major version, so the tools must be of the version that rustc was built with.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The files that are looked at, and the percentage of lines that must be reached.
const FILES: [(&str, f64); 5] = [
    ("crates/ibt/src/rc/responder.rs", 90.0),
    ("crates/ibt/src/rc/answers.rs", 90.0),
    ("crates/ibt/src/rc/completer.rs", 90.0),
    ("crates/ibt/src/landing.rs", 90.0),
    ("crates/ibt/src/uc/receive.rs", 90.0),
];

/// Whose tests are run.
const PACKAGES: [&str; 3] = ["userdma-ibt", "userdma-nic", "userdma-sim"];

/// Lines of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lines {
    count: u64,
    covered: u64,
}

impl Lines {
    fn percent(self) -> f64 {
        if self.count == 0 { 0.0 } else { 100.0 * self.covered as f64 / self.count as f64 }
    }
}

/// Prints a line for each file; returns those that are reached too little.
///
/// # Errors
/// LLVM's tools are missing or do not fit, or a test fails.
pub(crate) fn run(root: &Path) -> Result<Vec<String>, String> {
    let tools = Tools::find(&llvm_major()?)?;
    let folder = target_dir(root);
    let profiles = folder.join("profiles");
    // Counts of earlier runs, of code that may be another.
    let _ = fs::remove_dir_all(&profiles);
    let programs = test(root, &folder, &profiles)?;
    let merged = tools.merge(&profiles, &folder.join("merged.profdata"))?;
    let report = tools.report(root, &merged, &programs)?;
    let mut complaints = Vec::new();
    println!("{:<34} {:>6} {:>8} {:>8}", "file", "lines", "reached", "percent");
    for (file, least) in FILES {
        let lines = lines_of(&report, file).ok_or_else(|| format!("no counts for {file}"))?;
        println!("{file:<34} {:>6} {:>8} {:>7.1} %", lines.count, lines.covered, lines.percent());
        if lines.percent() < least {
            complaints
                .push(format!("{file}: {:.1} % of its lines are reached, not {least} %", lines.percent()));
        }
    }
    Ok(complaints)
}

/// The major version of the LLVM that rustc is built with.
fn llvm_major() -> Result<String, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = output(Command::new(rustc).arg("-vV"))?;
    major_of(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "rustc -vV names no LLVM version".into())
}

/// The major version after the words `LLVM version`.
fn major_of(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("LLVM version")?;
    let major: String =
        rest.trim_start_matches([':', ' ']).chars().take_while(char::is_ascii_digit).collect();
    (!major.is_empty()).then_some(major)
}

struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    /// LLVM's tools of this major version: Debian's, or those without a number if they are of the right one.
    fn find(major: &str) -> Result<Self, String> {
        let find = |name: &str| {
            let places =
                [format!("{name}-{major}"), format!("/usr/lib/llvm-{major}/bin/{name}"), name.to_owned()];
            places.into_iter().find(|place| is_version(place, major)).map(PathBuf::from)
        };
        match (find("llvm-profdata"), find("llvm-cov")) {
            (Some(profdata), Some(cov)) => Ok(Self { profdata, cov }),
            _ => Err(format!(
                "rustc is built with LLVM {major}, and llvm-profdata and llvm-cov of that version are not here \
                 (Debian: apt-get install llvm-{major})"
            )),
        }
    }

    fn merge(&self, profiles: &Path, into: &Path) -> Result<PathBuf, String> {
        let entries = fs::read_dir(profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
        let files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        output(Command::new(&self.profdata).args(["merge", "-sparse", "-o"]).arg(into).args(files))?;
        Ok(into.to_owned())
    }

    fn report(&self, root: &Path, merged: &Path, programs: &[PathBuf]) -> Result<Value, String> {
        let mut command = Command::new(&self.cov);
        command.args(["export", "--summary-only", "--instr-profile"]).arg(merged);
        // The first program stands alone, before the sources.
        let (first, others) = programs.split_first().ok_or("cargo built no test")?;
        for program in others {
            command.arg("--object").arg(program);
        }
        command.arg(first).args(FILES.map(|(file, _)| root.join(file)));
        let output = output(&mut command)?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("llvm-cov: {error}"))
    }
}

fn is_version(tool: &str, major: &str) -> bool {
    let output = Command::new(tool).arg("--version").output();
    output.is_ok_and(|output| major_of(&String::from_utf8_lossy(&output.stdout)).as_deref() == Some(major))
}

/// Runs the tests; the programs that they are.
fn test(root: &Path, folder: &Path, profiles: &Path) -> Result<Vec<PathBuf>, String> {
    let cargo = || {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).args(["test", "--quiet", "--tests"]);
        cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
        cargo.env("RUSTFLAGS", "-Cinstrument-coverage").env("CARGO_TARGET_DIR", folder);
        // One file a process and program, so that none overwrites another.
        let pattern: OsString = profiles.join("%p-%m.profraw").into();
        cargo.env("LLVM_PROFILE_FILE", pattern);
        cargo
    };
    let built = output(cargo().args(["--no-run", "--message-format=json"]))?;
    // What build scripts and macros count says nothing.
    let _ = fs::remove_dir_all(profiles);
    output(&mut cargo())?;
    let text = String::from_utf8_lossy(&built.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect())
}

/// The lines of the file whose path ends with `file`.
fn lines_of(report: &Value, file: &str) -> Option<Lines> {
    let files = report["data"][0]["files"].as_array()?;
    let found =
        files.iter().find(|entry| entry["filename"].as_str().is_some_and(|name| name.ends_with(file)))?;
    let lines = &found["summary"]["lines"];
    Some(Lines { count: lines["count"].as_u64()?, covered: lines["covered"].as_u64()? })
}

fn target_dir(root: &Path) -> PathBuf {
    let base = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    base.join("coverage")
}

/// Runs a command to its end; what it said is an error if it failed.
fn output(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].map(String::from_utf8_lossy).concat();
    Err(format!("{name} ended with {}\n{said}", output.status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_major_version_is_read_from_both_ways_to_write_it() {
        assert_eq!(major_of("host: x\nrelease: 1.95.0\nLLVM version: 22.1.2\n").as_deref(), Some("22"));
        assert_eq!(major_of("Debian LLVM version 14.0.6\n  Optimized build.").as_deref(), Some("14"));
        assert_eq!(major_of("something else"), None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_no_version() {
        assert!(!is_version("userdma-no-such-tool", "22"));
    }

    #[test]
    fn the_lines_of_a_file_are_found_by_its_name() {
        let report = json!({"data": [{"files": [
            {"filename": "/x/crates/ibt/src/rc/responder.rs", "summary": {"lines": {"count": 8, "covered": 6}}},
        ]}]});
        let lines = lines_of(&report, "crates/ibt/src/rc/responder.rs").expect("in the report");
        assert_eq!((lines, lines.percent()), (Lines { count: 8, covered: 6 }, 75.0));
        assert_eq!(lines_of(&report, "crates/ibt/src/rc/answers.rs"), None);
    }
}
