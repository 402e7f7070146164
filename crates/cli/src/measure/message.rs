//! Messages of any length to and fro by SEND/RECV, both sides polling.

use userdma::{Inline, SendFlags};

use super::pingpong::{Patience, PingPong, mask, put};
use super::rig::{LARGE, MAX_LEN, NO_WC, Rig, check_wc, is_receive};
use crate::failure::Failure;

/// Messages up to so many bytes are posted inline; longer ones come from registered pages.
pub const INLINE_MAX: usize = 64;

/// Messages of one length.
#[derive(Debug)]
pub(super) struct Message<'a> {
    rig: &'a Rig,
    len: usize,
    /// A receive has been used and is to be posted again, once there is time.
    is_used: bool,
}

impl<'a> Message<'a> {
    pub(super) fn new(rig: &'a Rig, len: usize) -> Self {
        Self { rig, len, is_used: false }
    }

    fn post_again(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_used) {
            self.rig.large.qp.post_recv(0, &self.rig.mr.slice(LARGE..LARGE + MAX_LEN))?;
        }
        Ok(())
    }
}

impl PingPong for Message<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn send(&mut self, value: u64) -> Result<(), Failure> {
        let (qp, flags) = (&self.rig.large.qp, SendFlags::SIGNALED);
        if self.len <= INLINE_MAX {
            let mut bytes = [0; INLINE_MAX];
            put(&mut bytes[..self.len], value);
            qp.post_send(0, Inline(&bytes[..self.len]), flags)?;
        } else {
            self.rig.mr.store(LARGE, value.to_le())?;
            qp.post_send(0, &self.rig.mr.slice(LARGE..LARGE + self.len), flags)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<u64, Failure> {
        self.post_again()?;
        let mut wcs = [NO_WC; 4];
        let mut patience = Patience::default();
        loop {
            patience.turn()?;
            let count = self.rig.large.cq.poll(&mut wcs)?;
            wcs[..count].iter().try_for_each(check_wc)?;
            if let Some(wc) = wcs[..count].iter().find(|wc| is_receive(wc)) {
                self.is_used = true;
                if wc.byte_len as usize != self.len {
                    return Err(Failure::new(format!("a message of {} bytes", wc.byte_len)));
                }
                return Ok(u64::from_le(self.rig.mr.load(LARGE)?) & mask(self.len));
            }
        }
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // If the queue pair is broken the next measurement says so.
        let _ = self.post_again();
    }
}
