//! A program that fails, made small.

use std::collections::BTreeSet;

use super::attempt;
use super::case::Case;

/// Leaves out of a program that fails whatever can be left out so that it still fails in the same way: faults of the
/// network, phases, requests, bytes of messages. `None` if it does not fail.
///
/// Runs the program some thousand times at most.
pub fn shrink(case: &Case) -> Option<Case> {
    let what = attempt(case, false).result.err()?;
    let mut shrinker = Shrinker { case: case.clone(), kind: kind(&what), runs: 0 };
    loop {
        let before = shrinker.case.clone();
        shrinker.shrink_once();
        if shrinker.case == before || shrinker.runs >= MAX_RUNS {
            return Some(shrinker.case);
        }
    }
}

struct Shrinker {
    /// The smallest program so far that fails.
    case: Case,
    kind: String,
    runs: usize,
}

impl Shrinker {
    fn shrink_once(&mut self) {
        if !self.case.calm {
            self.keep_if_it_fails(Case { calm: true, ..self.case.clone() });
        }
        let drawn = attempt(&self.case, false);
        let phases = drawn.requests.iter().map(|id| id.phase).collect();
        self.reduce(phases, |case, kept| case.phases = Some(kept));
        let requests = attempt(&self.case, false).requests.into_iter().collect();
        self.reduce(requests, |case, kept| case.requests = Some(kept));
        let faults = match &self.case.faults {
            Some(kept) => kept.clone(),
            None => (0..attempt(&self.case, false).faults).collect(),
        };
        self.reduce(faults, |case, kept| case.faults = Some(kept));
        self.shorten();
    }

    /// Tries smaller and smaller messages.
    fn shorten(&mut self) {
        for len in [16 << 10, 4096, 1025, 257, 64, 16, 1, 0] {
            if self.case.len.is_none_or(|now| now > len) {
                self.keep_if_it_fails(Case { len: Some(len), ..self.case.clone() });
            }
        }
    }

    /// Leaves out pieces of a set, first large ones, then single items.
    fn reduce<T: Ord + Clone>(&mut self, all: BTreeSet<T>, put: impl Fn(&mut Case, BTreeSet<T>)) {
        let mut kept: Vec<T> = all.into_iter().collect();
        let mut size = kept.len();
        while size > 0 && self.runs < MAX_RUNS {
            let mut start = 0;
            while start < kept.len() {
                let end = (start + size).min(kept.len());
                let rest: Vec<T> = kept[..start].iter().chain(&kept[end..]).cloned().collect();
                let mut case = self.case.clone();
                put(&mut case, rest.iter().cloned().collect());
                if self.keep_if_it_fails(case) {
                    kept = rest;
                } else {
                    start = end;
                }
            }
            size /= 2;
        }
    }

    fn keep_if_it_fails(&mut self, case: Case) -> bool {
        if self.runs >= MAX_RUNS {
            return false;
        }
        self.runs += 1;
        let fails = attempt(&case, false).result.is_err_and(|what| kind(&what) == self.kind);
        if fails {
            self.case = case;
        }
        fails
    }
}

/// What kind of failure it is: the words without numbers, up to the details.
fn kind(what: &str) -> String {
    let words = what.split(['(', ';', '{']).next().unwrap_or_default();
    words.chars().filter(|c| c.is_alphabetic() || *c == ' ').take(40).collect()
}

const MAX_RUNS: usize = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_fail_is_not_reduced() {
        assert_eq!(shrink(&Case::whole(0x5eed_0000)), None);
    }

    #[test]
    fn what_is_left_out_changes_nothing_about_the_rest() {
        let case = Case::whole(0x5eed_0001);
        let all: BTreeSet<_> = attempt(&case, false).requests.into_iter().collect();
        let some: BTreeSet<_> = all.iter().copied().step_by(3).collect();
        assert!(some.len() > 3, "a program with too few requests");
        let left = attempt(&Case { requests: Some(some.clone()), ..case }, false);
        assert_eq!(left.requests.into_iter().collect::<BTreeSet<_>>(), some);
        assert!(left.result.is_ok());
    }

    #[test]
    fn numbers_do_not_make_another_kind_of_failure() {
        assert_eq!(kind("flow 3: send 7 (Send): no completion"), kind("flow 1: send 21 (Read): unsignaled"));
        assert_ne!(kind("flow 3: receive 7: no completion"), kind("target of flow 3 byte 0x12 is 0"));
    }
}
