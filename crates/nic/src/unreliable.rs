//! What the services need whose packets nobody answers: to be told that packets have left, and how fast they may send.

use userdma_ibt::{Ask, Room};
use userdma_verbs::Time;

use crate::Shard;
use crate::transport::Transport;

impl Shard {
    /// Everything that [`Shard::poll_transmit`] has given out so far was given to the links: sends that nobody answers complete.
    #[inline]
    pub fn handle_sent(&mut self, now: Time) {
        if !self.sending.is_empty() {
            self.complete_sent(now);
        }
    }

    /// A destination whose buffer somebody wants to know about, once everything that was given out is with the links. The answer
    /// goes to [`Shard::handle_room`].
    #[inline]
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.paces.next_ask()
    }

    /// How full the buffer of a destination is; `None` if that cannot be known. Whether somebody has a turn because of it.
    pub fn handle_room(&mut self, now: Time, ask: &Ask, room: Option<Room>) -> bool {
        if !self.paces.answer(now, ask, room) || self.paced.is_empty() {
            return false;
        }
        while let Some(index) = self.paced.pop() {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.is_paced = false;
                self.make_ready(index);
            }
        }
        true
    }

    /// After a fill: notes queue pairs that wait for their packets to leave, and those that were too fast.
    #[inline]
    pub(crate) fn note_unreliable(&mut self, index: u32) {
        let Some(qp) = self.qps.get_mut(index) else { return };
        if qp.transport.awaits_sending() && !qp.is_sending {
            qp.is_sending = true;
            self.sending.push(index);
        }
        if qp.transport.is_paced() && !qp.is_paced {
            qp.is_paced = true;
            self.paced.push(index);
        }
    }

    #[cold]
    fn complete_sent(&mut self, now: Time) {
        while let Some(index) = self.sending.pop() {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.is_sending = false;
                self.drive(now, index, Transport::handle_sent);
            }
        }
    }
}
