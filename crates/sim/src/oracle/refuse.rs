//! Work requests that are refused when they are posted, and change nothing.

use rand::RngExt;
use userdma_verbs::{AtomicOp, PostError, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use super::world::World;

impl World {
    /// Now and then posts what a queue pair must refuse at once.
    pub(super) fn post_wrong(&mut self) -> Result<(), String> {
        if self.case.calm || !self.rng.random_bool(0.02) {
            return Ok(());
        }
        let index = self.rng.random_range(0..self.flows.len());
        let what = self.rng.random_range(0..5);
        let flow = &self.flows[index];
        let cap = flow.end.qp.cap();
        let host = &self.pair.hosts[flow.host];
        let before = (flow.end.qp.outstanding_sends(), flow.end.qp.recv_count());
        let remote = RemoteAddr { addr: flow.target.addr, rkey: flow.target.keys.all.rkey };
        let odd = RemoteAddr { addr: remote.addr + 4, ..remote };
        let atomic = AtomicOp::FetchAdd { add: 1 };
        let sges = vec![Sge::default(); 1 + cap.max_send_sge.max(cap.max_recv_sge) as usize];
        let eight = [Sge { length: 8, ..Sge::default() }];
        let inline = vec![0; cap.max_inline_data as usize + 1];
        let post = |op, flags, sgl: &[Sge], inline: &[u8]| {
            host.post_send(&flow.end, &SendWr { wr_id: NOBODY, op, flags, sgl, inline })
        };
        let signaled = SendFlags::SIGNALED;
        let (name, result) = match what {
            0 => ("an atomic off its alignment", post(SendOp::Atomic(odd, atomic), signaled, &eight, &[])),
            1 => (
                "an atomic without a place for its answer",
                post(SendOp::Atomic(remote, atomic), signaled, &[], &[]),
            ),
            2 => ("a list that is too long", post(SendOp::Write(remote), signaled, &sges, &[])),
            3 => ("too much inline data", post(SendOp::Send, signaled | SendFlags::INLINE, &[], &inline)),
            _ => (
                "a receive's list that is too long",
                host.post_recv(&flow.end, &RecvWr { wr_id: NOBODY, sgl: &sges }),
            ),
        };
        let is_right = match (what, &result) {
            (0 | 1, Err(PostError::Atomic { .. })) | (3, Err(PostError::InlineTooLong { .. })) => true,
            (4, Err(PostError::SharedRecvQueue)) => flow.end.qp.srq().is_some(),
            (2 | 4, Err(PostError::TooManySge { .. })) => true,
            // A queue that is full may say that first.
            (_, Err(PostError::QueueFull { .. })) => true,
            (_, Ok(()) | Err(_)) => false,
        };
        let after = (flow.end.qp.outstanding_sends(), flow.end.qp.recv_count());
        if !is_right || before != after {
            return Err(format!(
                "flow {index} posts {name}, which ends with {result:?} ({before:?}, {after:?})"
            ));
        }
        self.report.count_event("post refused");
        Ok(())
    }
}

/// No work request of a program.
const NOBODY: u64 = u64::MAX;
