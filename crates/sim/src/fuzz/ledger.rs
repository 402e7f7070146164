//! The books: every work request completes at most once, in the order of posting.

use userdma_verbs::{Wc, WcStatus};

/// One work queue's requests. Identifiers count from 0.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Whether the request wants a completion in any case.
    signaled: Vec<bool>,
    /// Requests up to here have completed, or were passed over.
    done: usize,
    has_failed: bool,
    /// Requests of several users: one that fails says nothing of those behind it, and none is flushed or forgotten.
    is_shared: bool,
}

impl Ledger {
    /// Of a queue that others may share.
    pub(super) fn shared() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    /// The identifier of the request that is posted next.
    pub(super) fn next_id(&self) -> u64 {
        self.signaled.len() as u64
    }

    /// The request was posted.
    pub(super) fn posted(&mut self, is_signaled: bool) {
        self.signaled.push(is_signaled);
    }

    /// Enters completions, oldest first.
    pub(super) fn completed(&mut self, queue: &str, wcs: &[Wc]) {
        for wc in wcs {
            let number = usize::try_from(wc.wr_id).unwrap_or(usize::MAX);
            assert!(number < self.signaled.len(), "{queue}: {wc:?} was never posted");
            assert!(number >= self.done, "{queue}: {wc:?} came twice, or too late: {} are done", self.done);
            let passed = &self.signaled[self.done..number];
            assert!(
                passed.iter().all(|signaled| !signaled),
                "{queue}: {wc:?} passes one that wants a completion"
            );
            if wc.status == WcStatus::Success {
                assert!(!self.has_failed, "{queue}: {wc:?} succeeds after a failure");
                assert!(self.signaled[number], "{queue}: {wc:?} was not asked for");
            }
            self.has_failed |= wc.status != WcStatus::Success && !self.is_shared;
            self.done = number + 1;
        }
    }

    /// The queue pair went through RESET: what was posted is forgotten without completions.
    pub(super) fn forget(&mut self) {
        if self.is_shared {
            return;
        }
        self.done = self.signaled.len();
        self.has_failed = false;
    }

    /// The queue was taken out of its error: what is posted from now on may succeed.
    pub(super) fn recover(&mut self) {
        self.has_failed = false;
    }

    /// Requests that have not completed and must, in the end.
    pub(super) fn owed(&self) -> usize {
        if self.is_shared {
            return 0;
        }
        self.signaled[self.done..].iter().filter(|signaled| **signaled).count()
    }
}

#[cfg(test)]
mod tests {
    use userdma_verbs::{Qpn, WcOpcode};

    use super::*;

    fn wc(wr_id: u64, status: WcStatus) -> Wc {
        Wc::new(wr_id, status, WcOpcode::Send, Qpn::new(1))
    }

    fn book(signaled: &[bool], wcs: &[Wc]) -> Ledger {
        let mut ledger = Ledger::default();
        signaled.iter().for_each(|&signaled| ledger.posted(signaled));
        ledger.completed("SQ", wcs);
        ledger
    }

    #[test]
    fn unsignaled_requests_are_passed_over() {
        let ledger = book(&[false, true, true], &[wc(1, WcStatus::Success)]);
        assert_eq!(ledger.owed(), 1);
    }

    #[test]
    #[should_panic(expected = "came twice")]
    fn a_second_completion_is_found() {
        book(&[true, true], &[wc(0, WcStatus::Success), wc(0, WcStatus::Success)]);
    }

    #[test]
    #[should_panic(expected = "passes one")]
    fn a_completion_that_is_left_out_is_found() {
        book(&[true, true], &[wc(1, WcStatus::Success)]);
    }

    #[test]
    fn a_shared_queue_goes_on_after_a_failure() {
        let mut ledger = Ledger::shared();
        (0..3).for_each(|_| ledger.posted(true));
        ledger.completed("SRQ", &[wc(0, WcStatus::RemInvReqErr), wc(1, WcStatus::Success)]);
        ledger.forget();
        ledger.completed("SRQ", &[wc(2, WcStatus::Success)]);
        assert_eq!(ledger.owed(), 0);
    }

    #[test]
    #[should_panic(expected = "succeeds after a failure")]
    fn a_success_after_a_failure_is_found() {
        book(&[true, true], &[wc(0, WcStatus::WrFlushErr), wc(1, WcStatus::Success)]);
    }
}
