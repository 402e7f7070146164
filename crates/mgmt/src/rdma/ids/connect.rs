//! Asking for a connection, accepting, refusing, ending.

use std::net::IpAddr;

use userdma_verbs::{Psn, QKey, QpType, Qpn, Time};
use userdma_wire::mad::cm::{IpHeader, RejectReason, SidrStatus};

use super::Ids;
use crate::cm::{ConnId, Failure, PortId, RepParams, ReqParams, SidrRepParams, SidrReqParams, time};
use crate::rdma::entry::{Entry, Link, Phase, State};
use crate::rdma::{CmError, CmId, ConnParam, PathRecord};

/// What a request needs that is resolved.
struct Route {
    port: PortId,
    from: IpAddr,
    to: IpAddr,
    path: PathRecord,
    service_id: u64,
    header: IpHeader,
}

impl Ids {
    /// Asks the peer for a connection, or for its datagram service. What comes of it is an event. As `cma.c rdma_connect()`.
    ///
    /// # Errors
    /// The route is not resolved, or there is too much private data.
    pub fn connect(&mut self, now: Time, id: CmId, param: &ConnParam) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        entry.check(entry.state == State::RouteResolved, "connect", ROUTE)?;
        let route = route_of(entry)?;
        let conn = if entry.is_ud() {
            self.ask_for_service(now, &route, param)?
        } else {
            self.ask_for_connection(now, id, &route, param)?
        };
        self.conns.insert(conn, id);
        let entry = self.entry_mut(id)?;
        (entry.conn, entry.state) = (Some(conn), State::Connect);
        self.take_cm_events(now);
        Ok(())
    }

    /// As `cma.c cma_connect_ib()`.
    fn ask_for_connection(
        &mut self,
        now: Time,
        id: CmId,
        route: &Route,
        param: &ConnParam,
    ) -> Result<ConnId, CmError> {
        let private_data = with_header(&route.header, &param.private_data, IpHeader::REQ_DATA_LEN)?;
        let entry = self.entry(id)?;
        let ack_timeout = time::ack_timeout(OWN_ACK_DELAY, route.path.packet_life_time);
        let request = ReqParams {
            port: route.port,
            from: route.from,
            to: route.to,
            service_id: route.service_id,
            qpn: param.qpn,
            qp_type: entry.qp_type,
            starting_psn: entry.starting_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retry_count: param.retry_count.min(MAX_RETRIES),
            rnr_retry_count: param.rnr_retry_count.min(MAX_RETRIES),
            flow_control: param.flow_control,
            srq: param.srq,
            path: route.path,
            ack_timeout,
            remote_response_timeout: RESPONSE_TIMEOUT,
            local_response_timeout: RESPONSE_TIMEOUT,
            max_cm_retries: MAX_CM_RETRIES,
            private_data: &private_data,
            ece: param.ece,
        };
        let conn = self.cm.send_req(now, &request).map_err(not_asked)?;
        self.entry_mut(id)?.link = Some(Link {
            phase: Phase::Asked,
            remote_qpn: Qpn::default(),
            sq_psn: Psn::default(),
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            mtu: route.path.mtu,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            ack_timeout: route.path.packet_life_time + 1,
        });
        Ok(conn)
    }

    /// As `cma.c cma_resolve_ib_udp()`.
    fn ask_for_service(&mut self, now: Time, route: &Route, param: &ConnParam) -> Result<ConnId, CmError> {
        let private_data = with_header(&route.header, &param.private_data, IpHeader::SIDR_REQ_DATA_LEN)?;
        let request = SidrReqParams {
            port: route.port,
            from: route.from,
            to: route.to,
            service_id: route.service_id,
            pkey: route.path.pkey,
            timeout: RESPONSE_TIMEOUT,
            max_cm_retries: MAX_CM_RETRIES,
            private_data: &private_data,
        };
        self.cm.send_sidr_req(now, &request).map_err(not_asked)
    }

    /// Accepts a request; with nothing to say (`None`), completes what the peer has accepted. The queue pair is in RTS by
    /// then. As `cma.c rdma_accept()`.
    ///
    /// # Errors
    /// There is nothing to accept, or there is too much private data. The peer is refused then.
    pub fn accept(&mut self, now: Time, id: CmId, param: Option<&ConnParam>) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        entry.check(entry.state == State::Connect, "accept", REQUEST)?;
        let conn = entry.conn.ok_or(refused("accept"))?;
        let accepted = match param {
            _ if entry.is_ud() => self.tell_service(now, id, conn, param),
            Some(param) => self.accept_request(now, id, conn, param),
            None => self.cm.send_rtu(conn, &[]).map_err(|_| refused("accept")),
        };
        if accepted.is_err() {
            // It may not be possible either.
            let _ = self.send_rejection(now, id, RejectReason::ConsumerReject, &[]);
        }
        self.note_will(id);
        self.take_cm_events(now);
        accepted
    }

    /// As `cma.c cma_accept_ib()`.
    fn accept_request(
        &mut self,
        now: Time,
        id: CmId,
        conn: ConnId,
        param: &ConnParam,
    ) -> Result<(), CmError> {
        check_len(&param.private_data, REP_PRIVATE_DATA)?;
        let reply = RepParams {
            qpn: param.qpn,
            starting_psn: self.entry(id)?.starting_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count.min(MAX_RETRIES),
            srq: param.srq,
            target_ack_delay: OWN_ACK_DELAY,
            private_data: &param.private_data,
            ece: param.ece,
        };
        self.cm.send_rep(now, conn, &reply).map_err(|_| refused("accept"))?;
        if let Some(link) = &mut self.entry_mut(id)?.link {
            link.responder_resources = param.responder_resources;
            link.initiator_depth = param.initiator_depth;
        }
        Ok(())
    }

    /// As `cma.c cma_send_sidr_rep()`.
    fn tell_service(
        &mut self,
        now: Time,
        id: CmId,
        conn: ConnId,
        param: Option<&ConnParam>,
    ) -> Result<(), CmError> {
        let nothing = ConnParam::default();
        let param = param.unwrap_or(&nothing);
        check_len(&param.private_data, SIDR_REP_PRIVATE_DATA)?;
        let entry = self.entry_mut(id)?;
        if !entry.set_qkey(param.qkey) {
            let value = param.qkey.get().into();
            return Err(CmError::Value { what: "Q_Key", value, allowed: "what was agreed before" });
        }
        let qkey = entry.qkey();
        self.answer_sidr(now, conn, SidrStatus::Valid, (param.qpn, qkey), &param.private_data)
    }

    fn answer_sidr(
        &mut self,
        now: Time,
        conn: ConnId,
        status: SidrStatus,
        (qpn, qkey): (Qpn, QKey),
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let reply = SidrRepParams { status, qpn, qkey, private_data };
        self.cm.send_sidr_rep(now, conn, &reply).map_err(|_| refused("answer"))
    }

    /// Refuses a request, or what the peer has accepted. `reason` is [`RejectReason::ConsumerReject`] or
    /// [`RejectReason::VendorOptionNotSupported`]. As `cma.c rdma_reject()`.
    ///
    /// # Errors
    /// There is nothing to refuse, or there is too much private data.
    pub fn reject(
        &mut self,
        now: Time,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let possible = [RejectReason::ConsumerReject, RejectReason::VendorOptionNotSupported];
        if !possible.contains(&reason) {
            let (value, allowed) = (reason.code().into(), "28 or 35");
            return Err(CmError::Value { what: "reason", value, allowed });
        }
        let rejected = self.send_rejection(now, id, reason, private_data);
        self.note_will(id);
        self.take_cm_events(now);
        rejected
    }

    fn send_rejection(
        &mut self,
        now: Time,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let entry = self.entry(id)?;
        let conn = entry.conn.ok_or(refused("reject"))?;
        if entry.is_ud() {
            check_len(private_data, SIDR_REP_PRIVATE_DATA)?;
            let nothing = (Qpn::default(), QKey::default());
            return self.answer_sidr(now, conn, SidrStatus::Rejected, nothing, private_data);
        }
        check_len(private_data, REJ_PRIVATE_DATA)?;
        self.cm.send_rej(now, conn, reason, &[], private_data).map_err(|_| refused("reject"))?;
        self.entry_mut(id)?.end_link();
        Ok(())
    }

    /// Ends a connection, or answers the peer who has ended it. Both sides get [`EventKind::Disconnected`] once the other one
    /// has answered. As `cma.c rdma_disconnect()`.
    ///
    /// [`EventKind::Disconnected`]: crate::rdma::EventKind::Disconnected
    ///
    /// # Errors
    /// There never was a connection.
    pub fn disconnect(&mut self, now: Time, id: CmId) -> Result<(), CmError> {
        let conn = self.entry(id)?.conn.ok_or(refused("disconnect"))?;
        if self.cm.send_dreq(now, conn, &[]).is_err() {
            // Neither is possible if it has ended already: so be it.
            let _ = self.cm.send_drep(now, conn, &[]);
        }
        self.entry_mut(id)?.end_link();
        self.note_will(id);
        self.take_cm_events(now);
        Ok(())
    }

    /// The queue pair has heard from the peer's, whose last message is late or lost: the connection is made. As
    /// `cma.c rdma_notify()` with `IB_EVENT_COMM_EST`.
    ///
    /// # Errors
    /// Nothing was accepted, or the connection is made already.
    pub fn notify_established(&mut self, now: Time, id: CmId) -> Result<(), CmError> {
        let conn = self.entry(id)?.conn.ok_or(refused("notify"))?;
        let done = self.cm.establish(conn).map_err(|_| refused("notify"));
        self.note_will(id);
        self.take_cm_events(now);
        done
    }
}

