//! The half of a queue pair that callers share with the device: where work is posted.
//!
//! Callers append to two rings, each under a lock that is held for one copy; the device empties them. A post reads
//! the state under its ring's lock and a transition writes it under both, so a post comes either before the
//! transition, and the device finds the request when it next looks, or after it, and is judged by the new state.
//! Nothing can slip into a queue that was just reset, or into one that was just flushed without the poster knowing
//! that it must ring.

use std::sync::Arc;

use userdma_verbs::{PostError, QpCap, QpInitAttr, QpState, QpType, Qpn, RecvWr, SendFlags, SendWr, Sge};

use crate::failure::{Failure, Failures};
use crate::post::{check_datagram, check_recv, check_recv_state, check_send, check_send_state};
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sync::{Mutex, lock, lock_unless};
use crate::{PdId, RecvQueue, Srq, UdAddr, WqeRing};

/// What callers post to and the device takes from. Shared by reference count; every method is safe on any thread.
///
/// Those marked *device* are called by one thread at a time.
#[derive(Debug)]
pub struct QpShared {
    qpn: Qpn,
    qp_type: QpType,
    pd: PdId,
    recv_pd: PdId,
    cap: QpCap,
    /// Where its receives are posted instead of `recvs`, which has no places then.
    srq: Option<Arc<Srq>>,
    /// What is set in the flags of every send.
    always: SendFlags,
    /// A [`QpState`], written under both locks.
    state: AtomicU8,
    /// How many sends were posted, modulo 2^32; changed under the lock of `sends`.
    posted: AtomicU32,
    /// How many of them were retired; changed by the device.
    retired: AtomicU32,
    /// The length of `sends`, changed under its lock.
    send_count: AtomicU32,
    sends: Mutex<WqeRing>,
    /// The length of `recvs`, changed under its lock.
    recv_count: AtomicU32,
    recvs: Mutex<RecvQueue>,
    failures: Failures,
}

impl QpShared {
    /// The shared half of QP `qpn`, in RESET, with queues of the sizes in `init.cap`.
    pub fn new(qpn: Qpn, pd: PdId, init: &QpInitAttr) -> Self {
        Self::make(qpn, pd, init, init.cap, None)
    }

    /// The same with receives from a shared receive queue: it has no receive queue of its own, whatever `init.cap` says.
    pub fn with_srq(qpn: Qpn, pd: PdId, init: &QpInitAttr, srq: Arc<Srq>) -> Self {
        Self::make(qpn, pd, init, QpCap { max_recv_wr: 0, max_recv_sge: 0, ..init.cap }, Some(srq))
    }

