//! Doorbells: which queue pairs have something posted, told by any thread without a lock.
//!
//! Two levels of bits: one per queue pair, and above each 64 of them one that says "look here". The bit is set before
//! its summary, the summary is cleared before its bits are: a ring is seen by this round or by the next, never lost.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
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
        Self::with_words(WORDS)
    }

    /// Doorbells of the first 64 queue pairs for each word.
    fn with_words(words: usize) -> Self {
        let word = |_| AtomicU64::new(0);
        Self { summary: std::array::from_fn(word), bits: (0..words).map(word).collect() }
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
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.summary.iter().all(|s| s.load(Ordering::Acquire) == 0)
    }

    /// Takes every bit that is rung and calls `each` with the index of its queue pair.
    pub(crate) fn drain(&self, mut each: impl FnMut(u32)) {
        for (s, summary) in self.summary.iter().enumerate() {
            // Left out of the model: of two loads in a row loom remembers the second, and tries too few interleavings.
            if cfg!(not(loom)) && summary.load(Ordering::Relaxed) == 0 {
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

/// Every interleaving of ringing and draining, and every order in which memory may show itself.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// Two callers post, ring, and drain once the other does not: then what a caller has posted was seen, by itself or
    /// by the other.
    fn no_post_is_lost(qpns: [u32; 2]) {
        loom::model(move || {
            let bells = Arc::new(Doorbells::with_words(1));
            let posted: Arc<[AtomicBool; 2]> = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
            let seen = Arc::new(Mutex::new([false; 2]));
            let callers = [0, 1].map(|caller| {
                let (bells, posted, seen) = (Arc::clone(&bells), Arc::clone(&posted), Arc::clone(&seen));
                thread::spawn(move || {
                    posted[caller].store(true, Ordering::Relaxed);
                    bells.ring(Qpn::new(qpns[caller]));
                    let mut seen = seen.lock().unwrap();
                    bells.drain(|index| {
                        for caller in [0, 1] {
                            seen[caller] |= index == qpns[caller] && posted[caller].load(Ordering::Relaxed);
                        }
                    });
                    assert!(seen[caller]);
                })
            });
            callers.into_iter().for_each(|caller| caller.join().unwrap());
        });
    }

    #[test]
    fn no_post_is_lost_on_two_queue_pairs() {
        no_post_is_lost([2, 3]);
    }

    #[test]
    fn no_post_is_lost_on_one_queue_pair() {
        no_post_is_lost([2, 2]);
    }
}
