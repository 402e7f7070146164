//! How a message is cut into packets of the path MTU.

use userdma_wire::Position;

/// What a packet is counted as in the window: its payload, and what a small packet takes of a socket buffer.
pub(crate) const fn packet_cost(payload_len: u32) -> u32 {
    payload_len + 256
}

/// Packets of a message of `len` bytes: one at least.
pub(crate) const fn packets_of(len: u32, mtu: u32) -> u32 {
    // Most messages fit one packet; dividing takes longer than finding that out.
    if len <= mtu { 1 } else { len.div_ceil(mtu) }
}

/// Bytes of packet number `packet` of a message of `len` bytes.
pub(crate) const fn payload_of(len: u32, mtu: u32, packet: u32) -> u32 {
    let rest = len.saturating_sub(packet.saturating_mul(mtu));
    if rest < mtu { rest } else { mtu }
}

/// Where packet number `packet` of `packets` stands in its message.
pub(crate) const fn position(packet: u32, packets: u32) -> Position {
    match (packet == 0, packet + 1 == packets) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, true) => Position::Last,
        (false, false) => Position::Middle,
    }
}