    fn make(qpn: Qpn, pd: PdId, init: &QpInitAttr, cap: QpCap, srq: Option<Arc<Srq>>) -> Self {
        Self {
            qpn,
            qp_type: init.qp_type,
            pd,
            recv_pd: srq.as_ref().map_or(pd, |srq| srq.pd()),
            cap,
            srq,
            always: if init.sq_sig_all { SendFlags::SIGNALED } else { SendFlags::empty() },
            state: AtomicU8::new(QpState::Reset as u8),
            posted: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            send_count: AtomicU32::new(0),
            sends: Mutex::new(send_ring(init.qp_type, &cap)),
            recv_count: AtomicU32::new(0),
            recvs: Mutex::new(RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge)),
            failures: Failures::new(),
        }
    }

    /// Keeps a request that ends in error, before its completion is written. *Device.*
    pub fn note_failure(&self, failure: Failure) {
        self.failures.note(failure);
    }

    /// The send, or the receive, that ended in error with this identifier, if it is the last that did.
    pub fn failure(&self, wr_id: u64, is_recv: bool) -> Option<Failure> {
        self.failures.find(wr_id, is_recv)
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its service.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Its sizes.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// The domain that the memory of its receives is in: the shared receive queue's, if it has one.
    pub fn recv_pd(&self) -> PdId {
        self.recv_pd
    }

    /// The shared receive queue that its messages take receives from.
    pub fn srq(&self) -> Option<&Arc<Srq>> {
        self.srq.as_ref()
    }

    /// The state as callers see it.
    pub fn state(&self) -> QpState {
        state_from(self.state.load(Ordering::Acquire))
    }

    /// Device: set with every transition.
    ///
    /// Posts that were accepted before are in the queues when this returns; later ones are judged by `state`. RESET
    /// also forgets everything posted, in the same step, so that a queue in RESET is empty.
    pub fn set_state(&self, state: QpState) {
        let mut sends = lock(&self.sends);
        let mut recvs = lock(&self.recvs);
        self.state.store(state as u8, Ordering::Release);
        match state {
            QpState::Reset => self.forget(&mut sends, &mut recvs),
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
        }
    }

    /// Posts a send. Legal in RTS, SQD, SQE and ERR (where it is flushed). The caller rings the doorbell afterwards.
    ///
    /// Inline data is copied here: the caller's buffer is free when this returns.
    ///
    /// # Errors
    /// What is wrong with the request, `State`, or `QueueFull` while `max_send_wr` sends are posted and not retired.
    /// Nothing was posted.
    #[inline]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.post_send_unless(wr, || false)
    }

    /// As [`post_send`](Self::post_send), for callers who may have interrupted whoever holds the queue's lock, as handlers of
    /// signals do: if it is held at this moment and `gives_up` says so, nothing is waited for.
    ///
    /// # Errors
    /// As `post_send`; `Interrupted` if it gave up.
    pub fn post_send_unless(
        &self,
        wr: &SendWr<'_>,
        gives_up: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        if self.qp_type == QpType::Ud {
            return Err(PostError::Operation("a datagram needs somebody whom it is for"));
        }
        let len = check_send(wr, self.qp_type, &self.cap)?;
        self.push(gives_up, |sends| sends.push(wr, wr.flags | self.always, len))
    }

    /// As [`QpShared::post_send`], on a queue pair of datagrams: one for `addr`.
    ///
    /// # Errors
    /// As [`QpShared::post_send`]; `Operation` if the request is not a SEND, or the queue pair not one of datagrams.
    pub fn post_datagram(&self, wr: &SendWr<'_>, addr: &UdAddr) -> Result<(), PostError> {
        self.post_datagram_unless(wr, addr, || false)
    }

    /// As [`post_datagram`](Self::post_datagram), for callers as in [`post_send_unless`](Self::post_send_unless).
    ///
    /// # Errors
    /// As `post_datagram`; `Interrupted` if it gave up.
    pub fn post_datagram_unless(
        &self,
        wr: &SendWr<'_>,
        addr: &UdAddr,
        gives_up: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        check_datagram(self.qp_type, &wr.op)?;
        let len = check_send(wr, self.qp_type, &self.cap)?;
        self.push(gives_up, |sends| sends.push_to(wr, wr.flags | self.always, len, addr))
    }

    /// Lets `push` append to the send queue, if state and room allow it.
    #[inline]
    fn push(
        &self,
        gives_up: impl FnOnce() -> bool,
        push: impl FnOnce(&mut WqeRing) -> bool,
    ) -> Result<(), PostError> {
        let full = PostError::QueueFull { max: self.cap.max_send_wr };
        let mut sends = lock_unless(&self.sends, gives_up).ok_or(PostError::Interrupted)?;
        check_send_state(self.state())?;
        // Acquire: with the device's Release, a place is free only once the device is done with it.
        if self.outstanding_sends() >= self.cap.max_send_wr {
            return Err(full);
        }
        if !push(&mut sends) {
            return Err(full);
        }
        self.posted.store(self.posted.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.send_count.store(sends.len(), Ordering::Release);
        Ok(())
    }

    /// Posts a receive. Legal in every state but RESET. In ERR the caller rings the doorbell, so that it is flushed.
    ///
    /// # Errors
    /// `TooManySge`, `State`, or `QueueFull` while `max_recv_wr` receives wait; `SharedRecvQueue` if it has a shared receive
    /// queue, as `rxe_verbs.c rxe_post_recv()`. Nothing was posted.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.post_recv_unless(wr, || false)
    }

    /// As [`post_recv`](Self::post_recv), for callers as in [`post_send_unless`](Self::post_send_unless).
    ///
    /// # Errors
    /// As `post_recv`; `Interrupted` if it gave up.
    pub fn post_recv_unless(
        &self,
        wr: &RecvWr<'_>,
        gives_up: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::SharedRecvQueue);
        }
        check_recv(wr, &self.cap)?;

        let mut recvs = lock_unless(&self.recvs, gives_up).ok_or(PostError::Interrupted)?;
        check_recv_state(self.state())?;
        if !recvs.push(wr) {
            return Err(PostError::QueueFull { max: self.cap.max_recv_wr });
        }
        self.recv_count.store(recvs.len(), Ordering::Release);
        Ok(())
    }

    /// Device: moves posted sends into its own ring; how many. Cheap (one load) if there are none.
    ///
    /// A ring as large as the queue has room for all: what is outstanding is in one of the two. In a smaller one
    /// some may not fit; they stay for the next call.
    pub fn take_sends(&self, into: &mut WqeRing) -> u32 {
        if self.send_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut sends = lock(&self.sends);
        let taken = into.take_from(&mut sends);
        self.send_count.store(sends.len(), Ordering::Release);
        taken
    }

    /// Device: `count` sends have left the queue (completed or retired unsignaled), so that as many may be posted.
    /// Call it after they were popped from the device's ring.
    pub fn retire_sends(&self, count: u32) {
        // A mistake of ours must not leave a count near 2^32, which would refuse every post for ever.
        let before = self.outstanding_sends();
        debug_assert!(before >= count, "{count} sends retired of {before}");
        let retired = self.retired.load(Ordering::Relaxed).wrapping_add(count.min(before));
        self.retired.store(retired, Ordering::Release);
    }

    /// Device: takes the oldest receive of its own queue; its list is copied into `sgl` (cleared first, capacity kept).
    /// `None` if none is posted, as always with a shared receive queue.
    pub fn take_recv(&self, sgl: &mut Vec<Sge>) -> Option<u64> {
        if self.recv_count() == 0 {
            sgl.clear();
            return None;
        }
        let mut recvs = lock(&self.recvs);
        let wr_id = recvs.pop(sgl);
        self.recv_count.store(recvs.len(), Ordering::Release);
        wr_id
    }

    /// Receives that are posted to its own queue and not taken: the responder's credits. One load.
    pub fn recv_count(&self) -> u32 {
        self.recv_count.load(Ordering::Acquire)
    }

    /// Sends that are posted and not retired.
    pub fn outstanding_sends(&self) -> u32 {
        // In this order: what is retired was posted before.
        let retired = self.retired.load(Ordering::Acquire);
        self.posted.load(Ordering::Relaxed).wrapping_sub(retired)
    }

    /// Device: forgets everything that is posted (RESET). [`set_state`](Self::set_state) does the same; alone, this
    /// leaves room for a post right after it. The device's own ring is the device's to clear.
    pub fn clear(&self) {
        let mut sends = lock(&self.sends);
        let mut recvs = lock(&self.recvs);
        self.forget(&mut sends, &mut recvs);
    }

    /// Bytes of memory that the queues take once all of them has been used; the device's own ring is not counted.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + lock(&self.sends).memory_bytes() + lock(&self.recvs).memory_bytes()
    }

    /// The caller holds both locks.
    fn forget(&self, sends: &mut WqeRing, recvs: &mut RecvQueue) {
        sends.clear();
        recvs.clear();
        self.retired.store(self.posted.load(Ordering::Relaxed), Ordering::Release);
        self.send_count.store(0, Ordering::Release);
        self.recv_count.store(0, Ordering::Release);
    }
}

fn send_ring(qp_type: QpType, cap: &QpCap) -> WqeRing {
    match qp_type {
        QpType::Ud => WqeRing::of_datagrams(cap),
        QpType::Rc | QpType::Uc | QpType::XrcSend | QpType::XrcRecv => {
            WqeRing::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data)
        }
    }
}

/// The state with this number. Only [`QpShared`] writes it, from a [`QpState`].
fn state_from(number: u8) -> QpState {
    const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];
    ALL.get(usize::from(number)).copied().unwrap_or(QpState::Err)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
