//! One end of connections; the other is the test, which writes its messages itself.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use userdma_mgmt::cm::{
    Arrival, Cm, ConnId, Counts, Event, ListenId, Outgoing, PortId, RepParams, ReqParams, SidrReqParams,
};
use userdma_mgmt::rdma::{Ece, PathRecord};
use userdma_verbs::{Gid, Mtu, PKey, Psn, QpType, Qpn, Time};
use userdma_wire::mad::Data;
use userdma_wire::mad::cm::{Dreq, Message, Path, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu};

pub(crate) const PORT: PortId = PortId(7);
pub(crate) const SLOT: u16 = 3;
pub(crate) const GUID: u64 = 0x0202_0202_0202_0202;
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 2));
pub(crate) const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 3));
pub(crate) const PEER_GUID: u64 = 0x0303_0303_0303_0303;
pub(crate) const PEER_ID: u32 = 0xdead_beef;
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x4321);
pub(crate) const QPN: Qpn = Qpn::new(0x1234);
pub(crate) const SERVICE: u64 = 0x0106_1c06;
/// The transaction of the peer's requests.
pub(crate) const PEER_TID: u64 = 0x0000_0077_dead_beef;

/// How long the answer to the requests of these tests is waited for: 2 · 2^16 + 2^20 times 4.096 µs.
pub(crate) const WAIT: Duration = Duration::from_nanos(4096 * ((2 << 16) + (1 << 20)));
/// The same for the REP: 2^20 times 4.096 µs.
pub(crate) const REP_WAIT: Duration = Duration::from_nanos(4096 << 20);
/// 2^17 times 4.096 µs.
pub(crate) const TIMEWAIT: Duration = Duration::from_nanos(4096 << 17);

pub(crate) struct One {
    pub(crate) cm: Cm,
    pub(crate) now: Time,
}

impl One {
    pub(crate) fn new() -> Self {
        let mut cm = Cm::new(42);
        cm.add_port(PORT, SLOT, GUID);
        Self { cm, now: Time::from_nanos(1_000_000_000) }
    }

    /// A message from the peer.
    pub(crate) fn hear(&mut self, transaction_id: u64, message: impl Into<Message>) {
        self.hear_from(THERE, transaction_id, message);
    }

    pub(crate) fn hear_from(&mut self, from: IpAddr, transaction_id: u64, message: impl Into<Message>) {
        let mad = message.into().build(transaction_id);
        self.cm.handle_mad(self.now, Arrival { port: PORT, from, to: HERE, mad: &mad });
    }

    /// Every message that was sent, with its transaction.
    pub(crate) fn sent(&mut self) -> Vec<(u64, Message)> {
        let mut sent = Vec::new();
        while let Some(Outgoing { port, from, to, mad }) = self.cm.poll_transmit() {
            assert_eq!((port, from, to), (PORT, HERE, THERE));
            sent.push(Message::parse(&mad).unwrap());
        }
        sent
    }

    /// The one message that was sent.
    pub(crate) fn sent_one(&mut self) -> (u64, Message) {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0]
    }

    /// Every event.
    pub(crate) fn told(&mut self) -> Vec<(ConnId, Event)> {
        std::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    /// The one event, which is `conn`'s.
    pub(crate) fn told_one(&mut self, conn: ConnId) -> Event {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, conn);
        told[0].1
    }

    /// Nothing was sent, and nobody was told anything.
    pub(crate) fn quiet(&mut self) {
        assert_eq!(self.sent(), []);
        assert_eq!(self.told(), []);
    }

    /// Time passes, and is looked at just before and at the end.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.cm.handle_timeout(self.now);
    }

    /// Waits for the next deadline, which is `time` away.
    pub(crate) fn wait_exactly(&mut self, time: Duration) {
        let deadline = self.now + time;
        assert_eq!(self.cm.poll_timeout(), Some(deadline));
        self.cm.handle_timeout(Time::from_nanos(deadline.nanos() - 1));
        self.quiet();
        self.now = deadline;
        self.cm.handle_timeout(deadline);
    }

    pub(crate) fn listen(&mut self) -> ListenId {
        self.cm.listen(SERVICE, u64::MAX, Some((PORT, HERE))).unwrap()
    }

    /// Asks for a connection; its id, transaction and REQ.
    pub(crate) fn ask(&mut self) -> (ConnId, u64, Req) {
        let conn = self.cm.send_req(self.now, &req_params()).unwrap();
        let (transaction_id, Message::Req(req)) = self.sent_one() else { panic!() };
        assert_eq!(req.local_comm_id, conn.0);
        (conn, transaction_id, req)
    }

    /// As [`One::ask`], up to the peer's REP.
    pub(crate) fn ask_and_hear(&mut self) -> (ConnId, u64) {
        let (conn, transaction_id, _) = self.ask();
        self.hear(transaction_id, rep(conn));
        assert!(matches!(self.told_one(conn), Event::Rep { .. }));
        self.quiet();
        (conn, transaction_id)
    }

    /// As [`One::ask`], up to a connection.
    pub(crate) fn connect(&mut self) -> (ConnId, u64) {
        let (conn, transaction_id) = self.ask_and_hear();
        self.cm.send_rtu(conn, b"rtu").unwrap();
        self.sent_one();
        self.quiet();
        (conn, transaction_id)
    }

    /// Is asked for a connection.
    pub(crate) fn be_asked(&mut self) -> ConnId {
        self.hear(PEER_TID, req());
        assert_eq!(self.sent(), []);
        let told = self.told();
        assert!(matches!(told[..], [(_, Event::Req { .. })]), "{told:?}");
        told[0].0
    }

    /// Is asked, and accepts; the REP.
    pub(crate) fn accept(&mut self) -> (ConnId, Rep) {
        let conn = self.be_asked();
        self.cm.send_rep(self.now, conn, &rep_params()).unwrap();
        let (PEER_TID, Message::Rep(rep)) = self.sent_one() else { panic!() };
        (conn, rep)
    }

    /// As [`One::accept`], up to a connection.
    pub(crate) fn be_connected(&mut self) -> ConnId {
        let (conn, _) = self.accept();
        self.hear(PEER_TID, rtu(conn));
        assert_eq!(self.told_one(conn), Event::Rtu);
        self.quiet();
        conn
    }

    /// The transaction of what this end begins itself.
    pub(crate) fn own_tid(&self, conn: ConnId) -> u64 {
        let will = self.cm.will(conn).unwrap();
        Message::parse(&will.mad).unwrap().0
    }

    /// Nothing is left: no connection, no index entry, no deadline.
    pub(crate) fn empty(&mut self) {
        self.quiet();
        let listeners = self.cm.counts().listeners;
        assert_eq!(self.cm.counts(), Counts { listeners, ..Counts::default() });
        assert_eq!(self.cm.poll_timeout(), None);
    }

    /// Until nothing is due any more; what is sent meanwhile is lost.
    pub(crate) fn wait_for_the_end(&mut self) -> Vec<(u64, Message)> {
        let mut sent = Vec::new();
        while let Some(at) = self.cm.poll_timeout() {
            self.now = at;
            self.cm.handle_timeout(at);
            sent.extend(self.sent());
        }
        sent
    }
}

