//! Ending connections, as their owner does: DREQ, DREP, and giving up altogether.

use userdma_verbs::Time;
use userdma_wire::mad::cm::{Drep, RejectReason, SidrStatus};
use userdma_wire::mad::{Data, MAD_LEN};

use super::conn::Conn;
use super::connect::data;
use super::sidr;
use super::state::{Asking, Mad, State};
use super::{Cm, ConnId, Failure};

impl Cm {
    /// Disconnects: the peer's DREP, or that it does not come, begins timewait.
    ///
    /// # Errors
    /// [`Failure`], such as a connection that is not established.
    pub fn send_dreq(&mut self, now: Time, conn: ConnId, private_data: &[u8]) -> Result<(), Failure> {
        self.owned_in(conn, |state| matches!(state, State::Established { .. }))?;
        let private_data = data(private_data)?;
        self.begin_dreq(now, conn.0, private_data);
        Ok(())
    }

    /// Answers the peer's DREQ: timewait begins.
    ///
    /// # Errors
    /// [`Failure`], such as another state than that the DREQ was received.
    pub fn send_drep(&mut self, now: Time, conn: ConnId, private_data: &[u8]) -> Result<(), Failure> {
        let state = self.owned(conn)?;
        let State::DreqReceived { transaction_id } = state.state else {
            return Err(Failure::State(state.state.name()));
        };
        let drep = drep(conn.0, state, transaction_id, data(private_data)?);
        self.finish_drep(now, conn.0, drep);
        Ok(())
    }

    /// Gives a connection or question up, in whatever state: the peer is told what the state asks for, and nobody is
    /// told anything of it again. What must wait (for a DREP, in timewait, to repeat a REJ) does so without an owner.
    pub fn destroy(&mut self, now: Time, conn: ConnId) {
        if self.owned(conn).is_err() {
            return;
        }
        self.events.forget(conn);
        self.say_goodbye(now, conn);
        let Some(state) = self.table.get_mut(conn.0) else { return };
        state.is_owned = false;
        if matches!(state.state, State::Idle) {
            self.table.remove(conn.0);
        }
    }

    /// Drops a request without a word, as if it had not come: if it comes again it is a new one. Anything else is
    /// given up as by [`Cm::destroy`], but for the word.
    pub fn forget(&mut self, conn: ConnId) {
        if self.owned(conn).is_ok() {
            self.remove(conn.0);
        }
    }

    /// As `cm.c cm_destroy_id()`, but that a DREQ is sent again until it is answered.
    fn say_goodbye(&mut self, now: Time, conn: ConnId) {
        let Some(state) = self.table.get(conn.0) else { return };
        match state.state {
            State::ReqSent(_) => {
                // A peer that has only the REQ knows us by the GUID.
                let guid = self.ports.get(&state.peer.port).map_or(0, |port| port.guid);
                let _ = self.send_rej(now, conn, RejectReason::Timeout, &guid.to_be_bytes(), &[]);
            }
            State::ReqReceived { .. } | State::RepSent(_) | State::RepReceived { .. } => {
                let _ = self.send_rej(now, conn, RejectReason::ConsumerReject, &[], &[]);
            }
            State::Established { .. } => self.begin_dreq(now, conn.0, Data::EMPTY),
            State::DreqReceived { transaction_id } => {
                let drep = drep(conn.0, state, transaction_id, Data::EMPTY);
                self.finish_drep(now, conn.0, drep);
            }
            State::SidrReqSent(_) => self.table.enter(conn.0, State::Idle, None),
            State::SidrReqReceived => {
                let answer = sidr::refusal(state, SidrStatus::Rejected);
                self.keep_answer(now, conn.0, answer);
                self.transmit(conn.0, answer);
            }
            State::Idle | State::DreqSent(_) | State::Timewait { .. } | State::Answered { .. } => {}
        }
    }

    /// Sends a DREQ, from the established state.
    pub(super) fn begin_dreq(&mut self, now: Time, id: u32, private_data: Data<220>) {
        let Some(conn) = self.table.get(id) else { return };
        let mad = conn.dreq(id, self.transaction_id(id), private_data);
        let (retries, wait) = (conn.retries, conn.wait);
        self.table.enter(id, State::DreqSent(Asking::new(mad, retries, wait)), Some(now + wait));
        self.transmit(id, mad);
    }

    /// Sends a DREP, and begins timewait.
    pub(super) fn finish_drep(&mut self, now: Time, id: u32, drep: [u8; MAD_LEN]) {
        self.transmit(id, drep);
        self.enter_timewait(now, id, Some(Mad::new(drep)));
    }
}

/// A DREP to the DREQ of this transaction.
pub(super) fn drep(id: u32, conn: &Conn, transaction_id: u64, private_data: Data<224>) -> [u8; MAD_LEN] {
    Drep { local_comm_id: id, remote_comm_id: conn.remote_id, private_data }.build(transaction_id)
}
