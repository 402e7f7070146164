//! `docs/errors.md` and the tests that it names: each row has a test that exists, and every text that it quotes stands in
//! one of the row's tests. And `docs/limits.md`: the limits are those of the code.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, and its helpers too")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A row of one of the page's tables.
struct Row {
    line: usize,
    cells: Vec<String>,
}

impl Row {
    /// The tests of the last cell, as `crate::path::name`.
    fn tests(&self) -> Vec<&str> {
        let last = self.cells.last().map_or("", String::as_str);
        quoted(last).into_iter().filter(|name| name.contains("::")).collect()
    }

    /// Programs of the last cell that must not compile.
    fn programs(&self) -> Vec<&str> {
        let last = self.cells.last().map_or("", String::as_str);
        quoted(last).into_iter().filter(|name| name.ends_with(".rs")).collect()
    }

    /// What the row quotes before its last cell, in guillemets.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.cells[..self.cells.len() - 1].iter().flat_map(|cell| between(cell, "«", "»"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    let is_rule = |line: usize| lines.get(line).is_some_and(|line: &&str| line.starts_with("|--"));
    let rows = lines.iter().enumerate().filter(|(at, line)| {
        // Neither a heading nor the rule below it.
        line.starts_with('|') && !is_rule(*at) && !is_rule(at + 1)
    });
    rows.map(|(at, line)| Row { line: at + 1, cells: cells(line) }).collect()
}

/// The cells of a row; `\|` is a character of a cell.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{1}");
    inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split_once(close).map(|(inner, _)| inner))
}

/// The source file of a test, and the test's name: `ibt::rc::tests::errors::name` lies in
/// `crates/ibt/src/rc/tests/errors.rs`, `mem::tests::region::name` in `crates/mem/tests/region.rs`, and the test module
/// at the end of a file in that file.
fn find(test: &str) -> Option<(PathBuf, &str)> {
    let mut path: Vec<&str> = test.split("::").collect();
    let (name, krate) = (path.pop()?, path.first().copied()?);
    let folder = ["crates", "interop"].map(|parent| root().join(parent).join(krate));
    let folder = folder.into_iter().find(|folder| folder.is_dir())?;
    let mut candidates = Vec::new();
    for modules in [&path[1..], path[1..].strip_suffix(&["tests"]).unwrap_or(&[])] {
        if !modules.is_empty() {
            let file = modules.join("/") + ".rs";
            candidates.extend([folder.join("src").join(&file), folder.join(&file)]);
        }
    }
    let file = candidates.into_iter().find(|file| file.is_file() && has_test(file, name))?;
    Some((file, name))
}

/// Whether the file has a test function of this name.
fn has_test(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let heads = [format!("fn {name}("), format!("async fn {name}(")];
    lines.iter().enumerate().any(|(at, line)| {
        heads.iter().any(|head| line.starts_with(head))
            && lines[..at]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("#["))
                .any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn every_row_of_the_page_names_tests_that_exist() {
    let rows = rows();
    assert!(rows.len() > 50, "{} rows: the page is not read as it is meant", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let tests = row.tests();
        if tests.is_empty() {
            wrong.push(format!("line {}: no test", row.line));
        }
        let missing = tests.into_iter().filter(|test| find(test).is_none());
        wrong.extend(missing.map(|test| format!("line {}: there is no test {test}", row.line)));
        let missing = row.programs().into_iter().filter(|file| !root().join("crates").join(file).is_file());
        wrong.extend(missing.map(|file| format!("line {}: there is no program {file}", row.line)));
    }
    assert!(wrong.is_empty(), "docs/errors.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_text_that_the_page_quotes_stands_in_a_test_of_its_row() {
    let mut sources = HashMap::new();
    let mut wrong = Vec::new();
    for row in rows() {
        let files: Vec<PathBuf> = row.tests().into_iter().filter_map(find).map(|(file, _)| file).collect();
        for text in row.texts() {
            let stands = files.iter().any(|file| {
                let source: &String =
                    sources.entry(file.clone()).or_insert_with(|| fs::read_to_string(file).unwrap());
                source.contains(text)
            });
            if !stands {
                wrong.push(format!("line {}: no test says «{text}»", row.line));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/errors.md:\n{}", wrong.join("\n"));
}

/// Every counter of what is dropped, and every status, has its place on the page.
#[test]
fn the_page_has_every_status_and_every_counter_of_dropped_packets() {
    let page = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let stats = userdma::Stats::default();
    let dropped = stats.iter().map(|(name, _)| name).filter(|name| name.starts_with("drop_"));
    let names = dropped.chain(["unexpected_response"]).map(str::to_owned);
    let statuses = STATUSES.iter().map(|status| format!("{status:?}"));
    let missing: Vec<_> = names.chain(statuses).filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/errors.md lacks {missing:?}");
}

#[test]
fn the_limits_on_their_page_are_those_of_the_device() {
    let page = fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let limits = format!("{:?}", userdma::DeviceAttr::LIMITS);
    let fields: Vec<_> = between(&limits, "{", "}").flat_map(|fields| fields.split(", ")).collect();
    assert!(fields.len() >= 13, "{limits}");
    for field in fields {
        let (name, value) = field.split_once(": ").unwrap();
        let (name, value) = (name.trim(), value.trim());
        assert!(page.contains(&format!("| `{name}` | {value} |")), "docs/limits.md: {name} is {value}");
    }
}

const STATUSES: [userdma::WcStatus; 17] = {
    use userdma::WcStatus::{
        BadRespErr, FatalErr, GeneralErr, LocAccessErr, LocLenErr, LocProtErr, LocQpOpErr, MwBindErr,
        RemAbortErr, RemAccessErr, RemInvReqErr, RemOpErr, RespTimeoutErr, RetryExcErr, RnrRetryExcErr,
        Success, WrFlushErr,
    };
    [
        Success,
        LocLenErr,
        LocQpOpErr,
        LocProtErr,
        WrFlushErr,
        MwBindErr,
        BadRespErr,
        LocAccessErr,
        RemInvReqErr,
        RemAccessErr,
        RemOpErr,
        RetryExcErr,
        RnrRetryExcErr,
        RemAbortErr,
        FatalErr,
        RespTimeoutErr,
        GeneralErr,
    ]
};
