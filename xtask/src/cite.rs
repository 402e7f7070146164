//! The citations in the comments: listed per crate, and checked for their form.
//!
//! A citation lets a reader find the text that the author had before him, so it names a place in it:
//!
//! - `IBTA C9-92`, `IBTA o9-43`, `IBTA ch. 9.2`, `IBTA vol. 1, ch. 9.7`, `IBTA table 37`, `IBTA fig. 82`, `IBTA annex A14`
//! - `RoCEv2 annex A17`, `RoCEv2 annex A17.9`
//! - `RFC 5044 §4.1`, `RFC 5044 appendix A`
//! - `as rxe_resp.c check_psn()`, `rxe_comp.c rnrnak_usec` (a table), `rxe_hdr.h struct rxe_bth`

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// RFCs that have no numbered sections: naming them is naming the place.
const WITHOUT_SECTIONS: [&str; 1] = ["768"];

/// Kernel files besides those of rxe and siw whose names begin like that.
const KERNEL_FILES: [&str; 15] = [
    "rxe",
    "siw",
    "core/verbs",
    "addr",
    "cm",
    "cma",
    "ucma",
    "mad",
    "read_write",
    "cm_msgs",
    "ib_cm",
    "ib_mad",
    "ib_verbs",
    "ib_user_ioctl_verbs",
    "ibta_vol1_c12",
];

/// A reference to a text, found in a comment.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Citation {
    Good(String),
    /// The words as they stand, and what is missing.
    Malformed(String, &'static str),
}

/// Lists the citations of every crate under `root`; returns the malformed ones.
///
/// # Errors
/// A source file or folder could not be read.
pub(crate) fn run(root: &Path) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    let mut total = 0;
    for folder in crate_folders(root)? {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in sources(&folder)? {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            for (line, citation) in citations(&text) {
                match citation {
                    Citation::Good(what) => places.entry(what).or_default().push(format!("{shown}:{line}")),
                    Citation::Malformed(what, why) => {
                        complaints.push(format!("{shown}:{line}: citation '{what}': {why}"));
                    }
                }
            }
        }
        let count: usize = places.values().map(Vec::len).sum();
        total += count;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        println!("{name}: {count} citations");
        for (what, at) in &places {
            println!("  {what:<40} {}", at.join(" "));
        }
    }
    println!("cite: {total} citations, {} malformed", complaints.len());
    Ok(complaints)
}

fn crate_folders(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut folders = entries(&root.join("crates"))?;
    folders.push(root.join("examples"));
    folders.push(root.join("interop"));
    folders.retain(|f| f.is_dir());
    Ok(folders)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listing = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = listing.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    Ok(paths)
}

/// Every Rust file below `folder`, build output aside.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            if !path.ends_with("target") {
                found.extend(sources(&path)?);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The citations in the comments of one file, with their line numbers (from 1).
fn citations(source: &str) -> Vec<(usize, Citation)> {
    let mut found = Vec::new();
    let mut words: Vec<(usize, &str)> = Vec::new();
    for (index, line) in source.lines().enumerate() {
        match comment(line) {
            // A citation may run over the end of a comment's line.
            Some(text) => words.extend(text.split_whitespace().map(|w| (index + 1, w))),
            None => found.append(&mut citations_in(&std::mem::take(&mut words))),
        }
    }
    found.append(&mut citations_in(&words));
    found
}

/// The text of a line's comment, if it has one that is not inside a string.
fn comment(line: &str) -> Option<&str> {
    let at = line
        .match_indices("//")
        .map(|(at, _)| at)
        .find(|&at| line[..at].matches('"').count().is_multiple_of(2) && !line[..at].ends_with(':'))?;
    Some(line[at..].trim_start_matches('/').trim_start_matches('!'))
}

fn citations_in(words: &[(usize, &str)]) -> Vec<(usize, Citation)> {
    let plain: Vec<&str> = words.iter().map(|(_, w)| bare(w)).collect();
    let at = |i: usize| plain.get(i).copied().unwrap_or_default();
    let mut found = Vec::new();
    for i in 0..plain.len() {
        let citation = match plain[i] {
            "IBTA" => ibta(at(i + 1), at(i + 2), at(i + 3), at(i + 4)),
            "RoCEv2" if at(i + 1).eq_ignore_ascii_case("annex") => Some(annex("RoCEv2", at(i + 2))),
            word if word.starts_with("RFC") => rfc(word, at(i + 1), at(i + 2), at(i + 3)),
            word if is_kernel_file(word) => Some(kernel(word, at(i + 1), at(i + 2))),
            _ => None,
        };
        found.extend(citation.map(|c| (words[i].0, c)));
    }
    found
}

