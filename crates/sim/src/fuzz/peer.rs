//! The peer that is no device: makes packets as a program says, and reads what the queue pair sends it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use userdma_mem::FrameMeta;
use userdma_verbs::{Msn, PKey, Psn, QKey, Qpn};
use userdma_wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, ExtHeaders, Feth, IcrcCheck, Ieth, Opcode, Operation, OwnedPacket,
    Packet, Pseudo, Reth, Syndrome, XrcEth,
};

use super::arena::Arena;
use super::program::{Answer, AnswerKind, Request, payload_len};
use crate::{Fate, QKEY, Transit};

/// What the queue pair asked for with a PSN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    Message,
    Read { opcode: Opcode, len: usize },
    Atomic,
}

/// What the peer has seen: shared with the network, which shows it every packet.
#[derive(Debug, Default)]
pub(super) struct Seen {
    asked: BTreeMap<u32, Asked>,
}

/// The peer of the queue pair under test.
#[derive(Debug)]
pub(super) struct Peer {
    seen: Rc<RefCell<Seen>>,
    /// What the network says of packets from it.
    meta: FrameMeta,
    qpn: Qpn,
    mtu: usize,
    /// The PSN that it would answer next if it were honest.
    cursor: Psn,
}

impl Peer {
    pub(super) fn new(meta: FrameMeta, qpn: Qpn, mtu: usize, cursor: Psn) -> Self {
        Self { seen: Rc::default(), meta, qpn, mtu, cursor }
    }

    /// Everything is asked anew, from `psn` on.
    pub(super) fn start(&mut self, psn: Psn) {
        self.cursor = psn;
        self.seen.borrow_mut().asked.clear();
    }

    /// Reads packets to queue pair `to` from now on, and checks them; all are delivered.
    pub(super) fn watch(&self, to: Qpn) -> impl FnMut(&Transit) -> Fate + 'static {
        let (seen, mtu) = (Rc::clone(&self.seen), self.mtu);
        move |transit| {
            let packet = transit.packet().expect("the device sends packets that can be read");
            check(transit, &packet);
            if packet.bth().qpn() == to && transit.direction.from == 1 {
                seen.borrow_mut().note(&packet, mtu);
            }
            Fate::Deliver
        }
    }

    /// The packet of a step, sealed, and what the network says of it.
    pub(super) fn request(&self, step: &Request, expected: Psn, arena: &Arena) -> (Vec<u8>, FrameMeta) {
        let opcode = step.opcode();
        let payload = vec![0xc3; payload_len(step.payload, self.mtu)];
        let mut packet = OwnedPacket::new(opcode, self.qpn, offset_psn(expected, step.psn), &payload);
        let is = |flag| step.flags & flag != 0;
        (packet.ack_req, packet.solicited) = (is(Request::ACK_REQ), is(Request::SOLICITED));
        if is(Request::WRONG_PKEY) {
            packet.pkey = PKey::new(0x7ff0);
        }
        if is(Request::LONG_PAD) {
            packet.pad = vec![0; 3];
        }
        put_headers(&mut packet, step, arena);
        let mut meta = self.meta;
        if is(Request::STRANGER) {
            meta.remote = meta.local;
        }
        (self.seal(packet.encode(), meta, is(Request::BAD_ICRC)), meta)
    }

    /// An answer to what the queue pair has asked.
    pub(super) fn answer(&mut self, step: &Answer) -> (Vec<u8>, FrameMeta) {
        let psn = offset_psn(self.cursor, step.psn);
        let asked = self.seen.borrow().asked.get(&psn.get()).copied().unwrap_or(Asked::Message);
        let (opcode, len) = match (step.kind(), asked) {
            (AnswerKind::Fit, Asked::Message) | (AnswerKind::Acknowledge, _) => (Opcode::RcAcknowledge, 0),
            (AnswerKind::Fit, Asked::Read { opcode, len }) => (opcode, len),
            (AnswerKind::Fit, Asked::Atomic) | (AnswerKind::Atomic, _) => (Opcode::RcAtomicAcknowledge, 0),
            (AnswerKind::Read(opcode), Asked::Read { len, .. }) => (opcode, len),
            (AnswerKind::Read(opcode), Asked::Message | Asked::Atomic) => (opcode, self.mtu),
        };
        let payload = vec![0x3c; len.saturating_add_signed(step.more.into())];
        let mut packet = OwnedPacket::new(opcode, self.qpn, psn, &payload);
        let is_plain = step.kind() == AnswerKind::Fit;
        let syndrome = if is_plain { Syndrome::ACK } else { Syndrome::from_byte(step.syndrome) };
        let headers = opcode.info().headers;
        packet.ext.aeth = headers.contains(ExtHeaders::AETH).then(|| Aeth::new(syndrome, Msn::default()));
        packet.ext.atomic_ack_eth = headers.contains(ExtHeaders::ATOMIC_ACK).then(|| AtomicAckEth::new(7));
        let ahead = psn.distance(self.cursor);
        if (0..64).contains(&ahead) && matches!(syndrome, Syndrome::Ack { .. }) {
            self.cursor = psn.add(1);
        }
        (self.seal(packet.encode(), self.meta, false), self.meta)
    }

    /// Any bytes, with the queue pair's number in the BTH's place for it.
    pub(super) fn raw(&self, bytes: &[u8]) -> (Vec<u8>, FrameMeta) {
        let mut bytes = bytes.to_vec();
        let [_, qpn @ ..] = self.qpn.get().to_be_bytes();
        if let Some(place) = bytes.get_mut(5..8) {
            place.copy_from_slice(&qpn);
        }
        (self.seal(bytes, self.meta, false), self.meta)
    }

    fn seal(&self, mut bytes: Vec<u8>, meta: FrameMeta, is_bad: bool) -> Vec<u8> {
        if bytes.len() >= 16 {
            pseudo(&meta).seal(&mut bytes, meta.segment);
            if is_bad && let Some(last) = bytes.last_mut() {
                *last ^= 0x55;
            }
        }
        bytes
    }
}

