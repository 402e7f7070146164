//! What comes of connections: events of the layer below become events of identifiers. As `cma.c cma_ib_handler()`,
//! `cma_sidr_rep_handler()`.

use userdma_verbs::Time;
use userdma_wire::mad::cm::{AprStatus, Rej, Rep, SidrRep, SidrStatus};

use super::Ids;
use super::request::MRA_SERVICE_TIMEOUT;
use crate::cm::{self, ConnId, time};
use crate::rdma::attr::ah_of;
use crate::rdma::entry::{Phase, State};
use crate::rdma::error::{EINVAL, ETIMEDOUT};
use crate::rdma::{CmId, ConnParam, Ece, Event, EventKind, Param, UdParam};

impl Ids {
    /// Takes over what the layer below has to tell.
    pub(super) fn take_cm_events(&mut self, now: Time) {
        while let Some((conn, event)) = self.cm.poll_event() {
            let is_wanted = self.take_event(conn, &event);
            if !is_wanted {
                // Refuses it.
                self.cm.destroy(now, conn);
            }
        }
    }

    /// Takes what happened to a connection; whether it is one that somebody knows of.
    fn take_event(&mut self, conn: ConnId, event: &cm::Event) -> bool {
        match event {
            cm::Event::Req { port, req, ece, .. } => return self.take_request(conn, *port, req, *ece),
            cm::Event::SidrReq { port, req, .. } => return self.take_sidr_request(conn, *port, req),
            cm::Event::TimewaitExit => self.take_timewait_exit(conn),
            cm::Event::Lap { .. } => {
                // There is one path. It was proposed just now, so that it can be refused.
                let _ = self.cm.send_apr(conn, AprStatus::Unsupported, &[], &[]);
            }
            cm::Event::Mra | cm::Event::Apr { .. } | cm::Event::LapError => {}
            cm::Event::Rep { rep, ece } => {
                self.of_connecting(conn, |ids, id| ids.take_reply(id, conn, rep, *ece))
            }
            cm::Event::Rtu | cm::Event::Established => {
                self.of_connecting(conn, |ids, id| ids.tell(id, EventKind::Established, 0));
            }
            cm::Event::Rej { rej } => self.of_connecting(conn, |ids, id| ids.take_rejection(id, rej)),
            cm::Event::ReqError | cm::Event::RepError | cm::Event::SidrError => {
                self.of_connecting(conn, |ids, id| ids.end(id, EventKind::Unreachable, -ETIMEDOUT));
            }
            cm::Event::Dreq | cm::Event::Drep => {
                self.of_connecting(conn, |ids, id| ids.take_disconnection(id, 0));
            }
            cm::Event::DreqError => {
                self.of_connecting(conn, |ids, id| ids.take_disconnection(id, -ETIMEDOUT));
            }
            cm::Event::SidrRep { rep } => self.of_connecting(conn, |ids, id| ids.take_service(id, rep)),
        }
        self.conns.contains_key(&conn)
    }

    /// Does it with the identifier of a connection that is being made or is there.
    fn of_connecting(&mut self, conn: ConnId, take: impl FnOnce(&mut Self, CmId)) {
        let Some(&id) = self.conns.get(&conn) else { return };
        if self.table.get(&id).is_some_and(|entry| entry.state == State::Connect) {
            take(self, id);
        }
        self.note_will(id);
    }

    fn take_timewait_exit(&mut self, conn: ConnId) {
        let Some(&id) = self.conns.get(&conn) else { return };
        if self.table.get(&id).is_some_and(|entry| entry.state == State::Disconnect) {
            self.tell(id, EventKind::TimewaitExit, 0);
        }
    }

    /// The peer accepts. As `cm.c cm_rep_handler()`, `cma.c cma_set_rep_event_data()`.
    fn take_reply(&mut self, id: CmId, conn: ConnId, rep: &Rep, ece: Ece) {
        if let Some(link) = self.table.get_mut(&id).and_then(|entry| entry.link.as_mut()) {
            link.phase = Phase::Known;
            link.remote_qpn = rep.local_qpn;
            link.sq_psn = rep.starting_psn;
            link.responder_resources = rep.initiator_depth;
            link.initiator_depth = rep.responder_resources;
            link.rnr_retry_count = rep.rnr_retry_count;
            link.ack_timeout = time::ack_timeout(rep.target_ack_delay, link.ack_timeout.saturating_sub(1));
        }
        let param = ConnParam {
            qpn: rep.local_qpn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.end_to_end_flow_control,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            private_data: rep.private_data.bytes().to_vec(),
            ece,
            ..ConnParam::default()
        };
        // In the state that an accepted connection is in it is possible.
        let _ = self.cm.prepare_mra(conn, MRA_SERVICE_TIMEOUT);
        self.push(id, EventKind::ConnectResponse, 0, Param::Conn(param));
    }

    fn take_rejection(&mut self, id: CmId, rej: &Rej) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.end_link();
        }
        let private_data = rej.private_data.bytes().to_vec();
        let param = ConnParam { private_data, ..ConnParam::default() };
        self.push(id, EventKind::Rejected, rej.reason.code().into(), Param::Conn(param));
    }

    fn take_disconnection(&mut self, id: CmId, status: i32) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.state = State::Disconnect;
        }
        self.end(id, EventKind::Disconnected, status);
    }

    /// The peer tells its datagram service, or has none.
    fn take_service(&mut self, id: CmId, rep: &SidrRep) {
        let Some(entry) = self.table.get_mut(&id) else { return };
        let private_data = rep.private_data.bytes().to_vec();
        let (kind, status, param) = if rep.status != SidrStatus::Valid {
            let param = UdParam { private_data, ..UdParam::default() };
            (EventKind::Unreachable, i32::from(rep.status.code()), param)
        } else if entry.set_qkey(rep.qkey) {
            let ours = entry.port.and_then(|port| self.devices.get(&port));
            let ah = entry.path.zip(ours).map(|(path, ours)| ah_of(&path, ours)).unwrap_or_default();
            (EventKind::Established, 0, UdParam { qpn: rep.qpn, qkey: rep.qkey, ah, private_data })
        } else {
            let param = UdParam { private_data, ..UdParam::default() };
            (EventKind::AddrError, -EINVAL, param)
        };
        self.push(id, kind, status, Param::Ud(param));
    }

    fn end(&mut self, id: CmId, kind: EventKind, status: i32) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.end_link();
        }
        self.tell(id, kind, status);
    }

    fn push(&mut self, id: CmId, kind: EventKind, status: i32, param: Param) {
        self.events.push(id, Event { id, kind, status, listener: None, membership: None, param });
    }
}
