//! `userdma bench`: what it prints. What it finds is no test's business, but for one that asks for it.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use common::userdma;

#[test]
fn both_sides_of_each_comparison_are_measured() {
    let args = ["bench", "--rounds", "2", "--slice", "5", "--json", "--addresses", "127.0.32.2,127.0.32.3"];
    let ran = userdma(&args);
    assert_eq!(ran.status, 0, "{ran:?}");
    let list: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 8);
    for comparison in list {
        for side in ["userdma", "plain", "ratio"] {
            let spread = ["min", "median", "max"].map(|figure| comparison[side][figure].as_f64().unwrap());
            assert!(spread[0] > 0.0 && spread.is_sorted(), "{comparison}");
        }
    }
}

#[test]
fn a_part_can_be_chosen_by_name() {
    let args = ["bench", "--rounds", "1", "--slice", "5", "--addresses", "127.0.32.4,127.0.32.5"];
    let ran = userdma(&[&args[..], &["--only", "SEND/RECV"]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.stdout.starts_with("SEND/RECV of 8 bytes") && ran.stdout.contains("must be ≤ 1.5\n"),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.stdout.matches("userdma ").count(), 1);
    let ran = userdma(&[&args[..], &["--only", "nothing"]].concat());
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("--only fits none of") && ran.stderr.contains("WRITE of 1 MiB"),
        "{}",
        ran.stderr
    );
}
