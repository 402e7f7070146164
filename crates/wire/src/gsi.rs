//! Packets between general service interfaces: datagrams of 256 bytes from QPN 1 to QPN 1, each a management datagram (MAD).
//!
//! As the kernel sends them, see `wire/tests/golden`: UD SEND Only, the Q_Key that every queue pair 1 has, the default partition.

use userdma_verbs::{PKey, Psn, QKey, Qpn};

use crate::mad::MAD_LEN;
use crate::{Bth, Deth, Opcode, Packet, PacketWriter, packet_len};

/// Bytes of a packet that carries one, from BTH to ICRC.
pub const PACKET_LEN: usize = packet_len(Opcode::UdSendOnly, MAD_LEN);

/// Why a packet to QPN 1 is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// Not a UD SEND Only.
    Opcode,
    /// Another partition.
    PKey,
    /// Not with the key of QPN 1.
    QKey,
    /// Not as long as a management datagram is.
    Length,
}

/// Writes a packet into room of [`PACKET_LEN`] bytes, all but its ICRC.
///
/// # Panics
/// If the room is shorter, which is a bug of the caller's.
pub fn write(room: &mut [u8], psn: Psn, mad: &[u8; MAD_LEN]) {
    let bth = Bth::new(Opcode::UdSendOnly, Qpn::GSI, psn, PKey::DEFAULT);
    let deth = Deth::new(QKey::GSI, Qpn::GSI);
    PacketWriter::new(room, &bth).deth(&deth).payload(MAD_LEN).copy_from_slice(mad);
}

/// The management datagram in a packet to QPN 1 whose ICRC is right. Which queue pair has sent it is not looked at.
///
/// # Errors
/// The packet is nobody's: drop and count it.
pub fn mad_of<'a>(packet: &Packet<'a>) -> Result<&'a [u8; MAD_LEN], Refused> {
    let deth = packet.deth().filter(|_| packet.opcode() == Opcode::UdSendOnly).ok_or(Refused::Opcode)?;
    if !PKey::DEFAULT.matches(packet.bth().pkey()) {
        return Err(Refused::PKey);
    }
    if deth.qkey() != QKey::GSI {
        return Err(Refused::QKey);
    }
    packet.payload().try_into().map_err(|_| Refused::Length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(mad: &[u8; MAD_LEN]) -> [u8; PACKET_LEN] {
        let mut room = [0; PACKET_LEN];
        write(&mut room, Psn::new(7), mad);
        room
    }

    /// The first bytes of a kernel's packet to QPN 1 (frame 1 of rxe's rping, Linux 6.12), but for the acknowledgement that it
    /// asks for without need, and the migration bit that it does not set.
    #[test]
    fn the_headers_are_the_kernels() {
        let kernel = [
            0x64, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x80, 0x00, 0x00, 0x00, //
            0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x07, 0x02, 0x03,
        ];
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        let mut ours = [0; PACKET_LEN];
        write(&mut ours, Psn::new(0), &mad);
        ours[1] &= !0x40;
        ours[8] |= 0x80;
        assert_eq!(ours[..24], kernel);
        assert_eq!(PACKET_LEN, 280);
    }

    #[test]
    fn what_is_written_is_read_back_and_anything_else_is_refused() {
        let mad: [u8; MAD_LEN] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let whole = packet(&mad);
        let read = |bytes: &[u8]| mad_of(&Packet::parse(bytes).unwrap()).copied();
        assert_eq!(read(&whole), Ok(mad));
        let changed = |at: usize, to: u8| {
            let mut bytes = whole;
            bytes[at] = to;
            read(&bytes)
        };
        assert_eq!(changed(0, 0x04), Err(Refused::Opcode), "RC");
        assert_eq!(changed(0, 0x65), Err(Refused::Opcode), "with immediate data");
        assert_eq!(changed(2, 0x12), Err(Refused::PKey));
        assert_eq!(changed(2, 0x7f), Ok(mad), "a limited member");
        assert_eq!(changed(12, 0), Err(Refused::QKey));
        assert_eq!(changed(1, 0x10), Err(Refused::Length), "a padded byte");
        assert_eq!(read(&whole[..PACKET_LEN - 4]), Err(Refused::Length));
    }
}
