//! `userdma devices` and `userdma run` with devices of one's own.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::path::Path;

use common::{Ran, command, scratch};

fn with(args: &[&str], config: &Path, devices: &str) -> Ran {
    let mut command = command(args);
    command.env("USERDMA_CONFIG", config).env("USERDMA_DEVICES", devices);
    command.output().unwrap().into()
}

#[test]
fn the_devices_of_the_file_are_listed_and_the_variable_chooses_among_them() {
    let folder = scratch("devices");
    let file = folder.join("userdma.toml");
    let text = r#"
        [[device]]
        name = "left"
        addresses = ["127.0.79.20"]
        mtu = 1024
        [[device]]
        name = "right"
        addresses = ["192.0.2.7"]
    "#;
    std::fs::write(&file, text).unwrap();
    let list = |devices: &str| -> serde_json::Value {
        let ran = with(&["devices", "--json"], &file, devices);
        assert_eq!(ran.status, 0, "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let both = list("");
    let names: Vec<_> = both["devices"].as_array().unwrap().iter().map(|device| &device["name"]).collect();
    assert_eq!(names, ["left", "right"]);
    assert_eq!(both["devices"][0]["active_path_mtu"], 1024);
    assert!(both["devices"][1]["state"].as_str().unwrap().starts_with("DOWN"), "{both}");
    let one = list("left;127.0.79.21");
    assert_eq!((&one["devices"][0]["name"], &one["devices"][1]["name"]), (&"left".into(), &"roce_lo".into()));
    assert_eq!(one["devices"][1]["gids"][0]["address"], "127.0.79.21");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_wrong_is_named_with_its_file_and_line() {
    let folder = scratch("devices-wrong");
    let file = folder.join("userdma.toml");
    std::fs::write(&file, "[[device]]\ninterface = \"lo\"\nmtu = 9000\n").unwrap();
    let ran = with(&["devices"], &file, "");
    let wanted =
        format!("userdma: {}:3: mtu = 9000: 256, 512, 1024, 2048 and 4096 are possible\n", file.display());
    assert_eq!((ran.status, ran.stderr), (1, wanted));
    let ran = with(&["run", "--device", "eth9", "--", "true"], Path::new(""), "");
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.starts_with("userdma: ") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    std::fs::remove_dir_all(folder).unwrap();
}
