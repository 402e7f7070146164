//! One machine, packets in and packets out. Time is a number.

#![allow(clippy::cast_possible_truncation, reason = "test patterns are numbers cut to bytes")]

mod asking;
mod bursts;
mod errors;
mod probes;
mod requester;
mod responder;
mod shared;
mod states;

use std::net::IpAddr;
use std::sync::Arc;

use userdma_mem::{Buffer, LinkCaps, LinkId, Region, Route, TxBatch};
use userdma_objects::{Cq, MrTable, PdId, QpShared};
use userdma_verbs::{
    AccessFlags, AckTimeout, AsyncEvent, LKey, Mtu, PKey, Psn, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpState, QpType, Qpn, RKey, RecvWr, RemoteAddr, RnrTimer, SendFlags, SendOp, SendWr, Sge, Time, Wc,
    WcStatus,
};
use userdma_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, FlowIcrc, Ieth, Opcode, Packet, PacketWriter, Pseudo, Reth, Syndrome,
    packet_len,
};

use super::Rc;
use crate::{Ctx, Effects, Fill, Paces, Path, Stats, Window};

/// Path MTU of the tests.
pub(super) const MTU: u32 = 256;
/// First PSN in both directions.
pub(super) const PSN: u32 = 0x1000;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const REMOTE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 3));

/// A connected machine with 64 KiB of registered memory, which holds byte `i % 251` at `i`.
pub(super) struct Side {
    pub(super) rc: Rc,
    pub(super) mrs: MrTable,
    pub(super) qp: QpShared,
    pub(super) send_cq: Cq,
    pub(super) recv_cq: Cq,
    pub(super) window: Window,
    pub(super) effects: Effects,
    pub(super) stats: Stats,
    pub(super) now: Time,
    pub(super) memory: Region,
    pub(super) key: LKey,
    pseudo: Pseudo,
}

/// Everything a peer may do.
pub(super) fn all_access() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
        | AccessFlags::MW_BIND
}

/// The attributes of a connected queue pair in the tests: timeout 67 ms, three resends, RNR wait 0.64 ms.
pub(super) fn attributes() -> QpAttr {
    QpAttr {
        path_mtu: Mtu::Mtu256,
        rq_psn: Psn::new(PSN),
        sq_psn: Psn::new(PSN),
        dest_qp_num: Qpn::new(0x22),
        qp_access_flags: all_access(),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: RnrTimer::new(12).unwrap(),
        timeout: AckTimeout::new(14).unwrap(),
        retry_cnt: 3,
        rnr_retry: 2,
        ..QpAttr::default()
    }
}

impl Side {
    pub(super) fn new() -> Self {
        Self::with(&attributes())
    }

    /// In RTS with these attributes.
    pub(super) fn with(attr: &QpAttr) -> Self {
        let mut side = Self::in_reset();
        side.connect(attr);
        side
    }

    /// From RESET to RTS.
    pub(super) fn connect(&mut self, attr: &QpAttr) {
        self.modify(
            QpState::Init,
            attr,
            QpAttrMask::ACCESS_FLAGS | QpAttrMask::PORT | QpAttrMask::PKEY_INDEX,
        );
        let rtr = QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        self.modify(QpState::Rtr, attr, rtr);
        let rts = QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::SQ_PSN
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        self.modify(QpState::Rts, attr, rts);
    }

    pub(super) fn in_reset() -> Self {
        let pd = PdId(1);
        let cap = QpCap {
            max_send_wr: 32,
            max_recv_wr: 32,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 512,
        };
        let init = QpInitAttr { qp_type: QpType::Rc, cap, sq_sig_all: false };
        let memory = Region::from_buffer(&Arc::new(Buffer::new(64 << 10).unwrap()));
        let bytes: Vec<u8> = (0..64 << 10).map(|i: u32| (i % 251) as u8).collect();
        memory.write(0, &bytes).unwrap();
        let mut mrs = MrTable::new(7);
        let keys = mrs.register(pd, memory.clone(), memory.addr(), all_access()).unwrap();
        Self {
            rc: Rc::new(&cap),
            mrs,
            qp: QpShared::new(Qpn::new(0x11), pd, &init),
            send_cq: Cq::new(1, 64, None),
            recv_cq: Cq::new(2, 64, None),
            window: Window::new(Window::MAX),
            effects: Effects::default(),
            stats: Stats::default(),
            now: Time::ZERO,
            memory,
            key: keys.lkey,
            pseudo: Pseudo::new(LOCAL, REMOTE, 50_000, 4791),
        }
    }

