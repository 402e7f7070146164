//! A machine that knows the connections that it has with us, and sends whatever it likes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that meets the unexpected fails")]

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use common::*;
use userdma_mgmt::cm::{Arrival, ConnId, Counts, Event, Outgoing, RepParams, SidrRepParams};
use userdma_verbs::dice::Stream;
use userdma_verbs::{Gid, QKey, Qpn};
use userdma_wire::mad::MAD_LEN;
use userdma_wire::mad::cm::{
    Apr, Drep, Lap, Message, Mra, Path, Rej, RejectReason, RejectedMessage, Req, SidrRep, SidrReq, SidrStatus,
};

const FRIEND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 41, 0, 4));
const FRIENDS_QPN: Qpn = Qpn::new(0x777);

/// We have a connection with a friend, who is never heard of again until the end.
struct Besieged {
    one: One,
    friends: ConnId,
    will: Option<Outgoing>,
    /// What we have with the enemy.
    conns: Vec<ConnId>,
    /// Whether our owner answers, too.
    is_busy: bool,
    dice: Stream,
}

impl Besieged {
    fn new(seed: u64, is_busy: bool) -> Self {
        let mut one = One::new();
        one.listen();
        let from_friend = Path { local_gid: Gid::from(FRIEND), ..req().primary };
        one.hear_from(FRIEND, 1, Req { local_qpn: FRIENDS_QPN, primary: from_friend, ..req() });
        let friends = one.told()[0].0;
        one.cm.send_rep(one.now, friends, &RepParams { qpn: FRIENDS_QPN, ..rep_params() }).unwrap();
        one.hear_from(FRIEND, 1, rtu(friends));
        assert_eq!(one.told_one(friends), Event::Rtu);
        while one.cm.poll_transmit().is_some() {}
        let will = one.cm.will(friends);
        assert!(will.is_some());
        Self { one, friends, will, conns: Vec::new(), is_busy, dice: Stream::new(seed, 0) }
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.dice.next() % end).unwrap()
    }

    /// A valid message about one of the connections, or a new one.
    fn message(&mut self) -> (u64, Message) {
        let which = self.below(8);
        let conn = self.conns.iter().rev().nth(which).copied().unwrap_or(self.friends);
        let tid = match self.one.cm.will(conn) {
            Some(will) if self.below(2) == 0 => Message::parse(&will.mad).unwrap().0,
            _ => PEER_TID,
        };
        let id = PEER_ID + u32::try_from(self.below(4)).unwrap();
        let message = match self.below(11) {
            0 => req_of(id).into(),
            1 => rep(conn).into(),
            2 => rtu(conn).into(),
            3 => dreq(conn).into(),
            4 => Drep { local_comm_id: id, remote_comm_id: conn.0, ..Drep::default() }.into(),
            5 => Rej { local_comm_id: id, ..rej(conn, RejectReason::Timeout) }.into(),
            6 => {
                let message = RejectedMessage::Rep;
                Mra { local_comm_id: id, remote_comm_id: conn.0, message, ..Mra::default() }.into()
            }
            7 => Lap { local_comm_id: id, remote_comm_id: conn.0, remote_qpn: QPN, ..Lap::default() }.into(),
            8 => Apr { local_comm_id: id, remote_comm_id: conn.0, ..Apr::default() }.into(),
            9 => SidrReq { request_id: id, service_id: SERVICE, ..SidrReq::default() }.into(),
            _ => SidrRep { request_id: conn.0, ..SidrRep::default() }.into(),
        };
        (tid, message)
    }

    /// One or more bytes of a message are others.
    fn mutated(&mut self) -> [u8; MAD_LEN] {
        let (tid, message) = self.message();
        let mut mad = message.build(tid);
        for _ in 0..self.below(4) {
            let at = self.below(MAD_LEN as u64);
            mad[at] ^= 1 << self.below(8);
        }
        mad
    }

    fn hear(&mut self, mad: &[u8]) {
        let now = self.one.now;
        self.one.cm.handle_mad(now, Arrival { port: PORT, from: THERE, to: HERE, mad });
        let sent = std::iter::from_fn(|| self.one.cm.poll_transmit()).collect::<Vec<_>>();
        assert!(sent.len() <= 2 && sent.iter().all(|sent| sent.to == THERE), "{sent:?}");
        let told = self.one.told();
        assert!(told.len() <= 1);
        for (conn, event) in told {
            assert_ne!(conn, self.friends, "{event:?}");
            if matches!(event, Event::Req { .. } | Event::SidrReq { .. }) {
                self.conns.push(conn);
            }
            assert!(self.conns.contains(&conn), "{event:?} of a connection that nobody has");
            if self.is_busy {
                self.answer(conn, &event);
            }
        }
        assert_eq!(self.one.cm.will(self.friends), self.will);
    }

    fn answer(&mut self, conn: ConnId, event: &Event) {
        let now = self.one.now;
        // In whatever state it is by now.
        if matches!(event, Event::Req { .. }) {
            let _ = self.one.cm.send_rep(now, conn, &rep_params());
        } else if matches!(event, Event::SidrReq { .. }) {
            let status = SidrStatus::Valid;
            let params = SidrRepParams { status, qpn: QPN, qkey: QKey::new(1), private_data: &[] };
            let _ = self.one.cm.send_sidr_rep(now, conn, &params);
        } else if *event == Event::Dreq {
            let _ = self.one.cm.send_drep(now, conn, &[]);
        }
        if self.conns.len() > 64 {
            let at = self.below(64);
            self.one.cm.destroy(now, self.conns.remove(at));
        }
        while let Some(sent) = self.one.cm.poll_transmit() {
            assert_ne!(sent.to, FRIEND);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.one.now = self.one.now + time;
        self.one.cm.handle_timeout(self.one.now);
        while let Some(sent) = self.one.cm.poll_transmit() {
            assert_ne!(sent.to, FRIEND);
        }
        for (conn, event) in self.one.told() {
            assert_ne!(conn, self.friends, "{event:?}");
        }
    }

    /// The enemy has had enough: nothing of him is left, and the friend may go.
    fn end(mut self) {
        for conn in std::mem::take(&mut self.conns) {
            self.one.cm.destroy(self.one.now, conn);
        }
        while self.one.cm.poll_timeout().is_some() {
            self.wait(Duration::from_secs(60));
        }
        self.wait(Duration::ZERO);
        assert_eq!(self.one.cm.counts().connections, 1);
        assert_eq!(self.one.cm.will(self.friends), self.will);
        self.one.hear_from(
            FRIEND,
            9,
            userdma_wire::mad::cm::Dreq { remote_qpn: FRIENDS_QPN, ..dreq(self.friends) },
        );
        assert_eq!(self.one.told_one(self.friends), Event::Dreq);
        self.one.cm.destroy(self.one.now, self.friends);
        assert!(self.one.cm.poll_transmit().is_some_and(|sent| sent.to == FRIEND));
        self.wait(Duration::from_secs(60));
        assert_eq!(self.one.cm.counts(), Counts { listeners: 1, ..Counts::default() });
    }
}

