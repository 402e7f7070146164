//! `cargo xtask icount`: how many instructions the phases of a message take, held against accepted figures.
//!
//! Unlike a time, a count is the same on a loaded machine, so it can be judged everywhere. It depends on the compiler
//! and on what the processor can do, so figures of others are shown and not judged.

mod figures;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use figures::{Figure, Figures};

/// How far a count may be from the accepted one, in percent.
const TOLERANCE_PERCENT: f64 = 2.0;
/// Messages that are counted.
const ROUNDS: u64 = 200;

/// Counts, prints, and returns what is wrong. With `--accept` the counts become the accepted ones.
///
/// # Errors
/// Something could not be run, or the accepted figures cannot be read.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<Vec<String>, String> {
    let accepts = match arguments {
        [] => false,
        [flag] if flag == "--accept" => true,
        _ => return Err("icount takes no argument but --accept".into()),
    };
    let file = root.join("bench/icount/figures.txt");
    let program = build(root)?;
    let counted = Figures { machine: machine()?, figures: count_all(&program)? };
    if accepts {
        std::fs::write(&file, counted.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
        println!("icount: {} figures accepted", counted.figures.len());
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(judge(&counted, &text.parse()?))
}

/// Prints the counts beside the accepted ones; complaints about those that differ.
fn judge(counted: &Figures, accepted: &Figures) -> Vec<String> {
    let is_judged = counted.machine == accepted.machine;
    let mut complaints = Vec::new();
    println!("{:24} {:>10} {:>10}", "instructions a message", "accepted", "counted");
    for figure in &counted.figures {
        let Some(before) = accepted.get(&figure.name) else {
            complaints.push(format!("{} has no accepted figure: cargo xtask icount --accept", figure.name));
            continue;
        };
        let percent = 100.0 * (figure.count - before) / before;
        println!("{:24} {before:>10.1} {:>10.1} {percent:>+6.1} %", figure.name, figure.count);
        if is_judged && percent.abs() > TOLERANCE_PERCENT {
            complaints.push(format!(
                "{}: {:.1} instructions, {percent:+.1} % of the accepted {before:.1} (at most ±{TOLERANCE_PERCENT} %); \
                 if this is as it should be: cargo xtask icount --accept",
                figure.name, figure.count
            ));
        }
    }
    let gone = accepted.figures.iter().filter(|figure| counted.get(&figure.name).is_none());
    complaints.extend(gone.map(|figure| format!("{} is accepted and no longer counted", figure.name)));
    let (failed, all) = (complaints.len(), counted.figures.len());
    if is_judged {
        println!("{} passed, {failed} failed, 0 skipped", all.saturating_sub(failed));
    } else {
        println!("SKIP: not judged: accepted on {}, counted on {}", accepted.machine, counted.machine);
        println!("0 passed, {failed} failed, {all} skipped");
    }
    complaints
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "-p", "userdma-icount", "--message-format", "json"];
    let output = Command::new(cargo)
        .current_dir(root)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo build: {e}"))?;
    if !output.status.success() {
        return Err("userdma-icount does not build".into());
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .ok_or_else(|| "cargo names no executable of userdma-icount".into())
}

/// The compiler, and what of the processor chooses between routines.
fn machine() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output().map_err(|e| format!("rustc: {e}"))?;
    let compiler = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").map_err(|e| format!("/proc/cpuinfo: {e}"))?;
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &&str| flags.split_whitespace().any(|word| word == *flag);
    let features: Vec<_> = ["avx2", "erms", "pclmulqdq"].into_iter().filter(has).collect();
    Ok(format!("{compiler}, {} with {}", std::env::consts::ARCH, features.join(" ")))
}

fn count_all(program: &Path) -> Result<Vec<Figure>, String> {
    let list =
        Command::new(program).arg("--list").output().map_err(|e| format!("{}: {e}", program.display()))?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    list.lines().map(|name| count(program, name)).collect()
}

fn count(program: &Path, name: &str) -> Result<Figure, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=userdma_icount::conversation::measured*")
        .arg(program)
        .args(name.split(' '))
        .arg(ROUNDS.to_string())
        .output()
        .map_err(|e| format!("valgrind: {e}: install it (Debian: valgrind)"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name}: {said}"));
    }
    let total =
        figures::collected(&said).ok_or_else(|| format!("{name}: valgrind names no count: {said}"))?;
    // Exact up to 2^53 instructions.
    Ok(Figure { name: name.to_owned(), count: total as f64 / ROUNDS as f64 })
}
