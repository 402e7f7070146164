//! Datagrams: who gets them, what keys and states mean, and what an address handle is good for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use userdma_ibt::Room;
use userdma_mem::{Frame, FrameMeta, LinkId, TxBatch};
use userdma_nic::CreateAhError;
use userdma_objects::UdAddr;
use userdma_sim::{ConnectOptions, Memory, Pair, PairOptions, QKEY, QpEnd};
use userdma_verbs::{
    AccessFlags, AhAttr, Gid, LKey, ModifyQpError, Mtu, ObjectError, PKey, Psn, QKey, QpAttr,
    QpAttrMask as M, QpCap, QpState, Qpn, Sge, WcStatus,
};
use userdma_wire::{Bth, Deth, Opcode, PacketWriter, Pseudo, packet_len};

struct Bench {
    pair: Pair,
    ends: [QpEnd; 2],
    memory: [Memory; 2],
    /// Whom a datagram of host 0's is for.
    to: UdAddr,
}

impl Bench {
    fn new() -> Self {
        Self::with(&ConnectOptions::default())
    }

    fn with(options: &ConnectOptions) -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let ends = pair.datagrams(options);
        let memory = [0, 1].map(|side: usize| pair.hosts[side].memory(64 << 10, AccessFlags::LOCAL_WRITE));
        let to = pair.addr_of(1, &ends[1]);
        Self { pair, ends, memory, to }
    }

    fn send(&self, wr_id: u64, len: u32) {
        self.pair.hosts[0].send_to(&self.ends[0], wr_id, self.memory[0].sge(0, len), &self.to).unwrap();
    }

    fn recv(&self, wr_id: u64) {
        self.pair.hosts[1].recv(&self.ends[1], wr_id, self.memory[1].sge(0, 4096 + 40));
    }

    fn sent(&self) -> Vec<(u64, WcStatus)> {
        self.ends[0].poll_send().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    /// A datagram from an address that nobody has told host 1 of; which counters it moved.
    fn deliver(&mut self, opcode: Opcode, qpn: Qpn, qkey: QKey) -> Vec<&'static str> {
        let mut bytes = vec![0; packet_len(opcode, 4)];
        let bth = Bth::new(opcode, qpn, Psn::new(3), PKey::DEFAULT);
        let writer = PacketWriter::new(&mut bytes, &bth);
        let writer =
            if opcode == Opcode::UdSendOnly { writer.deth(&Deth::new(qkey, Qpn::new(9))) } else { writer };
        writer.payload(4).copy_from_slice(b"data");
        let (remote, local) = (IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), self.pair.hosts[1].address);
        Pseudo::new(remote, local, 50_000, 4791).seal(&mut bytes, 0);
        let (remote_port, local_port) = (50_000, 4791);
        let meta = FrameMeta {
            link: LinkId(0),
            remote,
            remote_port,
            local,
            local_port,
            traffic_class: 0,
            segment: 0,
        };
        let now = self.pair.now();
        let shard = &mut self.pair.hosts[1].shard;
        let before = *shard.stats();
        shard.handle_frame(now, Frame { bytes: &bytes, meta });
        let mut batch = TxBatch::new(&PairOptions::default().link);
        assert!(shard.poll_transmit(now, &mut batch).is_none(), "nobody answers a datagram");
        before
            .iter()
            .zip(shard.stats().iter())
            .filter(|(b, a)| b.1 != a.1)
            .map(|(_, (name, _))| name)
            .collect()
    }
}

#[test]
fn a_datagram_goes_there_and_says_where_it_came_from() {
    let mut bench = Bench::new();
    bench.memory[0].fill(b"to the other host");
    bench.recv(1);
    bench.send(2, 17);
    bench.pair.drive();
    assert_eq!(bench.sent(), [(2, WcStatus::Success)]);
    let [wc] = bench.ends[1].poll_recv()[..] else { panic!("one completion") };
    assert_eq!((wc.wr_id, wc.byte_len, wc.src_qp), (1, 57, bench.ends[0].qp.qpn()));
    assert_eq!(bench.memory[1].bytes(40, 17), b"to the other host");
    assert_eq!(bench.memory[1].bytes(32, 4), [10, 0, 0, 1], "the sender's address");
}

