//! How a queue pair is made.

use userdma_verbs::{AccessFlags, Psn};

use super::{Init, Qp, Unchecked};
use crate::Error;

/// A queue pair to be made. Defaults: 128 sends and receives, 16 elements a list, 512 bytes inline, all remote
/// rights, GID 0, a random first PSN.
#[derive(Debug)]
pub struct QpBuilder {}

impl QpBuilder {
    /// Sends that may be outstanding, from post until their completion (or a later one) is polled.
    #[must_use]
    pub fn max_send_wr(self, count: u32) -> Self {
        let _ = count;
        todo!()
    }

    /// Receives that may be outstanding.
    #[must_use]
    pub fn max_recv_wr(self, count: u32) -> Self {
        let _ = count;
        todo!()
    }

    /// Elements of a send's scatter/gather list.
    #[must_use]
    pub fn max_send_sge(self, count: u32) -> Self {
        let _ = count;
        todo!()
    }

    /// Elements of a receive's scatter/gather list.
    #[must_use]
    pub fn max_recv_sge(self, count: u32) -> Self {
        let _ = count;
        todo!()
    }

    /// Bytes of an inline send.
    #[must_use]
    pub fn max_inline_data(self, bytes: u32) -> Self {
        let _ = bytes;
        todo!()
    }

    /// Whether every send completes, signaled or not.
    #[must_use]
    pub fn sq_sig_all(self, all: bool) -> Self {
        let _ = all;
        todo!()
    }

    /// What the peer may do through it: remote rights.
    #[must_use]
    pub fn access(self, access: AccessFlags) -> Self {
        let _ = access;
        todo!()
    }

    /// Which of the device's GIDs it uses.
    #[must_use]
    pub fn sgid_index(self, index: u8) -> Self {
        let _ = index;
        todo!()
    }

    /// The PSN that it starts with.
    #[must_use]
    pub fn psn(self, psn: Psn) -> Self {
        let _ = psn;
        todo!()
    }

    /// Makes it, in state INIT.
    pub fn build(self) -> Result<Qp<Init>, Error> {
        todo!()
    }

    /// Makes it, in state RESET, for programs that go through the states with [`Qp::modify`].
    pub fn build_unchecked(self) -> Result<Qp<Unchecked>, Error> {
        todo!()
    }
}
