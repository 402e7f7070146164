//! The command line as a newcomer meets it.

mod common;

use common::userdma;

#[test]
fn help_explains_and_names_the_commands() {
    for args in [
        &["--help"][..],
        &["help"],
        &["demo", "--help"],
        &["devices", "--help"],
        &["capture", "--help"],
        &["bench", "--help"],
        &["agent", "--help"],
    ] {
        let ran = userdma(args);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{args:?}");
        assert!(
            !ran.stdout.contains("demo-peer")
                && !ran.stdout.contains("agent-keeper")
                && !ran.stdout.contains("plant-fault"),
            "{args:?} shows what is hidden"
        );
        if args.len() == 1 {
            for word in ["demo", "devices", "capture", "bench", "RDMA lets one program read and write"] {
                assert!(ran.stdout.contains(word), "{args:?} without {word}");
            }
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    let ran = userdma(&["--version"]);
    assert_eq!((ran.status, ran.stdout), (0, format!("userdma {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_arguments_are_status_2_and_are_named() {
    for (args, named) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["capture"], "<FILE>"),
        (&["capture", "--qpn", "0x1000000", "x"], "24 bits"),
        (&["demo", "--seconds", "-1"], "-1"),
        (&["demo", "--seconds", "soon"], "not a number"),
        (&["demo", "--addresses", "127.0.0.2"], "addresses"),
        (&["demo", "--addresses", "127.0.0.2,host"], "host"),
        (&["demo", "--addresses", "127.0.0.2,::1"], "both must be IPv4, or both IPv6"),
        (&["bench", "--rounds", "0"], "rounds"),
        (&["bench", "--quick", "--check"], "cannot be used with"),
    ] {
        let ran = userdma(args);
        assert_eq!(ran.status, 2, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(named), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn devices_are_listed_for_people_and_for_programs() {
    let ran = userdma(&["devices"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("roce_lo") && ran.stdout.contains("::ffff:127.0.0.1"), "{}", ran.stdout);
    let ran = userdma(&["devices", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let devices = list["devices"].as_array().expect("devices");
    let lo = devices.iter().find(|device| device["name"] == "roce_lo").expect("loopback");
    assert_eq!(lo["gids"][0]["gid"], "::ffff:127.0.0.1");
    assert_eq!(lo["gids"][0]["index"], 0);
}
