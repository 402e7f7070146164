use super::*;

fn v4() -> Encap {
    Encap::udp([10, 99, 0, 2].into(), [10, 99, 0, 1].into(), 49777, 4791)
}

fn v6() -> Encap {
    Encap::udp("fd99::2".parse().unwrap(), "fd99::1".parse().unwrap(), 49777, 4791)
}

fn frame(encap: &Encap, transport: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    encap.write_headers(&mut frame, transport);
    assert_eq!(frame.len(), encap.header_len());
    frame.extend_from_slice(transport);
    frame
}

/// Computed checksums come back as the values that were written.
fn without_checksums(encap: Encap) -> Encap {
    Encap { ipv4_checksum: Checksum::Computed, udp_checksum: Checksum::Computed, ..encap }
}

#[test]
fn written_headers_are_read_back() {
    for base in [v4(), v6()] {
        for vlan in [None, Some(0x6005)] {
            let mut encap = Encap { vlan, traffic_class: 0x6a, hop_limit: 7, ..base };
            if base.is_ipv4() {
                encap.ipv4_id = 0x1234;
            } else {
                encap.flow_label = 0xa_bcde;
                encap.ipv4_dont_fragment = false;
            }
            let bytes = frame(&encap, b"transport");
            let parsed = EncapFrame::parse(&bytes).unwrap();
            assert_eq!(without_checksums(parsed.encap), encap);
            assert_eq!(parsed.transport, b"transport");
            assert_eq!(parsed.trailer, b"");
            assert_eq!(frame(&parsed.encap, parsed.transport), bytes);
        }
    }
}

#[test]
fn computed_udp_checksums_make_the_sum_zero() {
    for encap in [v4(), v6()] {
        for len in 0..40 {
            let transport = vec![0xab; len];
            let bytes = frame(&encap, &transport);
            let udp = &bytes[encap.header_len() - UDP_LEN..];
            let sum = [encap.src, encap.dst].iter().fold(InetChecksum::new(), |sum, address| match address {
                IpAddr::V4(a) => sum.add(&a.octets()),
                IpAddr::V6(a) => sum.add(&a.octets()),
            });
            assert_eq!(sum.add(&[0, 17]).add(&udp[4..6]).add(udp).finish(), 0);
        }
    }
}

#[test]
fn ethernet_padding_is_no_payload() {
    let mut bytes = frame(&v4(), b"x");
    bytes.extend_from_slice(&[0; 17]);
    let parsed = EncapFrame::parse(&bytes).unwrap();
    assert_eq!((parsed.transport, parsed.trailer.len()), (&b"x"[..], 17));
}

#[test]
fn what_is_not_a_whole_udp_packet_is_refused() {
    let good = frame(&v4(), b"payload");
    let bad = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        EncapFrame::parse(&bytes).unwrap_err()
    };
    assert_eq!(bad(12, 0x88), Malformed::NotIp);
    assert_eq!(bad(14, 0x65), Malformed::IpHeader);
    assert_eq!(bad(14, 0x46), Malformed::IpOptions);
    assert_eq!(bad(17, 10), Malformed::IpHeader, "total length below the header's");
    assert_eq!(bad(16, 1), Malformed::TooShort, "total length beyond the bytes");
    assert_eq!(bad(20, 0x20), Malformed::IpOptions, "more fragments");
    assert_eq!(bad(23, 6), Malformed::NotUdp);
    assert_eq!(bad(39, 9), Malformed::UdpLength);
    for len in 0..good.len() {
        assert_eq!(EncapFrame::parse(&good[..len]).unwrap_err(), Malformed::TooShort);
    }
    let mut v6 = frame(&v6(), b"payload");
    v6[20] = 44;
    assert_eq!(EncapFrame::parse(&v6).unwrap_err(), Malformed::IpOptions);
}

#[test]
fn a_flow_prints_like_socket_addresses() {
    assert_eq!(v4().to_string(), "10.99.0.2:49777 > 10.99.0.1:4791");
    assert_eq!(v6().to_string(), "[fd99::2]:49777 > [fd99::1]:4791");
}
