//! What a newcomer reads uses no abbreviation that the glossary does not explain.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What every reader of these pages knows, and words in capitals that are no abbreviations.
const KNOWN: &[&str] = &[
    "API",
    "CHANGELOG",
    "CI",
    "CONTRIBUTING",
    "CPU",
    "FILE",
    "GB",
    "GET",
    "GRO",
    "GSO",
    "MIT",
    "MPI",
    "MPICH",
    "NONE",
    "SIGNALED",
    "UCX",
];

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The page without its programs.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// Words of two capitals or more. Those in names of items, as `WcStatus`, are none.
fn abbreviations(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).map(|word| word.strip_suffix('s').unwrap_or(word));
    words.filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase())).collect()
}

#[test]
fn every_abbreviation_of_the_first_pages_is_explained() {
    let glossary = page("docs/glossary.md");
    let explained = abbreviations(&glossary);
    for name in ["README.md", "docs/guide.md"] {
        let text = prose(&page(name));
        let unknown: Vec<_> = abbreviations(&text)
            .into_iter()
            .filter(|a| !explained.contains(a) && !KNOWN.contains(a))
            .collect();
        assert!(
            unknown.is_empty(),
            "{name}: {unknown:?} in neither docs/glossary.md nor the list of known words"
        );
    }
}

#[test]
fn an_abbreviation_is_of_capitals() {
    let text = "Two MRs, one `max_qp_wr`, WcStatus, REMOTE_WRITE, A and QP.";
    assert_eq!(abbreviations(text).into_iter().collect::<Vec<_>>(), ["MR", "QP"]);
}

#[test]
fn the_glossary_is_linked_where_newcomers_begin() {
    for name in ["README.md", "docs/guide.md"] {
        assert!(page(name).contains("glossary.md"), "{name}");
    }
    assert!(page("crates/userdma/src/lib.rs").contains("[`glossary`]"));
}
