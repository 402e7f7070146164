//! Doorbells: which queue pairs have something posted, told by any thread without a lock.
//!
//! Two levels of bits: one per queue pair, and above each 64 of them one that says "look here". The bit is set before
//! its summary, the summary is cleared before its bits are: a ring is seen by this round or by the next, never lost.

use std::sync::atomic::{AtomicU64, Ordering};

use userdma_verbs::Qpn;

use crate::config::{INDEX_MASK, MAX_QPS, table_index};

/// One bit per queue pair of the device. Rung by callers, drained by the device.
#[derive(Debug)]
pub struct Doorbells {
    summary: [AtomicU64; SUMMARY_WORDS],
    bits: Box<[AtomicU64]>,
}

impl Doorbells {
    /// Nothing rung.
    pub(crate) fn new() -> Self {
        Self {
            summary: [const { AtomicU64::new(0) }; SUMMARY_WORDS],
            bits: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Tells the device that something was posted to `qpn`. What was posted before is seen by whoever drains the bell.
    pub fn ring(&self, qpn: Qpn) {
        let index = (qpn.get() & INDEX_MASK) as usize;
        let word = index / 64;
        let bit = 1 << (index % 64);
        // The read-modify-write orders the post before the drain that takes the bit, even if the bit is set already.
        self.bits[word].fetch_or(bit, Ordering::AcqRel);
        // A summary seen set here is cleared by a drain that takes the bit after that; see above.
        let summary = &self.summary[word / 64];
        if summary.load(Ordering::Acquire) & 1 << (word % 64) == 0 {
            summary.fetch_or(1 << (word % 64), Ordering::AcqRel);
        }
    }

    /// Whether nothing is rung.
    pub fn is_empty(&self) -> bool {
        self.summary.iter().all(|s| s.load(Ordering::Acquire) == 0)
    }

    /// Takes every bit that is rung and calls `each` with the index of its queue pair.
    pub(crate) fn drain(&self, mut each: impl FnMut(u32)) {
        for (s, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in ones(summary.swap(0, Ordering::AcqRel)) {
                let word = s * 64 + word as usize;
                for bit in ones(self.bits[word].swap(0, Ordering::AcqRel)) {
                    each(table_index(word) * 64 + bit);
                }
            }
        }
    }
}

/// Positions of the ones in a word, lowest first.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.checked_ilog2().map(|_| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

const WORDS: usize = MAX_QPS / 64;
const SUMMARY_WORDS: usize = WORDS / 64;
