//! When a drive tells others, how much it receives, and when an acknowledgement leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::IpAddr;
use std::time::Duration;

use userdma_objects::QpShared;
use userdma_verbs::{
    AhAttr, Gid, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr,
    Wc, WcOpcode, WcStatus,
};

use super::*;
use crate::{Host, HostConfig};

#[test]
fn a_deadline_is_told_unless_it_moves_later_for_a_spinning_program() {
    assert!(!must_tell(500, 500, 100, true) && !must_tell(500, 500, 600, false), "it is known");
    assert!(must_tell(500, 400, 100, true), "earlier");
    assert!(!must_tell(500, 900, 100, true));
    assert!(must_tell(500, 900, 500, true), "the one that was told has passed");
    assert!(must_tell(500, 900, 100, false), "somebody may sleep until then");
    assert!(must_tell(NOW, FOREVER, 100, true));
}

#[test]
fn a_backlog_of_small_messages_is_received_before_more_is_sent() {
    let report = |messages, more| RecvReport { messages, packets: messages, more, ..RecvReport::default() };
    assert!(is_backlog(&report(4, true), 4));
    assert!(!is_backlog(&report(4, true), BACKLOG_PACKETS), "the peer waits for answers, too");
    assert!(!is_backlog(&report(3, false), 3), "all is received");
    assert!(!is_backlog(&report(1, true), 1), "a lone packet is answered at once");
    let bulk = RecvReport { messages: 4, packets: 60, more: true, ..RecvReport::default() };
    assert!(!is_backlog(&bulk, 60), "four full messages are enough");
}

/// A queue pair whose device is driven by nobody but the test.
struct End {
    host: Host,
    qp: Arc<QpShared>,
    cq: Arc<Cq>,
    ip: IpAddr,
}

impl End {
    fn new(ip: &str) -> Self {
        let ip: IpAddr = ip.parse().unwrap();
        let config = HostConfig { addresses: vec![ip], private_port: Some(14_844), ..HostConfig::default() };
        let host = Host::open(&config).unwrap();
        let cap =
            QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: true };
        let make = move |shard: &mut Shard, _| {
            let (pd, cq) = (shard.alloc_pd().unwrap(), shard.create_cq(16, None).unwrap());
            let qp = shard.create_qp_on(pd, &init, cq.number(), cq.number(), None).unwrap();
            (qp, cq)
        };
        let (qp, cq) = host.control(make).unwrap();
        Self { host, qp, cq, ip }
    }

    fn connect(&self, to: &Self) {
        let usual = QpAttr {
            dest_qp_num: to.qp.qpn(),
            ah_attr: AhAttr::to(Gid::from(to.ip)),
            port_num: 1,
            ..QpAttr::default()
        };
        let init = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        let rtr = QpAttrMask::STATE
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        let rts = QpAttrMask::STATE
            | QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::SQ_PSN
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        for (qp_state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let (attr, qpn) = (QpAttr { qp_state, ..usual }, self.qp.qpn());
            self.host.control(move |shard, now| shard.modify_qp(now, qpn, &attr, mask)).unwrap().unwrap();
        }
    }

    fn receive(&self) {
        self.host.post_recv(&self.qp, &RecvWr { wr_id: 1, sgl: &[] }).unwrap();
    }

    fn send(&self) {
        let wr = SendWr { wr_id: 2, op: SendOp::Send, flags: SendFlags::SIGNALED, sgl: &[], inline: &[] };
        self.host.post_send(&self.qp, &wr).unwrap();
    }

    /// Drives when a packet has come.
    fn take(&self, role: Role<'_>) {
        while !self.host.owner.shared.is_packet_waiting() {
            std::thread::yield_now();
        }
        self.drive(role);
    }

    fn drive(&self, role: Role<'_>) {
        assert_eq!(self.host.owner.shared.ring(role), crate::gate::Visit::Drove);
    }

    /// Acknowledgements that have left before this is asked. Asking lets those leave that are owed.
    fn acks(&self) -> u64 {
        self.host.stats().unwrap().sent_acks
    }
}

/// What the program answers goes with the acknowledgement: whoever has the packet leaves it the time for that.
#[test]
fn an_acknowledgement_waits_for_a_program_that_answers() {
    let (peer, answers) = (End::new("127.71.6.1"), End::new("127.71.6.2"));
    peer.connect(&answers);
    answers.connect(&peer);
    (0..4).for_each(|_| answers.receive());
    peer.receive();

    // One that has never sent anything does not answer.
    let before = answers.acks();
    peer.send();
    answers.take(Role::Thread);
    assert_eq!(answers.acks() - before, 1, "the acknowledgement leaves at once");
    peer.take(Role::Control);

    answers.send();
    peer.take(Role::Control);
    answers.take(Role::Control);
    let before = answers.acks();
    peer.send();
    answers.take(Role::Thread);
    assert_eq!(answers.acks() - before, 0, "the program has time to answer");
    peer.take(Role::Control);

    // It does not answer: when the acknowledgement's time has come it leaves, and the next does not wait.
    let before = answers.acks();
    peer.send();
    answers.take(Role::Thread);
    std::thread::sleep(Duration::from_millis(1));
    answers.drive(Role::Thread);
    peer.take(Role::Control);
    assert_eq!(answers.acks() - before, 1);
    let before = answers.acks();
    peer.send();
    answers.take(Role::Thread);
    assert_eq!(answers.acks() - before, 1, "it is known not to answer");
}

/// The peer's request has been executed: whatever becomes of the queue pair, he hears of it.
#[test]
fn what_is_owed_leaves_before_a_queue_pair_ends() {
    let ways: [fn(&End); 2] = [
        |end: &End| end.host.destroy_qp(end.qp.qpn()).unwrap().unwrap(),
        |end: &End| {
            let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
            end.host.modify_qp(end.qp.qpn(), &reset, QpAttrMask::STATE).unwrap().unwrap();
        },
    ];
    for ends in ways {
        let (peer, answers) = (End::new("127.71.6.3"), End::new("127.71.6.4"));
        peer.connect(&answers);
        answers.connect(&peer);
        peer.receive();
        (0..2).for_each(|_| answers.receive());
        // So that the acknowledgement waits.
        answers.send();
        peer.take(Role::Control);
        answers.take(Role::Control);
        peer.send();
        answers.take(Role::Thread);
        ends(&answers);
        peer.take(Role::Control);
        let mut wcs = [Wc::new(0, WcStatus::GeneralErr, WcOpcode::Send, Qpn::new(0)); 4];
        let taken = peer.cq.poll(&mut wcs);
        let sent = wcs[..taken].iter().find(|wc| wc.wr_id == 2);
        assert_eq!(sent.map(|wc| wc.status), Some(WcStatus::Success));
    }
}
