//! Alternate paths: LAP and APR. Connections over RoCE have none, but whoever asks gets an answer.

use userdma_verbs::Time;
use userdma_wire::mad::Data;
use userdma_wire::mad::cm::{Apr, AprStatus, Lap};

use super::connect::data;
use super::receive::Context;
use super::state::{Asking, LapState, Mad, State};
use super::{Cm, ConnId, Event, Failure};

impl Cm {
    /// Proposes an alternate path. Communication ids and the peer's queue pair are filled in.
    ///
    /// # Errors
    /// [`Failure`], such as a connection that is not established or has proposed one already.
    pub fn send_lap(&mut self, now: Time, conn: ConnId, lap: &Lap) -> Result<(), Failure> {
        let state = self.owned_in(conn, |state| {
            matches!(state, State::Established { lap: LapState::Quiet | LapState::Answered(..), .. })
        })?;
        let lap = Lap {
            local_comm_id: conn.0,
            remote_comm_id: state.remote_id,
            remote_qpn: state.remote_qpn,
            ..*lap
        };
        let mad = lap.build(self.transaction_id(conn.0));
        let (asking, wait) = (Asking::new(mad, state.retries, state.wait), state.wait);
        self.set_lap(conn.0, LapState::Sent(asking));
        self.table.set_deadline(conn.0, Some(now + wait));
        self.transmit(conn.0, mad);
        Ok(())
    }

    /// Answers a LAP. `info` (at most 72 bytes) belongs to the status, `private_data` (at most 148) to the peer.
    ///
    /// # Errors
    /// [`Failure`], such as a connection whose peer has proposed nothing.
    pub fn send_apr(
        &mut self,
        conn: ConnId,
        status: AprStatus,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let state = self.owned(conn)?;
        let State::Established { lap: LapState::Received(transaction_id), .. } = state.state else {
            return Err(Failure::State(state.state.name()));
        };
        let apr = Apr {
            local_comm_id: conn.0,
            remote_comm_id: state.remote_id,
            // At most 72, or it does not fit.
            info_len: u8::try_from(info.len()).unwrap_or(0),
            status,
            info: data(info)?,
            private_data: data(private_data)?,
        };
        let mad = apr.build(transaction_id);
        self.set_lap(conn.0, LapState::Answered(transaction_id, Mad::new(mad)));
        self.transmit(conn.0, mad);
        Ok(())
    }

    /// A LAP of an established connection is its owner's to answer; of none it is answered at once.
    pub(super) fn handle_lap(&mut self, from: &Context<'_>, lap: Lap) {
        let Some(id) = self.find(from, lap.remote_comm_id, lap.local_comm_id) else {
            return self.answer_as_unknown(from);
        };
        let Some(conn) = self.table.get(id) else { return };
        let State::Established { lap: state, .. } = &conn.state else { return self.ignore() };
        if lap.remote_qpn != conn.local_qpn {
            let apr = Apr {
                local_comm_id: id,
                remote_comm_id: conn.remote_id,
                status: AprStatus::InvalidQpn,
                info: Data::EMPTY,
                ..Apr::default()
            };
            return self.transmit(id, apr.build(from.transaction_id));
        }
        match state {
            LapState::Answered(transaction_id, answer) if *transaction_id == from.transaction_id => {
                let answer = answer.bytes();
                self.transmit(id, answer);
            }
            LapState::Quiet | LapState::Answered(..) => {
                self.set_lap(id, LapState::Received(from.transaction_id));
                self.tell(id, Event::Lap { lap });
            }
            LapState::Sent(_) | LapState::Received(_) => self.ignore(),
        }
    }

    pub(super) fn handle_apr(&mut self, from: &Context<'_>, apr: Apr) {
        let Some(id) = self.find(from, apr.remote_comm_id, apr.local_comm_id) else { return self.ignore() };
        let is_awaited = from.transaction_id == self.transaction_id(id)
            && self
                .table
                .get(id)
                .is_some_and(|conn| matches!(conn.state, State::Established { lap: LapState::Sent(_), .. }));
        if !is_awaited {
            return self.ignore();
        }
        self.table.set_deadline(id, None);
        self.set_lap(id, LapState::Quiet);
        self.tell(id, Event::Apr { apr });
    }

    /// Changes what goes on about an alternate path of an established connection.
    pub(super) fn set_lap(&mut self, id: u32, new: LapState) {
        if let Some(conn) = self.table.get_mut(id)
            && let State::Established { lap, .. } = &mut conn.state
        {
            *lap = new;
        }
    }
}
