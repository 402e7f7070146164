//! What comes from peers.

use userdma_verbs::Time;
use userdma_wire::mad::cm::{Drep, Dreq, Message, Mra, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu};
use userdma_wire::mad::{Data, Header};

use super::conn::{Conn, QpKey, RequestKey};
use super::disconnect::drep;
use super::refuse::{check_req, refusal};
use super::state::{LapState, State};
use super::types::Peer;
use super::{Arrival, Cm, Event, answer_unknown, time};
use crate::rdma::Ece;

/// A message's surroundings.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Time,
    pub(super) peer: Peer,
    pub(super) transaction_id: u64,
    /// What adapters of one vendor agree about.
    attribute_modifier: u32,
    /// The whole datagram.
    mad: &'a [u8],
}

impl Cm {
    /// Takes a datagram that came to queue pair 1, whatever it is. Then there may be datagrams to send, events, and
    /// another deadline.
    pub fn handle_mad(&mut self, now: Time, arrival: Arrival<'_>) {
        let Arrival { port, from, to, mad } = arrival;
        let peer = Peer { port, local: to, remote: from };
        if !self.ports.contains_key(&port) {
            return self.ignore();
        }
        let (Ok((transaction_id, message)), Ok(header)) = (Message::parse(mad), Header::parse(mad)) else {
            self.stats.malformed += 1;
            let answer = answer_unknown(mad);
            return self.outgoing.extend(answer.map(|answer| peer.send(answer)));
        };
        let attribute_modifier = header.attribute_modifier;
        let from = Context { now, peer, transaction_id, attribute_modifier, mad };
        match message {
            Message::Req(req) => self.handle_req(&from, req),
            Message::Mra(mra) => self.handle_mra(&from, &mra),
            Message::Rej(rej) => self.handle_rej(&from, rej),
            Message::Rep(rep) => self.handle_rep(&from, rep),
            Message::Rtu(rtu) => self.handle_rtu(&from, &rtu),
            Message::Dreq(dreq) => self.handle_dreq(&from, &dreq),
            Message::Drep(drep) => self.handle_drep(&from, &drep),
            Message::Lap(lap) => self.handle_lap(&from, lap),
            Message::Apr(apr) => self.handle_apr(&from, apr),
            Message::SidrReq(req) => self.handle_sidr_req(&from, req),
            Message::SidrRep(rep) => self.handle_sidr_rep(&from, rep),
        }
    }

    /// As `cm.c cm_req_handler()` and `cm.c cm_match_req()`.
    fn handle_req(&mut self, from: &Context<'_>, req: Req) {
        let remote = from.peer.remote;
        let key = RequestKey::Connection(remote, req.local_ca_guid, req.local_comm_id);
        if let Some(id) = self.table.by_request(&key) {
            return self.repeat_answer(from, id);
        }
        if let Err((reason, info)) = check_req(&from.peer, &req) {
            return self.refuse(from, RejectedMessage::Req, reason, &info);
        }
        let qp = QpKey(remote, req.local_ca_guid, req.local_qpn.get());
        if let Some(old) = self.table.by_qp(&qp) {
            self.refuse(from, RejectedMessage::Req, RejectReason::StaleConnection, &[]);
            return self.end_stale(from.now, old);
        }
        let (port, to) = (from.peer.port, from.peer.local);
        let Some(listener) = self.listeners.find(req.service_id, port, to) else {
            return self.answer_as_unknown(from);
        };
        let packet_life_time = req.primary.local_ack_timeout.saturating_sub(1);
        let conn = Conn {
            listener: Some(listener),
            remote_id: req.local_comm_id,
            remote_qpn: req.local_qpn,
            wait: time::timeout(req.local_cm_response_timeout),
            linger: time::linger(time::answer_time(packet_life_time, req.remote_cm_response_timeout)),
            retries: req.max_cm_retries,
            packet_life_time,
            ack_timeout: packet_life_time.saturating_add(1),
            ..Conn::new(from.peer, from.transaction_id)
        };
        let Some(id) = self.insert_request(conn, listener) else { return };
        self.table.index_request(id, key);
        self.table.index_qp(id, qp);
        self.table.enter(id, State::ReqReceived { mra: None }, None);
        let ece = Ece { vendor_id: req.vendor_id, attr_mod: from.attribute_modifier };
        self.tell(id, Event::Req { listener, port, from: remote, to, req, ece });
    }

