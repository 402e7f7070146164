//! From a packet to the queue pair that it is for. What does not fit is dropped without an answer, and counted.

use userdma_ibt::Path;
use userdma_mem::Frame;
use userdma_verbs::{PKey, QpState, Qpn, Time};
use userdma_wire::{Packet, Service};

use crate::Shard;
use crate::config::INDEX_MASK;
use crate::inbound::{Flow, Verdict};
use crate::qp::QpTable;
use crate::transport::Transport;

/// Why a packet is nobody's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Drop {
    /// No such queue pair, or not one that receives.
    Qpn,
    /// The opcode of another service.
    Opcode,
    /// Not from the connection's peer, or not to its address.
    Address,
    /// Another partition.
    PKey,
}

impl Shard {
    /// A packet arrived.
    pub fn handle_frame(&mut self, now: Time, frame: Frame<'_>) {
        if frame.meta.traffic_class & ECN_MASK == ECN_CE {
            self.stats.rcvd_ecn_marked += 1;
        }
        let Ok(packet) = Packet::parse(frame.bytes) else {
            self.stats.drop_malformed += 1;
            return;
        };
        let (verdict, flow) = self.inbound.check(now, &frame.meta, &packet);
        match verdict {
            Verdict::Good => {}
            Verdict::GoodUnknownId => self.stats.icrc_unknown_id += 1,
            Verdict::Bad => {
                self.stats.drop_icrc += 1;
                return;
            }
        }
        match find(&self.qps, flow, &packet) {
            Ok(index) => {
                self.drive(now, index, |machine, ctx| machine.handle_packet(ctx, &packet, &frame.meta));
            }
            Err(Drop::Qpn) if packet.bth().qpn() == Qpn::MULTICAST => {
                self.handle_multicast(now, &packet, &frame.meta);
            }
            Err(Drop::Qpn) => self.handle_stray(&packet, &frame.meta),
            Err(Drop::Opcode) => self.stats.drop_opcode += 1,
            Err(Drop::Address) => self.stats.drop_address += 1,
            Err(Drop::PKey) => self.stats.drop_pkey += 1,
        }
    }
}

/// The queue pair that a packet is for. The checks of the kernel's `rxe_recv.c hdr_check()`.
fn find(qps: &QpTable, flow: &Flow, packet: &Packet<'_>) -> Result<u32, Drop> {
    let qpn = packet.bth().qpn();
    let index = qpn.get() & INDEX_MASK;
    let qp = qps.get(index).filter(|qp| qp.shared.qpn() == qpn && qpn != Qpn::MULTICAST).ok_or(Drop::Qpn)?;
    if packet.info().service != qp.transport.service() {
        return Err(Drop::Opcode);
    }
    check_state(qp.transport.state())?;
    check_source(&qp.transport, flow)?;
    if !PKey::DEFAULT.matches(packet.bth().pkey()) {
        return Err(Drop::PKey);
    }
    Ok(index)
}

/// A connection's packets come from its peer, datagrams from anywhere.
#[inline]
fn check_source(transport: &Transport, flow: &Flow) -> Result<(), Drop> {
    let Some(Path { route, .. }) = transport.path() else {
        return if transport.service() == Service::Ud { Ok(()) } else { Err(Drop::Qpn) };
    };
    let is_peer = flow.canonical_remote == route.remote && flow.canonical_local == route.local;
    if is_peer { Ok(()) } else { Err(Drop::Address) }
}

pub(crate) fn check_state(state: QpState) -> Result<(), Drop> {
    match state {
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => Ok(()),
        QpState::Reset | QpState::Init | QpState::Err => Err(Drop::Qpn),
    }
}

/// The congestion bits of a traffic class.
const ECN_MASK: u8 = 0b11;
/// Congestion experienced.
const ECN_CE: u8 = 0b11;
