//! Shared receive queues.

use std::sync::Arc;

use userdma_host::Host;
use userdma_verbs::{DeviceAttr, PostError, RecvWr, SrqAttr, SrqAttrMask, SrqInitAttr, Srqn};

use crate::ledger::SharedLedger;
use crate::{Cq, Error, Pd, Sgl};

/// A shared receive queue: receives for several queue pairs. A message of any of them takes the oldest. Clones are the same
/// queue; any number of threads may post to it.
///
/// A server with many clients posts as many receives as messages may come at once, instead of so many for each client.
///
/// ```
/// use userdma::{AccessFlags, Device, Inline, SendFlags};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Device::open("127.0.71.1")?;
/// let (pd, cq) = (server.alloc_pd()?, server.create_cq(64)?);
/// let srq = pd.create_srq(16, 1)?;
/// let mr = pd.alloc(16 * 64, AccessFlags::LOCAL_WRITE)?;
/// for id in 0..16 {
///     srq.post_recv(id, &mr.slice(64 * id as usize..64 * (id as usize + 1)))?;
/// }
///
/// // Two clients in the same program; elsewhere they would exchange endpoints over TCP.
/// let (client, mut connections) = (Device::open("127.0.71.2")?, Vec::new());
/// let (their_pd, their_cq) = (client.alloc_pd()?, client.create_cq(64)?);
/// for _ in 0..2 {
///     let here = pd.create_qp(&cq, &cq).srq(&srq).build()?;
///     let there = their_pd.create_qp(&their_cq, &their_cq).build()?;
///     let (to_here, to_there) = (here.endpoint(), there.endpoint());
///     connections.push((here.connect(&to_there)?, there.connect(&to_here)?));
/// }
/// for (_, there) in &connections {
///     there.post_send(0, Inline(b"hello"), SendFlags::SIGNALED)?;
/// }
/// for wc in cq.wait_for(2, None)? {
///     wc.check()?;
///     let slot = 64 * wc.wr_id as usize;
///     assert_eq!(mr.to_vec(slot..slot + wc.byte_len as usize)?, b"hello");
///     srq.post_recv(wc.wr_id, &mr.slice(slot..slot + 64))?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// A completion comes to the `recv_cq` of the queue pair that has taken the receive, and names it (`qpn`). A queue pair that fails
/// or is dropped leaves the queue to the others: only what a message under way had taken is flushed. So a receive that was
/// posted ends with a message, or when the last clone of the queue and its last queue pair are gone, without a completion; a
/// completion queue that has overflowed has lost those that it refused.
#[derive(Clone)]
pub struct Srq {
    inner: Arc<Inner>,
}

/// Its number and sizes.
impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Srq").field(&self.srqn()).field(&self.attr()).finish()
    }
}

struct Inner {
    pd: Pd,
    srq: Arc<userdma_objects::Srq>,
    ledger: Arc<SharedLedger>,
}

impl Srq {
    pub(crate) fn create(pd: &Pd, max_wr: u32, max_sge: u32) -> Result<Self, Error> {
        let (id, init) = (pd.id(), SrqInitAttr { max_wr, max_sge });
        let srq = pd.host().control(move |shard, _| shard.create_srq(id, &init))??;
        let ledger = Arc::new(SharedLedger::new(srq.srqn(), max_wr, max_sge));
        Ok(Self { inner: Arc::new(Inner { pd: pd.clone(), srq, ledger }) })
    }

    pub(crate) fn host(&self) -> &Host {
        self.inner.pd.host()
    }

    /// Lets completions of its receives be looked up when they come to `cq`.
    pub(crate) fn completes_on(&self, cq: &Cq) {
        cq.add_shared_ledger(&self.inner.ledger);
    }

    /// Its number on the device, which events name.
    pub fn srqn(&self) -> Srqn {
        self.inner.srq.srqn()
    }

    /// Posts a receive: the next message of any of its queue pairs that no receive before it takes lands in `list`, whose regions
    /// need `LOCAL_WRITE` and must be in its protection domain. A message that is longer is an error on both sides, for that
    /// queue pair only. The receive holds its memory until its completion has been polled.
    ///
    /// # Errors
    /// [`Error::Post`]; nothing was posted. The queue is full while `max_wr` completions of its receives have not been polled.
    pub fn post_recv<'a>(&self, wr_id: u64, list: impl Into<Sgl<'a>>) -> Result<(), Error> {
        let inner = &*self.inner;
        let list = list.into();
        self.host().check()?;
        list.with_sges(self.host(), inner.srq.max_sge(), |sgl| {
            let mut places = inner.ledger.lock();
            let place = places.next().ok_or(PostError::QueueFull { max: places.max() })?;
            inner.srq.post_recv(&RecvWr { wr_id: inner.ledger.id(place), sgl })?;
            // Its completion may be in a queue by now; whoever polls it waits for this lock.
            places.push(wr_id, list.0);
            Ok(())
        })
    }

    /// Asks for one event [`SrqLimitReached`](crate::AsyncEvent::SrqLimitReached), when a message leaves fewer than `limit`
    /// receives; 0 asks for none. The event turns the limit off.
    ///
    /// # Errors
    /// [`Error::ModifySrq`] if the limit is above the queue's size.
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        let (srqn, attr) = (self.srqn(), SrqAttr { srq_limit: limit, ..SrqAttr::default() });
        Ok(self.host().control(move |shard, _| shard.modify_srq(srqn, &attr, SrqAttrMask::LIMIT))??)
    }

    /// Its sizes and its limit.
    pub fn attr(&self) -> SrqAttr {
        self.inner.srq.attr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let srqn = self.srq.srqn();
        // First the device lets go of the memory, then the ledger does. Queue pairs hold the queue, so it is not busy; and a
        // device that is not usable touches nothing.
        let _ = self.pd.host().control(move |shard, _| shard.destroy_srq(srqn));
        self.ledger.end();
    }
}

const _: () = assert!(DeviceAttr::LIMITS.max_srq_wr < 1 << 24, "a place of the ledger has 24 bits");
