//! `userdma bench`: what it prints and writes. What it finds is no test's business.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{command, scratch, userdma};

#[test]
fn a_part_is_measured_and_kept_in_files() {
    let dir = scratch("bench");
    let (json, markdown) = (dir.join("run.json"), dir.join("page.md"));
    let [json, markdown, svg] = [&json, &markdown, &dir].map(|path| path.to_str().unwrap());
    let args = ["bench", "--quick", "--only", "U1", "--addresses", "127.0.32.2,127.0.32.3"];
    let ran = userdma(&[&args[..], &["--json", json, "--markdown", markdown, "--svg", svg]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.stdout.contains("U1  SEND of 8 bytes beside connected UDP\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("inned") && ran.stdout.contains(" ×\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("must be"), "a quick run judges nothing: {}", ran.stdout);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for series in report["series"].as_array().unwrap() {
        let rounds = series["rounds"].as_array().unwrap();
        assert!(
            rounds.len() == 2 && rounds.iter().all(|round| round["half_trip_us"].as_f64().unwrap() > 0.0)
        );
    }
    assert!(report["facts"]["kernel"].as_str().unwrap().starts_with("Linux"));
    // What was kept makes the same page again, and nothing is measured for it.
    let again = userdma(&["bench", "--from", json, "--markdown", "-"]);
    assert_eq!((again.status, &again.stderr[..]), (0, ""));
    assert_eq!(again.stdout, std::fs::read_to_string(markdown).unwrap());
    assert!(std::fs::read_to_string(dir.join("latency.svg")).unwrap().starts_with("<svg "));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn every_way_of_our_own_works() {
    // Curves have all lengths; U3, U4, U8, U9 and U11 all setups. Other programs are left alone: they take a second each.
    for (index, only) in
        ["raw UDP", "loss", "sendmmsg", "sleeping, beside blocking UDP", "cache line", "memcpy", "curves"]
            .iter()
            .enumerate()
    {
        let addresses = format!("127.0.32.{},127.0.32.{}", 10 + 2 * index, 11 + 2 * index);
        let args = ["bench", "--rounds", "1", "--slice", "5", "--only", only, "--addresses", &addresses];
        let ran = userdma(&args);
        if ran.stderr.contains("it needs two CPUs") {
            eprintln!("SKIPPED {only}: one CPU");
            continue;
        }
        assert_eq!(ran.status, 0, "{only}: {ran:?}");
        assert!(!ran.stdout.contains("FAILED"), "{}", ran.stdout);
        assert_eq!(ran.stdout.contains("must be ≥ 3"), *only == "sendmmsg", "{}", ran.stdout);
    }
}

#[test]
fn objects_have_a_price() {
    let ran = userdma(&["bench", "--only", "objects", "--rounds", "1", "--json", "-"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let each = report["objects"]["each"].as_array().unwrap();
    assert_eq!(each.len(), 7);
    assert!(each.iter().all(|one| one["create_us"].as_f64().unwrap() > 0.0), "{each:?}");
}

#[test]
fn what_there_is_to_compare_is_listed() {
    let ran = userdma(&["bench", "--list"]);
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    for goal in ["U1 ", "U3 ", "U4 ", "U7 ", "U8 ", "U9 ", "U10", "U11"] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(goal)), "{goal}");
    }
    let ran = userdma(&["bench", "--only", "nothing"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("bench --list"), "{}", ran.stderr);
}

#[test]
fn a_tool_that_is_not_there_is_said_to_be_absent() {
    let args = ["bench", "--quick", "--only", "qperf", "--addresses", "127.0.32.6,127.0.32.7"];
    let output = command(&args).env("PATH", "/nonexistent").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("ABSENT: qperf is not installed (Debian: qperf)"), "{text}");
}

#[test]
fn what_fails_says_so_and_the_others_go_on() {
    // An address that is nobody's: nothing between two processes can be measured, copying can.
    let args = ["bench", "--quick", "--only", "memcpy", "--addresses", "192.0.2.1,192.0.2.2"];
    let ran = userdma(&args);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("FAILED write_1m: ") && ran.stderr.contains("192.0.2.1"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("could not be measured: write_1m\n"), "{}", ran.stderr);
    assert!(ran.stdout.contains("one core"), "{}", ran.stdout);
}

#[test]
fn an_interrupt_leaves_no_child_behind() {
    const MARK: &str = "127.0.32.9";
    let args = ["bench", "--rounds", "1000", "--only", "U1", "--addresses", "127.0.32.8,127.0.32.9"];
    let mut child = interruptible(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Its own arguments name the address, and so do the second process's.
    wait_for(|| running_with(MARK).len() == 2);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap();
    wait_for(|| running_with(MARK).is_empty());
}

/// The program with the default action for an interrupt, which it inherits as ignored from scripts that run tests in the background.
fn interruptible(args: &[&str]) -> Command {
    let program = command(args);
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(program.get_program()).args(program.get_args());
    command
}

/// Processes whose command line contains `mark` and that have not ended.
fn running_with(mark: &str) -> Vec<String> {
    let dirs = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    dirs.filter(|dir| {
        let line = std::fs::read(dir.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    })
    .map(|dir| dir.file_name().to_string_lossy().into_owned())
    .collect()
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not become so within 10 s");
}
