//! A responder with a shared receive queue.

use userdma_objects::{Srq, Taken};
use userdma_verbs::{SrqAttr, SrqAttrMask, SrqInitAttr, Srqn};
use userdma_wire::Opcode;

use super::*;

const SRQN: Srqn = Srqn::new(5);

fn srq() -> Arc<Srq> {
    Arc::new(Srq::new(SRQN, PdId(1), &SrqInitAttr { max_wr: 16, max_sge: 4 }))
}

impl Side {
    /// Connected, with receives from `srq`.
    fn sharing(srq: &Arc<Srq>) -> Self {
        let mut side = Self::in_reset();
        let cap = side.qp.cap();
        let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: false };
        side.qp = QpShared::with_srq(side.qp.qpn(), side.qp.pd(), &init, Arc::clone(srq));
        side.connect(&attributes());
        side
    }

    /// Posts a receive to a shared queue for memory of this side.
    fn post_to(&self, srq: &Srq, wr_id: u64, offset: u64, len: u32) {
        srq.post_recv(&RecvWr { wr_id, sgl: &[self.sge(offset, len)] }).unwrap();
    }

    fn statuses(&mut self) -> Vec<(u64, WcStatus)> {
        self.recv_wcs().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

fn last_wqe() -> AsyncEvent {
    AsyncEvent::QpLastWqeReached { qpn: Qpn::new(0x11) }
}

#[test]
fn a_message_takes_the_oldest_receive_and_credits_are_not_counted() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    b.post_to(&srq, 1, 4096, 100);
    b.post_to(&srq, 2, 8192, 100);
    b.post_to(&srq, 3, 0, 0);
    b.receive(&send(Opcode::RcSendOnly, 0, b"one"));
    b.receive(&send(Opcode::RcSendOnly, 1, b"two"));
    b.receive(&packet(Opcode::RcWriteOnlyImm, 2, true, b"x", |w| {
        w.reth(&Reth::new(b.remote(64).addr, b.remote(64).rkey, 1)).imm(7)
    }));
    assert_eq!(b.statuses(), [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)));
    assert_eq!([b.bytes(4096, 3), b.bytes(8192, 3)], [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!((srq.recv_count(), b.sends()), (0, vec!["ACK +2 0x1f msn 3".to_owned()]));
}

#[test]
fn an_empty_queue_asks_the_peer_to_wait() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!(b.sends(), ["ACK +0 0x2c msn 0"]);
    b.post_to(&srq, 1, 4096, 100);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert_eq!((b.statuses(), b.sends().len()), (vec![(1, WcStatus::Success)], 1));
}

#[test]
fn messages_of_two_connections_that_are_under_way_at_once_keep_apart() {
    let srq = srq();
    let (mut b, mut c) = (Side::sharing(&srq), Side::sharing(&srq));
    b.post_to(&srq, 1, 4096, 600);
    c.post_to(&srq, 2, 4096, 600);
    let mtu = |byte| [byte; MTU as usize];
    b.receive(&send(Opcode::RcSendFirst, 0, &mtu(1)));
    c.receive(&send(Opcode::RcSendFirst, 0, &mtu(2)));
    b.receive(&send(Opcode::RcSendMiddle, 1, &mtu(3)));
    c.receive(&send(Opcode::RcSendLast, 1, b"cc"));
    b.receive(&send(Opcode::RcSendLast, 2, b"bb"));
    assert_eq!((b.statuses(), c.statuses()), (vec![(1, WcStatus::Success)], vec![(2, WcStatus::Success)]));
    assert_eq!(b.bytes(4096, 514), [&mtu(1)[..], &mtu(3), b"bb"].concat());
    assert_eq!(c.bytes(4096, 258), [&mtu(2)[..], b"cc"].concat());
}

#[test]
fn the_limit_is_an_event_once() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    (0..4).for_each(|wr_id| b.post_to(&srq, wr_id, 4096, 100));
    srq.modify(&SrqAttr { srq_limit: 3, ..SrqAttr::default() }, SrqAttrMask::LIMIT, 16).unwrap();
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    assert!(b.events().is_empty(), "three are left");
    b.receive(&send(Opcode::RcSendOnly, 1, b"x"));
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached { srqn: SRQN }]);
    b.receive(&send(Opcode::RcSendOnly, 2, b"x"));
    assert_eq!((b.events(), srq.attr().srq_limit), (vec![], 0));
}

#[test]
fn in_error_the_receive_of_a_message_under_way_is_flushed_and_the_queue_is_not() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    (0..3).for_each(|wr_id| b.post_to(&srq, wr_id, 4096, 600));
    b.receive(&send(Opcode::RcSendFirst, 0, &[1; MTU as usize]));
    for _ in 0..2 {
        b.modify(QpState::Err, &QpAttr::default(), QpAttrMask::STATE);
        b.run(|rc, ctx| rc.handle_doorbell(ctx));
    }
    assert_eq!(b.statuses(), [(0, WcStatus::WrFlushErr)]);
    assert_eq!((b.events(), srq.recv_count()), (vec![last_wqe()], 2), "told once");
    b.receive(&send(Opcode::RcSendLast, 1, b"x"));
    assert_eq!(srq.recv_count(), 2, "a queue pair in error takes nothing");
}

#[test]
fn a_refused_request_ends_with_the_last_receive_as_well() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    b.post_to(&srq, 1, 4096, 10);
    b.post_to(&srq, 2, 4096, 10);
    b.receive(&send(Opcode::RcSendOnly, 0, &[1; 11]));
    assert_eq!(b.statuses(), [(1, WcStatus::LocLenErr)]);
    assert_eq!(b.events(), [last_wqe()]);
    let mut c = Side::sharing(&srq);
    c.receive(&read_request(0, RemoteAddr { addr: 0, rkey: RKey::new(0x5555) }, 8));
    assert_eq!(c.events(), [AsyncEvent::QpAccessError { qpn: Qpn::new(0x11) }, last_wqe()]);
    assert_eq!((c.statuses(), srq.recv_count()), (vec![], 1));
}

#[test]
fn a_reset_leaves_the_queue_to_others() {
    let srq = srq();
    let mut b = Side::sharing(&srq);
    b.post_to(&srq, 1, 4096, 600);
    b.post_to(&srq, 2, 4096, 600);
    b.receive(&send(Opcode::RcSendFirst, 0, &[1; MTU as usize]));
    b.modify(QpState::Reset, &QpAttr::default(), QpAttrMask::STATE);
    assert_eq!((b.statuses(), b.events()), (vec![], vec![]), "forgotten without a completion");
    assert_eq!(srq.take_recv(&mut Vec::new()), Some(Taken { wr_id: 2, is_limit_reached: false }));
}

#[test]
fn the_memory_of_receives_is_in_the_domain_of_their_queue() {
    let srq = Arc::new(Srq::new(SRQN, PdId(2), &SrqInitAttr { max_wr: 16, max_sge: 4 }));
    let mut b = Side::sharing(&srq);
    let keys = b.mrs.register(PdId(2), b.memory.clone(), b.memory.addr(), all_access()).unwrap();
    let theirs = Sge { lkey: keys.lkey, ..b.sge(4096, 10) };
    srq.post_recv(&RecvWr { wr_id: 1, sgl: &[theirs] }).unwrap();
    b.post_to(&srq, 2, 4096, 10);
    b.receive(&send(Opcode::RcSendOnly, 0, b"x"));
    b.receive(&send(Opcode::RcSendOnly, 1, b"x"));
    assert_eq!(b.statuses(), [(1, WcStatus::Success), (2, WcStatus::LocProtErr)]);
}
