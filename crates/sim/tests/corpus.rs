//! Every file of `fuzz/corpus`, and what the fuzzers' harness itself must notice.

#![allow(clippy::expect_used, reason = "also in functions that tests share")]

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use userdma_sim::fuzz::TARGETS;

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

#[test]
fn no_file_of_the_corpus_does_what_it_must_not() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        for file in corpus(name) {
            let bytes = fs::read(&file).expect("a file of the corpus");
            if panic::catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
                failed.push(file.display().to_string());
            }
        }
    }
    assert!(failed.is_empty(), "these inputs fail:\n{}", failed.join("\n"));
}

/// Any prefix of a program is a program, and no bytes at all are one.
#[test]
fn no_prefix_of_the_corpus_does_what_it_must_not() {
    for (name, target) in TARGETS {
        for file in corpus(name).iter().take(3) {
            let bytes = fs::read(file).expect("a file of the corpus");
            (0..bytes.len().min(64)).for_each(|end| target(&bytes[..end]));
        }
    }
}
