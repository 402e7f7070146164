//! What the program says when its output cannot be written, as on a full disk.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::fs::File;

use common::{Ran, command, golden};

/// Runs the program with a full device as its standard output.
fn run(args: &[&str]) -> Ran {
    let full = File::options().write(true).open("/dev/full").unwrap();
    command(args).stdout(full).output().unwrap().into()
}

fn assert_is_told(args: &[&str]) {
    let ran = run(args);
    assert_eq!(ran.status, 1, "{args:?}: {ran:?}");
    assert!(ran.stderr.starts_with("userdma: standard output: "), "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
}

#[test]
fn every_command_fails_and_says_why() {
    let capture = golden("rxe/rc_ops.pcap");
    let capture = capture.to_str().unwrap();
    for args in [
        &["--help"][..],
        &["demo", "--help"],
        &["--version"],
        &["devices"],
        &["devices", "--json"],
        &["capture", capture],
        &["capture", "--verbose", capture],
        &["capture", "--stats", capture],
        &["bench", "--list"],
    ] {
        assert_is_told(args);
    }
}

/// It ends with the first step, long before a measurement.
#[test]
fn the_demo_fails_and_says_why() {
    assert_is_told(&["demo", "--addresses", "127.0.230.2,127.0.230.3", "--seconds", "3600"]);
    assert_is_told(&["demo", "--addresses", "127.0.230.4,127.0.230.5", "--seconds", "0", "--json"]);
}

/// `--help` of a wrong command line goes to standard error, which is not full.
#[test]
fn wrong_arguments_stay_what_they_are() {
    let ran = run(&["frobnicate"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("frobnicate"), "{}", ran.stderr);
}
