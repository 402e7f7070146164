//! Eight bytes by SEND/RECV as perftest's ib_send_lat does it: each send is signaled, and its completion is waited for before the
//! next message is looked for.
//!
//! A completion says that the peer has acknowledged, so each message costs a packet more than one that nobody asks about.

use userdma::{Inline, Mr, SendFlags};

use super::pingpong::{Patience, PingPong};
use super::rig::{Lane, NO_WC, Rig, check_wc, is_receive, slot_range};
use crate::failure::Failure;

/// One message at a time, acknowledged before the next.
#[derive(Debug)]
pub(super) struct Signaled<'a> {
    lane: &'a Lane,
    mr: &'a Mr,
    /// Receives that completed while a send was waited for.
    arrived: Option<usize>,
}

impl<'a> Signaled<'a> {
    pub(super) fn new(rig: &'a Rig) -> Self {
        Self { lane: &rig.small, mr: &rig.mr, arrived: None }
    }

    /// Polls once: whether a send has completed. A receive is kept.
    fn poll(&mut self) -> Result<bool, Failure> {
        let mut wcs = [NO_WC; 2];
        let count = self.lane.cq.poll(&mut wcs)?;
        let mut has_sent = false;
        for wc in &wcs[..count] {
            check_wc(wc)?;
            if is_receive(wc) {
                self.arrived = usize::try_from(wc.wr_id).ok();
            } else {
                has_sent = true;
            }
        }
        Ok(has_sent)
    }
}

impl PingPong for Signaled<'_> {
    fn send(&mut self, value: u64) -> Result<(), Failure> {
        self.lane.qp.post_send(0, Inline(&value.to_ne_bytes()), SendFlags::SIGNALED)?;
        let mut patience = Patience::default();
        while !self.poll()? {
            patience.turn()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        let mut patience = Patience::default();
        loop {
            if let Some(slot) = self.arrived.take() {
                let value = self.mr.load(slot_range(slot).start)?;
                self.lane.qp.post_recv(slot as u64, &self.mr.slice(slot_range(slot)))?;
                return Ok(value);
            }
            patience.turn()?;
            self.poll()?;
        }
    }
}
