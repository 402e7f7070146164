//! One machine, packets in and packets out.

mod receive;
mod send;

use std::sync::Arc;

use userdma_mem::{Buffer, LinkCaps, Region, TxBatch};
use userdma_objects::{Cq, MrTable, PdId, QpShared};
use userdma_verbs::{
    AsyncEvent, LKey, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Qpn, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, Sge, Time, Wc, WcStatus,
};
use userdma_wire::{FlowIcrc, Packet, Pseudo};

use super::Uc;
use crate::rc::tests::{LOCAL, MTU, REMOTE, all_access, attributes, describe, drain, packet, route, write};
use crate::{Ctx, Effects, Fill, Paces, Path, Stats, Window};

/// A connected machine with 64 KiB of registered memory, which holds byte `i % 251` at `i`.
struct Side {
    uc: Uc,
    mrs: MrTable,
    qp: QpShared,
    send_cq: Cq,
    recv_cq: Cq,
    window: Window,
    paces: Paces,
    effects: Effects,
    stats: Stats,
    now: Time,
    memory: Region,
    key: LKey,
}

impl Side {
    /// In RTS.
    fn new() -> Self {
        Self::with(&attributes())
    }

    fn with(attr: &QpAttr) -> Self {
        let mut side = Self::in_reset();
        side.bring_to_rtr(attr);
        side.modify(QpState::Rts, attr, QpAttrMask::SQ_PSN);
        side
    }

    fn in_reset() -> Self {
        let cap = QpCap {
            max_send_wr: 32,
            max_recv_wr: 32,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 512,
        };
        let init = QpInitAttr { qp_type: QpType::Uc, cap, sq_sig_all: false };
        let memory = Region::from_buffer(&Arc::new(Buffer::new(64 << 10).unwrap()));
        let bytes: Vec<u8> = (0..64_u32 << 10).map(|i| u8::try_from(i % 251).unwrap()).collect();
        memory.write(0, &bytes).unwrap();
        let (pd, mut mrs) = (PdId(1), MrTable::new(7));
        let keys = mrs.register(pd, memory.clone(), memory.addr(), all_access()).unwrap();
        Self {
            uc: Uc::new(&cap),
            mrs,
            qp: QpShared::new(Qpn::new(0x11), pd, &init),
            send_cq: Cq::new(1, 64, None),
            recv_cq: Cq::new(2, 64, None),
            window: Window::new(Window::MAX),
            paces: Paces::default(),
            effects: Effects::default(),
            stats: Stats::default(),
            now: Time::ZERO,
            memory,
            key: keys.lkey,
        }
    }

    fn bring_to_rtr(&mut self, attr: &QpAttr) {
        self.modify(QpState::Init, attr, QpAttrMask::ACCESS_FLAGS);
        let rtr = QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN;
        self.modify(QpState::Rtr, attr, rtr);
    }

    fn run<R>(&mut self, f: impl FnOnce(&mut Uc, &mut Ctx<'_>) -> R) -> R {
        let mut ctx = Ctx {
            now: self.now,
            mrs: &mut self.mrs,
            qp: &self.qp,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            window: &mut self.window,
            paces: &mut self.paces,
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        f(&mut self.uc, &mut ctx)
    }

    fn modify(&mut self, to: QpState, attr: &QpAttr, mask: QpAttrMask) {
        let pseudo = Pseudo::new(LOCAL, REMOTE, 50_000, 4791);
        let path =
            mask.contains(QpAttrMask::AV).then_some(Path { route: route(), icrc: FlowIcrc::new(pseudo) });
        self.run(|uc, ctx| uc.modify(ctx, to, attr, mask, path));
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.memory.addr() + offset, length, lkey: self.key }
    }

    fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr() + offset, rkey: self.key.as_rkey() }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, flags: SendFlags, sgl: &[Sge]) {
        self.qp.post_send(&SendWr { wr_id, op, flags, sgl, inline: &[] }).unwrap();
    }

    /// Posts a signaled operation on the first `len` bytes of the memory.
    fn post_signaled(&mut self, wr_id: u64, op: SendOp, len: u32) {
        let sgl = [self.sge(0, len)];
        self.post(wr_id, op, SendFlags::SIGNALED, if len == 0 { &[] } else { &sgl });
    }

    fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.qp.post_recv(&RecvWr { wr_id, sgl: &sgl }).unwrap();
    }

    /// Everything that it wants to send now, one line a packet. It leaves.
    fn sends(&mut self) -> Vec<String> {
        let lines = self.fills();
        self.run(Uc::handle_sent);
        lines
    }

    /// Everything that it wants to send now; it is not with the link yet.
    fn fills(&mut self) -> Vec<String> {
        let mut batch = TxBatch::new(&CAPS);
        let mut lines = Vec::new();
        loop {
            batch.clear();
            let fill = self.run(|uc, ctx| uc.fill(ctx, &mut batch));
            lines.extend(batch.packets().map(describe));
            if fill == Fill::Done {
                return lines;
            }
            assert!(!batch.is_empty(), "asked for another batch without filling this one");
        }
    }

    /// A packet arrives; nothing is ever answered.
    fn receive(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        self.run(|uc, ctx| uc.handle_packet(ctx, &packet));
        assert!(!self.uc.has_work());
    }

    fn sent_wcs(&mut self) -> Vec<(u64, WcStatus)> {
        drain(&self.send_cq).iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn recv_wcs(&mut self) -> Vec<Wc> {
        drain(&self.recv_cq)
    }

    /// Identifiers and lengths of the receives that completed, all with success.
    fn received(&mut self) -> Vec<(u64, u32)> {
        let all = self.recv_wcs();
        assert!(all.iter().all(|wc| wc.status == WcStatus::Success), "{all:?}");
        all.iter().map(|wc| (wc.wr_id, wc.byte_len)).collect()
    }

    fn events(&mut self) -> Vec<AsyncEvent> {
        std::mem::take(&mut self.effects.events)
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Bytes of a full packet.
const FULL: usize = MTU as usize;
/// What the link takes at once.
const CAPS: LinkCaps = LinkCaps { max_batch_bytes: 60_000, max_batch_packets: 64, mtu: 65_536 };
