//! Where the receives of a queue pair come from: its own queue, or a shared receive queue.

use userdma_verbs::{AsyncEvent, Sge};

use crate::Ctx;

impl Ctx<'_> {
    /// Takes the receive that a message lands in: the oldest of the queue pair's own queue, or of its shared receive queue,
    /// whose limit is looked after. The list is copied into `sgl` (cleared first, capacity kept); its memory is in the domain
    /// [`recv_pd`](userdma_objects::QpShared::recv_pd). `None` if no receive is posted.
    ///
    /// Only for messages: what is flushed is the queue pair's own, from
    /// [`QpShared::take_recv`](userdma_objects::QpShared::take_recv).
    #[inline]
    pub(crate) fn take_recv(&mut self, sgl: &mut Vec<Sge>) -> Option<u64> {
        match self.qp.take_recv(sgl) {
            None => self.take_shared_recv(sgl),
            taken => taken,
        }
    }

    fn take_shared_recv(&mut self, sgl: &mut Vec<Sge>) -> Option<u64> {
        let srq = self.qp.srq()?;
        let taken = srq.take_recv(sgl)?;
        if taken.is_limit_reached {
            self.effects.events.push(AsyncEvent::SrqLimitReached { srqn: srq.srqn() });
        }
        Some(taken.wr_id)
    }

    /// Tells that a queue pair with a shared receive queue takes no more from it. To be called when it has gone to the error
    /// state and what it had taken has completed. As `rxe_resp.c flush_recv_queue()`, which does not flush the queue
    /// either: other queue pairs go on with it.
    pub(crate) fn report_last_wqe(&mut self) {
        if self.qp.srq().is_some() {
            self.effects.events.push(AsyncEvent::QpLastWqeReached { qpn: self.qp.qpn() });
        }
    }
}
