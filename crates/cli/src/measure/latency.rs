//! Eight bytes by RDMA.

use std::time::Duration;

use userdma::{Cq, Inline, Mr, Qp, RemoteMr, Rts, SendFlags, Wc};

use super::pingpong::{Patience, PingPong};
use super::rig::{MAILBOX, NO_WC, Rig, check_wc, is_receive, slot_range};
use crate::failure::Failure;

/// SEND/RECV.
#[derive(Debug)]
pub(super) struct Send<'a> {
    queue: Sends<'a>,
    cq: &'a Cq,
    mr: &'a Mr,
    is_sleeping: bool,
    /// The receive to post again, once there is time.
    used_slot: Option<usize>,
}

/// WRITE.
#[derive(Debug)]
pub(super) struct Write<'a> {
    queue: Sends<'a>,
    cq: &'a Cq,
    mr: &'a Mr,
    target: RemoteMr,
    last: u64,
}

/// Signals now and then, so that the send queue is cleared.
#[derive(Debug)]
struct Sends<'a> {
    qp: &'a Qp<Rts>,
    count: u64,
}

impl Sends<'_> {
    fn flags(&mut self) -> SendFlags {
        self.count += 1;
        if self.count.is_multiple_of(SIGNAL_EACH) { SendFlags::SIGNALED } else { SendFlags::empty() }
    }
}

impl<'a> Send<'a> {
    /// Both sides poll.
    pub(super) fn polling(rig: &'a Rig) -> Self {
        Self::new(rig, false)
    }

    /// Both sides sleep.
    pub(super) fn sleeping(rig: &'a Rig) -> Self {
        Self::new(rig, true)
    }

    fn new(rig: &'a Rig, is_sleeping: bool) -> Self {
        let queue = Sends { qp: &rig.small.qp, count: 0 };
        Self { queue, cq: &rig.small.cq, mr: &rig.mr, is_sleeping, used_slot: None }
    }

    /// Takes completions; the slot of the one that is a receive.
    fn take(&self, wcs: &[Wc]) -> Result<Option<usize>, Failure> {
        let mut slot = None;
        for wc in wcs {
            check_wc(wc)?;
            if is_receive(wc) {
                slot = usize::try_from(wc.wr_id).ok();
            }
        }
        Ok(slot)
    }

    fn post_again(&mut self) -> Result<(), Failure> {
        if let Some(slot) = self.used_slot.take() {
            self.queue.qp.post_recv(slot as u64, &self.mr.slice(slot_range(slot)))?;
        }
        Ok(())
    }
}

impl PingPong for Send<'_> {
    fn send(&mut self, value: u64) -> Result<(), Failure> {
        let flags = self.queue.flags();
        self.queue.qp.post_send(0, Inline(&value.to_ne_bytes()), flags)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        self.post_again()?;
        let mut wcs = [NO_WC; 4];
        let mut patience = Patience::default();
        loop {
            let count = if self.is_sleeping {
                match self.cq.wait(&mut wcs, Some(TIMEOUT))? {
                    0 => return Err(Failure::new("no message within 5 s")),
                    count => count,
                }
            } else {
                patience.turn()?;
                self.cq.poll(&mut wcs)?
            };
            if let Some(slot) = self.take(&wcs[..count])? {
                self.used_slot = Some(slot);
                return Ok(self.mr.load(slot_range(slot).start)?);
            }
        }
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        // If the queue pair is broken the next measurement says so.
        let _ = self.post_again();
    }
}

impl<'a> Write<'a> {
    pub(super) fn new(rig: &'a Rig) -> Self {
        Self {
            queue: Sends { qp: &rig.small.qp, count: 0 },
            cq: &rig.small.cq,
            mr: &rig.mr,
            target: rig.remote.slice(MAILBOX as u64, 8),
            last: 0,
        }
    }
}

impl PingPong for Write<'_> {
    fn send(&mut self, value: u64) -> Result<(), Failure> {
        let flags = self.queue.flags();
        self.queue.qp.post_write(0, Inline(&value.to_ne_bytes()), self.target, flags)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        let mut wcs = [NO_WC; 4];
        let mut patience = Patience::default();
        loop {
            let value = self.mr.load(MAILBOX)?;
            if value != self.last {
                self.last = value;
                return Ok(value);
            }
            patience.turn()?;
            let count = self.cq.poll(&mut wcs)?;
            wcs[..count].iter().try_for_each(check_wc)?;
        }
    }
}

const SIGNAL_EACH: u64 = 32;
const TIMEOUT: Duration = Duration::from_secs(5);
