//! Every file of `fuzz/corpus/capture`.

#![allow(clippy::expect_used, reason = "also in functions that tests share")]

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

#[test]
fn no_file_of_the_corpus_does_more_than_be_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let mut failed = Vec::new();
    for file in files {
        let bytes = fs::read(&file).expect("a file of the corpus");
        if panic::catch_unwind(|| userdma_cli::capture::fuzz(&bytes)).is_err() {
            failed.push(file.display().to_string());
        }
    }
    assert!(failed.is_empty(), "these inputs fail:\n{}", failed.join("\n"));
}
