//! Questions for datagrams: which queue pair serves them (SIDR_REQ), and the answer (SIDR_REP).

use userdma_verbs::Time;
use userdma_wire::mad::MAD_LEN;
use userdma_wire::mad::cm::{SidrRep, SidrReq, SidrStatus};

use super::conn::{Conn, RequestKey};
use super::connect::data;
use super::receive::Context;
use super::state::{Asking, State};
use super::types::Peer;
use super::{Cm, ConnId, Event, Failure, MAX_UNDECIDED, SidrRepParams, SidrReqParams, time};

impl Cm {
    /// Asks which queue pair serves datagrams.
    ///
    /// # Errors
    /// [`Failure`]; nothing was sent then.
    pub fn send_sidr_req(&mut self, now: Time, params: &SidrReqParams<'_>) -> Result<ConnId, Failure> {
        let port = *self.ports.get(&params.port).ok_or(Failure::NoPort(params.port))?;
        let private_data = data(params.private_data)?;
        let peer = Peer { port: params.port, local: params.from, remote: params.to };
        let id = self.table.insert(port.slot, Conn::new(peer, 0)).ok_or(Failure::NoIds)?;
        let transaction_id = self.transaction_id(id);
        if let Some(conn) = self.table.get_mut(id) {
            conn.transaction_id = transaction_id;
        }
        let req = SidrReq { request_id: id, pkey: params.pkey, service_id: params.service_id, private_data };
        let mad = req.build(transaction_id);
        let wait = time::timeout(params.timeout);
        let asking = Asking::new(mad, params.max_cm_retries.min(15), wait);
        self.table.enter(id, State::SidrReqSent(asking), Some(now + wait));
        self.transmit(id, mad);
        Ok(ConnId(id))
    }

    /// Answers a question. It is idle for its owner, and the answer is repeated to a peer that asks again.
    ///
    /// # Errors
    /// [`Failure`], such as that no question was received.
    pub fn send_sidr_rep(
        &mut self,
        now: Time,
        conn: ConnId,
        params: &SidrRepParams<'_>,
    ) -> Result<(), Failure> {
        let state = self.owned_in(conn, |state| matches!(state, State::SidrReqReceived))?;
        let rep = SidrRep {
            request_id: state.remote_id,
            status: params.status,
            qpn: params.qpn,
            service_id: state.service_id,
            qkey: params.qkey,
            private_data: data(params.private_data)?,
            ..SidrRep::default()
        };
        let answer = rep.build(state.transaction_id);
        self.keep_answer(now, conn.0, answer);
        self.transmit(conn.0, answer);
        Ok(())
    }

    pub(super) fn handle_sidr_req(&mut self, from: &Context<'_>, req: SidrReq) {
        let key = RequestKey::Sidr(from.peer.remote, req.request_id);
        if let Some(id) = self.table.by_request(&key) {
            return self.repeat_answer(from, id);
        }
        let (port, to) = (from.peer.port, from.peer.local);
        let Some(listener) = self.listeners.find(req.service_id, port, to) else {
            return self.answer_as_unknown(from);
        };
        let conn = Conn {
            listener: Some(listener),
            remote_id: req.request_id,
            service_id: req.service_id,
            linger: time::linger(time::timeout(SIDR_LINGER)),
            ..Conn::new(from.peer, from.transaction_id)
        };
        let Some(id) = self.insert_request(conn, listener) else { return };
        self.table.index_request(id, key);
        self.table.enter(id, State::SidrReqReceived, None);
        self.tell(id, Event::SidrReq { listener, port, from: from.peer.remote, to, req });
    }

    pub(super) fn handle_sidr_rep(&mut self, from: &Context<'_>, rep: SidrRep) {
        let id = rep.request_id;
        let is_awaited = self.table.of_peer(id, &from.peer).is_some_and(|conn| {
            matches!(conn.state, State::SidrReqSent(_)) && conn.transaction_id == from.transaction_id
        });
        if !is_awaited {
            return self.ignore();
        }
        self.table.enter(id, State::Idle, None);
        self.tell(id, Event::SidrRep { rep });
    }

    /// Takes a request in, unless its listener has too many that it has not answered: then it is dropped, and may be
    /// taken when it comes again.
    pub(super) fn insert_request(&mut self, conn: Conn, listener: super::ListenId) -> Option<u32> {
        let slot = self.ports.get(&conn.peer.port)?.slot;
        if self.table.undecided(listener) >= MAX_UNDECIDED {
            self.stats.overflows += 1;
            return None;
        }
        let id = self.table.insert(slot, conn);
        self.stats.overflows += u64::from(id.is_none());
        id
    }
}

/// The answer that there is no queue pair.
pub(super) fn refusal(conn: &Conn, status: SidrStatus) -> [u8; MAD_LEN] {
    let rep =
        SidrRep { request_id: conn.remote_id, status, service_id: conn.service_id, ..SidrRep::default() };
    rep.build(conn.transaction_id)
}

/// How long a SIDR_REQ may take to come again, an exponent of 4.096 µs: the question does not tell, this is what the
/// kernel's takes.
const SIDR_LINGER: u8 = 20;
