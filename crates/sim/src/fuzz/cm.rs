//! A peer that obeys no rule, against connection management: messages that are nearly right, from a machine that may
//! know everything but another machine's secrets, while two good machines are connected.
//!
//! After each message: nothing was sent to anybody but its sender, at most two datagrams and one event came of it, and
//! the good connection is what it was, its queue pair's number guarded. In the end everything is given up, and nothing may be left but that connection,
//! which is then ended in the usual way.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use arbitrary::Unstructured;
use userdma_mgmt::cm::{
    Arrival, Cm, ConnId, Event, ListenId, Outgoing, RepParams, ReqParams, SidrRepParams, SidrReqParams,
    answer_unknown,
};
use userdma_verbs::{Gid, Mtu, PKey, Psn, QKey, Qpn, Time};
use userdma_wire::mad::cm::{
    Apr, AprStatus, Drep, Dreq, Lap, Message, Mra, Path, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu,
    SidrRep, SidrReq, SidrStatus,
};
use userdma_wire::mad::{Data, MAD_LEN};

use crate::cm::{PORT, params};

/// A program of such a peer.
///
/// # Panics
/// If connection management does what it must not.
pub fn cm(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut scene = Scene::new();
    for _ in 0..MAX_STEPS {
        if input.is_empty() || scene.step(&mut input).is_none() {
            break;
        }
    }
    scene.end();
}

const MAX_STEPS: usize = 200;
const GUID: u64 = 0x0202;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 2));
const ENEMY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 66));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 67));
const FRIEND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 3));
const SERVICE: u64 = 0x0106_0007;

struct Scene {
    cm: Cm,
    friend: Cm,
    now: Time,
    listener: ListenId,
    /// Our end of the good connection, and the message that would end it.
    good: ConnId,
    friends: ConnId,
    will: Option<Outgoing>,
    /// What we have besides.
    conns: Vec<ConnId>,
    /// Transactions that were seen, the last ones last.
    seen: Vec<u64>,
}

impl Scene {
    fn new() -> Self {
        let (mut cm, mut friend) = (Cm::new(1), Cm::new(2));
        cm.add_port(PORT, 5, GUID);
        friend.add_port(PORT, 6, 0x0303);
        let now = Time::from_nanos(1);
        let listener = cm.listen(SERVICE, u64::MAX, Some((PORT, HERE))).expect("nobody listens yet");
        let params = ReqParams { from: FRIEND, to: HERE, qpn: Qpn::new(0x777), ..req_params() };
        let friends = friend.send_req(now, &params).expect("the first");
        exchange(now, &mut friend, &mut cm);
        let (good, _) = cm.poll_event().expect("a REQ");
        cm.send_rep(now, good, &rep_params()).expect("it was asked for");
        exchange(now, &mut friend, &mut cm);
        friend.poll_event().expect("a REP");
        friend.send_rtu(friends, &[]).expect("it was accepted");
        exchange(now, &mut friend, &mut cm);
        assert!(matches!(cm.poll_event(), Some((_, Event::Rtu))));
        assert!(cm.poll_number().is_some_and(|change| change.is_guarded));
        let will = cm.will(good);
        Self { cm, friend, now, listener, good, friends, will, conns: Vec::new(), seen: vec![0] }
    }

    /// One step; `None` when the program is over.
    fn step(&mut self, input: &mut Unstructured<'_>) -> Option<()> {
        match input.int_in_range(0..=4).ok()? {
            0 => self.ask(input.arbitrary().ok()?),
            1 | 2 => {
                let mut mad = self.message(input)?.build(self.transaction(input)?);
                for _ in 0..input.int_in_range(0..=2).ok()? {
                    let at: u8 = input.arbitrary().ok()?;
                    mad[usize::from(at)] = input.arbitrary().ok()?;
                }
                let len =
                    if input.ratio(1u8, 32u8).ok()? { input.int_in_range(0..=255).ok()? } else { MAD_LEN };
                let from = if input.ratio(1u8, 8u8).ok()? { OTHER } else { ENEMY };
                self.hear(from, &mad[..len]);
            }
            3 => self.act(input.arbitrary().ok()?, input.arbitrary().ok()?),
            _ => {
                self.now = self.now + Duration::from_millis(1 << input.int_in_range(0..=14).ok()?);
                self.cm.handle_timeout(self.now);
                self.take(None);
            }
        }
        self.check();
        Some(())
    }

