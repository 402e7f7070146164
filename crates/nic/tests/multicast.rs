//! Groups: which queue pairs get a datagram to one, and who may be attached.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::IpAddr;

use userdma_mem::{Frame, FrameMeta, LinkId};
use userdma_nic::{AttachError, CreateAhError};
use userdma_objects::UdAddr;
use userdma_sim::{ConnectOptions, Memory, Pair, PairOptions, QKEY, QpEnd};
use userdma_verbs::{
    AccessFlags, AhAttr, DeviceAttr, Errno, Gid, ObjectError, PKey, Psn, QKey, QpAttr, QpAttrMask as M,
    QpState, QpType, Qpn,
};
use userdma_wire::{Bth, Deth, Opcode, PacketWriter, Pseudo, packet_len};

/// A host with three queue pairs, the last of which is attached to nothing.
struct Bench {
    pair: Pair,
    ends: Vec<QpEnd>,
    memory: Memory,
    group: IpAddr,
}

impl Bench {
    fn new() -> Self {
        let mut pair = Pair::new(&PairOptions::default());
        let ends: Vec<_> = (0..3).map(|_| pair.datagram_end(1, &ConnectOptions::default(), None)).collect();
        let memory = pair.hosts[1].memory(64 << 10, AccessFlags::LOCAL_WRITE);
        let mut bench = Self { pair, ends, memory, group: "239.7.3.1".parse().unwrap() };
        for nth in [0, 1] {
            let first = bench.attach(nth).unwrap();
            assert_eq!(
                first,
                (nth == 0).then_some(bench.group),
                "the first says that the group must be joined"
            );
        }
        bench
    }

    fn attach(&mut self, nth: usize) -> Result<Option<IpAddr>, AttachError> {
        self.pair.hosts[1].shard.attach_multicast(self.ends[nth].qp.qpn(), self.group.into())
    }

    fn detach(&mut self, nth: usize) -> Result<Option<IpAddr>, ObjectError> {
        self.pair.hosts[1].shard.detach_multicast(self.ends[nth].qp.qpn(), self.group.into())
    }

    fn recv(&self, nth: usize) {
        self.pair.hosts[1].recv(&self.ends[nth], 7, self.memory.sge(nth as u64 * 8192, 4096 + 40));
    }

    /// A datagram as the group's socket gives it; which counters it moved, and how far.
    fn deliver(&mut self, to: IpAddr, change: impl FnOnce(&mut Sent)) -> Vec<(&'static str, u64)> {
        let mut sent = Sent {
            opcode: Opcode::UdSendOnly,
            qpn: Qpn::MULTICAST,
            qkey: QKEY,
            pkey: PKey::DEFAULT,
            flip: 0,
            id: 0,
        };
        change(&mut sent);
        let bytes = sent.packet(to);
        let (remote, remote_port) = ("10.9.9.9".parse().unwrap(), 50_000);
        let (link, local_port, traffic_class, segment) = (LinkId(0), 4791, 0, 0);
        let meta = FrameMeta { link, remote, remote_port, local: to, local_port, traffic_class, segment };
        let now = self.pair.now();
        let shard = &mut self.pair.hosts[1].shard;
        let before = *shard.stats();
        shard.handle_frame(now, Frame { bytes: &bytes, meta });
        let moved = before.iter().zip(shard.stats().iter()).filter(|(b, a)| b.1 != a.1);
        moved.map(|(b, a)| (a.0, a.1 - b.1)).collect()
    }

    fn came(&self) -> Vec<usize> {
        self.ends.iter().map(|end| end.poll_recv().len()).collect()
    }
}

struct Sent {
    opcode: Opcode,
    qpn: Qpn,
    qkey: QKey,
    pkey: PKey,
    flip: u8,
    id: u16,
}

impl Sent {
    fn packet(&self, to: IpAddr) -> Vec<u8> {
        let mut bytes = vec![0; packet_len(self.opcode, 4)];
        let bth = Bth::new(self.opcode, self.qpn, Psn::new(3), self.pkey);
        let writer = PacketWriter::new(&mut bytes, &bth);
        let is_ud = self.opcode == Opcode::UdSendOnly;
        let writer = if is_ud { writer.deth(&Deth::new(self.qkey, Qpn::new(9))) } else { writer };
        writer.payload(4).copy_from_slice(b"data");
        Pseudo::new("10.9.9.9".parse().unwrap(), to, 50_000, 4791).seal(&mut bytes, self.id);
        let last = bytes.len() - 1;
        bytes[last] ^= self.flip;
        bytes
    }
}

