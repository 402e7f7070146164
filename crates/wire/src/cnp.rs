//! The congestion notification packet (CNP) of RoCE v2: what a receiver of marked packets sends back.
//!
//! A BTH with opcode 0x81 and the backward congestion mark, then sixteen reserved bytes of zero.

use userdma_verbs::{PKey, Psn, Qpn};

use crate::bth::Bth;
use crate::build::{PacketWriter, packet_len};
use crate::opcode::Opcode;

/// Bytes of a congestion notification packet from BTH to ICRC.
pub const CNP_LEN: usize = packet_len(Opcode::Cnp, CNP_RESERVED);

const CNP_RESERVED: usize = 16;

/// Writes a congestion notification for the sender's queue pair `qpn`, all but its ICRC.
pub fn write_cnp(room: &mut [u8; CNP_LEN], qpn: Qpn, pkey: PKey) {
    let mut bth = Bth::new(Opcode::Cnp, qpn, Psn::new(0), pkey);
    bth.set_becn(true);
    PacketWriter::new(room, &bth).payload(CNP_RESERVED).fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;

    #[test]
    fn a_notification_is_a_packet_of_32_bytes() {
        let mut room = [0xaa; CNP_LEN];
        write_cnp(&mut room, Qpn::new(0x11), PKey::DEFAULT);
        let packet = Packet::parse(&room).unwrap();
        assert_eq!(packet.opcode(), Opcode::Cnp);
        assert!(packet.bth().becn() && !packet.bth().fecn());
        assert_eq!(packet.bth().qpn(), Qpn::new(0x11));
        assert_eq!(packet.payload(), [0; 16]);
        assert_eq!(room[..12], [0x81, 0x40, 0xff, 0xff, 0x40, 0, 0, 0x11, 0, 0, 0, 0]);
        assert_eq!(room.len(), 32);
    }
}