fn route_of(entry: &Entry) -> Result<Route, CmError> {
    let unresolved = CmError::State { call: "connect", wanted: ROUTE };
    let ip = |address: Option<crate::rdma::Address>| address.and_then(|address| address.ip());
    let (src, dst) = (ip(entry.src).ok_or(unresolved)?, ip(entry.dst).ok_or(unresolved)?);
    Ok(Route {
        port: entry.port.ok_or(unresolved)?,
        from: src.ip().to_canonical(),
        to: dst.ip().to_canonical(),
        path: entry.path.ok_or(unresolved)?,
        service_id: entry.space.service_id(dst.port()),
        header: IpHeader { source_port: src.port(), source: src.ip(), destination: dst.ip() },
    })
}

/// The IP header, and behind it what the program adds. As `cma.c cma_format_hdr()`.
fn with_header(header: &IpHeader, private_data: &[u8], max: usize) -> Result<Vec<u8>, CmError> {
    check_len(private_data, max)?;
    let mut whole = header.build().to_vec();
    whole.extend_from_slice(private_data);
    Ok(whole)
}

fn check_len(private_data: &[u8], max: usize) -> Result<(), CmError> {
    let len = private_data.len();
    if len <= max { Ok(()) } else { Err(CmError::PrivateData { len, max }) }
}