/// A word without the punctuation and the quotes around it; a function keeps its `()`.
fn bare(word: &str) -> &str {
    let start = word.trim_start_matches(['`', '(', '"', '\'', '[']);
    let mut end = start.trim_end_matches(['`', ',', ';', ':', '.', '"', '\'', ']', '!', '?']);
    while end.ends_with(')') && !end.ends_with("()") {
        end = end[..end.len() - 1].trim_end_matches(['`', ',', '.']);
    }
    end
}

fn ibta(next: &str, second: &str, third: &str, fourth: &str) -> Option<Citation> {
    let places = |kind: &str, number: &str| {
        if is_number(number) {
            Citation::Good(format!("IBTA {kind} {number}"))
        } else {
            Citation::Malformed(format!("IBTA {kind} {number}"), "no number, such as 9.7, follows")
        }
    };
    let statement = next.trim_start_matches(['C', 'o', 'A']);
    match next {
        "ch" => Some(places("ch.", second)),
        "table" | "fig" => Some(places(next, second)),
        "annex" => Some(annex("IBTA", second)),
        "vol" if third == "ch" && is_number(second) => Some(places(&format!("vol. {second}, ch."), fourth)),
        "vol" => Some(Citation::Malformed(
            format!("IBTA vol. {second} {third}"),
            "a volume is followed by 'ch. 9.7' or the like",
        )),
        "section" | "sec" | "chapter" | "clause" | "§" => {
            Some(Citation::Malformed(format!("IBTA {next} {second}"), "write 'IBTA ch. 9.7' or 'IBTA C9-92'"))
        }
        _ if next.starts_with('§') || next.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(Citation::Malformed(format!("IBTA {next}"), "write 'IBTA ch. 9.7' or 'IBTA C9-92'"))
        }
        _ if next.starts_with(['C', 'o']) && statement.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(if is_statement(statement) {
                Citation::Good(format!("IBTA {next}"))
            } else {
                Citation::Malformed(format!("IBTA {next}"), "a compliance statement reads C9-92 or o9-43")
            })
        }
        // A sentence about the association, or what it calls something.
        _ => None,
    }
}

fn annex(text: &str, number: &str) -> Citation {
    if number.strip_prefix('A').is_some_and(is_number) {
        Citation::Good(format!("{text} annex {number}"))
    } else {
        Citation::Malformed(format!("{text} annex {number}"), "an annex has a number, such as A17")
    }
}

fn rfc(word: &str, number: &str, place: &str, detail: &str) -> Option<Citation> {
    if word != "RFC" {
        let glued = word[3..].trim_start_matches('-');
        let is_cited = glued.starts_with(|c: char| c.is_ascii_digit());
        return is_cited.then(|| Citation::Malformed(word.into(), "write 'RFC 5044 §4'"));
    }
    let number = number.trim_end_matches("'s");
    if !number.bytes().all(|b| b.is_ascii_digit()) || number.is_empty() {
        return None;
    }
    let section = place.strip_prefix('§').filter(|s| is_number(s));
    Some(match section {
        Some(section) => Citation::Good(format!("RFC {number} §{section}")),
        None if place == "appendix" && !detail.is_empty() => {
            Citation::Good(format!("RFC {number} appendix {detail}"))
        }
        None if WITHOUT_SECTIONS.contains(&number) => Citation::Good(format!("RFC {number}")),
        None => Citation::Malformed(format!("RFC {number} {place}"), "no section, such as §4, follows"),
    })
}

fn is_kernel_file(word: &str) -> bool {
    let module = word.strip_suffix(".c").or_else(|| word.strip_suffix(".h"));
    module.is_some_and(|m| m.starts_with("rxe_") || m.starts_with("siw_") || KERNEL_FILES.contains(&m))
}

