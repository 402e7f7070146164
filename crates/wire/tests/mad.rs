//! Management datagrams: those that rxe, Linux 6.12, sent in the captures, and any bytes.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use userdma_verbs::{Gid, Lid, PKey, Psn, QKey, Qpn};
use userdma_wire::mad::cm::{
    AprStatus, IpHeader, Message, RejectReason, RejectedMessage, Req, SidrStatus, TransportService,
};
use userdma_wire::mad::{BadMad, ClassPortInfo, Data, Header, MAD_LEN};
use userdma_wire::{Packet, ROCE_V2_PORT, encap::EncapFrame};

const FILES: [&str; 6] = ["cm_rping", "cm_ops", "cm_reject", "cm_lost", "cm_ucmatose", "cm_udaddy"];

/// The MADs of a capture.
fn mads(file: &str) -> Vec<[u8; MAD_LEN]> {
    let mut mads = Vec::new();
    for frame in common::frames(&common::golden(&format!("rxe/{file}.pcap"))) {
        let Ok(parsed) = EncapFrame::parse(&frame) else { continue };
        if parsed.encap.dst_port == ROCE_V2_PORT {
            let packet = Packet::parse(parsed.transport).unwrap();
            if packet.mad().is_some() {
                mads.push(packet.payload().try_into().unwrap());
            }
        }
    }
    mads
}

fn message(file: &str, name: &str) -> Message {
    let all = mads(file).into_iter().map(|mad| Message::parse(&mad).unwrap().1);
    all.into_iter().find(|message| message.name() == name).unwrap()
}

#[test]
fn every_captured_mad_is_read_and_written_again() {
    let mut count = 0;
    for file in FILES {
        for mad in mads(file) {
            let (transaction_id, message) = Message::parse(&mad).unwrap();
            assert_eq!(message.build(transaction_id), mad, "{file}: {message}");
            count += 1;
        }
    }
    assert_eq!(count, 25);
}

#[test]
fn a_line_for_each_mad_and_every_field() {
    let mut text = String::new();
    for file in FILES {
        text += &format!("{file}\n");
        for mad in mads(file) {
            text += &format!("  {}\n", userdma_wire::mad::Words::new(&mad));
        }
    }
    insta::assert_snapshot!("mads", text);
    let mut fields = String::new();
    for (file, count) in [("cm_rping", 5), ("cm_reject", 2), ("cm_udaddy", 2)] {
        for mad in mads(file).iter().take(count) {
            fields += &format!("{}\n\n", userdma_wire::mad::Words::new(mad).fields());
        }
    }
    insta::assert_snapshot!("mad_fields", fields);
}

/// The values are what Wireshark shows of the frame, but for flow label and rate, which it divides at the wrong bit: the
/// label is 31 times the source port plus the destination port, and the kernel knows no rate.
#[test]
fn the_fields_of_a_kernels_req() {
    let Message::Req(req) = message("cm_rping", "REQ") else { panic!() };
    let (client, server) = (Ipv4Addr::new(10, 99, 0, 2), Ipv4Addr::new(10, 99, 0, 1));
    assert_eq!(req.local_comm_id, 0xa66a_2a14);
    assert_eq!(req.service_id, 0x0106_1c06);
    assert_eq!(req.local_ca_guid, 0x0099_00ff_fe00_0002);
    assert_eq!((req.local_qkey, req.local_qpn), (QKey::new(0), Qpn::new(0x18)));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.local_eecn, req.remote_eecn), (0, 0));
    assert_eq!((req.remote_cm_response_timeout, req.local_cm_response_timeout), (20, 20));
    assert_eq!(req.transport_service_type, TransportService::Rc);
    assert!(!req.end_to_end_flow_control && !req.rdc_exists && !req.srq);
    assert_eq!((req.starting_psn, req.pkey), (Psn::new(0xa0_e711), PKey::DEFAULT));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries), (7, 7, 15));
    assert_eq!((req.path_mtu, req.extended_transport_type), (3, 0));
    let path = req.primary;
    assert_eq!((path.local_lid, path.remote_lid), (Lid::new(0xffff), Lid::new(0xffff)));
    assert_eq!((path.local_gid, path.remote_gid), (client.into(), server.into()));
    assert_eq!((path.flow_label, path.packet_rate, path.traffic_class), (0x3573, 0, 0));
    assert_eq!((path.hop_limit, path.sl, path.subnet_local, path.local_ack_timeout), (64, 0, false, 17));
    assert!(req.alternate.is_absent());
    let ip = IpHeader::parse(req.private_data.bytes()).unwrap();
    assert_eq!(ip, IpHeader { source_port: 0x84f3, source: client.into(), destination: server.into() });
    assert_eq!(ip.build(), req.private_data.bytes()[..36]);
}

