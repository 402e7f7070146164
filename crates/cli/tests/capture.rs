//! `userdma capture` on files of the kernel's rxe, on its own kinds of files, and on what is none.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::fs;
use std::path::PathBuf;

use pcap_file::pcap::PcapReader;
use userdma_cli::capture::file::Frames;

use common::{Ran, golden, scratch, userdma, userdma_with_input};

fn capture(args: &[&str]) -> Ran {
    userdma(&[&["capture"], args].concat())
}

fn golden_files() -> Vec<PathBuf> {
    let mut files = vec![golden("probe_errors.pcap")];
    for folder in ["rxe", "rxe4096"] {
        files.extend(fs::read_dir(golden(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|ext| ext == "pcap"));
    files.sort();
    files
}

#[test]
fn lines_of_the_kernels_operations() {
    for name in [
        "rc_ops",
        "rnr_wait",
        "nak_badkey_write",
        "mw_send_inv",
        "rc_ipv6",
        "ud_ops",
        "duplicate",
        "cm_rping",
    ] {
        let ran = capture(&[golden("rxe").join(format!("{name}.pcap")).to_str().unwrap()]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{name}");
        insta::assert_snapshot!(format!("lines_{name}"), ran.stdout);
    }
}

#[test]
fn summaries_tell_what_was_lost_and_refused() {
    for name in ["loss_random", "rnr_exceeded", "corrupt", "rc_psn_wrap"] {
        let ran = capture(&["--stats", golden("rxe").join(format!("{name}.pcap")).to_str().unwrap()]);
        assert_eq!(ran.status, 0);
        insta::assert_snapshot!(format!("stats_{name}"), ran.stdout);
    }
}

#[test]
fn every_field_is_printed_if_asked_for() {
    let file = golden("rxe").join("rc_ipv6.pcap");
    let ran = capture(&["-v", file.to_str().unwrap()]);
    let first = ran.stdout.split("\n\n").next().unwrap();
    insta::assert_snapshot!("verbose", first);
}

/// The manifest: 1,996 packets of rxe and 102 of the probes, of which three are malformed.
#[test]
fn every_golden_file_is_decoded_and_no_packet_is_missed() {
    let (mut good, mut bad, mut malformed) = (0, 0, 0);
    for file in golden_files() {
        let ran = capture(&[file.to_str().unwrap()]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", file.display());
        good += ran.stdout.matches("[icrc good]").count();
        bad += ran.stdout.matches("[ICRC BAD]").count() + ran.stdout.matches("[icrc fits unknown").count();
        malformed += ran.stdout.matches("MALFORMED").count();
    }
    assert_eq!((good, bad, malformed), (1982 + 98, 14 + 1, 3));
}

/// The reader is our own; another one must see the same frames at the same times.
#[test]
fn another_reader_sees_the_same_frames() {
    for file in golden_files() {
        let mut theirs = PcapReader::new(fs::File::open(&file).unwrap()).unwrap();
        let mut ours = Frames::new(fs::File::open(&file).unwrap()).unwrap();
        while let Some(packet) = theirs.next_packet() {
            let packet = packet.unwrap();
            let frame = ours.next().expect("no frame is missing").unwrap();
            assert_eq!(frame.bytes, &packet.data[..], "{}", file.display());
            assert_eq!(u128::from(frame.at_ns.unwrap()), packet.timestamp.as_nanos(), "{}", file.display());
        }
        assert!(ours.next().is_none(), "{}", file.display());
    }
}

#[test]
fn a_queue_pair_is_followed_in_both_directions() {
    let file = golden("rxe").join("srq_pingpong.pcap");
    let all = capture(&[file.to_str().unwrap()]).stdout;
    let one = capture(&["--qpn", "0x16", file.to_str().unwrap()]).stdout;
    let to_it = all.lines().filter(|line| line.contains("qpn 0x000016")).count();
    assert_eq!(one.lines().filter(|line| line.contains("qpn 0x000016")).count(), to_it);
    assert_eq!(one.lines().count(), to_it, "the numbers on both sides are equal in this file");
}

#[test]
fn a_queue_pair_that_is_not_there_is_said_to_be_missing() {
    let file = golden("rxe").join("srq_pingpong.pcap");
    let ran = capture(&["--qpn", "0xabc", file.to_str().unwrap()]);
    let packets = capture(&[file.to_str().unwrap()]).stdout.lines().count();
    let text = format!("no packet of queue pair 0x000abc among {packets}; --stats lists the connections\n");
    assert_eq!((ran.status, ran.stdout), (0, text));
}

#[test]
fn the_same_file_comes_through_standard_input() {
    let file = golden("rxe").join("rc_ops.pcap");
    let bytes = fs::read(&file).unwrap();
    let ran = userdma_with_input(&["capture", "-"], &bytes);
    assert_eq!(ran.stdout, capture(&[file.to_str().unwrap()]).stdout);
}

#[test]
fn packets_that_were_cut_off_are_decoded_as_far_as_they_go() {
    let bytes = fs::read(golden("rxe").join("rc_write_big.pcap")).unwrap();
    let ran = userdma_with_input(&["capture", "-"], &cut_packets(&bytes, 96));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let middle = ran.stdout.lines().find(|line| line.contains("WRITE Middle")).unwrap();
    assert!(middle.contains("1024 bytes  [icrc not captured]"), "{middle}");
    assert!(middle.ends_with("last 986 bytes not captured"), "{middle}");
}

/// The file with only the first `len` bytes of each packet, as `tcpdump -s` writes it.
fn cut_packets(file: &[u8], len: usize) -> Vec<u8> {
    let mut out = file[..24].to_vec();
    let mut rest = &file[24..];
    while let Some((head, packets)) = rest.split_at_checked(16) {
        let whole = u32::from_le_bytes(*head[8..].first_chunk().unwrap()) as usize;
        let kept = whole.min(len);
        out.extend(&head[..8]);
        out.extend(u32::try_from(kept).unwrap().to_le_bytes());
        out.extend(&head[12..]);
        out.extend(&packets[..kept]);
        rest = &packets[whole..];
    }
    out
}

#[test]
fn a_super_packet_appears_as_the_packets_it_stands_for() {
    let ran = userdma_with_input(&["capture", "-"], &common::super_packet_file());
    insta::assert_snapshot!("super_packet", ran.stdout);
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let dir = scratch("bad_files");
    let good = fs::read(golden("rxe").join("rc_ops.pcap")).unwrap();
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty.pcap", b"", "is empty"),
        ("text.pcap", b"hello, world", "is no pcap or pcapng file: it starts with 68 65 6c 6c"),
        ("short.pcap", &good[..10], "ends inside the file header that begins at byte 0"),
        ("truncated.pcap", &good[..200], "ends inside the packet that begins at byte 162"),
    ];
    for (name, bytes, problem) in cases {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        let ran = capture(&[path.to_str().unwrap()]);
        assert_eq!(ran.status, 1, "{name}");
        assert_eq!(ran.stderr, format!("userdma: {} {problem}\n", path.display()));
    }
    let truncated = capture(&[dir.join("truncated.pcap").to_str().unwrap()]);
    assert_eq!(truncated.stdout.lines().count(), 1, "what is whole is shown");
    let missing = capture(&["/no/such/file"]);
    assert_eq!(missing.status, 1);
    assert!(
        missing.stderr.starts_with("userdma: cannot open /no/such/file: No such file"),
        "{}",
        missing.stderr
    );
    let folder = capture(&[dir.to_str().unwrap()]);
    assert_eq!((folder.status, folder.stderr), (1, format!("userdma: {} is a folder\n", dir.display())));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn damage_never_crashes_it() {
    let good = fs::read(golden("rxe").join("rc_ops.pcap")).unwrap();
    // A generator of its own: the test is the same everywhere.
    let mut state = 0x5eed_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for _ in 0..40 {
        let mut bytes = good.clone();
        for _ in 0..20 {
            let at = random() as usize % bytes.len();
            bytes[at] = random().to_le_bytes()[0];
        }
        let ran = userdma_with_input(&["capture", "-v", "-"], &bytes);
        assert!(ran.status == 0 || ran.status == 1 && !ran.stderr.is_empty(), "{ran:?}");
        assert!(!ran.stderr.contains("panic"), "{}", ran.stderr);
    }
}

#[test]
fn a_capture_without_packets_of_ours_says_so() {
    let file = golden("rxe").join("rc_ops.pcap");
    let ran = capture(&["--port", "4792", file.to_str().unwrap()]);
    assert_eq!(ran.status, 0);
    let frames = capture(&[file.to_str().unwrap()]).stdout.lines().count();
    assert_eq!(ran.stdout, format!("no RoCE v2 packet (UDP port 4792) among {frames} frames\n"));
}