    pub(super) fn run<R>(&mut self, f: impl FnOnce(&mut Rc, &mut Ctx<'_>) -> R) -> R {
        let mut ctx = Ctx {
            now: self.now,
            mrs: &mut self.mrs,
            qp: &self.qp,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            window: &mut self.window,
            paces: &mut Paces::default(),
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        f(&mut self.rc, &mut ctx)
    }

    pub(super) fn modify(&mut self, to: QpState, attr: &QpAttr, mask: QpAttrMask) {
        let path = mask
            .contains(QpAttrMask::AV)
            .then_some(Path { route: route(), icrc: FlowIcrc::new(self.pseudo) });
        self.run(|rc, ctx| rc.modify(ctx, to, attr, mask, path));
    }

    pub(super) fn at_ms(&mut self, ms: u64) {
        self.now = Time::from_nanos(ms * 1_000_000);
        self.run(|rc, ctx| rc.handle_timeout(ctx));
    }

    /// `len` bytes at `offset` of the memory.
    pub(super) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.memory.addr() + offset, length, lkey: self.key }
    }

    /// The same place as the peer names it.
    pub(super) fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr() + offset, rkey: self.key.as_rkey() }
    }

    pub(super) fn post(&mut self, wr_id: u64, op: SendOp, flags: SendFlags, sgl: &[Sge]) {
        self.qp.post_send(&SendWr { wr_id, op, flags, sgl, inline: &[] }).unwrap();
        self.run(|rc, ctx| rc.handle_doorbell(ctx));
    }

    /// Posts a signaled operation on the first `len` bytes of the memory.
    pub(super) fn post_signaled(&mut self, wr_id: u64, op: SendOp, len: u32) {
        let sgl = [self.sge(0, len)];
        self.post(wr_id, op, SendFlags::SIGNALED, if len == 0 { &[] } else { &sgl });
    }

    pub(super) fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.qp.post_recv(&RecvWr { wr_id, sgl: &sgl }).unwrap();
    }

    /// Everything that it wants to send now, owed acknowledgements too if `acks`; one line a packet.
    pub(super) fn sends_with(&mut self, acks: bool) -> Vec<String> {
        let caps = LinkCaps { max_batch_bytes: 60_000, max_batch_packets: 64, mtu: 65_536 };
        let mut batch = TxBatch::new(&caps);
        let mut lines = Vec::new();
        loop {
            batch.clear();
            let fill = self.run(|rc, ctx| rc.fill(ctx, &mut batch, acks));
            lines.extend(batch.packets().map(describe));
            if fill == Fill::Done {
                return lines;
            }
            assert!(!batch.is_empty(), "asked for another batch without filling this one");
        }
    }

    pub(super) fn sends(&mut self) -> Vec<String> {
        self.sends_with(true)
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        self.run(|rc, ctx| rc.handle_packet(ctx, &packet));
    }

    /// The peer acknowledges.
    pub(super) fn ack(&mut self, psn: u32) {
        self.receive(&acknowledge(psn, Syndrome::ACK));
    }

    pub(super) fn sent_wcs(&mut self) -> Vec<(u64, WcStatus)> {
        drain(&self.send_cq).iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub(super) fn recv_wcs(&mut self) -> Vec<Wc> {
        drain(&self.recv_cq)
    }

    pub(super) fn events(&mut self) -> Vec<AsyncEvent> {
        std::mem::take(&mut self.effects.events)
    }

    pub(super) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

fn route() -> Route {
    Route {
        link: LinkId(0),
        local: LOCAL,
        remote: REMOTE,
        scope_id: 0,
        socket: 0,
        local_port: 50_000,
        remote_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
    }
}

fn drain(cq: &Cq) -> Vec<Wc> {
    let mut all = Vec::new();
    let mut wc = [Wc::new(0, WcStatus::Success, userdma_verbs::WcOpcode::Send, Qpn::new(0)); 8];
    loop {
        match cq.poll(&mut wc) {
            0 => return all,
            n => all.extend_from_slice(&wc[..n]),
        }
    }
}

/// `SEND First +0 a 256`: name, PSN from the first, `a` if it asks for an acknowledgement, `s` if solicited, payload bytes.
fn describe(bytes: &[u8]) -> String {
    let packet = Packet::parse(bytes).unwrap();
    let bth = packet.bth();
    assert_eq!(bth.qpn(), Qpn::new(0x22));
    let name =
        packet.info().name.trim_start_matches("RC ").replace("RDMA ", "").replace("Acknowledge", "ACK");
    let mut line = format!("{name} {:+}", bth.psn().distance(Psn::new(PSN)));
    for (flag, letter) in [(bth.ack_req(), " a"), (bth.solicited(), " s")] {
        line.push_str(if flag { letter } else { "" });
    }
    if let Some(reth) = packet.reth() {
        line.push_str(&format!(" dma {}", reth.dma_len()));
    }
    if let Some(aeth) = packet.aeth() {
        line.push_str(&format!(" {:#04x} msn {}", aeth.syndrome_byte(), aeth.msn().get()));
    }
    if let Some(answer) = packet.atomic_ack_eth() {
        line.push_str(&format!(" was {}", answer.orig()));
    }
    if !packet.payload().is_empty() {
        line.push_str(&format!(" {}", packet.payload().len()));
    }
    line
}

/// A packet of the peer; `psn` counts from the first.
pub(super) fn packet(
    opcode: Opcode,
    psn: u32,
    ack_req: bool,
    payload: &[u8],
    headers: impl FnOnce(PacketWriter<'_>) -> PacketWriter<'_>,
) -> Vec<u8> {
    let mut bytes = vec![0; packet_len(opcode, payload.len())];
    let mut bth = Bth::new(opcode, Qpn::new(0x11), Psn::new(PSN).add(psn), PKey::DEFAULT);
    bth.set_ack_req(ack_req);
    headers(PacketWriter::new(&mut bytes, &bth)).payload(payload.len()).copy_from_slice(payload);
    bytes
}

pub(super) fn acknowledge(psn: u32, syndrome: Syndrome) -> Vec<u8> {
    let aeth = Aeth::new(syndrome, userdma_verbs::Msn::new(0));
    packet(Opcode::RcAcknowledge, psn, false, &[], |w| w.aeth(&aeth))
}

pub(super) fn rnr(psn: u32, code: u8) -> Vec<u8> {
    acknowledge(psn, Syndrome::Rnr { timer: RnrTimer::new(code).unwrap() })
}

pub(super) fn send(opcode: Opcode, psn: u32, payload: &[u8]) -> Vec<u8> {
    packet(opcode, psn, true, payload, |w| w)
}

pub(super) fn send_inv(psn: u32, rkey: RKey, payload: &[u8]) -> Vec<u8> {
    packet(Opcode::RcSendOnlyInv, psn, true, payload, |w| w.ieth(&Ieth::new(rkey)))
}

pub(super) fn write(opcode: Opcode, psn: u32, to: RemoteAddr, len: u32, payload: &[u8]) -> Vec<u8> {
    packet(opcode, psn, true, payload, |w| w.reth(&Reth::new(to.addr, to.rkey, len)))
}

pub(super) fn read_request(psn: u32, from: RemoteAddr, len: u32) -> Vec<u8> {
    packet(Opcode::RcReadRequest, psn, true, &[], |w| w.reth(&Reth::new(from.addr, from.rkey, len)))
}

pub(super) fn fetch_add(psn: u32, at: RemoteAddr, add: u64) -> Vec<u8> {
    packet(Opcode::RcFetchAdd, psn, true, &[], |w| w.atomic_eth(&AtomicEth::new(at.addr, at.rkey, add, 0)))
}

pub(super) fn read_response(opcode: Opcode, psn: u32, payload: &[u8]) -> Vec<u8> {
    let aeth = Aeth::new(Syndrome::ACK, userdma_verbs::Msn::new(1));
    let with_aeth = opcode != Opcode::RcReadResponseMiddle;
    packet(opcode, psn, false, payload, |w| if with_aeth { w.aeth(&aeth) } else { w })
}

pub(super) fn atomic_response(psn: u32, original: u64) -> Vec<u8> {
    let aeth = Aeth::new(Syndrome::ACK, userdma_verbs::Msn::new(1));
    packet(Opcode::RcAtomicAcknowledge, psn, false, &[], |w| {
        w.aeth(&aeth).atomic_ack_eth(&AtomicAckEth::new(original))
    })
}