#[test]
fn the_fields_of_a_kernels_other_messages() {
    let Message::Rep(rep) = message("cm_rping", "REP") else { panic!() };
    assert_eq!((rep.local_comm_id, rep.remote_comm_id), (0x6fcb_2f3d, 0xa66a_2a14));
    assert_eq!((rep.local_qpn, rep.starting_psn), (Qpn::new(0x18), Psn::new(0xed_7152)));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.target_ack_delay, rep.failover_accepted), (15, 0));
    assert_eq!((rep.rnr_retry_count, rep.srq, rep.end_to_end_flow_control), (7, false, false));
    assert_eq!(rep.local_ca_guid, 0x0099_00ff_fe00_0001);
    let Message::Rtu(rtu) = message("cm_rping", "RTU") else { panic!() };
    assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (0xa66a_2a14, 0x6fcb_2f3d));
    let Message::Dreq(dreq) = message("cm_rping", "DREQ") else { panic!() };
    assert_eq!(dreq.remote_qpn, Qpn::new(0x18));
    let Message::Rej(rej) = message("cm_reject", "REJ") else { panic!() };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, 0xa26a_2a14));
    assert_eq!((rej.message, rej.reason), (RejectedMessage::Req, RejectReason::InvalidServiceId));
    assert_eq!(rej.info_len, 0);
    let Message::SidrReq(ask) = message("cm_udaddy", "SIDR_REQ") else { panic!() };
    let Message::SidrRep(told) = message("cm_udaddy", "SIDR_REP") else { panic!() };
    assert_eq!((ask.service_id >> 16, ask.pkey), (0x0111, PKey::DEFAULT));
    assert_eq!((told.request_id, told.service_id), (ask.request_id, ask.service_id));
    assert_eq!((told.status, told.qkey), (SidrStatus::Valid, QKey::new(0x0123_4567)));
    assert!(IpHeader::parse(ask.private_data.bytes()).unwrap().source.is_ipv4());
}

/// A valid MAD of each message whose data are all `fill`.
fn filled(attribute: u16, fill: u8) -> [u8; MAD_LEN] {
    let mut mad = [fill; MAD_LEN];
    Header {
        base_version: 1,
        class: 7,
        class_version: 2,
        method: 3,
        status: 0,
        class_specific: 0,
        transaction_id: 9,
        attribute_id: attribute,
        attribute_modifier: 0,
    }
    .write(&mut mad);
    mad
}

