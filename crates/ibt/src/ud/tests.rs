//! One machine, packets in and packets out.

#![allow(clippy::cast_possible_truncation, reason = "test patterns are numbers cut to bytes")]

mod kernel;
mod receiving;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use userdma_mem::{Buffer, FrameMeta, LinkCaps, LinkId, Region, Route, TxBatch};
use userdma_objects::{Ah, Cq, MrTable, PdId, QpShared, UdAddr};
use userdma_verbs::{
    AccessFlags, AsyncEvent, LKey, Mtu, PKey, PostError, Psn, QKey, QpAttr, QpAttrMask as M, QpCap,
    QpInitAttr, QpState, QpType, Qpn, RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Time, Wc,
    WcOpcode, WcStatus,
};
use userdma_wire::{Bth, Deth, Opcode, Packet, PacketWriter, Pseudo, packet_len};

use super::Ud;
use crate::{Ctx, Effects, Fill, Paces, Room, Stats, Window};

const PD: PdId = PdId(1);
const OWN_KEY: QKey = QKey::new(0x1111_1111);
const PEER: Qpn = Qpn::new(0x4022);
const PEER_KEY: QKey = QKey::new(0x2222_2222);

/// A machine in RTS with 64 KiB of registered memory, which holds byte `i % 251` at `i`.
struct Side {
    ud: Ud,
    mrs: MrTable,
    qp: QpShared,
    send_cq: Cq,
    recv_cq: Cq,
    paces: Paces,
    effects: Effects,
    stats: Stats,
    now: Time,
    memory: Region,
    key: LKey,
}

fn route(host: u8) -> Route {
    Route {
        link: LinkId(0),
        local: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        remote: IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)),
        scope_id: 0,
        socket: 0,
        local_port: 50_000,
        remote_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
    }
}

fn ah(host: u8) -> Ah {
    Ah { pd: PD, route: route(host), mtu: Mtu::Mtu1024 }
}

fn peer() -> UdAddr {
    UdAddr { ah: ah(3), remote_qpn: PEER, remote_qkey: PEER_KEY }
}

impl Side {
    fn new() -> Self {
        Self::at(Qpn::new(0x4011))
    }

    fn at(qpn: Qpn) -> Self {
        let cap = QpCap {
            max_send_wr: 128,
            max_recv_wr: 32,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 512,
        };
        let init = QpInitAttr { qp_type: QpType::Ud, cap, sq_sig_all: false };
        let memory = Region::from_buffer(&Arc::new(Buffer::new(64 << 10).unwrap()));
        let bytes: Vec<u8> = (0..64 << 10).map(|i: u32| (i % 251) as u8).collect();
        memory.write(0, &bytes).unwrap();
        let mut mrs = MrTable::new(7);
        let keys = mrs.register(PD, memory.clone(), memory.addr(), AccessFlags::LOCAL_WRITE).unwrap();
        let mut side = Self {
            ud: Ud::new(&cap),
            mrs,
            qp: QpShared::new(qpn, PD, &init),
            send_cq: Cq::new(1, 256, None),
            recv_cq: Cq::new(2, 64, None),
            paces: Paces::default(),
            effects: Effects::default(),
            stats: Stats::default(),
            now: Time::ZERO,
            memory,
            key: keys.lkey,
        };
        let attr = QpAttr { qkey: OWN_KEY, sq_psn: Psn::new(0xff_fffe), ..QpAttr::default() };
        side.modify(QpState::Init, &attr, M::PKEY_INDEX | M::PORT | M::QKEY);
        side.modify(QpState::Rtr, &attr, M::empty());
        side.modify(QpState::Rts, &attr, M::SQ_PSN);
        side
    }

