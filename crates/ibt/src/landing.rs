//! Where a message of the peer lands: in the receive that it takes, or in memory that it names.
//!
//! A SEND takes a receive when it begins, a WRITE with immediate data when it ends. Connections execute packet by packet, so
//! what a message has brought so far is there before its end; only its end completes the receive.

use userdma_objects::{Failure, SgCursor, SglError, scatter, sgl_len};
use userdma_verbs::{AccessFlags, DeviceAttr, QpCap, RKey, Sge, Wc, WcFlags, WcOpcode, WcStatus};
use userdma_wire::{Operation, Packet, Position};

use crate::Ctx;

/// What a message that is under way does with its packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Message {
    /// No message is under way.
    #[default]
    None,
    /// A SEND into the receive that was taken.
    Send,
    /// A WRITE: the bytes that are still to come go to `va`.
    Write { va: u64, rkey: RKey, left: u32, len: u32 },
}

/// Why a packet was not put where its message lands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LandingError {
    /// The packet is not as long as its message, or its place in it, asks.
    Length,
    /// The SEND is longer than the receive.
    TooLong,
    /// The key does not open the range.
    Access,
    /// The memory that the key names is gone. A real adapter pins its pages and never sees this.
    Gone,
    /// The receive's own list leads nowhere: the fault is ours, not the peer's.
    Receive,
}

/// The message that is under way, and the receive that it has taken.
#[derive(Debug)]
pub(crate) struct Landing {
    message: Message,
    /// The receive that a SEND lands in: its identifier, list, place and bytes so far.
    recv: Option<u64>,
    sgl: Vec<Sge>,
    at: SgCursor,
    len: u32,
}

impl Landing {
    /// Room for lists of the queue's size; no message.
    pub(crate) fn new(cap: &QpCap) -> Self {
        Self {
            message: Message::None,
            recv: None,
            sgl: Vec::with_capacity(cap.max_recv_sge as usize),
            at: SgCursor::default(),
            len: 0,
        }
    }

    /// Forgets the message and the receive, without a completion.
    pub(crate) fn clear(&mut self) {
        self.message = Message::None;
        self.recv = None;
    }

    /// Gives the message under way up. The receive that it had taken stays, for [`Landing::retake_recv`].
    pub(crate) fn abandon(&mut self) {
        self.message = Message::None;
    }

