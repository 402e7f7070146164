//! The packets that a kernel sends.

use userdma_objects::UdAddr;
use userdma_verbs::{Psn, QKey, QpAttr, QpAttrMask, QpState, Qpn, SendFlags, SendOp, SendWr};
use userdma_wire::Packet;

use super::{Side, ends, peer};

/// A SEND with immediate data of 64 bytes to queue pair 0x20, captured from rxe, Linux 6.12; without its ICRC.
const CAPTURED: [u8; 88] = [
    0x65, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x10, 0x01, 0x11, 0x11, 0x11, 0x11, 0x00,
    0x00, 0x00, 0x20, 0x1b, 0xad, 0xca, 0xfe, 0x00, 0x07, 0x0e, 0x15, 0x1c, 0x23, 0x2a, 0x31, 0x38, 0x3f,
    0x46, 0x4d, 0x54, 0x5b, 0x62, 0x69, 0x70, 0x77, 0x7e, 0x85, 0x8c, 0x93, 0x9a, 0xa1, 0xa8, 0xaf, 0xb6,
    0xbd, 0xc4, 0xcb, 0xd2, 0xd9, 0xe0, 0xe7, 0xee, 0xf5, 0xfc, 0x03, 0x0a, 0x11, 0x18, 0x1f, 0x26, 0x2d,
    0x34, 0x3b, 0x42, 0x49, 0x50, 0x57, 0x5e, 0x65, 0x6c, 0x73, 0x7a, 0x81, 0x88, 0x8f, 0x96, 0x9d, 0xa4,
    0xab, 0xb2, 0xb9,
];

fn pattern() -> [u8; 64] {
    std::array::from_fn(|i| (i * 7) as u8)
}

#[test]
fn a_datagram_is_what_a_kernel_sends_but_for_the_migration_bit() {
    let mut side = Side::at(Qpn::new(0x20));
    let attr = QpAttr { sq_psn: Psn::new(0x1001), ..QpAttr::default() };
    side.modify(QpState::Rts, &attr, QpAttrMask::SQ_PSN);
    let to = UdAddr { remote_qpn: Qpn::new(0x20), remote_qkey: QKey::new(0x1111_1111), ..peer() };
    let (op, flags) = (SendOp::SendWithImm(0x1bad_cafe), SendFlags::INLINE);
    side.qp.post_datagram(&SendWr { wr_id: 1, op, flags, sgl: &[], inline: &pattern() }, &to).unwrap();
    let (packets, _) = side.fill();
    let ours = Packet::parse(&packets[0]).unwrap();
    assert!(ours.bth().migreq());
    let mut ours = ours.covered().to_vec();
    ours[1] &= !0x40;
    assert_eq!(ours, CAPTURED);
}

#[test]
fn a_datagram_of_a_kernel_is_taken() {
    let mut side = Side::at(Qpn::new(0x20));
    side.post_recv(1, 0, 200);
    let mut bytes = CAPTURED.to_vec();
    bytes.extend([0; 4]);
    side.arrive_from(&bytes, [10, 99, 0, 2].into(), [10, 99, 0, 1].into());
    assert_eq!(side.bytes(40, 64), pattern());
    assert_eq!(ends(&side.recv_cq).len(), 1);
}