    fn run<R>(&mut self, f: impl FnOnce(&mut Ud, &mut Ctx<'_>) -> R) -> R {
        let mut ctx = Ctx {
            now: self.now,
            mrs: &mut self.mrs,
            qp: &self.qp,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            window: &mut Window::new(Window::MAX),
            paces: &mut self.paces,
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        f(&mut self.ud, &mut ctx)
    }

    fn modify(&mut self, to: QpState, attr: &QpAttr, mask: M) {
        self.run(|ud, ctx| ud.modify(ctx, to, attr, mask));
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.memory.addr() + offset, length, lkey: self.key }
    }

    /// Posts a signaled SEND of the first `len` bytes of the memory.
    fn post(&self, wr_id: u64, len: u32, to: &UdAddr) {
        let sgl = [self.sge(0, len)];
        let wr = SendWr { wr_id, op: SendOp::Send, flags: SendFlags::SIGNALED, sgl: &sgl, inline: &[] };
        self.qp.post_datagram(&wr, to).unwrap();
    }

    fn post_recv(&self, wr_id: u64, offset: u64, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.qp.post_recv(&RecvWr { wr_id, sgl: &sgl }).unwrap();
    }

    /// One fill: its packets, and whether there is more.
    fn fill(&mut self) -> (Vec<Vec<u8>>, Fill) {
        let caps = LinkCaps { max_batch_bytes: 60_000, max_batch_packets: 64, mtu: 65_536 };
        let mut batch = TxBatch::new(&caps);
        let fill = self.run(|ud, ctx| ud.fill(ctx, &mut batch));
        (batch.packets().map(<[u8]>::to_vec).collect(), fill)
    }

    /// Fills until there is no more; packets of each batch.
    fn batches(&mut self) -> Vec<usize> {
        let mut counts = Vec::new();
        loop {
            let (packets, fill) = self.fill();
            counts.push(packets.len());
            if fill == Fill::Done {
                return counts;
            }
        }
    }

    fn sent(&mut self) {
        self.run(|ud, ctx| ud.handle_sent(ctx));
    }

    /// A datagram of `payload` arrives, as 127.0.0.3 sends it.
    fn arrive(&mut self, qkey: QKey, payload: &[u8]) {
        let bytes = datagram(qkey, None, payload);
        self.arrive_from(&bytes, Ipv4Addr::new(127, 0, 0, 3).into(), Ipv4Addr::new(127, 0, 0, 2).into());
    }

    fn arrive_from(&mut self, bytes: &[u8], remote: IpAddr, local: IpAddr) {
        let meta = FrameMeta {
            link: LinkId(0),
            remote,
            remote_port: 50_001,
            local,
            local_port: 4791,
            traffic_class: 0x68,
            segment: 0,
        };
        let packet = Packet::parse(bytes).unwrap();
        self.run(|ud, ctx| ud.handle_packet(ctx, &packet, &meta));
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

fn datagram(qkey: QKey, imm: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let opcode = if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly };
    let mut bytes = vec![0; packet_len(opcode, payload.len())];
    let mut bth = Bth::new(opcode, Qpn::new(0x4011), Psn::new(77), PKey::DEFAULT);
    bth.set_solicited(imm.is_some());
    let writer = PacketWriter::new(&mut bytes, &bth).deth(&Deth::new(qkey, PEER));
    match imm {
        Some(imm) => writer.imm(imm).payload(payload.len()),
        None => writer.payload(payload.len()),
    }
    .copy_from_slice(payload);
    bytes
}

fn completions(cq: &Cq) -> Vec<Wc> {
    let none = Wc::new(0, WcStatus::GeneralErr, WcOpcode::Send, Qpn::new(0));
    let mut all = vec![none; 256];
    let count = cq.poll(&mut all);
    all.truncate(count);
    all
}

fn ends(cq: &Cq) -> Vec<(u64, WcStatus)> {
    completions(cq).iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

#[test]
fn a_send_is_one_packet_and_completes_when_it_has_left() {
    let mut side = Side::new();
    side.post(1, 10, &peer());
    let (packets, fill) = side.fill();
    assert_eq!((packets.len(), fill), (1, Fill::Done));
    let packet = Packet::parse(&packets[0]).unwrap();
    assert_eq!(packet.opcode(), Opcode::UdSendOnly);
    assert_eq!((packet.bth().qpn(), packet.bth().psn()), (PEER, Psn::new(0xff_fffe)));
    assert!(!packet.bth().ack_req());
    let deth = packet.deth().unwrap();
    assert_eq!((deth.qkey(), deth.src_qp()), (PEER_KEY, Qpn::new(0x4011)));
    assert_eq!(packet.payload(), side.bytes(0, 10));
    let pseudo = Pseudo::new(route(3).local, route(3).remote, 50_000, 4791);
    assert_eq!(packet.icrc(), pseudo.icrc(packet.covered(), 0));
    assert!(completions(&side.send_cq).is_empty() && side.ud.awaits_sending());
    side.sent();
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::Success)]);
    assert_eq!((side.qp.outstanding_sends(), side.ud.awaits_sending()), (0, false));
}

