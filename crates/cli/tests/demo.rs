//! The demo as a whole: what it shows, what its status says, and that it notices what is wrong.
//!
//! Each test has addresses of its own, so that they run side by side.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ran, scratch, userdma};

const STEPS: [&str; 11] = [
    "connect",
    "send",
    "write",
    "write-imm",
    "read",
    "compare-swap",
    "fetch-add",
    "scatter-gather",
    "1-mib",
    "wrong-key",
    "out-of-bounds",
];

fn demo(addresses: &str, args: &[&str]) -> Ran {
    userdma(&[&["demo", "--addresses", addresses], args].concat())
}

fn report(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn every_step_is_shown_and_verified_and_the_status_is_0() {
    let ran = demo("127.0.31.2,127.0.31.3", &["--seconds", "0.5"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    for number in 1..=12 {
        assert!(ran.stdout.lines().any(|line| line.starts_with(&format!("{number} "))), "step {number}");
    }
    for shown in [
        "RESET → INIT → RTR → RTS",
        "127.0.31.2 → 127.0.31.3  RC SEND Only",
        "127.0.31.3 → 127.0.31.2  RC Acknowledge",
        "RC RDMA WRITE Only with Immediate",
        "RC RDMA READ Response",
        "RC COMPARE_SWAP",
        "RC FETCH_ADD",
        "RC RDMA WRITE Middle",
        "NAK remote access error",
        "latency of 8 bytes",
        "bandwidth, messages of 1 MiB",
        "CPU seconds",
        "kernel TCP",
    ] {
        assert!(ran.stdout.contains(shown), "\"{shown}\" is missing in\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('✗') && !ran.stdout.contains('\x1b'), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("✓ 12 steps, every byte as it should be\n"), "{}", ran.stdout);
}

#[test]
fn json_has_the_steps_their_packets_and_the_figures() {
    let ran = demo("127.0.31.4,127.0.31.5", &["--seconds", "0.3", "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let report = report(&ran);
    assert_eq!(report["ok"], true);
    let names: Vec<_> =
        report["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, [&STEPS[..], &["measurement"]].concat());
    for step in &report["steps"].as_array().unwrap()[1..11] {
        assert!(step["packets"].as_array().unwrap().len() >= 2, "{step}");
        assert!(!step["verified"].as_array().unwrap().is_empty(), "{step}");
    }
    let rows = report["figures"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert!(row["rdma"].as_f64().unwrap() > 0.0 && row["kernel_tcp"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_wrong_byte_is_noticed_in_every_step_that_compares_memory() {
    for step in
        ["send", "write", "write-imm", "read", "scatter-gather", "1-mib", "wrong-key", "out-of-bounds"]
    {
        let ran = demo("127.0.31.6,127.0.31.7", &["--seconds", "0", "--json", "--plant-fault", step]);
        assert_eq!(ran.status, 1, "{step}: {ran:?}");
        let report = report(&ran);
        assert_eq!(report["ok"], false);
        assert_eq!(report["failure"], format!("wrong in: {step}"));
        for shown in report["steps"].as_array().unwrap() {
            assert_eq!(shown["ok"], shown["name"] != step, "{step}: {shown}");
        }
    }
    let ran = demo("127.0.31.6,127.0.31.7", &["--seconds", "0", "--plant-fault", "send"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("✗ byte 256 of the region is"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("✗ FAILED: wrong in: send\n"), "{}", ran.stdout);
}

#[test]
fn a_fault_for_a_step_that_does_not_exist_is_refused() {
    let ran = demo("127.0.31.8,127.0.31.9", &["--plant-fault", "sned"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("no step \"sned\"") && ran.stderr.contains("scatter-gather"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_packets_are_kept_and_the_decoder_reads_them() {
    let dir = scratch("demo_capture");
    let file = dir.join("demo.pcapng");
    let path = file.to_str().unwrap();
    let ran = demo("127.0.31.10,127.0.31.11", &["--seconds", "0", "--capture", path]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines = userdma(&["capture", path]).stdout;
    assert!(lines.lines().count() > 270, "1 MiB alone is 256 packets");
    assert!(lines.lines().all(|line| line.contains("[icrc good]")), "{lines}");
    assert!(lines.contains("  out  127.0.31.10 → 127.0.31.11  RC SEND Only"), "{lines}");
    let stats = userdma(&["capture", "--stats", path]).stdout;
    assert!(stats.contains("NAK remote access error                2"), "{stats}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_capture_file_that_cannot_be_written_is_a_failure() {
    let ran = demo("127.0.31.12,127.0.31.13", &["--seconds", "0", "--capture", "/no/such/folder/x"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "before anything is done");
    assert!(
        ran.stderr.starts_with("userdma: capture file /no/such/folder/x: No such file"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_address_that_is_taken_is_named() {
    let _taken = std::net::UdpSocket::bind("127.0.31.15:4791").unwrap();
    let ran = demo("127.0.31.14,127.0.31.15", &["--seconds", "0"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("FAILED") && ran.stdout.contains("127.0.31.15"), "{}", ran.stdout);
}

#[test]
fn two_demos_side_by_side_find_addresses_of_their_own() {
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_userdma"))
            .args(["demo", "--seconds", "0.3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [start(), start()].map(|child| Ran::from(child.wait_with_output().unwrap()));
    for ran in both {
        assert_eq!(ran.status, 0, "{ran:?}");
    }
}

#[test]
fn the_death_of_the_second_process_ends_the_demo_and_is_told() {
    let child = Command::new(env!("CARGO_BIN_EXE_userdma"))
        .args(["demo", "--seconds", "60", "--addresses", "127.0.31.16,127.0.31.17"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let second = wait_for_second(child.id());
    // It measures by now, or will soon.
    let killed = Command::new("kill").args(["-9", &second.to_string()]).status().unwrap();
    assert!(killed.success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.status, 1, "{ran:?}");
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("FAILED") && told.contains("second process"), "{told}");
}

#[test]
fn a_second_process_that_stands_still_ends_the_demo_with_the_name_of_the_step() {
    let child = Command::new(env!("CARGO_BIN_EXE_userdma"))
        .args(["demo", "--seconds", "60", "--step-timeout", "1", "--addresses", "127.0.31.18,127.0.31.19"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let second = wait_for_second(child.id());
    assert!(Command::new("kill").args(["-STOP", &second.to_string()]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("FAILED in step \"") && ran.stderr.contains("takes too long"), "{ran:?}");
    assert!(!std::path::Path::new(&format!("/proc/{second}")).exists(), "it is not left behind");
}

#[test]
fn nobody_has_to_read_to_the_end() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_userdma"))
        .args(["demo", "--seconds", "0", "--addresses", "127.0.31.20,127.0.31.21"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
}

/// The process that `parent` has started, once it runs its program.
fn wait_for_second(parent: u32) -> u32 {
    let path = format!("/proc/{parent}/task/{parent}/children");
    for _ in 0..2000 {
        let children = fs::read_to_string(&path).unwrap_or_default();
        if let Some(second) = children.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
            let program = fs::read(format!("/proc/{second}/cmdline")).unwrap_or_default();
            // Before that it is a copy of its parent, which waits for it.
            if String::from_utf8_lossy(&program).contains("demo-peer") {
                return second;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the demo has started no second process");
}