/// Why no peer is asked.
const fn not_asked(failure: Failure) -> CmError {
    match failure {
        Failure::NoIds => CmError::NoIds,
        Failure::NoConnection
        | Failure::State(_)
        | Failure::TooLong { .. }
        | Failure::ServiceType(_)
        | Failure::NoPort(_)
        | Failure::InUse => refused("connect"),
    }
}

const fn refused(call: &'static str) -> CmError {
    CmError::State { call, wanted: REQUEST }
}

/// Whether a connection can have this service.
pub(super) fn is_connected(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::Rc | QpType::Uc)
}

const ROUTE: &str = "a resolved route";
const REQUEST: &str = "a connection that has come so far";
/// How long an acknowledgement takes here at most, 0.13 s: what rxe's captured replies say.
const OWN_ACK_DELAY: u8 = 15;
/// `CMA_CM_RESPONSE_TIMEOUT`: 4.3 s.
const RESPONSE_TIMEOUT: u8 = 20;
/// `CMA_MAX_CM_RETRIES`.
const MAX_CM_RETRIES: u8 = 15;
/// As much as the field holds.
const MAX_RETRIES: u8 = 7;
/// Bytes that messages have for the program, beside [`IpHeader::REQ_DATA_LEN`] and its neighbor.
const REP_PRIVATE_DATA: usize = 196;
const REJ_PRIVATE_DATA: usize = 148;
const SIDR_REP_PRIVATE_DATA: usize = 136;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_for_a_connection_is_told_from_a_wrong_state() {
        assert_eq!(not_asked(Failure::NoIds), CmError::NoIds);
        assert_eq!(not_asked(Failure::NoIds).errno(), 12);
        assert_eq!(not_asked(Failure::State("established")).errno(), 22);
    }
}