    /// Completes the receive that is taken and those that are posted to the queue pair itself as flushed.
    pub(crate) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        self.message = Message::None;
        self.complete_taken(ctx, WcStatus::WrFlushErr);
        while let Some(wr_id) = ctx.qp.take_recv(&mut self.sgl) {
            let wc = ctx.flushed(wr_id, WcOpcode::Recv);
            ctx.effects.complete(ctx.recv_cq, wc, false);
        }
    }

    /// Completes the receive that a message had taken in error; whether there was one.
    pub(crate) fn complete_taken(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) -> bool {
        let Some(wr_id) = self.recv.take() else { return false };
        if status != WcStatus::WrFlushErr {
            ctx.qp.note_failure(Failure { wr_id, op: None, len: self.len, sgl: self.sgl.clone() });
        }
        let wc = Wc::new(wr_id, status, WcOpcode::Recv, ctx.qp.qpn());
        ctx.effects.complete(ctx.recv_cq, wc, false);
        true
    }

    /// Whether the packet may follow the one before. As `rxe_resp.c check_op_seq()`.
    pub(crate) fn may_follow(&self, packet: &Packet<'_>) -> bool {
        let info = packet.info();
        match (self.message, info.position) {
            (Message::None, Position::First | Position::Only) => true,
            (Message::Send, Position::Middle | Position::Last) => info.op == Operation::Send,
            (Message::Write { .. }, Position::Middle | Position::Last) => info.op == Operation::Write,
            (Message::None, Position::Middle | Position::Last)
            | (Message::Send | Message::Write { .. }, Position::First | Position::Only) => false,
        }
    }

    /// Takes the oldest receive that is posted; whether there is one.
    pub(crate) fn take_recv(&mut self, ctx: &mut Ctx<'_>) -> bool {
        self.recv = ctx.take_recv(&mut self.sgl);
        (self.at, self.len) = (SgCursor::default(), 0);
        self.recv.is_some()
    }

    /// Takes the receive that an abandoned message had taken, from its beginning, or else the oldest that is posted; whether
    /// there is one.
    pub(crate) fn retake_recv(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.recv.is_none() {
            return self.take_recv(ctx);
        }
        (self.at, self.len) = (SgCursor::default(), 0);
        true
    }

    /// Puts a packet of a SEND into the receive.
    #[inline]
    pub(crate) fn put_send(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), LandingError> {
        let payload = packet.payload();
        // At most a path MTU a packet, on a sum that the list's length bounds.
        let len = u64::from(self.len) + payload.len() as u64;
        if len > sgl_len(&self.sgl) || len > MAX_MESSAGE {
            return Err(LandingError::TooLong);
        }
        scatter(ctx.mrs, ctx.qp.recv_pd(), &self.sgl, &mut self.at, payload).map_err(receive_error)?;
        self.len = u32::try_from(len).unwrap_or(u32::MAX);
        self.message = if packet.info().is_end() { Message::None } else { Message::Send };
        Ok(())
    }

    /// Puts a packet of a WRITE where its message says; the bytes of the whole message.
    #[inline]
    pub(crate) fn put_write(
        &mut self,
        ctx: &mut Ctx<'_>,
        packet: &Packet<'_>,
        mtu: u32,
    ) -> Result<u32, LandingError> {
        let payload = packet.payload();
        let (va, rkey, left, len) = match (packet.reth(), self.message) {
            (Some(reth), _) => (reth.va(), reth.rkey(), reth.dma_len(), reth.dma_len()),
            (None, Message::Write { va, rkey, left, len }) => (va, rkey, left, len),
            (None, Message::None | Message::Send) => return Err(LandingError::Length),
        };
        // More to come than a packet holds, exactly if the message goes on after this one.
        let goes_on = !packet.info().is_end();
        let Ok(payload_len) = u32::try_from(payload.len()) else { return Err(LandingError::Length) };
        if goes_on != (left > mtu) || !goes_on && payload_len != left {
            return Err(LandingError::Length);
        }
        let (pd, qpn) = (ctx.qp.pd(), ctx.qp.qpn());
        // The first packet opens the whole range, so that a message that would leave it writes nothing; each packet
        // opens it again, since the key may go away in between.
        ctx.mrs
            .open_remote(pd, qpn, rkey, va, u64::from(left), AccessFlags::REMOTE_WRITE)
            .map_err(|_| LandingError::Access)?
            .write(0, payload)
            .map_err(|_| LandingError::Gone)?;
        self.message = if goes_on {
            let va = va.wrapping_add(u64::from(payload_len));
            Message::Write { va, rkey, left: left - payload_len, len }
        } else {
            Message::None
        };
        Ok(len)
    }

    /// Bytes that the SEND under way has brought.
    pub(crate) fn received(&self) -> u32 {
        self.len
    }

    /// A message that took a receive has come to its end, with `len` bytes: the receive completes.
    pub(crate) fn complete(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, opcode: WcOpcode, len: u32) {
        let Some(wr_id) = self.recv.take() else { return };
        let mut wc = Wc::new(wr_id, WcStatus::Success, opcode, ctx.qp.qpn());
        wc.byte_len = len;
        if let Some(imm) = packet.imm() {
            wc.imm_data = imm;
            wc.flags |= WcFlags::WITH_IMM;
        }
        if let Some(ieth) = packet.ieth() {
            wc.invalidated_rkey = ieth.rkey();
            wc.flags |= WcFlags::WITH_INV;
        }
        ctx.effects.complete(ctx.recv_cq, wc, packet.bth().solicited());
    }
}

/// Whether the payload is as long as its place in the message asks. As `rxe_resp.c rxe_resp_check_length()`.
pub(crate) fn has_right_length(packet: &Packet<'_>, mtu: u32) -> bool {
    let fits = packet.info().payload.allows(packet.payload().len(), mtu as usize);
    let asked = packet.reth().map_or(0, |reth| u64::from(reth.dma_len()));
    fits && asked <= MAX_MESSAGE
}

/// The longest message, bytes.
const MAX_MESSAGE: u64 = DeviceAttr::LIMITS.max_msg_sz as u64;

const fn receive_error(error: SglError) -> LandingError {
    match error {
        SglError::Access { .. } | SglError::Mem(_) => LandingError::Receive,
        SglError::TooShort => LandingError::TooLong,
    }
}