#[test]
fn each_attached_queue_pair_gets_a_copy() {
    let mut bench = Bench::new();
    (0..3).for_each(|nth| bench.recv(nth));
    assert_eq!(bench.deliver(bench.group, |_| ()), [("rcvd_pkts", 2)]);
    let group: IpAddr = bench.group;
    for nth in [0, 1] {
        let [wc] = bench.ends[nth].poll_recv()[..] else { panic!("one completion") };
        assert_eq!((wc.byte_len, wc.src_qp, wc.qpn), (44, Qpn::new(9), bench.ends[nth].qp.qpn()));
        let at = nth as u64 * 8192;
        assert_eq!(bench.memory.bytes(at, 20), [0; 20]);
        assert_eq!(bench.memory.bytes(at + 32, 12), b"\x0a\x09\x09\x09\xef\x07\x03\x01data", "{group}");
    }
    assert!(bench.ends[2].poll_recv().is_empty());
}

#[test]
fn each_judges_for_itself() {
    let mut bench = Bench::new();
    // A receive, none.
    bench.recv(1);
    assert_eq!(bench.deliver(bench.group, |_| ()), [("rcvd_pkts", 2), ("drop_no_receive", 1)]);
    assert_eq!(bench.came(), [0, 1, 0]);
    // Another key.
    bench.recv(0);
    bench.recv(1);
    let attr = QpAttr { qkey: QKey::new(5), ..QpAttr::default() };
    bench.pair.modify(1, bench.ends[0].qp.qpn(), &attr, M::QKEY);
    assert_eq!(bench.deliver(bench.group, |_| ()), [("rcvd_pkts", 2), ("qkey_viol_cntr", 1)]);
    assert_eq!(bench.came(), [0, 1, 0]);
    // In the error state.
    let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    bench.pair.modify(1, bench.ends[0].qp.qpn(), &attr, M::STATE);
    bench.came();
    bench.recv(1);
    assert_eq!(bench.deliver(bench.group, |_| ()), [("rcvd_pkts", 1), ("drop_qpn", 1)]);
    assert_eq!(bench.came(), [0, 1, 0]);
}

#[test]
fn what_is_not_right_reaches_nobody() {
    let mut bench = Bench::new();
    (0..3).for_each(|nth| bench.recv(nth));
    let group = bench.group;
    let other: IpAddr = "239.7.3.2".parse().unwrap();
    let ours = bench.pair.hosts[1].address;
    assert_eq!(bench.deliver(group, |sent| sent.flip = 1), [("drop_icrc", 1)]);
    assert_eq!(bench.deliver(group, |sent| sent.opcode = Opcode::RcSendOnly), [("drop_opcode", 1)]);
    assert_eq!(bench.deliver(group, |sent| sent.pkey = PKey::new(0x8001)), [("drop_pkey", 1)]);
    assert_eq!(bench.deliver(other, |_| ()), [("drop_qpn", 1)], "another group");
    assert_eq!(bench.deliver(ours, |_| ()), [("drop_qpn", 1)], "no group");
    let connect = |sent: &mut Sent| (sent.qpn, sent.qkey) = (Qpn::GSI, QKey::GSI);
    assert_eq!(bench.deliver(group, connect), [("drop_qpn", 1)], "nobody connects to a group");
    assert_eq!(bench.came(), [0, 0, 0]);
}

/// A kernel counts IPv4 identifications for each destination.
#[test]
fn what_a_peer_sends_to_a_group_is_numbered_on_its_own() {
    let mut bench = Bench::new();
    bench.group = "239.7.3.9".parse().unwrap();
    bench.attach(2).unwrap();
    let (group, ours, qpn) = (bench.group, bench.pair.hosts[1].address, bench.ends[2].qp.qpn());
    for (to, qpn, id) in [(ours, qpn, 0x9000), (group, Qpn::MULTICAST, 0x4000), (ours, qpn, 0x9001)] {
        bench.recv(2);
        let moved = bench.deliver(to, |sent| (sent.qpn, sent.id) = (qpn, id));
        assert!(moved.contains(&("rcvd_pkts", 1)), "{id:#x}: {moved:?}");
    }
    let other = bench.deliver(group, |sent| sent.id = 0x9002);
    assert_eq!(other, [("drop_icrc", 1)], "far from what came to the group before");
}