#[test]
fn psns_count_up_past_their_end_and_immediate_data_and_inline_data_travel() {
    let mut side = Side::new();
    for wr_id in 0..3 {
        let op = SendOp::SendWithImm(0x0102_0304);
        let flags = SendFlags::INLINE | SendFlags::SOLICITED;
        let wr = SendWr { wr_id, op, flags, sgl: &[], inline: &[7; 300] };
        side.qp.post_datagram(&wr, &peer()).unwrap();
    }
    let (packets, _) = side.fill();
    let packets: Vec<_> = packets.iter().map(|bytes| Packet::parse(bytes).unwrap()).collect();
    let psns: Vec<_> = packets.iter().map(|packet| packet.bth().psn().get()).collect();
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0]);
    assert!(packets.iter().all(|packet| packet.imm() == Some(0x0102_0304) && packet.bth().solicited()));
    assert!(packets.iter().all(|packet| packet.payload() == [7; 300]));
    side.sent();
    assert!(completions(&side.send_cq).is_empty(), "unsignaled");
    assert_eq!(side.qp.outstanding_sends(), 0);
}

#[test]
fn a_batch_has_one_destination_and_one_size() {
    let mut side = Side::new();
    let other_qp = UdAddr { remote_qpn: Qpn::new(0x4023), ..peer() };
    let other_host = UdAddr { ah: ah(4), ..peer() };
    for (len, to) in [(64, &peer()), (64, &peer()), (64, &other_qp), (64, &other_host), (32, &other_host)] {
        side.post(0, len, to);
    }
    side.post(0, 64, &other_host);
    assert_eq!(side.batches(), [2, 1, 2, 1]);
}

#[test]
fn a_controlled_key_stands_for_the_queue_pairs_own() {
    let mut side = Side::new();
    side.post(0, 4, &UdAddr { remote_qkey: QKey::new(0x8000_0001), ..peer() });
    let (packets, _) = side.fill();
    assert_eq!(Packet::parse(&packets[0]).unwrap().deth().unwrap().qkey(), OWN_KEY);
}

#[test]
fn longer_than_the_mtu_is_sent_to_nobody_and_is_no_error() {
    let mut side = Side::new();
    side.post(1, 1025, &peer());
    side.post(2, 1024, &peer());
    let (packets, fill) = side.fill();
    assert_eq!((packets.len(), fill), (1, Fill::Done));
    assert_eq!(Packet::parse(&packets[0]).unwrap().bth().psn(), Psn::new(0xff_ffff));
    side.sent();
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(side.stats.send_too_long, 1);
}

#[test]
fn a_send_error_waits_for_its_turn_and_leaves_receiving_alone() {
    let mut side = Side::new();
    side.post(1, 8, &peer());
    let wrong = [Sge { lkey: LKey::new(99), ..side.sge(0, 8) }];
    let wr = SendWr { wr_id: 2, op: SendOp::Send, flags: SendFlags::empty(), sgl: &wrong, inline: &[] };
    side.qp.post_datagram(&wr, &peer()).unwrap();
    side.post(3, 8, &peer());
    let (packets, _) = side.fill();
    assert_eq!((packets.len(), side.ud.state()), (1, QpState::Rts));
    side.sent();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, flushed)]);
    assert_eq!((side.ud.state(), side.qp.state()), (QpState::Sqe, QpState::Sqe));
    side.post(4, 8, &peer());
    assert_eq!(side.batches(), [0]);
    assert_eq!(ends(&side.send_cq), [(4, flushed)]);
    side.post_recv(9, 0, 100);
    side.arrive(OWN_KEY, b"still");
    assert_eq!(ends(&side.recv_cq), [(9, WcStatus::Success)]);
    side.modify(QpState::Rts, &QpAttr::default(), M::CUR_STATE);
    side.post(5, 8, &peer());
    assert_eq!(side.batches(), [1]);
    side.sent();
    assert_eq!(ends(&side.send_cq), [(5, WcStatus::Success)]);
}

