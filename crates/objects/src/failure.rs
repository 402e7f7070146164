//! The requests that ended in error, kept for whoever has to explain it: a completion tells no more than their identifier.

use userdma_verbs::{SendOp, Sge};

use crate::sync::{Mutex, lock};

/// A work request that ended in error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// Its identifier.
    pub wr_id: u64,
    /// What a send was to do; `None` for a receive.
    pub op: Option<SendOp>,
    /// Bytes of the message, as far as they are known here.
    pub len: u32,
    /// Its scatter/gather list; empty for inline data.
    pub sgl: Vec<Sge>,
}

/// The last send and the last receive of a queue pair that ended in error. Those that are only flushed do not count.
#[derive(Debug)]
pub(crate) struct Failures(Mutex<[Option<Failure>; 2]>);

impl Failures {
    pub(crate) fn new() -> Self {
        Self(Mutex::new([None, None]))
    }

    pub(crate) fn note(&self, failure: Failure) {
        let place = usize::from(failure.op.is_none());
        lock(&self.0)[place] = Some(failure);
    }

    pub(crate) fn find(&self, wr_id: u64, is_recv: bool) -> Option<Failure> {
        let failures = lock(&self.0);
        failures[usize::from(is_recv)].clone().filter(|failure| failure.wr_id == wr_id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sends_and_receives_are_kept_apart_by_their_identifiers() {
        let failures = Failures::new();
        let send = Failure { wr_id: 7, op: Some(SendOp::Send), len: 10, sgl: Vec::new() };
        let recv = Failure { wr_id: 7, op: None, len: 0, sgl: vec![Sge::default()] };
        failures.note(send.clone());
        failures.note(recv.clone());
        assert_eq!(failures.find(7, false), Some(send));
        assert_eq!(failures.find(7, true), Some(recv));
        assert_eq!(failures.find(8, true), None);
    }
}