#[test]
fn anybody_with_the_key_is_heard_and_nobody_else() {
    let mut bench = Bench::new();
    let qpn = bench.ends[1].qp.qpn();
    assert_eq!(bench.deliver(Opcode::UdSendOnly, qpn, QKEY), ["rcvd_pkts", "drop_no_receive"]);
    bench.recv(1);
    assert_eq!(bench.deliver(Opcode::UdSendOnly, qpn, QKEY), ["rcvd_pkts"]);
    assert_eq!(bench.ends[1].poll_recv().len(), 1);
    bench.recv(2);
    let wrong = QKey::new(QKEY.get() + 1);
    assert_eq!(bench.deliver(Opcode::UdSendOnly, qpn, wrong), ["rcvd_pkts", "qkey_viol_cntr"]);
    assert_eq!(bench.deliver(Opcode::RcSendOnly, qpn, QKEY), ["drop_opcode"]);
    assert_eq!(
        bench.deliver(Opcode::UdSendOnly, Qpn::GSI, QKEY),
        ["qkey_viol_cntr"],
        "it has a key of its own"
    );
    for nobody in [Qpn::new(0), Qpn::MULTICAST, Qpn::new(qpn.get() + 1)] {
        assert_eq!(bench.deliver(Opcode::UdSendOnly, nobody, QKEY), ["drop_qpn"], "{nobody}");
    }
    assert!(bench.ends[1].poll_recv().is_empty());
}

#[test]
fn a_datagram_is_sent_though_its_handle_and_their_domain_are_gone() {
    let mut bench = Bench::new();
    bench.recv(1);
    let host = &mut bench.pair.hosts[0];
    let attr = AhAttr::to(bench.to.ah.route.remote.into());
    let (id, ah) = host.shard.create_ah(host.pd, &attr).unwrap();
    let to = UdAddr { ah, ..bench.to };
    host.send_to(&bench.ends[0], 2, bench.memory[0].sge(0, 8), &to).unwrap();
    host.shard.destroy_ah(id).unwrap();
    assert_eq!(host.shard.destroy_ah(id), Err(ObjectError::NoObject("address vector")));
    bench.pair.drive();
    assert_eq!(bench.sent(), [(2, WcStatus::Success)]);
    assert_eq!(bench.ends[1].poll_recv().len(), 1);
}

#[test]
fn a_handle_of_another_domain_is_a_local_error() {
    let mut bench = Bench::new();
    let other = bench.pair.hosts[0].shard.alloc_pd().unwrap();
    let attr = AhAttr::to(bench.to.ah.route.remote.into());
    let (_, ah) = bench.pair.hosts[0].shard.create_ah(other, &attr).unwrap();
    let to = UdAddr { ah, ..bench.to };
    bench.pair.hosts[0].send_to(&bench.ends[0], 2, bench.memory[0].sge(0, 8), &to).unwrap();
    bench.pair.drive();
    assert_eq!(bench.sent(), [(2, WcStatus::LocQpOpErr)]);
}

#[test]
fn handles_lead_somewhere_and_are_used_by_their_domain() {
    let mut bench = Bench::new();
    let host = &mut bench.pair.hosts[0];
    let nowhere = AhAttr::to(Gid::from(Ipv4Addr::UNSPECIFIED));
    assert!(matches!(host.shard.create_ah(host.pd, &nowhere), Err(CreateAhError::Dgid { .. })));
    let pd = host.shard.alloc_pd().unwrap();
    let (id, ah) = host.shard.create_ah(pd, &AhAttr::to(bench.to.ah.route.remote.into())).unwrap();
    assert_eq!(ah.mtu, Mtu::Mtu4096);
    assert!(matches!(host.shard.dealloc_pd(pd), Err(ObjectError::Busy { .. })));
    host.shard.destroy_ah(id).unwrap();
    host.shard.dealloc_pd(pd).unwrap();
}

