//! Shared receive queues: receives for several queue pairs.
//!
//! Any thread posts, and the device takes: the oldest receive goes to whichever queue pair's message needs one next. The
//! queue has no states and is never flushed: it belongs to none of its queue pairs.

use userdma_verbs::{ModifySrqError, PostError, RecvWr, Sge, SrqAttr, SrqAttrMask, SrqInitAttr, Srqn};

use crate::post::check_list;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, lock, lock_unless};
use crate::{PdId, RecvQueue};

/// A shared receive queue. Shared by reference count; every method is safe on any thread.
#[derive(Debug)]
pub struct Srq {
    srqn: Srqn,
    pd: PdId,
    max_sge: u32,
    /// The length of `recvs`, changed under its lock.
    count: AtomicU32,
    posted: Mutex<Posted>,
}

#[derive(Debug)]
struct Posted {
    recvs: RecvQueue,
    /// Fewer receives than this are told, once; 0 if nothing is to be told.
    limit: u32,
}

/// A receive that was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Taken {
    /// Its identifier.
    pub wr_id: u64,
    /// Fewer receives than the limit are left, and this is the first time: to be told as an event.
    pub is_limit_reached: bool,
}

impl Srq {
    /// The shared receive queue `srqn`, whose receives name memory of `pd`.
    pub fn new(srqn: Srqn, pd: PdId, init: &SrqInitAttr) -> Self {
        let recvs = RecvQueue::new(init.max_wr, init.max_sge);
        Self {
            srqn,
            pd,
            max_sge: init.max_sge,
            count: AtomicU32::new(0),
            posted: Mutex::new(Posted { recvs, limit: 0 }),
        }
    }

    /// Its number on the device.
    pub fn srqn(&self) -> Srqn {
        self.srqn
    }

    /// Its protection domain, which the memory of its receives is in.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Elements of a receive's list.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Receives that are posted and not taken. One load.
    pub fn recv_count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Posts a receive. Nobody needs to be told: a message that finds none is sent again.
    ///
    /// # Errors
    /// `TooManySge`, or `QueueFull` while `max_wr` receives wait. Nothing was posted.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.post_recv_unless(wr, || false)
    }

    /// As [`post_recv`](Self::post_recv), for callers who may have interrupted whoever holds the queue's lock, as handlers of
    /// signals do: if it is held at this moment and `gives_up` says so, nothing is waited for.
    ///
    /// # Errors
    /// As `post_recv`; `Interrupted` if it gave up.
    pub fn post_recv_unless(
        &self,
        wr: &RecvWr<'_>,
        gives_up: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        check_list(wr.sgl.len(), self.max_sge)?;
        let mut posted = lock_unless(&self.posted, gives_up).ok_or(PostError::Interrupted)?;
        if !posted.recvs.push(wr) {
            return Err(PostError::QueueFull { max: posted.recvs.capacity() });
        }
        self.publish(&posted);
        Ok(())
    }

    /// Device: takes the oldest receive; its list is copied into `sgl` (cleared first, capacity kept). `None` if none
    /// is posted. The limit is looked at as `rxe_resp.c get_srq_wqe()` does: after the receive was taken.
    pub fn take_recv(&self, sgl: &mut Vec<Sge>) -> Option<Taken> {
        if self.recv_count() == 0 {
            sgl.clear();
            return None;
        }
        let mut posted = lock(&self.posted);
        let wr_id = posted.recvs.pop(sgl)?;
        self.publish(&posted);
        let is_limit_reached = posted.recvs.len() < posted.limit;
        if is_limit_reached {
            posted.limit = 0;
        }
        Some(Taken { wr_id, is_limit_reached })
    }

    /// Sizes and limit as they are now.
    pub fn attr(&self) -> SrqAttr {
        let posted = lock(&self.posted);
        SrqAttr { max_wr: posted.recvs.capacity(), max_sge: self.max_sge, srq_limit: posted.limit }
    }

    /// Sets the attributes that `mask` names: all of them or, with an error, none. What is posted stays. A limit above what is
    /// posted already is told with the next receive that is taken.
    ///
    /// # Errors
    /// `Value` if `max_wr` is 0, above `most`, or less than what is posted or the limit; or if the limit is above `max_wr`.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask, most: u32) -> Result<(), ModifySrqError> {
        let mut posted = lock(&self.posted);
        let (resizes, limits) = (mask.contains(SrqAttrMask::MAX_WR), mask.contains(SrqAttrMask::LIMIT));
        let max_wr = if resizes { attr.max_wr } else { posted.recvs.capacity() };
        let limit = if limits { attr.srq_limit } else { posted.limit };
        let least = posted.recvs.len().max(1);
        if resizes {
            let min = if limits { least } else { least.max(limit) };
            check("max_wr", max_wr, min, most)?;
        }
        if limits {
            check("srq_limit", limit, 0, max_wr)?;
        }
        if max_wr != posted.recvs.capacity() {
            posted.recvs.resize(max_wr);
        }
        posted.limit = limit;
        Ok(())
    }

    /// Bytes of memory that the queue takes once all of it has been used.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + lock(&self.posted).recvs.memory_bytes()
    }

    fn publish(&self, posted: &Posted) {
        self.count.store(posted.recvs.len(), Ordering::Release);
    }
}