fn req_of(id: u32) -> Req {
    Req { local_comm_id: id, local_qpn: Qpn::new(id), ..req() }
}

fn mutations(seed: u64, is_busy: bool) {
    let mut besieged = Besieged::new(seed, is_busy);
    for round in 0..100_000 {
        let mad = besieged.mutated();
        besieged.hear(&mad);
        if round % 100 == 0 {
            let wait = Duration::from_millis(1 << besieged.below(14));
            besieged.wait(wait);
        }
    }
    let stats = besieged.one.cm.stats();
    assert!(stats.malformed > 1000 && stats.unexpected > 1000, "{stats:?}");
    besieged.end();
}

#[test]
fn a_hundred_thousand_mutations_against_an_owner_that_sleeps() {
    mutations(1, false);
}

#[test]
fn a_hundred_thousand_mutations_against_an_owner_that_answers() {
    mutations(2, true);
}

#[test]
fn every_message_cut_anywhere_is_dropped() {
    let mut besieged = Besieged::new(3, true);
    for _ in 0..50 {
        let (tid, message) = besieged.message();
        let mad = message.build(tid);
        for len in 0..MAD_LEN {
            besieged.hear(&mad[..len]);
        }
        besieged.hear(&[&mad[..], &[0]].concat());
    }
    assert_eq!(besieged.one.cm.stats().malformed, 50 * 257);
    besieged.end();
}

#[test]
fn another_class_version_method_or_attribute_is_dropped() {
    let mut besieged = Besieged::new(4, true);
    for _ in 0..100 {
        let (tid, message) = besieged.message();
        let mad = message.build(tid);
        for (at, value) in [
            (0, 0),
            (0, 2),
            (1, 0),
            (1, 4),
            (2, 1),
            (2, 3),
            (3, 0x83),
            (3, 0),
            (17, 0x0f),
            (17, 0x1b),
            (16, 1),
        ] {
            let mut wrong = mad;
            wrong[at] = value;
            let now = besieged.one.now;
            besieged.one.cm.handle_mad(now, Arrival { port: PORT, from: THERE, to: HERE, mad: &wrong });
            besieged.one.quiet();
        }
    }
    besieged.end();
}

/// All that was said in a whole connection, said again: in order, backwards, and a thousand times.
#[test]
fn what_is_replayed_changes_nothing() {
    let mut besieged = Besieged::new(5, false);
    let mut said = Vec::new();
    let mut say = |besieged: &mut Besieged, tid: u64, message: Message| {
        let mad = message.build(tid);
        said.push(mad);
        besieged.hear(&mad);
    };
    say(&mut besieged, PEER_TID, req().into());
    let conn = besieged.conns[0];
    let now = besieged.one.now;
    besieged.one.cm.send_rep(now, conn, &rep_params()).unwrap();
    besieged.one.sent_one();
    say(&mut besieged, PEER_TID, rtu(conn).into());
    say(&mut besieged, 77, dreq(conn).into());
    besieged.one.cm.send_drep(now, conn, &[]).unwrap();
    besieged.one.sent_one();
    besieged.wait(Duration::from_secs(2));
    assert_eq!(besieged.one.cm.counts().connections, 2, "ours has an owner");
    besieged.one.cm.destroy(besieged.one.now, conn);
    let before = besieged.one.cm.counts();
    for _ in 0..1000 {
        // The REQ is a new one by now, whom nobody answers.
        for mad in said[1..].iter().chain(said[1..].iter().rev()) {
            besieged.hear(mad);
        }
        assert_eq!(besieged.one.cm.counts(), before);
    }
    besieged.end();
}