#[test]
fn a_send_error_stops_the_send_queue_until_a_modify() {
    let mut bench = Bench::new();
    let qpn = bench.ends[0].qp.qpn();
    let wrong = Sge { lkey: LKey::new(1), ..bench.memory[0].sge(0, 8) };
    bench.send(1, 8);
    bench.pair.hosts[0].send_to(&bench.ends[0], 2, wrong, &bench.to).unwrap();
    bench.send(3, 8);
    bench.pair.drive();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(bench.sent(), [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, flushed)]);
    assert_eq!(bench.ends[0].qp.state(), QpState::Sqe);
    bench.send(4, 8);
    bench.pair.drive();
    assert_eq!(bench.sent(), [(4, flushed)]);
    let attr = QpAttr { qp_state: QpState::Rts, cur_qp_state: QpState::Sqe, ..QpAttr::default() };
    bench.pair.modify(0, qpn, &attr, M::STATE | M::CUR_STATE);
    bench.recv(9);
    bench.send(5, 8);
    bench.pair.drive();
    assert_eq!((bench.sent(), bench.ends[1].poll_recv().len()), (vec![(5, WcStatus::Success)], 1));
}

#[test]
fn a_datagram_queue_pair_has_no_peer_to_be_given() {
    let mut bench = Bench::new();
    let qpn = bench.ends[0].qp.qpn();
    bench.pair.reset(0, qpn);
    let now = bench.pair.now();
    let shard = &mut bench.pair.hosts[0].shard;
    let attr = QpAttr { qp_state: QpState::Init, ..QpAttr::default() };
    let result = shard.modify_qp(now, qpn, &attr, M::STATE | M::PKEY_INDEX | M::PORT);
    assert!(matches!(result, Err(ModifyQpError::Missing { missing, .. }) if missing == M::QKEY));
    shard.modify_qp(now, qpn, &attr, M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY).unwrap();
    let attr = QpAttr { qp_state: QpState::Rtr, ..QpAttr::default() };
    let result = shard.modify_qp(now, qpn, &attr, M::STATE | M::DEST_QPN);
    assert!(matches!(result, Err(ModifyQpError::Extra { extra, .. }) if extra == M::DEST_QPN));
}

/// Queues of 512, so that the pace is what limits.
fn deep() -> ConnectOptions {
    let usual = ConnectOptions::default();
    let cap = QpCap { max_send_wr: 512, max_recv_wr: 512, ..usual.cap };
    ConnectOptions { cap, cqe: 1024, ..usual }
}

#[test]
fn to_a_host_of_which_nothing_is_known_the_rate_is_kept() {
    let mut bench = Bench::with(&deep());
    for wr_id in 0..500 {
        bench.recv(wr_id);
        bench.send(wr_id, 4096);
    }
    let begin = bench.pair.now();
    bench.pair.drive();
    assert_eq!((bench.sent().len(), bench.ends[1].poll_recv().len()), (500, 500));
    // 500 times 4864 bytes, all but the first 128 KiB at a byte a nanosecond.
    let took = bench.pair.now() - begin;
    assert!((2_290..2_400).contains(&took.as_micros()), "{took:?}");
}

#[test]
fn what_is_known_of_a_buffer_gives_a_turn_at_once() {
    let mut bench = Bench::with(&deep());
    for wr_id in 0..200 {
        bench.recv(wr_id);
        bench.send(wr_id, 4096);
    }
    bench.pair.progress();
    let first = bench.sent().len();
    assert!((20..40).contains(&first), "{first} of a burst");
    let now = bench.pair.now();
    let shard = &mut bench.pair.hosts[0].shard;
    let ask = shard.poll_ask().expect("the sender asks");
    assert_eq!(ask.qpn, bench.ends[1].qp.qpn());
    assert!(!shard.handle_room(now, &ask, Some(Room { used: 100_000, limit: 100_000 })), "no room");
    bench.pair.drive_for(Duration::from_micros(30));
    let shard = &mut bench.pair.hosts[0].shard;
    let ask = shard.poll_ask().expect("it asks again");
    assert!(shard.handle_room(now, &ask, Some(Room { used: 0, limit: 129_708 })));
    bench.pair.progress();
    assert_eq!(bench.sent().len(), 10, "half of three quarters of the buffer");
}
