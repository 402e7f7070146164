//! The receiving side: a datagram with the right key goes into the next receive, behind 40 bytes that say where it came from.
//!
//! The checks come in the sequence of the kernel's `rxe_recv.c check_keys()` and `rxe_resp.c rxe_receiver()`. What fails one is
//! dropped, and nobody is told. A receive that was too short for one datagram takes the next that fits.

use userdma_mem::FrameMeta;
use userdma_objects::{SgCursor, scatter, sgl_len};
use userdma_verbs::{QKey, QpCap, Sge, Wc, WcFlags, WcOpcode, WcStatus};
use userdma_wire::{NetworkHeader, Packet};

use crate::Ctx;

/// The receiving side of a queue pair.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The receive that the next datagram lands in, if it was taken already, and its list.
    taken: Option<u64>,
    sgl: Vec<Sge>,
}

impl Receiver {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self { taken: None, sgl: Vec::with_capacity(cap.max_recv_sge as usize) }
    }

    /// Forgets everything, without completions.
    pub(super) fn clear(&mut self) {
        self.taken = None;
    }

    /// Completes the receive that is taken and those that are posted to the queue pair itself as flushed.
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.fail(ctx, WcStatus::WrFlushErr);
        while let Some(wr_id) = ctx.qp.take_recv(&mut self.sgl) {
            self.taken = Some(wr_id);
            self.fail(ctx, WcStatus::WrFlushErr);
        }
    }

    /// The receive that is taken completes in error.
    pub(super) fn fail(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        if let Some(wr_id) = self.taken.take() {
            let wc = Wc::new(wr_id, status, WcOpcode::Recv, ctx.qp.qpn());
            ctx.effects.complete(ctx.recv_cq, wc, false);
        }
    }

    /// Reads a datagram. `Err` if the queue pair must go to ERR: the receive itself is wrong.
    pub(super) fn handle_packet(
        &mut self,
        ctx: &mut Ctx<'_>,
        qkey: QKey,
        packet: &Packet<'_>,
        meta: &FrameMeta,
    ) -> Result<(), WcStatus> {
        if packet.deth().is_none_or(|deth| deth.qkey() != qkey) {
            ctx.stats.qkey_viol_cntr += 1;
        } else if !self.take(ctx) {
            ctx.stats.drop_no_receive += 1;
        } else if (NetworkHeader::LEN + packet.payload().len()) as u64 > sgl_len(&self.sgl) {
            ctx.stats.drop_too_long += 1;
            self.give_back(ctx);
        } else {
            self.place(ctx, packet, meta)?;
            self.complete(ctx, packet, meta);
        }
        Ok(())
    }

    /// Takes a receive, unless one is taken; whether there is one.
    fn take(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.taken.is_none() {
            self.taken = ctx.take_recv(&mut self.sgl);
        }
        self.taken.is_some()
    }

    /// The receive that is taken was too short. It stays for the next datagram, unless others could have taken it from a shared
    /// receive queue: then it ends in error. As `rxe_resp.c rxe_receiver()`.
    fn give_back(&mut self, ctx: &mut Ctx<'_>) {
        if ctx.qp.srq().is_some() {
            self.fail(ctx, WcStatus::RemInvReqErr);
        }
    }

    fn place(&self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, meta: &FrameMeta) -> Result<(), WcStatus> {
        let header = network_header(packet, meta);
        let mut at = SgCursor::default();
        for piece in [&header[..], packet.payload()] {
            scatter(ctx.mrs, ctx.qp.recv_pd(), &self.sgl, &mut at, piece)
                .map_err(|_| WcStatus::LocProtErr)?;
        }
        Ok(())
    }

    fn complete(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, meta: &FrameMeta) {
        let (Some(wr_id), Some(deth)) = (self.taken.take(), packet.deth()) else { return };
        let mut wc = Wc::new(wr_id, WcStatus::Success, WcOpcode::Recv, ctx.qp.qpn());
        wc.byte_len = u32::try_from(NetworkHeader::LEN + packet.payload().len()).unwrap_or(u32::MAX);
        wc.src_qp = deth.src_qp();
        wc.sl = if meta.remote.to_canonical().is_ipv4() { Wc::SL_IPV4 } else { Wc::SL_IPV6 };
        wc.flags = WcFlags::GRH;
        if let Some(imm) = packet.imm() {
            wc.imm_data = imm;
            wc.flags |= WcFlags::WITH_IMM;
        }
        ctx.effects.complete(ctx.recv_cq, wc, packet.bth().solicited());
    }
}

/// The IP header that the datagram came with, as far as the socket has told of it: addresses, traffic class and length are those
/// of the packet; its hop limit is given as 64 and its identification or flow label as 0, and the checksum is right for that.
fn network_header(packet: &Packet<'_>, meta: &FrameMeta) -> [u8; NetworkHeader::LEN] {
    let (src, dst) = (meta.remote, meta.local);
    let header = NetworkHeader { src, dst, traffic_class: meta.traffic_class, hop_limit: 64, flow_label: 0 };
    header.write(packet.bytes().len())
}
