//! The packets of a message with data, a SEND or a WRITE: their opcodes, extension headers and payload.

use userdma_objects::{SgCursor, WqeRef, gather};
use userdma_verbs::{RKey, RemoteAddr, SendFlags, SendOp, WcStatus};
use userdma_wire::{Bth, Ieth, Opcode, PacketWriter, Position, Reth, extend_icrc, packet_len};

use crate::{Ctx, Out};

/// A message with data: those of the send operations that are cut into packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    Send,
    SendWithImm(u32),
    SendWithInv(RKey),
    Write(RemoteAddr),
    WriteWithImm(RemoteAddr, u32),
}

impl Data {
    /// The message of an operation, if it is one with data.
    pub(crate) const fn of(op: SendOp) -> Option<Self> {
        Some(match op {
            SendOp::Send => Self::Send,
            SendOp::SendWithImm(imm) => Self::SendWithImm(imm),
            SendOp::SendWithInv(rkey) => Self::SendWithInv(rkey),
            SendOp::Write(remote) => Self::Write(remote),
            SendOp::WriteWithImm(remote, imm) => Self::WriteWithImm(remote, imm),
            SendOp::Read(_) | SendOp::Atomic(..) | SendOp::LocalInv(_) | SendOp::BindMw(_) => return None,
        })
    }

    /// The opcode of the packet at `position` on a reliable connection.
    pub(crate) const fn rc_opcode(self, position: Position) -> Opcode {
        use Position::{First, Last, Middle, Only};
        match (self, position) {
            (Self::Send | Self::SendWithImm(_) | Self::SendWithInv(_), First) => Opcode::RcSendFirst,
            (Self::Send | Self::SendWithImm(_) | Self::SendWithInv(_), Middle) => Opcode::RcSendMiddle,
            (Self::Send, Last) => Opcode::RcSendLast,
            (Self::Send, Only) => Opcode::RcSendOnly,
            (Self::SendWithImm(_), Last) => Opcode::RcSendLastImm,
            (Self::SendWithImm(_), Only) => Opcode::RcSendOnlyImm,
            (Self::SendWithInv(_), Last) => Opcode::RcSendLastInv,
            (Self::SendWithInv(_), Only) => Opcode::RcSendOnlyInv,
            (Self::Write(_) | Self::WriteWithImm(..), First) => Opcode::RcWriteFirst,
            (Self::Write(_) | Self::WriteWithImm(..), Middle) => Opcode::RcWriteMiddle,
            (Self::Write(_), Last) => Opcode::RcWriteLast,
            (Self::Write(_), Only) => Opcode::RcWriteOnly,
            (Self::WriteWithImm(..), Last) => Opcode::RcWriteLastImm,
            (Self::WriteWithImm(..), Only) => Opcode::RcWriteOnlyImm,
        }
    }

    /// The opcode of the packet at `position` on an unreliable connection, which has none for SEND with invalidate.
    pub(crate) const fn uc_opcode(self, position: Position) -> Option<Opcode> {
        use Position::{First, Last, Middle, Only};
        Some(match (self, position) {
            (Self::SendWithInv(_), _) => return None,
            (Self::Send | Self::SendWithImm(_), First) => Opcode::UcSendFirst,
            (Self::Send | Self::SendWithImm(_), Middle) => Opcode::UcSendMiddle,
            (Self::Send, Last) => Opcode::UcSendLast,
            (Self::Send, Only) => Opcode::UcSendOnly,
            (Self::SendWithImm(_), Last) => Opcode::UcSendLastImm,
            (Self::SendWithImm(_), Only) => Opcode::UcSendOnlyImm,
            (Self::Write(_) | Self::WriteWithImm(..), First) => Opcode::UcWriteFirst,
            (Self::Write(_) | Self::WriteWithImm(..), Middle) => Opcode::UcWriteMiddle,
            (Self::Write(_), Last) => Opcode::UcWriteLast,
            (Self::Write(_), Only) => Opcode::UcWriteOnly,
            (Self::WriteWithImm(..), Last) => Opcode::UcWriteLastImm,
            (Self::WriteWithImm(..), Only) => Opcode::UcWriteOnlyImm,
        })
    }

    /// Writes the extension headers of the packet at `position` of a message of `len` bytes.
    #[inline]
    fn headers(self, writer: PacketWriter<'_>, len: u32, position: Position) -> PacketWriter<'_> {
        if position == Position::Middle {
            return writer;
        }
        let starts = matches!(position, Position::First | Position::Only);
        let ends = matches!(position, Position::Last | Position::Only);
        let writer = match self {
            Self::Write(remote) | Self::WriteWithImm(remote, _) if starts => {
                writer.reth(&Reth::new(remote.addr, remote.rkey, len))
            }
            Self::Send
            | Self::SendWithImm(_)
            | Self::SendWithInv(_)
            | Self::Write(_)
            | Self::WriteWithImm(..) => writer,
        };
        match self {
            Self::SendWithImm(imm) | Self::WriteWithImm(_, imm) if ends => writer.imm(imm),
            Self::SendWithInv(rkey) if ends => writer.ieth(&Ieth::new(rkey)),
            Self::Send
            | Self::SendWithImm(_)
            | Self::SendWithInv(_)
            | Self::Write(_)
            | Self::WriteWithImm(..) => writer,
        }
    }
}

/// A packet with data that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket {
    /// The message.
    pub(crate) data: Data,
    /// Its length, bytes.
    pub(crate) len: u32,
    /// Where in it the packet stands.
    pub(crate) position: Position,
    /// Where in it the payload begins.
    pub(crate) offset: u32,
    /// Bytes of the payload.
    pub(crate) payload_len: u32,
}

/// What became of one attempt to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// It is on its way, or done.
    Sent,
    /// It needs a new batch.
    Batch,
    /// It cannot be sent.
    Fault(WcStatus),
}

/// Writes a packet; its payload comes from the element, from the cursor on, which goes on if the packet was written.
#[inline(always)]
pub(crate) fn put_data(
    ctx: &Ctx<'_>,
    out: &mut Out<'_>,
    bth: &Bth,
    opcode: Opcode,
    packet: &DataPacket,
    element: Option<WqeRef<'_>>,
    cursor: &mut SgCursor,
) -> Step {
    let size = packet_len(opcode, packet.payload_len as usize);
    let Some(place) = out.push(size) else { return Step::Batch };
    let filled = place.fill(
        bth,
        packet.payload_len as usize,
        |writer| packet.data.headers(writer, packet.len, packet.position),
        |payload, crc| match element {
            Some(e) if e.wqe.flags.contains(SendFlags::INLINE) => {
                copy_inline(e.inline, packet.offset, payload, crc)
            }
            Some(e) => gather(ctx.mrs, ctx.qp.pd(), e.sgl, cursor, payload, crc).map_err(|_| Missing),
            None => Err(Missing),
        },
    );
    if filled.is_err() {
        out.batch.pop(size);
        return Step::Fault(WcStatus::LocProtErr);
    }
    Step::Sent
}

/// The payload is not where the element says.
pub(crate) struct Missing;

pub(crate) fn copy_inline(
    inline: &[u8],
    offset: u32,
    payload: &mut [u8],
    crc: Option<&mut u32>,
) -> Result<(), Missing> {
    let start = offset as usize;
    let bytes = inline.get(start..start + payload.len()).ok_or(Missing)?;
    payload.copy_from_slice(bytes);
    if let Some(crc) = crc {
        *crc = extend_icrc(*crc, bytes);
    }
    Ok(())
}
