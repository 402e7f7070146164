//! The packets of a message with data, a SEND or a WRITE: their opcodes and extension headers.

use userdma_verbs::{RKey, RemoteAddr};
use userdma_wire::{Ieth, Opcode, PacketWriter, Position, Reth};

/// A message with data: those of the send operations that are cut into packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Data {
    Send,
    SendWithImm(u32),
    SendWithInv(RKey),
    Write(RemoteAddr),
    WriteWithImm(RemoteAddr, u32),
}

impl Data {
    /// The opcode of the packet at `position`.
    pub(super) const fn opcode(self, position: Position) -> Opcode {
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

    /// Writes the extension headers of the packet at `position` of a message of `len` bytes.
    #[inline]
    pub(super) fn headers(self, writer: PacketWriter<'_>, len: u32, position: Position) -> PacketWriter<'_> {
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
