//! Making connections, as their owner does: REQ, REP, RTU, REJ, MRA.

use userdma_verbs::{Gid, Lid, QpType, Time};
use userdma_wire::mad::cm::{Mra, Path, RejectReason, RejectedMessage, Rep, Req, Rtu, TransportService};
use userdma_wire::mad::{Data, MAD_LEN};

use super::conn::Conn;
use super::state::{Asking, LapState, Mad, State};
use super::types::Peer;
use super::{Cm, ConnId, Event, Failure, RepParams, ReqParams, time};

impl Cm {
    /// Asks for a connection.
    ///
    /// # Errors
    /// [`Failure`]; nothing was sent then.
    pub fn send_req(&mut self, now: Time, params: &ReqParams<'_>) -> Result<ConnId, Failure> {
        let port = *self.ports.get(&params.port).ok_or(Failure::NoPort(params.port))?;
        let req = req(params, port.guid)?;
        let peer = Peer { port: params.port, local: params.from, remote: params.to };
        let wait = time::answer_time(params.path.packet_life_time, params.remote_response_timeout);
        let conn = Conn {
            local_qpn: params.qpn,
            wait,
            linger: time::linger(time::timeout(params.local_response_timeout)),
            retries: params.max_cm_retries.min(15),
            packet_life_time: params.path.packet_life_time,
            ack_timeout: params.path.packet_life_time.saturating_add(1),
            ..Conn::new(peer, 0)
        };
        let retries = conn.retries;
        let id = self.table.insert(port.slot, conn).ok_or(Failure::NoIds)?;
        let transaction_id = self.transaction_id(id);
        if let Some(conn) = self.table.get_mut(id) {
            conn.transaction_id = transaction_id;
        }
        let mad = Req { local_comm_id: id, ..req }.build_with(transaction_id, params.ece.attr_mod);
        self.table.enter(id, State::ReqSent(Asking::new(mad, retries, wait)), Some(now + wait));
        self.transmit(id, mad);
        Ok(ConnId(id))
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// [`Failure`], such as another state than that the REQ was received.
    pub fn send_rep(&mut self, now: Time, conn: ConnId, params: &RepParams<'_>) -> Result<(), Failure> {
        let state = self.owned_in(conn, |state| matches!(state, State::ReqReceived { .. }))?;
        let port = *self.ports.get(&state.peer.port).ok_or(Failure::NoPort(state.peer.port))?;
        let rep = Rep {
            local_comm_id: conn.0,
            remote_comm_id: state.remote_id,
            local_qpn: params.qpn,
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            target_ack_delay: params.target_ack_delay,
            end_to_end_flow_control: params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            srq: params.srq,
            local_ca_guid: port.guid,
            private_data: data(params.private_data)?,
            ..Rep::default()
        };
        let rep = rep.with_vendor_id(params.ece.vendor_id);
        let mad = rep.build_with(state.transaction_id, params.ece.attr_mod);
        let (retries, wait) = (state.retries, state.wait);
        if let Some(state) = self.table.get_mut(conn.0) {
            state.local_qpn = params.qpn;
        }
        self.table.enter(conn.0, State::RepSent(Asking::new(mad, retries, wait)), Some(now + wait));
        self.transmit(conn.0, mad);
        Ok(())
    }

    /// Tells the peer that our queue pair is connected: the connection is established.
    ///
    /// # Errors
    /// [`Failure`], such as another state than that the REP was received.
    pub fn send_rtu(&mut self, conn: ConnId, private_data: &[u8]) -> Result<(), Failure> {
        let state = self.owned_in(conn, |state| matches!(state, State::RepReceived { .. }))?;
        let rtu =
            Rtu { local_comm_id: conn.0, remote_comm_id: state.remote_id, private_data: data(private_data)? };
        let mad = rtu.build(state.transaction_id);
        self.table.enter(conn.0, State::Established { rtu: Some(Mad::new(mad)), lap: LapState::Quiet }, None);
        self.transmit(conn.0, mad);
        Ok(())
    }

    /// Says that data came before the RTU: the connection is established, [`Event::Established`] tells its owner.
    ///
    /// # Errors
    /// [`Failure`], such as another state than that the REP was sent.
    pub fn establish(&mut self, conn: ConnId) -> Result<(), Failure> {
        self.owned_in(conn, |state| matches!(state, State::RepSent(_)))?;
        self.table.enter(conn.0, State::Established { rtu: None, lap: LapState::Quiet }, None);
        self.tell(conn.0, Event::Established);
        Ok(())
    }

    /// Refuses a connection, or gives one up that is being made. `info` (at most 72 bytes) belongs to the reason,
    /// `private_data` (at most 148) to the peer. The connection is idle for its owner, and repeats its answer to a peer
    /// that asks again.
    ///
    /// # Errors
    /// [`Failure`], such as a state in which there is nothing to refuse.
    pub fn send_rej(
        &mut self,
        now: Time,
        conn: ConnId,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let state = self.owned(conn)?;
        data::<72>(info)?;
        let rej = state.rej(conn.0, reason, info, data(private_data)?);
        match state.state {
            State::ReqSent(_) => self.table.enter(conn.0, State::Idle, None),
            State::ReqReceived { .. } | State::RepReceived { .. } => self.keep_answer(now, conn.0, rej),
            State::RepSent(_) => self.leave(now, conn.0, rej),
            State::Idle
            | State::Established { .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return Err(Failure::State(state.state.name())),
        }
        self.transmit(conn.0, rej);
        Ok(())
    }

    /// Asks the peer to wait 4.096 µs · 2^`service_timeout` longer for the answer to its REQ, REP or LAP.
    ///
    /// # Errors
    /// [`Failure`], such as a state in which nothing is to be answered.
    pub fn send_mra(
        &mut self,
        conn: ConnId,
        service_timeout: u8,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let mad = self.mra(conn, service_timeout, data(private_data)?)?;
        self.keep_mra(conn.0, mad);
        self.transmit(conn.0, mad);
        Ok(())
    }

    /// As [`Cm::send_mra`], but the peer is only told when it asks again. As `cm.c ib_prepare_cm_mra()`.
    ///
    /// # Errors
    /// As those of [`Cm::send_mra`].
    pub fn prepare_mra(&mut self, conn: ConnId, service_timeout: u8) -> Result<(), Failure> {
        let mad = self.mra(conn, service_timeout, Data::EMPTY)?;
        self.keep_mra(conn.0, mad);
        Ok(())
    }

    fn mra(
        &self,
        conn: ConnId,
        service_timeout: u8,
        private_data: Data<222>,
    ) -> Result<[u8; MAD_LEN], Failure> {
        let state = self.owned(conn)?;
        let (message, transaction_id) = match state.state {
            State::ReqReceived { .. } => (RejectedMessage::Req, state.transaction_id),
            State::RepReceived { .. } => (RejectedMessage::Rep, state.transaction_id),
            State::Established { lap: LapState::Received(transaction_id), .. } => {
                (RejectedMessage::Other, transaction_id)
            }
            State::Idle
            | State::ReqSent(_)
            | State::RepSent(_)
            | State::Established { .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => return Err(Failure::State(state.state.name())),
        };
        let mra = Mra {
            local_comm_id: conn.0,
            remote_comm_id: state.remote_id,
            message,
            service_timeout,
            private_data,
        };
        Ok(mra.build(transaction_id))
    }

    /// The peer is told again if it asks again; a LAP is answered soon, so of it nothing is kept.
    fn keep_mra(&mut self, id: u32, mad: [u8; MAD_LEN]) {
        let Some(conn) = self.table.get_mut(id) else { return };
        match &mut conn.state {
            State::ReqReceived { mra } | State::RepReceived { mra } => *mra = Some(Mad::new(mad)),
            State::Idle
            | State::ReqSent(_)
            | State::RepSent(_)
            | State::Established { .. }
            | State::DreqSent(_)
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => {}
        }
    }

    /// A final answer, which is repeated for a while.
    pub(super) fn keep_answer(&mut self, now: Time, id: u32, answer: [u8; MAD_LEN]) {
        let Some(conn) = self.table.get(id) else { return };
        let end = now + conn.linger;
        self.table.enter(id, State::Answered { answer: Mad::new(answer), goodbye: None }, Some(end));
    }

    /// Refuses after all, when the peer may have got the REP: if our REJ and its RTU are lost, it is connected to nobody
    /// and would never hear of it. So a DREQ follows, which is sent until it is answered.
    fn leave(&mut self, now: Time, id: u32, rej: [u8; MAD_LEN]) {
        let Some(conn) = self.table.get(id) else { return };
        let dreq = conn.dreq(id, self.transaction_id(id), Data::EMPTY);
        // It is not sent yet, so all of its times are still to come.
        let goodbye = Some(Asking::new(dreq, conn.retries.saturating_add(1), conn.wait));
        let end = now + conn.wait;
        self.table.enter(id, State::Answered { answer: Mad::new(rej), goodbye }, Some(end));
    }
}

/// Private data of a message.
pub(super) fn data<const N: usize>(bytes: &[u8]) -> Result<Data<N>, Failure> {
    Data::new(bytes).ok_or(Failure::TooLong { len: bytes.len(), max: N })
}

/// The REQ, without its communication id.
fn req(params: &ReqParams<'_>, guid: u64) -> Result<Req, Failure> {
    let service = match params.qp_type {
        QpType::Rc => TransportService::Rc,
        QpType::Uc => TransportService::Uc,
        other @ (QpType::Ud | QpType::XrcSend | QpType::XrcRecv) => return Err(Failure::ServiceType(other)),
    };
    let path = &params.path;
    // As `cm.c cm_format_req()`: LIDs mean something on one subnet only, and routes cross subnets.
    let lid = Lid::new(if path.hop_limit <= 1 { 0 } else { 0xffff });
    Ok(Req {
        vendor_id: params.ece.vendor_id,
        service_id: params.service_id,
        local_ca_guid: guid,
        local_qpn: params.qpn,
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        remote_cm_response_timeout: params.remote_response_timeout,
        transport_service_type: service,
        end_to_end_flow_control: params.flow_control,
        starting_psn: params.starting_psn,
        local_cm_response_timeout: params.local_response_timeout,
        retry_count: params.retry_count,
        pkey: path.pkey,
        path_mtu: path.mtu as u8,
        rnr_retry_count: params.rnr_retry_count,
        max_cm_retries: params.max_cm_retries,
        srq: params.srq,
        primary: Path {
            local_lid: lid,
            remote_lid: lid,
            local_gid: Gid::from(params.from),
            remote_gid: Gid::from(params.to),
            flow_label: path.flow_label,
            packet_rate: path.rate,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl,
            subnet_local: path.hop_limit <= 1,
            local_ack_timeout: params.ack_timeout,
        },
        private_data: data(params.private_data)?,
        ..Req::default()
    })
}
