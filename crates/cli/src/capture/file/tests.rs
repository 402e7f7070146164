use super::*;

fn frames(bytes: &[u8]) -> (Vec<CapturedFrame>, Option<String>) {
    let mut found = Vec::new();
    match Frames::new(bytes) {
        Err(error) => (found, Some(error.to_string())),
        Ok(frames) => {
            for frame in frames {
                match frame {
                    Ok(frame) => found.push(frame),
                    Err(error) => return (found, Some(error.to_string())),
                }
            }
            (found, None)
        }
    }
}

fn pcap(order: Order, nanoseconds: bool, snap: usize) -> Vec<u8> {
    let word = |n: u32| match order {
        Order::Big => n.to_be_bytes(),
        Order::Little => n.to_le_bytes(),
    };
    let mut out = Vec::new();
    out.extend(word(if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    out.extend([0; 16]);
    out.extend(word(1));
    for (seconds, fraction) in [(7, 5), (8, 6)] {
        out.extend(word(seconds));
        out.extend(word(fraction));
        out.extend(word(u32::try_from(snap).unwrap()));
        out.extend(word(6));
        out.extend(&[1, 2, 3, 4, 5, 6][..snap]);
    }
    out
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(12 + body.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, &len].concat()
}

fn section() -> Vec<u8> {
    let body = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
    block(0x0a0d_0d0a, &body)
}

fn interface(link: u8, options: &[u8]) -> Vec<u8> {
    block(1, &[&[link, 0, 0, 0, 0, 0, 0, 0], options].concat())
}

fn enhanced(interface: u8, low: u32, data: &[u8; 4], options: &[u8]) -> Vec<u8> {
    let body =
        [&[interface, 0, 0, 0, 0, 0, 0, 0], &low.to_le_bytes()[..], &[4, 0, 0, 0, 9, 0, 0, 0], data, options];
    block(6, &body.concat())
}

#[test]
fn both_byte_orders_and_both_resolutions_of_pcap_are_read() {
    for order in [Order::Big, Order::Little] {
        for (nanoseconds, at) in [(false, 7_000_005_000), (true, 7_000_000_005)] {
            let (found, error) = frames(&pcap(order, nanoseconds, 6));
            assert_eq!((found.len(), error), (2, None));
            assert_eq!(found[0].at_ns, Some(at));
            assert_eq!((found[0].link, &found[0].bytes[..]), (LinkType::ETHERNET, &[1, 2, 3, 4, 5, 6][..]));
        }
    }
}

#[test]
fn cut_off_packets_keep_their_length_on_the_wire() {
    let (found, error) = frames(&pcap(Order::Little, false, 4));
    assert_eq!(error, None);
    assert_eq!((found[1].bytes.len(), found[1].original_len), (4, 6));
}

#[test]
fn pcapng_has_resolutions_offsets_directions_and_unknown_blocks() {
    let two_power_ten = [9, 0, 1, 0, 0x8a, 0, 0, 0];
    let offset = [14, 0, 8, 0, 100, 0, 0, 0, 0, 0, 0, 0];
    let outbound = [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    let file = [
        section(),
        interface(1, &[]),
        interface(101, &[&two_power_ten[..], &offset].concat()),
        block(0xbad, &[9; 8]),
        enhanced(0, 3, b"abcd", &outbound),
        enhanced(1, 512, b"efgh", &[]),
    ]
    .concat();
    let (found, error) = frames(&file);
    assert_eq!(error, None);
    let expected = [
        CapturedFrame {
            at_ns: Some(3_000),
            link: LinkType::ETHERNET,
            direction: Some(Direction::Outbound),
            original_len: 9,
            bytes: b"abcd".to_vec(),
        },
        CapturedFrame {
            at_ns: Some(100_500_000_000),
            link: LinkType::RAW,
            direction: None,
            original_len: 9,
            bytes: b"efgh".to_vec(),
        },
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    assert_eq!(frames(b"").1.unwrap(), "is empty");
    assert_eq!(frames(b"ab").1.unwrap(), "ends inside the file header that begins at byte 0");
    assert_eq!(frames(b"#!/bin/sh").1.unwrap(), "is no pcap or pcapng file: it starts with 23 21 2f 62");
    let file = pcap(Order::Little, false, 6);
    let (found, error) = frames(&file[..file.len() - 1]);
    assert_eq!((found.len(), &error.unwrap()[..]), (1, "ends inside the packet that begins at byte 46"));
    let no_interface = [section(), enhanced(0, 0, b"abcd", &[])].concat();
    assert_eq!(
        frames(&no_interface).1.unwrap(),
        "is damaged at byte 28: a packet of an interface that the file does not describe"
    );
    let mut two_lengths = [section(), interface(1, &[])].concat();
    *two_lengths.last_mut().unwrap() = 1;
    assert_eq!(frames(&two_lengths).1.unwrap(), "is damaged at byte 28: a block whose two lengths differ");
}

#[test]
fn every_prefix_and_every_damaged_byte_is_survived() {
    let ng = [
        section(),
        interface(1, &[9, 0, 1, 0, 9, 0, 0, 0]),
        enhanced(0, 3, b"abcd", &[2, 0, 4, 0, 1, 0, 0, 0]),
    ]
    .concat();
    for file in [pcap(Order::Big, true, 6), ng] {
        for end in 0..file.len() {
            let (_, error) = frames(&file[..end]);
            let is_between = frames(&file[..end]).1.is_none();
            assert!(error.is_some() || is_between);
        }
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut file = file.clone();
                file[at] = value;
                let _ = frames(&file);
            }
        }
    }
}