impl Seen {
    fn note(&mut self, packet: &Packet<'_>, mtu: usize) {
        let psn = packet.bth().psn();
        match packet.info().op {
            Operation::Send | Operation::Write => {
                self.asked.insert(psn.get(), Asked::Message);
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.asked.insert(psn.get(), Asked::Atomic);
            }
            Operation::ReadRequest => {
                let len = packet.reth().map_or(0, |reth| reth.dma_len() as usize);
                let packets = len.div_ceil(mtu).max(1);
                for index in 0..packets {
                    let asked = Asked::Read {
                        opcode: read_opcode(index, packets),
                        len: (len - index * mtu).min(mtu),
                    };
                    // A message of a program has some packets only.
                    self.asked.insert(psn.add(u32::try_from(index).unwrap_or(0)).get(), asked);
                }
            }
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Flush
            | Operation::AtomicWrite
            | Operation::Cnp => {}
        }
    }
}

fn read_opcode(index: usize, packets: usize) -> Opcode {
    match (index == 0, index + 1 == packets) {
        (true, true) => Opcode::RcReadResponseOnly,
        (true, false) => Opcode::RcReadResponseFirst,
        (false, true) => Opcode::RcReadResponseLast,
        (false, false) => Opcode::RcReadResponseMiddle,
    }
}

/// What must be true of any packet that a device sends.
fn check(transit: &Transit, packet: &Packet<'_>) {
    let icrc = pseudo(&transit.meta).verify(packet, transit.meta.segment);
    assert_eq!(icrc, IcrcCheck::Good, "the device sends {packet}");
    assert!(packet.pad().iter().all(|&byte| byte == 0), "the device sends {packet} with padding");
    let syndrome = packet.aeth().map(Aeth::syndrome);
    assert!(!matches!(syndrome, Some(Syndrome::Reserved(_))), "the device sends {packet}");
}

fn pseudo(meta: &FrameMeta) -> Pseudo {
    Pseudo::new(meta.remote, meta.local, meta.remote_port, meta.local_port)
}

/// The PSN at a distance; the extremes stand for the other half of the space.
fn offset_psn(from: Psn, distance: i8) -> Psn {
    match distance {
        i8::MAX => from.add(1 << 22),
        i8::MIN => from.sub(1 << 22),
        near => Psn::new(from.get().wrapping_add_signed(near.into())),
    }
}

/// The extension headers that the opcode carries.
fn put_headers(packet: &mut OwnedPacket, step: &Request, arena: &Arena) {
    let headers = packet.opcode.info().headers;
    let [first, second] = step.operands;
    let has = |header| headers.contains(header);
    let far = if step.flags & Request::FAR == 0 { 0 } else { 1 << 63 };
    let va = arena.address(step.key, step.offset).wrapping_add(far);
    let rkey = arena.rkey(step.key);
    let len = u32::from(step.len) << if step.flags & Request::HUGE == 0 { 0 } else { 16 };
    let ext = &mut packet.ext;
    ext.xrc_eth = has(ExtHeaders::XRCETH).then(|| XrcEth::new(1));
    // What is far for memory is a wrong key for datagrams.
    let qkey = if far == 0 { QKEY } else { QKey::new(1) };
    ext.deth = has(ExtHeaders::DETH).then(|| Deth::new(qkey, Qpn::new(2)));
    ext.feth = has(ExtHeaders::FETH).then(|| Feth::new(1, 0));
    ext.reth = has(ExtHeaders::RETH).then(|| Reth::new(va, rkey, len));
    ext.atomic_eth =
        has(ExtHeaders::ATOMIC).then(|| AtomicEth::new(va, rkey, first.into(), u64::from(second) << 56));
    ext.aeth = has(ExtHeaders::AETH).then(|| Aeth::new(Syndrome::from_byte(first), Msn::new(second.into())));
    ext.atomic_ack_eth = has(ExtHeaders::ATOMIC_ACK).then(|| AtomicAckEth::new(second.into()));
    ext.imm = has(ExtHeaders::IMM).then(|| first.into());
    ext.ieth = has(ExtHeaders::IETH).then(|| Ieth::new(rkey));
}