fn check(field: &'static str, value: u32, min: u32, max: u32) -> Result<(), ModifySrqError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ModifySrqError::Value { field, value, min, max }) }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use userdma_verbs::LKey;

    use super::*;

    fn srq(max_wr: u32, max_sge: u32) -> Srq {
        Srq::new(Srqn::new(3), PdId(1), &SrqInitAttr { max_wr, max_sge })
    }

    fn post(srq: &Srq, wr_id: u64) -> Result<(), PostError> {
        srq.post_recv(&RecvWr { wr_id, sgl: &[] })
    }

    fn take(srq: &Srq) -> Option<Taken> {
        srq.take_recv(&mut Vec::new())
    }

    fn limit(srq: &Srq, srq_limit: u32) -> Result<(), ModifySrqError> {
        srq.modify(&SrqAttr { srq_limit, ..SrqAttr::default() }, SrqAttrMask::LIMIT, 64)
    }

    fn resize(srq: &Srq, max_wr: u32) -> Result<(), ModifySrqError> {
        srq.modify(&SrqAttr { max_wr, ..SrqAttr::default() }, SrqAttrMask::MAX_WR, 64)
    }

    #[test]
    fn receives_come_out_in_the_order_of_posting_with_their_lists() {
        let srq = srq(2, 2);
        let sge = |addr| Sge { addr, length: 1, lkey: LKey::new(7) };
        let mut sgl = vec![sge(99)];
        assert_eq!((srq.take_recv(&mut sgl), sgl.len()), (None, 0));
        srq.post_recv(&RecvWr { wr_id: 1, sgl: &[sge(1), sge(2)] }).unwrap();
        post(&srq, 2).unwrap();
        assert_eq!(post(&srq, 3), Err(PostError::QueueFull { max: 2 }));
        let long = srq.post_recv(&RecvWr { wr_id: 4, sgl: &[sge(1); 3] });
        assert_eq!(long, Err(PostError::TooManySge { num: 3, max: 2 }));
        assert_eq!(srq.recv_count(), 2);
        assert_eq!(srq.take_recv(&mut sgl), Some(Taken { wr_id: 1, is_limit_reached: false }));
        assert_eq!(sgl, [sge(1), sge(2)]);
        assert_eq!((take(&srq).map(|taken| taken.wr_id), srq.recv_count()), (Some(2), 0));
    }

    #[test]
    fn the_limit_is_told_once_and_is_off_then() {
        let srq = srq(8, 1);
        (0..5).for_each(|wr_id| post(&srq, wr_id).unwrap());
        limit(&srq, 3).unwrap();
        let reached = || take(&srq).unwrap().is_limit_reached;
        assert_eq!([reached(), reached(), reached(), reached()], [false, false, true, false]);
        assert_eq!(srq.attr(), SrqAttr { max_wr: 8, max_sge: 1, srq_limit: 0 });
        // Armed again while fewer are posted: the next that is taken tells it.
        limit(&srq, 3).unwrap();
        assert!(take(&srq).unwrap().is_limit_reached);
    }

    #[test]
    fn a_queue_is_resized_with_what_is_in_it() {
        let srq = srq(3, 1);
        // The oldest is not in the first slot.
        (0..3).for_each(|wr_id| post(&srq, wr_id).unwrap());
        take(&srq).unwrap();
        post(&srq, 3).unwrap();
        resize(&srq, 5).unwrap();
        (4..6).for_each(|wr_id| post(&srq, wr_id).unwrap());
        assert_eq!(post(&srq, 9), Err(PostError::QueueFull { max: 5 }));
        assert_eq!(take(&srq).map(|taken| taken.wr_id), Some(1));
        resize(&srq, 4).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| take(&srq)).map(|taken| taken.wr_id).collect();
        assert_eq!(rest, [2, 3, 4, 5]);
    }

    #[test]
    fn a_change_that_is_not_possible_changes_nothing() {
        let srq = srq(8, 1);
        (0..4).for_each(|wr_id| post(&srq, wr_id).unwrap());
        limit(&srq, 6).unwrap();
        let value = |field, value, min, max| Err(ModifySrqError::Value { field, value, min, max });
        assert_eq!(limit(&srq, 9), value("srq_limit", 9, 0, 8));
        assert_eq!(resize(&srq, 65), value("max_wr", 65, 6, 64));
        assert_eq!(resize(&srq, 5), value("max_wr", 5, 6, 64), "the limit must fit");
        let both = SrqAttrMask::MAX_WR | SrqAttrMask::LIMIT;
        let attr = |max_wr, srq_limit| SrqAttr { max_wr, max_sge: 9, srq_limit };
        assert_eq!(srq.modify(&attr(3, 0), both, 64), value("max_wr", 3, 4, 64), "what is posted must fit");
        assert_eq!(srq.modify(&attr(16, 17), both, 64), value("srq_limit", 17, 0, 16));
        assert_eq!(srq.attr(), SrqAttr { max_wr: 8, max_sge: 1, srq_limit: 6 });
        srq.modify(&attr(4, 2), both, 64).unwrap();
        assert_eq!(srq.attr(), SrqAttr { max_wr: 4, max_sge: 1, srq_limit: 2 });
        take(&srq).unwrap();
        (0..3).for_each(|_| assert!(take(&srq).is_some()));
        assert_eq!(resize(&srq, 0), value("max_wr", 0, 1, 64));
    }

    #[test]
    fn memory_is_set_aside_when_the_queue_is_made() {
        let srq = srq(5, 3);
        let before = srq.memory_bytes();
        assert!(before >= 5 * (16 + 3 * 16));
        for wr_id in 0..20 {
            let _ = post(&srq, wr_id);
            let _ = take(&srq);
        }
        assert_eq!(srq.memory_bytes(), before);
    }

    #[test]
    fn threads_post_and_each_receive_is_taken_once() {
        const EACH: u64 = 2000;
        let (srq, refused) = (srq(16, 1), AtomicU32::new(0));
        let mut seen = HashSet::new();
        thread::scope(|scope| {
            for poster in 0..3 {
                let (srq, refused) = (&srq, &refused);
                scope.spawn(move || {
                    for wr_id in poster * EACH..(poster + 1) * EACH {
                        while post(srq, wr_id).is_err() {
                            refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            thread::yield_now();
                        }
                    }
                });
            }
            while seen.len() < 3 * usize::try_from(EACH).unwrap() {
                match take(&srq) {
                    Some(taken) => assert!(seen.insert(taken.wr_id), "{taken:?} was taken twice"),
                    None => thread::yield_now(),
                }
            }
        });
        assert_eq!(srq.recv_count(), 0);
    }
}