#[test]
fn a_handle_of_another_domain_is_refused() {
    let mut side = Side::new();
    side.post(1, 8, &UdAddr { ah: Ah { pd: PdId(2), ..ah(3) }, ..peer() });
    assert_eq!(side.batches(), [0]);
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::LocQpOpErr)]);
    assert_eq!(side.ud.state(), QpState::Sqe);
}

#[test]
fn only_sends_are_datagrams() {
    let side = Side::new();
    let remote = RemoteAddr { addr: 0, rkey: RKey::new(1) };
    for op in [SendOp::Write(remote), SendOp::Read(remote), SendOp::SendWithInv(RKey::new(1))] {
        let wr = SendWr { wr_id: 1, op, flags: SendFlags::empty(), sgl: &[], inline: &[] };
        assert!(matches!(side.qp.post_datagram(&wr, &peer()), Err(PostError::Operation(_))), "{op:?}");
    }
    let wr = SendWr { wr_id: 1, op: SendOp::Send, flags: SendFlags::empty(), sgl: &[], inline: &[] };
    assert!(matches!(side.qp.post_send(&wr), Err(PostError::Operation(_))), "to nobody");
}

#[test]
fn what_has_left_when_the_queue_pair_fails_is_a_success() {
    let mut side = Side::new();
    side.post(1, 8, &peer());
    let _ = side.fill();
    side.post(2, 8, &peer());
    side.modify(QpState::Err, &QpAttr::default(), M::empty());
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::Success), (2, WcStatus::WrFlushErr)]);
    assert!(!side.ud.awaits_sending());
}

#[test]
fn draining_waits_for_what_is_on_its_way() {
    let mut side = Side::new();
    side.post(1, 8, &peer());
    let _ = side.fill();
    side.post(2, 8, &peer());
    let attr = QpAttr { en_sqd_async_notify: true, ..QpAttr::default() };
    side.modify(QpState::Sqd, &attr, M::EN_SQD_ASYNC_NOTIFY);
    assert!(side.effects.events.is_empty());
    assert_eq!(side.batches(), [0], "nothing begins");
    side.sent();
    assert_eq!(side.effects.events, [AsyncEvent::SqDrained { qpn: side.qp.qpn() }]);
    assert_eq!(ends(&side.send_cq), [(1, WcStatus::Success)]);
    side.modify(QpState::Rts, &QpAttr::default(), M::empty());
    assert_eq!(side.batches(), [1]);
}

#[test]
fn reset_forgets_everything_without_completions() {
    let mut side = Side::new();
    side.post(1, 8, &peer());
    let _ = side.fill();
    side.post_recv(2, 0, 44);
    side.arrive(OWN_KEY, b"long!");
    side.modify(QpState::Reset, &QpAttr::default(), M::empty());
    side.sent();
    assert!(completions(&side.send_cq).is_empty() && completions(&side.recv_cq).is_empty());
    assert_eq!((side.qp.outstanding_sends(), side.ud.attr().qkey), (0, QKey::new(0)));
}

#[test]
fn the_pace_of_a_destination_stops_a_fill_until_there_is_an_answer_or_time_has_passed() {
    let mut side = Side::new();
    for wr_id in 0..128 {
        side.post(wr_id, 1024, &peer());
    }
    // 128 KiB, of which each packet takes 1792, in batches of 60,000 bytes.
    assert_eq!(side.batches(), [57, 17]);
    assert!(side.ud.is_paced() && !side.ud.has_work());
    side.sent();
    assert_eq!(completions(&side.send_cq).len(), 74);
    let at = side.ud.deadline().expect("when to try again");
    side.now = Time::from_nanos(at.nanos() - 1);
    side.run(|ud, ctx| ud.handle_timeout(ctx));
    assert!(!side.ud.has_work(), "not yet");
    side.now = at;
    side.run(|ud, ctx| ud.handle_timeout(ctx));
    assert!(side.ud.has_work());
    assert_eq!(side.batches(), [1], "what was earned meanwhile");
    while let Some(ask) = side.paces.next_ask() {
        assert!(side.paces.answer(side.now, &ask, Some(Room { used: 0, limit: 26_668 })));
    }
    assert_eq!(side.batches(), [6], "half of three quarters of the buffer, and the rest of a packet");
}