#[test]
fn attaching_twice_is_once_and_the_last_detaches_the_group() {
    let mut bench = Bench::new();
    assert_eq!(bench.attach(0), Ok(None));
    let qpn = bench.ends[0].qp.qpn();
    assert_eq!(bench.pair.hosts[1].shard.multicast_groups(qpn), [Gid::from(bench.group)]);
    let now = bench.pair.now();
    let busy = ObjectError::Busy { object: "queue pair", users: 1 };
    assert_eq!(busy.to_string(), "queue pair is still used by 1 other objects");
    assert_eq!(bench.pair.hosts[1].shard.destroy_qp(now, qpn), Err(busy), "as over the kernel");
    assert_eq!(bench.detach(0), Ok(None));
    assert!(matches!(bench.detach(0), Err(ObjectError::NoObject(_))));
    assert!(matches!(bench.detach(2), Err(ObjectError::NoObject(_))));
    assert_eq!(bench.detach(1), Ok(Some(bench.group)));
    assert!(matches!(bench.detach(1), Err(ObjectError::NoObject(_))), "no such group");
    assert_eq!(bench.pair.hosts[1].shard.destroy_qp(now, qpn), Ok(()));
    assert_eq!(bench.attach(0), Err(AttachError::NoQp));
}

#[test]
fn only_datagrams_have_groups_and_only_groups_have_members() {
    let mut bench = Bench::new();
    let [connected, _] = bench.pair.connect(&ConnectOptions::default());
    let shard = &mut bench.pair.hosts[0].shard;
    let refused = shard.attach_multicast(connected.qp.qpn(), bench.group.into()).unwrap_err();
    assert_eq!((refused, refused.errno()), (AttachError::Type(QpType::Rc), Errno::Einval));
    for single in ["10.0.0.1", "::", "fd00::1", "255.255.255.255"] {
        bench.group = single.parse().unwrap();
        let refused = bench.attach(2).unwrap_err();
        assert_eq!((refused, refused.errno()), (AttachError::NotGroup(bench.group.into()), Errno::Einval));
    }
    for group in ["224.0.0.1", "ff02::7", "ff0e::1:2"] {
        bench.group = group.parse().unwrap();
        assert_eq!(bench.attach(2), Ok(Some(bench.group)));
    }
}

#[test]
fn there_are_as_many_groups_and_members_as_the_device_says() {
    let mut bench = Bench::new();
    let limits = DeviceAttr::LIMITS;
    for nth in (1..=u8::MAX).take(limits.max_mcast_grp as usize - 1) {
        bench.group = IpAddr::from([239, 1, 1, nth]);
        bench.attach(2).unwrap();
    }
    bench.group = "239.1.2.1".parse().unwrap();
    let refused = bench.attach(2).unwrap_err();
    assert_eq!(refused, AttachError::TooManyGroups { max: limits.max_mcast_grp });
    assert_eq!(refused.errno(), Errno::Enomem);
    bench.group = "239.1.1.1".parse().unwrap();
    for nth in 3..limits.max_mcast_qp_attach as usize + 2 {
        let end = bench.pair.datagram_end(1, &ConnectOptions::default(), None);
        bench.ends.push(end);
        bench.attach(nth).unwrap();
    }
    assert_eq!(bench.attach(0), Err(AttachError::TooManyQps { max: limits.max_mcast_qp_attach }));
}

#[test]
fn a_datagram_to_a_group_leaves_for_it() {
    let mut bench = Bench::new();
    let from = &mut bench.pair.hosts[0];
    let attr = AhAttr::to(bench.group.into());
    let (_, ah) = from.shard.create_ah(from.pd, &attr).unwrap();
    assert_eq!(ah.route.remote, bench.group);
    let foreign = AhAttr::to("ff05::1".parse::<IpAddr>().unwrap().into());
    assert!(matches!(from.shard.create_ah(from.pd, &foreign), Err(CreateAhError::Dgid { .. })));
    let end = bench.pair.datagram_end(0, &ConnectOptions::default(), None);
    let memory = bench.pair.hosts[0].memory(4096, AccessFlags::LOCAL_WRITE);
    let to = UdAddr { ah, remote_qpn: Qpn::MULTICAST, remote_qkey: QKEY };
    bench.pair.hosts[0].send_to(&end, 1, memory.sge(0, 9), &to).unwrap();
    let now = bench.pair.now();
    let shard = &mut bench.pair.hosts[0].shard;
    shard.handle_doorbells();
    let mut batch = userdma_mem::TxBatch::new(&PairOptions::default().link);
    shard.poll_transmit(now, &mut batch).unwrap();
    assert_eq!(batch.route().unwrap().remote, bench.group);
    let packet = userdma_wire::Packet::parse(batch.packets().next().unwrap()).unwrap();
    assert_eq!(packet.bth().qpn(), Qpn::MULTICAST);
}