fn kernel(file: &str, place: &str, second: &str) -> Citation {
    let is_name = |n: &str| n.len() > 2 && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if matches!(place, "struct" | "enum") && is_name(second) {
        return Citation::Good(format!("{file} {place} {second}"));
    }
    // A function by its parentheses, a table or a constant by its underscore.
    if place.strip_suffix("()").is_some_and(is_name) || (is_name(place) && place.contains('_')) {
        return Citation::Good(format!("{file} {place}"));
    }
    Citation::Malformed(format!("{file} {place}"), "no function or table, such as check_psn(), follows")
}

/// `9`, `9.7`, `9.7.5.1.2`
fn is_number(text: &str) -> bool {
    !text.is_empty()
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// `9-92`, `9-92.1.1`
fn is_statement(text: &str) -> bool {
    text.split_once('-').is_some_and(|(chapter, number)| is_number(chapter) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(source: &str) -> Vec<String> {
        let keep = |(_, c)| match c {
            Citation::Good(what) => Some(what),
            Citation::Malformed(what, why) => panic!("{what}: {why}"),
        };
        citations(source).into_iter().filter_map(keep).collect()
    }

    fn is_malformed(source: &str) -> bool {
        matches!(citations(source).as_slice(), [(_, Citation::Malformed(..))])
    }

    #[test]
    fn every_form_is_recognised() {
        assert_eq!(good("/// Judges a PSN (IBTA C9-92, IBTA o9-43.1)."), ["IBTA C9-92", "IBTA o9-43.1"]);
        assert_eq!(
            good("//! IBTA ch. 9.2; IBTA vol. 1, ch. 9.7, \"x\""),
            ["IBTA ch. 9.2", "IBTA vol. 1, ch. 9.7"]
        );
        assert_eq!(
            good("// IBTA table 37, IBTA fig. 82, IBTA annex A14"),
            ["IBTA table 37", "IBTA fig 82", "IBTA annex A14"]
        );
        assert_eq!(good("// RoCEv2 annex A17.9.2."), ["RoCEv2 annex A17.9.2"]);
        assert_eq!(
            good("// RFC 5044 §4.1, RFC 5040 appendix A, RFC 768"),
            ["RFC 5044 §4.1", "RFC 5040 appendix A", "RFC 768"]
        );
        assert_eq!(good("// As `rxe_resp.c check_psn()`, RC branch."), ["rxe_resp.c check_psn()"]);
        assert_eq!(good("// as rxe_hdr.h BTH_PSN_MASK"), ["rxe_hdr.h BTH_PSN_MASK"]);
        assert_eq!(good("// `core/verbs.c ib_modify_qp_is_ok()`"), ["core/verbs.c ib_modify_qp_is_ok()"]);
        assert_eq!(good("// as rxe_hdr.h `struct rxe_bth`"), ["rxe_hdr.h struct rxe_bth"]);
    }

    #[test]
    fn a_citation_without_a_place_is_malformed() {
        for text in [
            "// IBTA 9.7",
            "// IBTA section 9.7",
            "// IBTA §9.7",
            "// IBTA C9.92",
            "// IBTA ch. nine",
            "// IBTA vol. 1",
            "// RFC 5044",
            "// RFC 5044, section 4",
            "// RFC5044 §4",
            "// RoCEv2 annex",
            "// as rxe_resp.c",
            "// as rxe_resp.c. They differ",
        ] {
            assert!(is_malformed(text), "{text}: {:?}", citations(text));
        }
    }

    #[test]
    fn prose_is_not_a_citation() {
        for text in
            ["// Terms are the IBTA's.", "// The IBTA says transport.", "// an RFC", "// RoCEv2 packets"]
        {
            assert!(citations(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn only_comments_are_read() {
        assert!(citations("let a = \"IBTA 9.7\";").is_empty());
        assert!(citations("let a = \"// IBTA 9.7\";").is_empty());
        assert!(citations("let a = \"https://x\"; foo(\"RFC 5044\")").is_empty());
        assert_eq!(good("let a = 1; // IBTA C9-1"), ["IBTA C9-1"]);
    }

    #[test]
    fn a_citation_may_run_over_a_line_end_and_has_the_line_of_its_first_word() {
        let source = "fn f() {}\n// as IBTA\n// C9-92 says\n";
        assert_eq!(citations(source), [(2, Citation::Good("IBTA C9-92".into()))]);
        assert!(citations("// IBTA\nfn f() {} \n// C9.92\n").is_empty(), "code ends a comment");
    }
}