pub(crate) fn path() -> PathRecord {
    PathRecord {
        sgid: Gid::from(HERE),
        dgid: Gid::from(THERE),
        flow_label: 0x3573,
        hop_limit: 64,
        traffic_class: 0,
        sl: 0,
        pkey: PKey::DEFAULT,
        mtu: Mtu::Mtu1024,
        rate: 0,
        packet_life_time: 16,
    }
}

pub(crate) fn req_params() -> ReqParams<'static> {
    ReqParams {
        port: PORT,
        from: HERE,
        to: THERE,
        service_id: SERVICE,
        qpn: QPN,
        qp_type: QpType::Rc,
        starting_psn: Psn::new(0x11_1111),
        responder_resources: 4,
        initiator_depth: 3,
        retry_count: 7,
        rnr_retry_count: 6,
        flow_control: true,
        srq: false,
        path: path(),
        ack_timeout: 17,
        remote_response_timeout: 20,
        local_response_timeout: 20,
        max_cm_retries: 15,
        private_data: b"please",
        ece: Ece { vendor_id: 0x15b3, attr_mod: 9 },
    }
}

pub(crate) fn rep_params() -> RepParams<'static> {
    RepParams {
        qpn: QPN,
        starting_psn: Psn::new(0x22_2222),
        responder_resources: 2,
        initiator_depth: 1,
        flow_control: true,
        rnr_retry_count: 5,
        srq: true,
        target_ack_delay: 15,
        private_data: b"welcome",
        ece: Ece::default(),
    }
}

pub(crate) fn sidr_params() -> SidrReqParams<'static> {
    SidrReqParams {
        port: PORT,
        from: HERE,
        to: THERE,
        service_id: SERVICE,
        pkey: PKey::DEFAULT,
        timeout: 20,
        max_cm_retries: 2,
        private_data: b"who",
    }
}

/// The peer's REQ.
pub(crate) fn req() -> Req {
    Req {
        local_comm_id: PEER_ID,
        service_id: SERVICE,
        local_ca_guid: PEER_GUID,
        local_qpn: PEER_QPN,
        responder_resources: 1,
        initiator_depth: 2,
        remote_cm_response_timeout: 20,
        starting_psn: Psn::new(0x33_3333),
        local_cm_response_timeout: 20,
        retry_count: 7,
        pkey: PKey::DEFAULT,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        primary: Path {
            local_gid: Gid::from(THERE),
            remote_gid: Gid::from(HERE),
            hop_limit: 64,
            local_ack_timeout: 17,
            ..Path::default()
        },
        private_data: Data::new(b"let me in").unwrap(),
        ..Req::default()
    }
}

/// The peer's REP to our REQ.
pub(crate) fn rep(conn: ConnId) -> Rep {
    Rep {
        local_comm_id: PEER_ID,
        remote_comm_id: conn.0,
        local_qpn: PEER_QPN,
        starting_psn: Psn::new(0x44_4444),
        responder_resources: 1,
        initiator_depth: 2,
        target_ack_delay: 15,
        rnr_retry_count: 7,
        local_ca_guid: PEER_GUID,
        private_data: Data::new(b"come in").unwrap(),
        ..Rep::default()
    }
}

/// The peer's RTU.
pub(crate) fn rtu(conn: ConnId) -> Rtu {
    Rtu { local_comm_id: PEER_ID, remote_comm_id: conn.0, ..Rtu::default() }
}

/// The peer's DREQ.
pub(crate) fn dreq(conn: ConnId) -> Dreq {
    Dreq { local_comm_id: PEER_ID, remote_comm_id: conn.0, remote_qpn: QPN, ..Dreq::default() }
}

/// The peer's REJ of a REQ, by a peer that has no id for it.
pub(crate) fn rej(conn: ConnId, reason: RejectReason) -> Rej {
    Rej { remote_comm_id: conn.0, message: RejectedMessage::Req, reason, ..Rej::default() }
}
