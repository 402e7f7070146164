//! Posting many work requests at once.

use std::sync::atomic::Ordering;

use super::{Posts, Qp};

/// While it exists, sends that are posted to its queue pair wait, and they leave together when it is dropped.
///
/// Small messages of one size share system calls then, which is what the rate of small messages depends on. Polling
/// also starts what waits, so a batch that is forgotten only holds back a program that never polls.
#[derive(Debug)]
#[must_use = "sends leave when the batch is dropped"]
pub struct Batch<'a, S: Posts> {
    qp: &'a Qp<S>,
}

impl<S: Posts> Qp<S> {
    /// Begins a batch: sends posted until it is dropped, by any thread, start together.
    ///
    /// ```no_run
    /// # use userdma::{Error, Inline, Qp, RemoteMr, Rts, SendFlags};
    /// # fn example(qp: &Qp<Rts>, remote: RemoteMr) -> Result<(), Error> {
    /// let batch = qp.batch();
    /// for id in 0..64 {
    ///     let flags = if id == 63 { SendFlags::SIGNALED } else { SendFlags::empty() };
    ///     qp.post_write(id, Inline(&id.to_ne_bytes()), remote.slice(8 * id, 8), flags)?;
    /// }
    /// drop(batch);
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> Batch<'_, S> {
        self.inner.batches.fetch_add(1, Ordering::AcqRel);
        Batch { qp: self }
    }
}

impl<S: Posts> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        let inner = &self.qp.inner;
        if inner.batches.fetch_sub(1, Ordering::AcqRel) == 1 {
            inner.host().doorbell_send(&inner.qp);
        }
    }
}
