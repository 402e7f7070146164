//! Requests of peers: each becomes an identifier of its own.

use std::net::SocketAddr;

use userdma_verbs::{Mtu, Psn, QKey, QpType};
use userdma_wire::mad::cm::{IpHeader, Req, SidrReq, TransportService};

use super::Ids;
use super::connect::is_connected;
use crate::cm::{ConnId, PortId};
use crate::rdma::entry::{Entry, Link, Phase, State};
use crate::rdma::{CmId, ConnParam, Ece, Event, EventKind, Param, PathRecord, PortSpace, UdParam};

/// A request that has come.
struct Coming<'a> {
    conn: ConnId,
    port: PortId,
    service_id: u64,
    qp_type: QpType,
    private_data: &'a [u8],
}

impl Ids {
    /// Takes a connection request; whether somebody is meant by it. As `cma.c cma_ib_req_handler()`.
    pub(super) fn take_request(&mut self, conn: ConnId, port: PortId, req: &Req, ece: Ece) -> bool {
        let private_data = req.private_data.bytes();
        let Some(qp_type) = service(req).filter(|&service| is_connected(service)) else { return false };
        let coming = Coming { conn, port, service_id: req.service_id, qp_type, private_data };
        let Some((listener, mut entry)) = self.entry_for(&coming) else { return false };
        let Some((path, link)) = path_and_link(req) else { return false };
        (entry.path, entry.link) = (Some(path), Some(link));
        let param = ConnParam {
            qpn: req.local_qpn,
            qkey: QKey::default(),
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.end_to_end_flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            private_data: private_data[IpHeader::LEN..].to_vec(),
            ece,
        };
        self.announce(listener, entry, conn, Param::Conn(param));
        // In the state that a new request is in it is possible.
        let _ = self.cm.prepare_mra(conn, MRA_SERVICE_TIMEOUT);
        true
    }

    /// Takes a question for a datagram service; whether somebody is meant by it.
    pub(super) fn take_sidr_request(&mut self, conn: ConnId, port: PortId, req: &SidrReq) -> bool {
        let private_data = req.private_data.bytes();
        let coming = Coming { conn, port, service_id: req.service_id, qp_type: QpType::Ud, private_data };
        let Some((listener, entry)) = self.entry_for(&coming) else { return false };
        let private_data = private_data[IpHeader::LEN..].to_vec();
        let param = UdParam { private_data, ..UdParam::default() };
        self.announce(listener, entry, conn, Param::Ud(param));
        true
    }

    /// The listener who is meant, and the identifier that the request becomes. As `cma.c cma_ib_new_conn_id()`,
    /// `cma_ib_acquire_dev()`.
    fn entry_for(&mut self, coming: &Coming<'_>) -> Option<(CmId, Entry)> {
        let header = IpHeader::parse(coming.private_data).ok()?;
        let listener = self.find_listener(coming.port, coming.service_id, &header, coming.qp_type)?;
        let ours = &self.devices.get(&coming.port)?.addresses;
        let destination = header.destination.to_canonical();
        if !ours.iter().any(|ip| ip.to_canonical() == destination) {
            return None;
        }
        let starting_psn = self.draw_psn();
        let of = self.table.get(&listener)?;
        let mut entry = Entry::new(of.space, coming.qp_type, starting_psn);
        (entry.qp_type, entry.tos, entry.ack_timeout) = (coming.qp_type, of.tos, of.ack_timeout);
        let own_port = PortSpace::port_of(coming.service_id);
        entry.src = Some(SocketAddr::from((header.destination, own_port)).into());
        entry.dst = Some(SocketAddr::from((header.source, header.source_port)).into());
        (entry.port, entry.conn, entry.state) = (Some(coming.port), Some(coming.conn), State::Connect);
        Some((listener, entry))
    }

    fn announce(&mut self, listener: CmId, entry: Entry, conn: ConnId, param: Param) {
        let id = self.insert(entry);
        self.conns.insert(conn, id);
        let (kind, listener) = (EventKind::ConnectRequest, Some(listener));
        self.events.push(id, Event { id, kind, status: 0, listener, membership: None, param });
    }
}

/// The service that a request asks for, if it is one that we know.
fn service(req: &Req) -> Option<QpType> {
    match req.transport_service_type {
        TransportService::Rc => Some(QpType::Rc),
        TransportService::Uc => Some(QpType::Uc),
        TransportService::Rd | TransportService::Extended | TransportService::Other(_) => None,
    }
}

/// The path back, and what the peer has proposed. As `cm.c cm_format_paths_from_req()`, `cm_req_handler()`.
fn path_and_link(req: &Req) -> Option<(PathRecord, Link)> {
    let (path, mtu) = (&req.primary, Mtu::from_code(req.path_mtu.into())?);
    let record = PathRecord {
        sgid: path.remote_gid,
        dgid: path.local_gid,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.sl,
        pkey: req.pkey,
        mtu,
        rate: path.packet_rate,
        packet_life_time: path.local_ack_timeout.saturating_sub(1),
    };
    let link = Link {
        phase: Phase::Known,
        remote_qpn: req.local_qpn,
        sq_psn: Psn::new(req.starting_psn.get()),
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        mtu,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        ack_timeout: record.packet_life_time + 1,
    };
    Some((record, link))
}

/// `CMA_CM_MRA_SETTING`: 69 s.
pub(super) const MRA_SERVICE_TIMEOUT: u8 = 24;
