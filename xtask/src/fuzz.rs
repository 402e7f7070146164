//! `cargo xtask fuzz`: builds the fuzzers of `fuzz/`, runs them for a while, and says how to repeat what they find.
//!
//! libFuzzer needs instrumented code and nothing else: the compiler's own coverage pass does that on the stable
//! toolchain, so neither cargo-fuzz nor a nightly compiler is wanted. What a run finds that is new and harmless goes to
//! the target directory; `--minimise` chooses `fuzz/corpus` anew from it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every fuzzer: a binary of `fuzz/` and a folder of `fuzz/corpus`.
const TARGETS: [&str; 7] = ["packet", "responder", "requester", "unreliable", "datagrams", "capture", "cm"];

/// What libFuzzer wants of the compiler. The last turns its own features on, as cargo-fuzz does.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Inputs longer than this say nothing that a shorter one does not.
const MAX_LEN: [(&str, &str); 7] = [
    ("packet", "1200"),
    ("responder", "600"),
    ("requester", "600"),
    ("unreliable", "600"),
    ("datagrams", "600"),
    ("capture", "4096"),
    ("cm", "800"),
];

struct Options {
    targets: Vec<String>,
    seconds: u32,
    minimises: bool,
}

/// Runs the fuzzers that the arguments name, or all; returns what they found.
///
/// # Errors
/// An argument that is none, or fuzzers that cannot be built here.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<Vec<String>, String> {
    let options = parse(arguments)?;
    let built = build(root, &options.targets)?;
    let mut findings = Vec::new();
    for target in &options.targets {
        let fuzzer = Fuzzer { root, target, binary: built.join(target) };
        if options.minimises {
            fuzzer.minimise()?;
        } else {
            findings.extend(fuzzer.run(options.seconds)?);
        }
    }
    Ok(findings)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { targets: Vec::new(), seconds: 20, minimises: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let value = arguments.next().and_then(|value| value.parse().ok()).filter(|&n| n > 0);
                options.seconds = value.ok_or("--seconds wants a number, 1 or more")?;
            }
            "--minimise" => options.minimises = true,
            name if TARGETS.contains(&name) => options.targets.push(name.to_owned()),
            other => return Err(format!("no fuzzer is called '{other}'; there are {}", TARGETS.join(", "))),
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.map(str::to_owned).to_vec();
    }
    Ok(options)
}

/// Builds the fuzzers; the folder that they are in.
fn build(root: &Path, targets: &[String]) -> Result<PathBuf, String> {
    let triple = host()?;
    let target_dir = target_dir(root);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "--target", &triple, "--manifest-path"]);
    cargo.arg(root.join("fuzz/Cargo.toml")).arg("--target-dir").arg(&target_dir);
    for target in targets {
        cargo.args(["--bin", target]);
    }
    let status = cargo.env("RUSTFLAGS", RUSTFLAGS).status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzzers do not build (libFuzzer is C++: is g++ installed?)".into());
    }
    Ok(target_dir.join(triple).join("release"))
}

/// The host's triple: flags are then for the fuzzers alone, not for build scripts.
fn host() -> Result<String, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".into())
}

fn target_dir(root: &Path) -> PathBuf {
    let base = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    base.join("fuzz")
}

struct Fuzzer<'a> {
    root: &'a Path,
    target: &'a str,
    binary: PathBuf,
}