fn refused(mad: &[u8]) -> (&'static str, u64) {
    match Message::parse(mad) {
        Err(BadMad::Field { field, value }) => (field, value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_message_is_refused_by_the_name_of_the_field() {
    let good = mads("cm_rping")[0];
    assert_eq!(Message::parse(&good[..255]), Err(BadMad::Length(255)));
    assert_eq!(Message::parse(&[&good[..], &[0]].concat()), Err(BadMad::Length(257)));
    assert_eq!(Message::parse(&[]), Err(BadMad::Length(0)));
    for (byte, value, field) in [
        (0, 2, "base_version"),
        (1, 3, "class"),
        (2, 1, "class_version"),
        (3, 1, "method"),
        (17, 0x1b, "attribute_id"),
        (17, 0x0f, "attribute_id"),
    ] {
        let mut mad = good;
        mad[byte] = value;
        assert_eq!(refused(&mad), (field, value.into()));
    }
    assert!(matches!(
        Req::parse(&filled(0x11, 0)),
        Err(BadMad::Field { field: "attribute_id", value: 0x11 })
    ));
    assert_eq!(refused(&filled(0x11, 0xff)), ("message", 3), "MRA");
    assert_eq!(refused(&filled(0x12, 0xff)), ("message", 3), "REJ");
    assert_eq!(refused(&filled(0x12, 0x9f)), ("info_len", 0x4f), "REJ: 79 bytes of 72");
    assert_eq!(refused(&filled(0x18, 73)), ("info_len", 73), "SIDR_REP");
    assert_eq!(refused(&filled(0x1a, 0xff)), ("info_len", 0xff), "APR");
    assert_eq!(
        BadMad::Field { field: "info_len", value: 255 }.to_string(),
        "info_len is 0xff",
        "an error names the field"
    );
}

#[test]
fn a_field_leaves_its_neighbors_alone() {
    let Message::Req(mut req) = message("cm_rping", "REQ") else { panic!() };
    req.retry_count = 0xff;
    req.path_mtu = 0xff;
    req.local_eecn = u32::MAX;
    let (_, Message::Req(cut)) = Message::parse(&Message::from(req).build(1)).unwrap() else { panic!() };
    assert_eq!((cut.retry_count, cut.path_mtu, cut.local_eecn), (7, 15, 0xff_ffff), "cut to their widths");
    assert_eq!((cut.local_cm_response_timeout, cut.rnr_retry_count, cut.initiator_depth), (20, 7, 1));
}

#[test]
fn a_vendor_is_told_beside_the_other_fields() {
    let Message::Rep(rep) = message("cm_rping", "REP") else { panic!() };
    let told = rep.with_vendor_id(0xff12_3456);
    let mad = told.build_with(1, 7);
    assert_eq!((told.vendor_id(), mad[24 + 15], mad[24 + 19], mad[24 + 23]), (0x12_3456, 0x12, 0x34, 0x56));
    assert_eq!(Header::parse(&mad).unwrap().attribute_modifier, 7);
    assert_eq!(Message::parse(&mad), Ok((1, told.into())));
    assert_eq!((told.local_qpn, told.starting_psn), (rep.local_qpn, rep.starting_psn));
}

#[test]
fn codes_are_their_numbers() {
    for code in 0..=u16::MAX {
        assert_eq!(RejectReason::from_code(code).code(), code);
    }
    for code in 0..=u8::MAX {
        assert_eq!(SidrStatus::from_code(code).code(), code);
        assert_eq!(AprStatus::from_code(code).code(), code);
    }
    assert_eq!(RejectReason::ALL.len(), 34);
    assert_eq!(RejectReason::from_code(10), RejectReason::StaleConnection);
    assert_eq!(RejectReason::from_code(34), RejectReason::Other(34), "the standard leaves it out");
}

#[test]
fn ip_headers_of_both_families() {
    let v6 = IpHeader {
        source_port: 7,
        source: Ipv6Addr::LOCALHOST.into(),
        destination: "fe80::1".parse::<IpAddr>().unwrap(),
    };
    assert_eq!(IpHeader::parse(&v6.build()), Ok(v6));
    assert_eq!(v6.build()[..4], [0, 0x60, 0, 7]);
    let mixed = IpHeader { source: Ipv4Addr::LOCALHOST.into(), ..v6 };
    assert_eq!(mixed.build()[4..20], Gid::from(Ipv4Addr::LOCALHOST).bytes());
    let mut bad = v6.build();
    bad[0] = 1;
    assert_eq!(IpHeader::parse(&bad), Err(BadMad::Field { field: "ip_header_version", value: 1 }));
    bad = v6.build();
    bad[1] = 0x50;
    assert_eq!(IpHeader::parse(&bad), Err(BadMad::Field { field: "ip_version", value: 5 }));
    assert_eq!(IpHeader::parse(&bad[..35]), Err(BadMad::Field { field: "ip_header_len", value: 35 }));
}

#[test]
fn class_port_info_goes_both_ways() {
    let header = Header { method: Header::METHOD_GET_RESP, ..Header::parse(&filled(1, 0)).unwrap() };
    let info = ClassPortInfo {
        base_version: 1,
        class_version: 2,
        capability_mask: 0x1234,
        capability_mask2_response_time: 20,
        redirect_gid: Gid::new([1; 16]),
        trap_gid: Gid::new([2; 16]),
        trap_qkey: QKey::new(7),
        ..ClassPortInfo::default()
    };
    let mad = info.build(&header);
    assert_eq!(ClassPortInfo::parse(&mad), Ok((header, info)));
    assert_eq!(mad[24..32], [1, 2, 0x12, 0x34, 0, 0, 0, 20]);
    assert_eq!((mad[32], mad[24 + 40], mad[24 + 71]), (1, 2, 7));
    assert!(ClassPortInfo::parse(&filled(2, 0)).is_err());
}

#[test]
fn data_are_as_long_as_their_place() {
    assert_eq!(Data::<4>::new(b"abc").unwrap().bytes(), b"abc\0");
    assert_eq!(Data::<4>::new(b"abcde"), None);
    assert_eq!(
        format!("{:?} {:?}", Data::<4>::new(b"a").unwrap(), Data::<4>::EMPTY),
        "Data<4>(61) Data<4>(zeros)"
    );
}

proptest! {
    /// Whatever is read is the same when it was written: nothing is lost but reserved bits, and nothing panics.
    #[test]
    fn what_is_read_is_written(attribute in 0x10u16..=0x1a, data in proptest::collection::vec(any::<u8>(), 232)) {
        let mut mad = filled(attribute, 0);
        mad[24..].copy_from_slice(&data);
        if let Ok((transaction_id, message)) = Message::parse(&mad) {
            let written = message.build(transaction_id);
            prop_assert_eq!(Message::parse(&written), Ok((transaction_id, message)));
            prop_assert_eq!(Message::parse(&written).unwrap().1.build(9), written);
            prop_assert!(!message.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_bytes_are_printed(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let words = userdma_wire::mad::Words::new(&bytes);
        prop_assert!(!words.to_string().contains('\n'));
        prop_assert!(words.fields().to_string().starts_with("MAD "));
        let _ = (Message::parse(&bytes), ClassPortInfo::parse(&bytes), IpHeader::parse(&bytes));
    }
}
