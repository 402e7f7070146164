//! The server's region as it should be. Both sides keep one.

use crate::ledger::Entry;
use crate::pattern::{Role, bytes};
use crate::report::Report;

/// The expected bytes of the server's region.
#[derive(Debug)]
pub(crate) struct Model {
    bytes: Vec<u8>,
    /// Ranges that nobody can say anything about.
    unknown: Vec<(usize, usize)>,
}

impl Model {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: bytes(0, len, Role::Server), unknown: Vec::new() }
    }

    /// The bytes `off .. off + len`, if they lie inside.
    pub(crate) fn get(&self, off: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(off).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.bytes.get(start..end)
    }

    /// The word at `off` in the byte order of the machine, which both sides have.
    pub(crate) fn word(&self, off: u64) -> Option<u64> {
        self.get(off, 8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Does what the entry says. False if it would leave the region.
    pub(crate) fn apply(&mut self, entry: &Entry) -> bool {
        match *entry {
            Entry::Write { off, len, src } | Entry::WriteImm { off, len, src, .. } => {
                let Ok(count) = usize::try_from(len) else { return false };
                self.put(off, &bytes(src, count, Role::Client))
            }
            Entry::Cas { off, compare, swap } => match self.word(off) {
                Some(old) if old == compare => self.put(off, &swap.to_ne_bytes()),
                old => old.is_some(),
            },
            Entry::Faa { off, add } => {
                self.word(off).is_some_and(|old| self.put(off, &old.wrapping_add(add).to_ne_bytes()))
            }
            Entry::Maybe { off, len } => {
                let inside = self.get(off, len).is_some();
                if inside {
                    // The range lies in memory, so both fit.
                    let start = usize::try_from(off).unwrap_or(usize::MAX);
                    self.unknown.push((start, start + usize::try_from(len).unwrap_or(0)));
                }
                inside
            }
            Entry::Send { .. } | Entry::SendImm { .. } | Entry::SendInv { .. } | Entry::Failed { .. } => true,
        }
    }

    /// Compares the whole region with the model, except what is unknown.
    pub(crate) fn check(&mut self, region: &[u8], report: &mut Report) -> bool {
        for &(start, end) in &self.unknown {
            self.bytes[start..end].copy_from_slice(&region[start..end]);
        }
        report.same("region", 0, region, &self.bytes)
    }

    fn put(&mut self, off: u64, data: &[u8]) -> bool {
        let start = usize::try_from(off).unwrap_or(usize::MAX);
        let Some(place) = start.checked_add(data.len()).and_then(|end| self.bytes.get_mut(start..end)) else {
            return false;
        };
        place.copy_from_slice(data);
        // What is written for certain is known again.
        let end = start + data.len();
        self.unknown.retain(|&(from, to)| !(start <= from && to <= end));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_change_the_region_as_they_say() {
        let mut model = Model::new(128);
        assert!(model.apply(&Entry::Write { off: 64, len: 2, src: 37 }));
        assert_eq!(model.get(63, 4), Some(&[186, 3, 10, 207][..]));
        let old = model.word(0).unwrap();
        assert!(model.apply(&Entry::Faa { off: 0, add: 5 }));
        assert_eq!(model.word(0), Some(old.wrapping_add(5)));
        assert!(model.apply(&Entry::Cas { off: 0, compare: old, swap: 9 }));
        assert_eq!(model.word(0), Some(old.wrapping_add(5)), "the comparison failed");
        assert!(model.apply(&Entry::Cas { off: 0, compare: old.wrapping_add(5), swap: 9 }));
        assert_eq!(model.word(0), Some(9));
    }

    #[test]
    fn an_entry_that_leaves_the_region_is_refused() {
        let mut model = Model::new(128);
        assert!(!model.apply(&Entry::Write { off: 127, len: 2, src: 0 }));
        assert!(!model.apply(&Entry::Faa { off: 121, add: 1 }));
        assert!(!model.apply(&Entry::Maybe { off: u64::MAX, len: 2 }));
    }

    #[test]
    fn what_may_have_been_written_is_not_checked_and_its_neighbours_are() {
        let mut model = Model::new(16);
        let mut region = model.get(0, 16).unwrap().to_vec();
        assert!(model.apply(&Entry::Maybe { off: 4, len: 2 }));
        region[4] ^= 1;
        assert!(model.check(&region, &mut Report::default()));
        region[6] ^= 1;
        assert!(!model.check(&region, &mut Report::default()));
    }
}