impl Fuzzer<'_> {
    /// Runs for a while. `Some` says what was found and how to see it again.
    fn run(&self, seconds: u32) -> Result<Option<String>, String> {
        let (found, artifacts) = (self.found()?, self.folder("artifacts")?);
        let mut command = Command::new(&self.binary);
        command.arg(format!("-max_total_time={seconds}")).args(["-timeout=20", "-print_final_stats=1"]);
        command.arg(format!("-max_len={}", self.max_len()));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(&found).arg(self.corpus());
        let output = command.output().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        let log = String::from_utf8_lossy(&output.stderr);
        let stat = |name: &str| {
            let line = log.lines().rev().find_map(|line| line.strip_prefix(name));
            line.map_or("?", |rest| rest.trim_start_matches(':').trim()).to_owned()
        };
        println!(
            "fuzz: {:<10} {seconds} s, {} executions, {} a second, {} new inputs",
            self.target,
            stat("stat::number_of_executed_units"),
            stat("stat::average_exec_per_sec"),
            stat("stat::new_units_added"),
        );
        Ok((!output.status.success()).then(|| self.finding(&log)))
    }

    /// The end of the log, and the way to see it again.
    fn finding(&self, log: &str) -> String {
        let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with('#')).collect();
        let tail = lines[lines.len().saturating_sub(60)..].join("\n");
        let written = log.lines().find_map(|line| line.split("Test unit written to ").nth(1));
        let again = match written {
            Some(file) => format!(
                "again:      {} {file}\nas a test:  cp {file} {}/ && cargo test -p userdma-sim --test corpus",
                self.binary.display(),
                self.corpus().display()
            ),
            None => "no input was written: the fuzzer itself failed".into(),
        };
        format!("{} found something\n{tail}\n{again}", self.target)
    }

    /// Chooses the corpus anew, from itself and from what runs have found: as few files as reach all lines and branches
    /// that any of them reaches. Files called `found-…` were findings, those called `kept-…` reach what others reach
    /// but matter by their values: both stay.
    fn minimise(&self) -> Result<(), String> {
        let (corpus, chosen) = (self.corpus(), target_dir(self.root).join("chosen").join(self.target));
        let before = count(&corpus);
        let _ = fs::remove_dir_all(&chosen);
        let chosen = make(chosen)?;
        let mut command = Command::new(&self.binary);
        command.args(["-set_cover_merge=1", "-use_counters=0"]).arg(format!("-max_len={}", self.max_len()));
        command.arg(&chosen).arg(&corpus).arg(self.found()?);
        let output = command.output().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        if !output.status.success() || count(&chosen) == 0 {
            return Err(format!("{}: nothing was chosen", self.target));
        }
        replace(&corpus, &chosen).map_err(|error| format!("{}: {error}", corpus.display()))?;
        println!("fuzz: {:<10} {before} files, now {}", self.target, count(&corpus));
        Ok(())
    }

    fn max_len(&self) -> &'static str {
        MAX_LEN.iter().find(|(target, _)| *target == self.target).map_or("4096", |(_, len)| len)
    }

    fn corpus(&self) -> PathBuf {
        self.root.join("fuzz/corpus").join(self.target)
    }

    /// Where new inputs are kept between runs, outside the tree.
    fn found(&self) -> Result<PathBuf, String> {
        make(target_dir(self.root).join("corpus").join(self.target))
    }

    fn folder(&self, name: &str) -> Result<PathBuf, String> {
        make(self.root.join("fuzz").join(name).join(self.target))
    }
}

fn make(folder: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Puts the files of `chosen` in the place of those in `corpus` that do not stay.
fn replace(corpus: &Path, chosen: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(corpus)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("found-") && !name.starts_with("kept-") {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(chosen)? {
        let entry = entry?;
        fs::copy(entry.path(), corpus.join(entry.file_name()))?;
    }
    Ok(())
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn all_fuzzers_run_for_twenty_seconds_unless_told_otherwise() {
        let options = parse(&[]).expect("no arguments");
        assert_eq!((options.targets.len(), options.seconds, options.minimises), (7, 20, false));
        let options = parse(&words("responder --seconds 3 --minimise")).expect("arguments");
        assert_eq!((options.targets, options.seconds, options.minimises), (words("responder"), 3, true));
    }

    #[test]
    fn what_is_no_fuzzer_is_refused() {
        for wrong in ["respond", "--seconds", "--seconds 0", "--seconds x", "--second 3"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_target_has_its_binary_and_its_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for target in TARGETS {
            assert!(root.join("fuzz/targets").join(target).with_extension("rs").is_file(), "{target}");
            assert!(count(&root.join("fuzz/corpus").join(target)) > 0, "{target}");
        }
    }
}
