//! Any bytes, as what follows a UDP header and as a whole frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use userdma_wire::encap::EncapFrame;
use userdma_wire::{FlowIcrc, ICRC_LEN, IcrcCheck, OwnedPacket, Packet, Pseudo};

/// Reads, prints, writes and seals.
///
/// # Panics
/// If what was read is not what is written, or a fresh ICRC is not believed.
pub fn packet(bytes: &[u8]) {
    if let Ok(frame) = EncapFrame::parse(bytes) {
        assert!(frame.transport.len() + frame.trailer.len() <= bytes.len(), "a frame longer than its bytes");
        check_transport(frame.transport);
    }
    check_transport(bytes);
}

fn check_transport(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let parts = packet.info().header_len + packet.payload().len() + packet.pad_len() + ICRC_LEN;
    assert_eq!(parts, bytes.len(), "the parts of a packet make the whole");
    let line = packet.to_string();
    assert!(line.starts_with(packet.info().name) && !line.contains('\n'), "{line}");
    assert!(packet.fields(64).to_string().starts_with("BTH "));
    let owned = OwnedPacket::from(&packet);
    assert_eq!(owned.ext.headers(), packet.info().headers, "{line}");
    assert_eq!(owned.encode(), bytes, "{line}");
    check_icrc(bytes, &packet);
}

fn check_icrc(bytes: &[u8], packet: &Packet<'_>) {
    let [v4a, v4b] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
    let [v6a, v6b] = [1, 2].map(|last| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)));
    for (pseudo, is_ipv4) in
        [(Pseudo::new(v4a, v4b, 50_000, 4791), true), (Pseudo::new(v6a, v6b, 1, 4791), false)]
    {
        // As received it is most likely wrong; whatever it is, both ways to check it agree.
        let mut flow = FlowIcrc::new(pseudo);
        assert_eq!(flow.verify(packet, 7), pseudo.verify(packet, 7));
        let mut sealed = bytes.to_vec();
        pseudo.seal(&mut sealed, 0x1234);
        let Ok(again) = Packet::parse(&sealed) else { panic!("sealing changed a header") };
        assert_eq!(pseudo.verify(&again, 0x1234), IcrcCheck::Good);
        if is_ipv4 {
            assert_eq!(flow.verify(&again, 0), IcrcCheck::GoodWithId(0x1234), "the identification is found");
        }
        assert_eq!(again.covered(), packet.covered(), "the ICRC alone is written");
    }
}