    /// A request came again: what was said about it is said again. As `cm.c cm_dup_req_handler()`, and beyond it
    /// a REP, REJ or SIDR_REP is repeated at once.
    pub(super) fn repeat_answer(&mut self, from: &Context<'_>, id: u32) {
        let Some(conn) = self.table.of_peer(id, &from.peer) else { return self.ignore() };
        let answer = match &conn.state {
            State::ReqReceived { mra: Some(mra) } => mra.bytes(),
            State::RepSent(asking) => asking.mad.bytes(),
            State::Answered { answer, goodbye } if conn.transaction_id == from.transaction_id => {
                let (answer, end) = (answer.bytes(), from.now + conn.linger);
                if goodbye.is_none() {
                    self.table.set_deadline(id, Some(end));
                }
                answer
            }
            // Of a question for datagrams nobody is told that it is stale.
            State::Timewait { .. } | State::Answered { .. }
                if matches!(conn.request_key, Some(RequestKey::Connection(..))) =>
            {
                return self.refuse(from, RejectedMessage::Req, RejectReason::StaleConnection, &[]);
            }
            State::Idle
            | State::ReqSent(_)
            | State::ReqReceived { mra: None }
            | State::RepReceived { .. }
            | State::Established { .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return self.ignore(),
        };
        self.transmit(id, answer);
    }

    /// As `cm.c cm_rep_handler()`.
    fn handle_rep(&mut self, from: &Context<'_>, rep: Rep) {
        let id = rep.remote_comm_id;
        let Some(conn) = self.table.of_peer(id, &from.peer) else { return self.answer_as_unknown(from) };
        if conn.transaction_id != from.transaction_id {
            return self.ignore();
        }
        if matches!(conn.state, State::ReqSent(_)) {
            return self.accept_rep(from, rep);
        }
        if conn.remote_id != rep.local_comm_id {
            return self.ignore();
        }
        let answer = match &conn.state {
            State::RepReceived { mra: Some(mra) } => mra.bytes(),
            State::Established { rtu: Some(rtu), .. } => rtu.bytes(),
            State::Answered { answer, .. } => answer.bytes(),
            State::Idle
            | State::ReqSent(_)
            | State::ReqReceived { .. }
            | State::RepSent(_)
            | State::RepReceived { mra: None }
            | State::Established { rtu: None, .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return self.ignore(),
        };
        self.transmit(id, answer);
    }

    /// The first REP to our REQ.
    fn accept_rep(&mut self, from: &Context<'_>, rep: Rep) {
        let (id, remote) = (rep.remote_comm_id, from.peer.remote);
        let key = RequestKey::Connection(remote, rep.local_ca_guid, rep.local_comm_id);
        if self.table.by_request(&key).is_some() {
            return self.ignore();
        }
        let qp = QpKey(remote, rep.local_ca_guid, rep.local_qpn.get());
        if let Some(old) = self.table.by_qp(&qp) {
            // The REQ is sent again, and finds a peer that has taken leave of the old connection.
            self.refuse(from, RejectedMessage::Rep, RejectReason::StaleConnection, &[]);
            return self.end_stale(from.now, old);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.remote_id = rep.local_comm_id;
        conn.remote_qpn = rep.local_qpn;
        conn.ack_timeout = time::ack_timeout(rep.target_ack_delay, conn.packet_life_time);
        self.table.index_request(id, key);
        self.table.index_qp(id, qp);
        self.table.enter(id, State::RepReceived { mra: None }, None);
        let ece = Ece { vendor_id: rep.vendor_id(), attr_mod: from.attribute_modifier };
        self.tell(id, Event::Rep { rep, ece });
    }

    fn handle_rtu(&mut self, from: &Context<'_>, rtu: &Rtu) {
        let Some(id) = self.find(from, rtu.remote_comm_id, rtu.local_comm_id) else {
            return self.answer_as_unknown(from);
        };
        let Some(conn) = self.table.get(id) else { return };
        if conn.transaction_id != from.transaction_id {
            return self.ignore();
        }
        if matches!(conn.state, State::RepSent(_)) {
            self.table.enter(id, State::Established { rtu: None, lap: LapState::Quiet }, None);
            self.tell(id, Event::Rtu);
        } else if let State::Answered { answer, .. } = &conn.state {
            // The peer has not heard that we refused after all.
            let answer = answer.bytes();
            self.transmit(id, answer);
        } else {
            self.ignore();
        }
    }

    /// As `cm.c cm_rej_handler()`; a REJ after the REP crossed ours is taken, too.
    fn handle_rej(&mut self, from: &Context<'_>, rej: Rej) {
        let Some(id) = self.find_rejected(from, &rej) else { return self.ignore() };
        let Some(conn) = self.table.get(id) else { return };
        if from.transaction_id != conn.transaction_id && from.transaction_id != self.transaction_id(id) {
            return self.ignore();
        }
        match &conn.state {
            State::ReqSent(_) | State::RepSent(_) if rej.reason == RejectReason::StaleConnection => {
                self.enter_timewait(from.now, id, None);
            }
            State::ReqSent(_) => self.table.enter(id, State::Idle, None),
            // A copy of the REQ that comes late must not ask anew.
            State::RepSent(_) | State::ReqReceived { .. } => {
                let answer = conn.rej(id, RejectReason::StaleConnection, &[], Data::EMPTY);
                self.keep_answer(from.now, id, answer);
            }
            State::RepReceived { .. } | State::DreqSent(_) | State::Established { .. } => {
                self.enter_timewait(from.now, id, None);
            }
            State::Idle
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return self.ignore(),
        }
        self.tell(id, Event::Rej { rej });
        if self.table.get(id).is_some_and(|conn| !conn.is_owned && matches!(conn.state, State::Idle)) {
            self.table.remove(id);
        }
    }

    /// The connection that a REJ is for: by our id, or where the peer does not know that, by its own and its GUID.
    fn find_rejected(&self, from: &Context<'_>, rej: &Rej) -> Option<u32> {
        if rej.remote_comm_id == 0 {
            let guid = u64::from_be_bytes(*rej.info.bytes().first_chunk()?);
            let key = RequestKey::Connection(from.peer.remote, guid, rej.local_comm_id);
            let id = self.table.by_request(&key).filter(|_| rej.reason == RejectReason::Timeout)?;
            return self.table.of_peer(id, &from.peer).map(|_| id);
        }
        let conn = self.table.of_peer(rej.remote_comm_id, &from.peer)?;
        let is_known = conn.remote_id == rej.local_comm_id || conn.remote_id == 0;
        is_known.then_some(rej.remote_comm_id)
    }

    /// As `cm.c cm_mra_handler()`, but that each message that is sent again may be asked to wait again.
    fn handle_mra(&mut self, from: &Context<'_>, mra: &Mra) {
        let id = mra.remote_comm_id;
        let Some(conn) = self.table.of_peer(id, &from.peer) else { return self.ignore() };
        let is_known = conn.remote_id == mra.local_comm_id || conn.remote_id == 0;
        let is_lap = matches!(conn.state, State::Established { lap: LapState::Sent(_), .. });
        let asked = match mra.message {
            RejectedMessage::Req if matches!(conn.state, State::ReqSent(_)) => Some(conn.transaction_id),
            RejectedMessage::Rep if matches!(conn.state, State::RepSent(_)) => Some(conn.transaction_id),
            RejectedMessage::Other if is_lap => Some(self.transaction_id(id)),
            RejectedMessage::Req | RejectedMessage::Rep | RejectedMessage::Other => None,
        };
        if !is_known || asked != Some(from.transaction_id) {
            return self.ignore();
        }
        let patience = time::timeout(mra.service_timeout) + time::timeout(conn.ack_timeout);
        let Some(asking) = self.table.get_mut(id).and_then(|conn| conn.state.asking()) else { return };
        if asking.is_patient {
            return self.ignore();
        }
        asking.is_patient = true;
        self.table.set_deadline(id, Some(from.now + patience));
        self.tell(id, Event::Mra);
    }

    /// As `cm.c cm_dreq_handler()`; a DREQ may also come before our RTU, from a peer that saw data first.
    fn handle_dreq(&mut self, from: &Context<'_>, dreq: &Dreq) {
        let Some(id) = self.find(from, dreq.remote_comm_id, dreq.local_comm_id) else {
            return self.answer_as_unknown(from);
        };
        let transaction_id = from.transaction_id;
        let Some(conn) = self.table.get(id) else { return };
        if conn.local_qpn != dreq.remote_qpn {
            return self.ignore();
        }
        match &conn.state {
            State::RepSent(_) | State::RepReceived { .. } | State::Established { .. } => {
                self.table.enter(id, State::DreqReceived { transaction_id }, None);
            }
            // Both disconnect: nobody needs to be asked.
            State::DreqSent(_) => {
                let answer = drep(id, conn, transaction_id, Data::EMPTY);
                self.finish_drep(from.now, id, answer);
            }
            State::Timewait { drep: Some(answer) } => {
                let answer = answer.bytes();
                return self.transmit(id, answer);
            }
            State::Timewait { drep: None } | State::Answered { .. } | State::Idle => {
                return self.answer_as_unknown(from);
            }
            State::ReqSent(_)
            | State::ReqReceived { .. }
            | State::DreqReceived { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return self.ignore(),
        }
        self.tell(id, Event::Dreq);
    }

    fn handle_drep(&mut self, from: &Context<'_>, drep: &Drep) {
        let Some(id) = self.find(from, drep.remote_comm_id, drep.local_comm_id) else { return self.ignore() };
        if from.transaction_id != self.transaction_id(id) {
            return self.ignore();
        }
        let Some(conn) = self.table.get(id) else { return };
        match &conn.state {
            State::Answered { answer, goodbye: Some(_) } => {
                let answer = answer.bytes();
                self.keep_answer(from.now, id, answer);
            }
            State::Answered { goodbye: None, .. } => {}
            State::DreqSent(_) => {
                self.enter_timewait(from.now, id, None);
                self.tell(id, Event::Drep);
            }
            State::Idle
            | State::ReqSent(_)
            | State::ReqReceived { .. }
            | State::RepSent(_)
            | State::RepReceived { .. }
            | State::Established { .. }
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => self.ignore(),
        }
    }

    /// The connection with these two ids between these two addresses.
    pub(super) fn find(&self, from: &Context<'_>, local_id: u32, remote_id: u32) -> Option<u32> {
        let conn = self.table.of_peer(local_id, &from.peer)?;
        (conn.remote_id == remote_id && conn.request_key.is_some()).then_some(local_id)
    }

    /// A queue pair that we are connected to wants another connection: it has forgotten this one.
    fn end_stale(&mut self, now: Time, id: u32) {
        if self.table.get(id).is_some_and(|conn| matches!(conn.state, State::Established { .. })) {
            self.begin_dreq(now, id, Data::EMPTY);
        }
    }

    /// Refuses a message without keeping anything.
    fn refuse(&mut self, from: &Context<'_>, message: RejectedMessage, reason: RejectReason, info: &[u8]) {
        let rej = refusal(from.mad, from.transaction_id, message, reason, info);
        self.outgoing.push_back(from.peer.send(rej));
    }

    pub(super) fn answer_as_unknown(&mut self, from: &Context<'_>) {
        self.stats.unexpected += 1;
        self.outgoing.extend(answer_unknown(from.mad).map(|answer| from.peer.send(answer)));
    }

    pub(super) const fn ignore(&mut self) {
        self.stats.unexpected += 1;
    }
}
