//! The completion queue of futures: takes completions and hands them to the operations of its queue pairs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use userdma_objects::Arm;
use userdma_verbs::Qpn;

use super::error::Cause;
use super::qp_state::{QpShared, Woken};
use crate::cq::{EMPTY, lock};
use crate::{CompChannel, Cq, Device, Error};

/// The queue, its channel, and the queue pairs that complete here.
#[derive(Debug)]
pub(super) struct Core {
    cq: Cq,
    channel: CompChannel,
    /// Held while completions are taken *and* handed over, so that none is left of a queue pair that was removed.
    qps: Mutex<Qps>,
    /// Nobody uses it any more.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Qps {
    by_number: HashMap<Qpn, Arc<QpShared>>,
    /// Places of the queue that queue pairs have: each operation that is posted may need one.
    reserved: u32,
    /// Those of them whose queue pairs are gone. Completions of these may be left in the queue until it is empty.
    retiring: u32,
    /// Why nothing is taken any more.
    failed: Option<Arc<Error>>,
}

impl Core {
    pub(super) fn create(device: &Device, cqe: u32) -> Result<Self, Error> {
        let channel = device.create_comp_channel()?;
        let cq = device.create_cq_on(cqe, &channel)?;
        cq.req_notify(Arm::Any)?;
        Ok(Self { cq, channel, qps: Mutex::default(), is_closed: AtomicBool::new(false) })
    }

    pub(super) fn cq(&self) -> &Cq {
        &self.cq
    }

    pub(super) fn channel(&self) -> &CompChannel {
        &self.channel
    }

    /// Wakes whoever waits on the channel.
    pub(super) fn notify(&self) {
        self.channel.notify(&self.cq);
    }

    /// Nobody uses it any more: the driver may end.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.notify();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Sets places of the queue aside for a queue pair.
    pub(super) fn reserve(&self, places: u32) -> Result<(), Error> {
        let mut qps = lock(&self.qps);
        let cqe = self.cq.capacity();
        self.settle(&mut qps);
        let free = cqe.saturating_sub(qps.reserved);
        if places > free {
            return Err(Error::CqReserved { cq: self.cq.number(), cqe, free, wanted: places });
        }
        qps.reserved += places;
        Ok(())
    }

    /// Adds a queue pair, whose places are reserved.
    pub(super) fn add(&self, qp: &Arc<QpShared>) {
        let failed = {
            let mut qps = lock(&self.qps);
            qps.by_number.insert(qp.qpn(), Arc::clone(qp));
            qps.failed.clone()
        };
        if let Some(error) = failed {
            qp.end(&Cause::Cq(error));
        }
    }

    /// Forgets a queue pair that the device has destroyed.
    pub(super) fn remove(&self, qp: &QpShared) {
        let removed = {
            let mut qps = lock(&self.qps);
            let removed = qps.by_number.remove(&qp.qpn());
            qps.retiring += qp.places();
            self.settle(&mut qps);
            removed
        };
        drop(removed);
    }

    /// Takes what is in the queue, and sees to it that the channel has an event when more comes. Whether to call again
    /// soon: there is much.
    pub(super) fn dispatch(&self) -> Result<bool, Error> {
        let mut woken = Woken::default();
        let mut is_armed = false;
        for _ in 0..BATCHES {
            if self.take_batch(&mut woken)? {
                woken.wake();
            } else if is_armed {
                return Ok(false);
            } else {
                // What was there before raises no event: hence one look more.
                self.cq.req_notify(Arm::Any)?;
                is_armed = true;
            }
        }
        Ok(true)
    }

    /// Takes some completions; false if there are none. Whoever was woken by the channel has driven the device already.
    fn take_batch(&self, woken: &mut Woken) -> Result<bool, Error> {
        let mut qps = lock(&self.qps);
        if !self.cq.has_news() {
            self.settle(&mut qps);
            return Ok(false);
        }
        let mut wcs = [EMPTY; BATCH];
        let taken = self.cq.poll(&mut wcs)?;
        for wc in &wcs[..taken] {
            if let Some(qp) = qps.by_number.get(&wc.qpn) {
                qp.complete(*wc, woken);
            }
        }
        Ok(true)
    }

    /// The places of queue pairs that are gone are free once nothing of them is left in the queue.
    fn settle(&self, qps: &mut Qps) {
        if qps.retiring > 0 && !self.cq.has_news() {
            qps.reserved -= qps.retiring;
            qps.retiring = 0;
        }
    }

    /// Ends every operation, now and from now on.
    pub(super) fn fail(&self, error: Error) {
        let error = Arc::new(error);
        let all: Vec<_> = {
            let mut qps = lock(&self.qps);
            qps.failed.get_or_insert_with(|| Arc::clone(&error));
            qps.by_number.values().cloned().collect()
        };
        for qp in all {
            qp.end(&Cause::Cq(Arc::clone(&error)));
        }
    }
}

/// Completions that are taken with one lock.
const BATCH: usize = 32;
/// Batches before others have a turn.
const BATCHES: usize = 16;