    fn ask(&mut self, kind: u8) {
        let conn = if kind.is_multiple_of(4) {
            let params = SidrReqParams {
                port: PORT,
                from: HERE,
                to: ENEMY,
                service_id: SERVICE,
                pkey: PKey::DEFAULT,
                timeout: 10,
                max_cm_retries: 1,
                private_data: &[],
            };
            self.cm.send_sidr_req(self.now, &params)
        } else {
            let max_cm_retries = kind & 3;
            let params = ReqParams { from: HERE, to: ENEMY, max_cm_retries, ..req_params() };
            self.cm.send_req(self.now, &params)
        };
        self.conns.push(conn.expect("few are asked for"));
        self.take(None);
    }

    /// What an owner may do, in any state.
    fn act(&mut self, what: u8, which: u8) {
        if self.conns.is_empty() {
            return;
        }
        let at = usize::from(which) % self.conns.len();
        let (conn, now) = (self.conns[at], self.now);
        // Whether the state lets it is its business.
        let _ = match what % 12 {
            0 | 1 => self.cm.send_rep(now, conn, &rep_params()),
            2 => self.cm.send_rtu(conn, &[]),
            3 => self.cm.send_rej(now, conn, RejectReason::ConsumerReject, &[], &[]),
            4 => self.cm.send_mra(conn, 10, &[]),
            5 => self.cm.send_dreq(now, conn, &[]),
            6 => self.cm.send_drep(now, conn, &[]),
            7 => self.cm.establish(conn),
            8 => self.cm.send_lap(now, conn, &Lap::default()),
            9 => self.cm.send_apr(conn, AprStatus::Rejected, &[], &[]),
            10 => self.cm.send_sidr_rep(now, conn, &sidr_rep_params()),
            _ => {
                self.conns.remove(at);
                if which < 8 {
                    self.cm.forget(conn)
                } else {
                    self.cm.destroy(now, conn)
                }
                Ok(())
            }
        };
        self.take(None);
    }

    fn hear(&mut self, from: IpAddr, mad: &[u8]) {
        self.cm.handle_mad(self.now, Arrival { port: PORT, from, to: HERE, mad });
        self.take(Some(from));
        // What an agent would say must not fall over it either.
        let _ = answer_unknown(mad);
    }

    /// Takes what came of it. What came of a message goes to its sender.
    fn take(&mut self, from: Option<IpAddr>) {
        let mut datagrams = 0;
        while let Some(outgoing) = self.cm.poll_transmit() {
            datagrams += 1;
            assert_eq!(outgoing.from, HERE);
            assert!(outgoing.to == from.unwrap_or(outgoing.to) && outgoing.to != FRIEND, "to a bystander");
            if let Ok((transaction_id, _)) = Message::parse(&outgoing.mad) {
                self.seen.push(transaction_id);
            }
        }
        // All connections are of the good one's queue pair.
        assert_eq!(self.cm.poll_number(), None, "a number that is in use");
        let mut events = 0;
        while let Some((conn, event)) = self.cm.poll_event() {
            events += 1;
            assert_ne!(conn, self.good, "{event:?}");
            if matches!(event, Event::Req { .. } | Event::SidrReq { .. }) {
                self.conns.push(conn);
            }
            assert!(self.conns.contains(&conn), "{event:?} of a connection that nobody has");
        }
        assert!(from.is_none() || datagrams <= 2 && events <= 1, "{datagrams} datagrams, {events} events");
    }

    fn check(&self) {
        assert_eq!(self.cm.will(self.good), self.will, "the good connection");
        let counts = self.cm.counts();
        assert!(counts.connections <= 2 * MAX_STEPS && counts.index_entries <= 4 * counts.connections + 1);
    }

    /// Everything but the good connection goes; then that one, too.
    fn end(mut self) {
        for conn in std::mem::take(&mut self.conns) {
            self.cm.destroy(self.now, conn);
        }
        self.cm.unlisten(self.listener);
        self.take(None);
        while let Some(at) = self.cm.poll_timeout() {
            self.now = at;
            self.cm.handle_timeout(at);
            self.take(None);
        }
        self.check();
        assert_eq!(self.cm.counts().connections, 1, "{:?}", self.cm.counts());
        self.friend.send_dreq(self.now, self.friends, &[]).expect("it is established");
        exchange(self.now, &mut self.friend, &mut self.cm);
        assert_eq!(self.cm.poll_event(), Some((self.good, Event::Dreq)));
        self.cm.send_drep(self.now, self.good, &[]).expect("it was asked for");
        exchange(self.now, &mut self.friend, &mut self.cm);
        assert_eq!(self.friend.poll_event(), Some((self.friends, Event::Drep)));
        self.cm.destroy(self.now, self.good);
        self.cm.handle_timeout(Time::NEVER);
        assert!(self.cm.poll_number().is_some_and(|change| !change.is_guarded));
        assert_eq!(self.cm.counts(), Default::default(), "nothing is left");
    }

