//! What passed and what failed: the first failure in words, the others as a number.

/// The judgement of one side.
#[derive(Debug, Default)]
pub(crate) struct Report {
    first: Option<String>,
    failures: u32,
    passed: u32,
}

impl Report {
    /// Something was wrong.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        println!("  wrong: {what}");
        self.failures += 1;
        self.first.get_or_insert(what);
    }

    /// `count` operations were right.
    pub(crate) fn pass(&mut self, count: u32) {
        self.passed += count;
    }

    /// What another connection of this side found belongs to it, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.first = self.first.take().or(other.first);
        self.failures += other.failures;
        self.passed += other.passed;
    }

    /// Compares bytes and names the first wrong one, counted from `base`. Whether all are right.
    pub(crate) fn same(&mut self, what: &str, base: i64, got: &[u8], want: &[u8]) -> bool {
        if got == want {
            return true;
        }
        let differs = |(_, (got, want)): &(usize, (&u8, &u8))| got != want;
        let mut wrong = got.iter().zip(want).enumerate().filter(differs);
        match wrong.next() {
            Some((at, (got_byte, want_byte))) => {
                // The index of a byte in memory is far below 2^63.
                let at = base + i64::try_from(at).unwrap_or(i64::MAX);
                let count = wrong.count() + 1;
                self.fail(format!(
                    "{what}: byte {at} is {got_byte:#04x}, should be {want_byte:#04x} ({count} of {} bytes wrong)",
                    want.len()
                ));
            }
            None => self.fail(format!("{what}: {} bytes, should be {}", got.len(), want.len())),
        }
        false
    }

    pub(crate) fn first_failure(&self) -> Option<&str> {
        self.first.as_deref()
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_named_with_its_offset() {
        let mut report = Report::default();
        assert!(report.same("x", 0, b"abc", b"abc"));
        assert!(!report.same("buffer", -1, b"aXcX", b"abcd"));
        assert!(!report.same("later", 0, b"a", b"b"));
        assert_eq!(
            report.first_failure(),
            Some("buffer: byte 0 is 0x58, should be 0x62 (2 of 4 bytes wrong)")
        );
        assert_eq!(report.failures(), 2);
    }

    #[test]
    fn one_failure_of_one_connection_is_the_sides() {
        let (mut all, mut bad) = (Report::default(), Report::default());
        all.pass(2);
        bad.pass(3);
        bad.fail("x");
        all.add(bad);
        all.add(Report::default());
        assert_eq!((all.first_failure(), all.failures(), all.passed()), (Some("x"), 1, 5));
    }

    #[test]
    fn bytes_that_are_missing_are_wrong() {
        let mut report = Report::default();
        assert!(!report.same("short", 0, b"ab", b"abc"));
        assert_eq!(report.first_failure(), Some("short: 2 bytes, should be 3"));
    }
}
