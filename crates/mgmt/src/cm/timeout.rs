//! What happens when time passes.

use userdma_verbs::Time;
use userdma_wire::mad::Data;
use userdma_wire::mad::cm::RejectReason;

use super::state::{LapState, State};
use super::{Cm, Event};

impl Cm {
    /// Does what is due at `now`: messages without an answer are sent again or given up, timewait ends.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.table.take_expired(now) {
            self.expire(now, id);
        }
    }

    fn expire(&mut self, now: Time, id: u32) {
        let Some(conn) = self.table.get_mut(id) else { return };
        if let Some(asking) = conn.state.asking() {
            match asking.retries_left.checked_sub(1) {
                Some(left) => {
                    asking.retries_left = left;
                    asking.is_patient = false;
                    let (mad, wait) = (asking.mad.bytes(), asking.wait);
                    self.table.set_deadline(id, Some(now + wait));
                    self.transmit(id, mad);
                    self.stats.retries += 1;
                }
                None => self.give_up(now, id),
            }
            return;
        }
        let is_timewait = matches!(conn.state, State::Timewait { .. });
        if is_timewait {
            self.tell(id, Event::TimewaitExit);
        }
        self.enter_idle(id);
    }

    /// No answer has come. The peer is told, as it may be there and only its answer not have come.
    /// As `cm.c cm_process_send_error()`, which tells nothing.
    fn give_up(&mut self, now: Time, id: u32) {
        let Some(conn) = self.table.get(id) else { return };
        let guid = self.ports.get(&conn.peer.port).map_or(0, |port| port.guid);
        let rej = conn.rej(id, RejectReason::Timeout, &guid.to_be_bytes(), Data::EMPTY);
        match &conn.state {
            State::ReqSent(_) => {
                self.transmit(id, rej);
                self.tell(id, Event::ReqError);
                self.enter_idle(id);
            }
            State::RepSent(_) => {
                self.transmit(id, rej);
                self.tell(id, Event::RepError);
                self.enter_idle(id);
            }
            State::DreqSent(_) => {
                self.enter_timewait(now, id, None);
                self.tell(id, Event::DreqError);
            }
            State::Answered { .. } => self.enter_idle(id),
            State::SidrReqSent(_) => {
                self.tell(id, Event::SidrError);
                self.enter_idle(id);
            }
            State::Established { .. } => {
                self.set_lap(id, LapState::Quiet);
                self.tell(id, Event::LapError);
            }
            State::Idle
            | State::ReqReceived { .. }
            | State::RepReceived { .. }
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::SidrReqReceived => {}
        }
    }
}