    /// A transaction that was seen, or none.
    fn transaction(&self, input: &mut Unstructured<'_>) -> Option<u64> {
        let back = usize::from(input.int_in_range(0..=15u8).ok()?);
        Some(if back == 15 { 0x1234 } else { *self.seen.iter().rev().nth(back).unwrap_or(&0) })
    }

    /// An id that we may know: ours, of the good connection, or one near them.
    fn our_id(&self, input: &mut Unstructured<'_>) -> Option<u32> {
        let which = usize::from(input.int_in_range(0..=9u8).ok()?);
        Some(match which {
            8 => self.good.0,
            9 => input.arbitrary().ok()?,
            which => self.conns.iter().rev().nth(which).map_or(0, |conn| conn.0),
        })
    }

    fn message(&self, input: &mut Unstructured<'_>) -> Option<Message> {
        let local = u32::from(input.int_in_range(0..=3u8).ok()?);
        let kind = input.int_in_range(0..=10u8).ok()?;
        let remote = self.our_id(input)?;
        let message =
            *input.choose(&[RejectedMessage::Req, RejectedMessage::Rep, RejectedMessage::Other]).ok()?;
        let qpn = *input.choose(&[QPN, Qpn::new(0x42), Qpn::new(0x777)]).ok()?;
        let guid = *input.choose(&[0x6666, GUID, 0x0303]).ok()?;
        Some(match kind {
            0 => Message::Req(Req { local_comm_id: local, local_qpn: qpn, local_ca_guid: guid, ..req() }),
            1 => Message::Mra(Mra {
                local_comm_id: local,
                remote_comm_id: remote,
                message,
                service_timeout: input.int_in_range(0..=31).ok()?,
                ..Mra::default()
            }),
            2 => Message::Rej(Rej {
                local_comm_id: local,
                remote_comm_id: remote,
                message,
                reason: *input.choose(RejectReason::ALL).ok()?,
                info: Data::new(&u64::to_be_bytes(guid)).unwrap_or_default(),
                ..Rej::default()
            }),
            3 => Message::Rep(Rep {
                local_comm_id: local,
                remote_comm_id: remote,
                local_qpn: qpn,
                local_ca_guid: guid,
                ..Rep::default()
            }),
            4 => Message::Rtu(Rtu { local_comm_id: local, remote_comm_id: remote, ..Rtu::default() }),
            5 => Message::Dreq(Dreq {
                local_comm_id: local,
                remote_comm_id: remote,
                remote_qpn: qpn,
                ..Dreq::default()
            }),
            6 => Message::Drep(Drep { local_comm_id: local, remote_comm_id: remote, ..Drep::default() }),
            7 => Message::SidrReq(SidrReq { request_id: local, service_id: SERVICE, ..SidrReq::default() }),
            8 => Message::SidrRep(SidrRep { request_id: remote, ..SidrRep::default() }),
            9 => Message::Lap(Lap {
                local_comm_id: local,
                remote_comm_id: remote,
                remote_qpn: qpn,
                ..Lap::default()
            }),
            _ => Message::Apr(Apr { local_comm_id: local, remote_comm_id: remote, ..Apr::default() }),
        })
    }
}

const QPN: Qpn = Qpn::new(0x1234);

/// Datagrams between two good machines, until there are none.
fn exchange(now: Time, friend: &mut Cm, cm: &mut Cm) {
    while pass(now, friend, cm) | pass(now, cm, friend) {}
}

/// Whether there was something.
fn pass(now: Time, sender: &mut Cm, receiver: &mut Cm) -> bool {
    let mut was_something = false;
    while let Some(Outgoing { port, from, to, mad }) = sender.poll_transmit() {
        receiver.handle_mad(now, Arrival { port, from, to, mad: &mad });
        was_something = true;
    }
    was_something
}

fn req() -> Req {
    Req {
        service_id: SERVICE,
        remote_cm_response_timeout: 8,
        local_cm_response_timeout: 8,
        path_mtu: Mtu::Mtu1024 as u8,
        max_cm_retries: 2,
        primary: Path {
            local_gid: Gid::from(ENEMY),
            remote_gid: Gid::from(HERE),
            local_ack_timeout: 8,
            ..Path::default()
        },
        ..Req::default()
    }
}

fn req_params() -> ReqParams<'static> {
    ReqParams {
        service_id: SERVICE,
        remote_response_timeout: 8,
        local_response_timeout: 8,
        max_cm_retries: 3,
        ..params::req((HERE, ENEMY), QPN, Psn::new(1), 7)
    }
}

fn rep_params() -> RepParams<'static> {
    RepParams { target_ack_delay: 0, ..params::rep(QPN, Psn::new(1)) }
}

fn sidr_rep_params() -> SidrRepParams<'static> {
    SidrRepParams { status: SidrStatus::Valid, qpn: QPN, qkey: QKey::new(1), private_data: &[] }
}
