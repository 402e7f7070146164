//! Links over the loopback interface: packets in, packets out, and nothing else out.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::{batch, config, open, packet, receive};
use userdma_link::{Capture, OpenError, SendReport, UdpConfig, UdpLink};
use userdma_mem::{LinkCaps, LinkId, TxBatch};
use userdma_verbs::Time;

const ADDRESSES: [&str; 2] = ["127.0.0.1", "::1"];

/// Sends batches of these sizes from a link to another at the same address; checks order, bytes and metadata.
fn exchange(ip: &str, config: &UdpConfig, sizes: &[usize]) -> Option<usize> {
    let (mut tx, mut rx) = (open(ip, config)?, open(ip, config)?);
    let mut route = tx.route(rx.local(), rx.port(), 5);
    route.traffic_class = 2;
    let report = tx.send(Time::ZERO, &mut [batch(&many(&tx), &route, sizes)]);
    let bytes = sizes.iter().sum();
    assert_eq!((report.taken, report.packets, report.bytes), (1, sizes.len(), bytes), "{report:?}");
    assert_eq!((report.dropped, report.icmp_errors, report.blocked), (0, 0, false));
    let (packets, reports) = receive(&mut rx, sizes.len());
    assert_eq!(packets.len(), sizes.len());
    for (number, ((meta, bytes), &size)) in packets.iter().zip(sizes).enumerate() {
        assert_eq!(*bytes, packet(number, size), "packet {number} of {sizes:?}");
        assert_eq!((meta.remote, meta.remote_port), (tx.local(), tx.tx_ports()[5]));
        assert_eq!((meta.local, meta.local_port), (rx.local(), rx.port()));
        assert_eq!((meta.link, meta.traffic_class), (LinkId(0), 2));
    }
    if reports.iter().map(|report| report.messages).sum::<usize>() == 1 {
        let places = packets.iter().map(|(meta, _)| usize::from(meta.segment));
        assert!(places.eq(0..sizes.len()), "packets of one super-packet count from 0");
    }
    Some(reports.iter().map(|report| report.messages).sum())
}

/// Limits that let several packets into a batch, whatever the link says.
fn many(link: &UdpLink) -> LinkCaps {
    LinkCaps { max_batch_packets: 64, ..link.caps() }
}

#[test]
fn a_super_packet_of_any_length_arrives_whole_and_in_order() {
    for ip in ADDRESSES {
        for count in 1..=64 {
            let messages = exchange(ip, &config(), &vec![900; count]);
            assert!(
                messages.is_none_or(|messages| messages == 1),
                "{count} packets took {messages:?} receives"
            );
        }
        exchange(ip, &config(), &[4112; 15]);
    }
}

#[test]
fn the_last_packet_may_be_shorter() {
    for ip in ADDRESSES {
        for last in [1, 16, 899, 900] {
            assert!(exchange(ip, &config(), &[900, 900, last]).is_none_or(|messages| messages == 1));
        }
        exchange(ip, &config(), &[1]);
    }
}

#[test]
fn the_largest_batch_stays_in_one_piece() {
    for ip in ADDRESSES {
        let Some(link) = open(ip, &config()) else { continue };
        let size = link.caps().max_batch_bytes / 64;
        let mut sizes = vec![size + 1; 63];
        sizes.push(link.caps().max_batch_bytes - 63 * (size + 1));
        assert_eq!(exchange(ip, &config(), &sizes), Some(1));
        assert_eq!(exchange(ip, &config(), &[link.caps().max_batch_bytes]), Some(1));
    }
}

#[test]
fn without_coalescing_packets_arrive_one_by_one() {
    let config = UdpConfig { coalescing: false, ..config() };
    for ip in ADDRESSES {
        assert!(exchange(ip, &config, &[700; 20]).is_none_or(|messages| messages == 20));
    }
}

#[test]
fn without_segmentation_a_batch_has_one_packet_but_more_are_sent_too() {
    let config = UdpConfig { segmentation: false, ..config() };
    for ip in ADDRESSES {
        let Some(link) = open(ip, &config) else { continue };
        assert_eq!(link.caps().max_batch_packets, 1);
        exchange(ip, &config, &[700; 20]);
        exchange(ip, &config, &[700]);
    }
    let neither = UdpConfig { segmentation: false, coalescing: false, ..config };
    exchange("127.0.0.1", &neither, &[700; 40]);
}

#[test]
fn batches_of_one_socket_share_a_system_call_and_keep_their_order() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let caps = tx.caps();
    let route = |socket| tx.route(rx.local(), rx.port(), socket);
    let mut batches: Vec<TxBatch> = (0..6).map(|_| batch(&caps, &route(1), &[100, 100, 50])).collect();
    batches.extend((0..40).map(|_| batch(&caps, &route(2), &[64])));
    batches.push(TxBatch::new(&caps));
    let report = tx.send(Time::ZERO, &mut batches);
    let wanted =
        SendReport { taken: 47, packets: 58, bytes: 6 * 250 + 40 * 64, calls: 3, ..SendReport::default() };
    assert_eq!(report, wanted);
    assert!(batches.iter().all(TxBatch::is_empty));
    let (packets, _) = receive(&mut rx, 58);
    let ports: Vec<u16> = packets.iter().map(|(meta, _)| meta.remote_port).collect();
    assert_eq!(ports[..18], [tx.tx_ports()[1]; 18]);
    assert_eq!(ports[18..], [tx.tx_ports()[2]; 40]);
}

#[test]
fn nothing_to_send_is_no_system_call() {
    let Some(mut link) = open("127.0.0.1", &config()) else { return };
    assert_eq!(link.send(Time::ZERO, &mut []), SendReport::default());
    let report = link.send(Time::ZERO, &mut [TxBatch::new(&link.caps()), TxBatch::new(&link.caps())]);
    assert_eq!(report, SendReport { taken: 2, ..SendReport::default() });
}

#[test]
fn what_does_not_suit_the_link_is_dropped_and_what_follows_is_sent() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let good = tx.route(rx.local(), rx.port(), 0);
    let mut other_family = good;
    other_family.remote = "::1".parse().unwrap();
    let mut no_such_socket = good;
    no_such_socket.socket = 8;
    let caps = tx.caps();
    let mut batches = [
        batch(&caps, &other_family, &[10, 10]),
        batch(&caps, &no_such_socket, &[10]),
        batch(&caps, &good, &[10, 10, 10, 10]),
    ];
    let report = tx.send(Time::ZERO, &mut batches);
    assert_eq!((report.taken, report.packets, report.dropped, report.calls), (3, 4, 3, 1));
    assert_eq!(receive(&mut rx, 4).0.len(), 4);
}

#[test]
fn a_destination_that_cannot_be_reached_costs_its_packets_only() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let good = tx.route(rx.local(), rx.port(), 3);
    let mut nowhere = good;
    // A socket bound to a loopback address cannot send beyond it.
    nowhere.remote = "192.0.2.1".parse().unwrap();
    let caps = tx.caps();
    let mut batches =
        [batch(&caps, &good, &[10]), batch(&caps, &nowhere, &[10, 10]), batch(&caps, &good, &[20])];
    let report = tx.send(Time::ZERO, &mut batches);
    assert_eq!(
        (report.taken, report.packets, report.dropped, report.blocked),
        (3, 2, 2, false),
        "{report:?}"
    );
    assert!(!report.caps_changed, "one refused batch is no reason to stop segmenting");
    assert_eq!(receive(&mut rx, 2).0.len(), 2);
}

#[test]
fn answers_to_packets_that_nobody_took_do_not_disturb() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let caps = tx.caps();
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (refused, good) = (tx.route(rx.local(), closed, 0), tx.route(rx.local(), rx.port(), 0));
    for _ in 0..3 {
        let report = tx.send(Time::ZERO, &mut [batch(&caps, &refused, &[32]), batch(&caps, &good, &[32])]);
        assert_eq!((report.taken, report.packets, report.dropped), (2, 2, 0));
    }
    assert_eq!(receive(&mut rx, 3).0.len(), 3);
}

#[test]
fn traffic_class_and_ecn_travel() {
    for ip in ADDRESSES {
        for usual in [0, 0x68] {
            let config = UdpConfig { traffic_class: usual, ..config() };
            let (Some(mut tx), Some(mut rx)) = (open(ip, &config), open(ip, &config)) else { continue };
            for wanted in [0, 1, 2, 3, 0x68, 0x6a, 0xff] {
                let mut route = tx.route(rx.local(), rx.port(), 0);
                assert_eq!(route.traffic_class, usual);
                route.traffic_class = wanted;
                for sizes in [&[100][..], &[100, 100, 100]] {
                    tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, sizes)]);
                    let (packets, _) = receive(&mut rx, sizes.len());
                    assert_eq!(packets.len(), sizes.len());
                    assert!(packets.iter().all(|(meta, _)| meta.traffic_class == wanted), "{ip} {wanted:#x}");
                }
            }
        }
    }
}

#[test]
fn the_hop_limit_of_the_route_is_sent() {
    for ip in ADDRESSES {
        let Some(mut tx) = open(ip, &UdpConfig { hop_limit: 9, ..config() }) else { continue };
        let rx = UdpSocket::bind((ip, 0)).unwrap();
        rx.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let option = if tx.local().is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVTTL, libc::IP_TTL)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, libc::IPV6_HOPLIMIT)
        };
        set(&rx, option.0, option.1, 1);
        for (asked, wanted) in [(9, 9), (200, 200), (1, 1), (0, 9)] {
            let mut route = tx.route(tx.local(), rx.local_addr().unwrap().port(), 0);
            route.hop_limit = asked;
            tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[8])]);
            assert_eq!(recv_number(&rx, option.0, option.2), wanted, "{ip}");
        }
    }
}

/// Receives a packet and returns the number that it comes with as control message.
fn recv_number(socket: &UdpSocket, level: i32, kind: i32) -> i32 {
    let (mut bytes, mut control) = ([0u8; 64], [0u64; 16]);
    let mut iovec = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is a value of the structure. It is filled with buffers and their sizes, which outlive the call;
    // the control messages are then walked as the C library's macros want, each value being an `int`.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut iovec, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        assert!(libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) > 0);
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(m) = message.as_ref() {
            if (m.cmsg_level, m.cmsg_type) == (level, kind) {
                return libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    panic!("no such control message")
}

#[test]
fn ipv6_packets_without_a_udp_checksum_are_accepted() {
    let Some(mut rx) = open("::1", &config()) else { return };
    let tx = UdpSocket::bind("[::1]:0").unwrap();
    const UDP_NO_CHECK6_TX: i32 = 101;
    set(&tx, libc::IPPROTO_UDP, UDP_NO_CHECK6_TX, 1);
    tx.send_to(&packet(0, 32), SocketAddr::new(rx.local(), rx.port())).unwrap();
    let (packets, _) = receive(&mut rx, 1);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].1, packet(0, 32));
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    // SAFETY: the kernel reads the four bytes of `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn an_empty_datagram_is_no_packet() {
    let Some(mut rx) = open("127.0.0.1", &config()) else { return };
    let tx = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = SocketAddr::new(rx.local(), rx.port());
    for bytes in [&b""[..], &b"x"[..]] {
        tx.send_to(bytes, to).unwrap();
    }
    let (packets, reports) = receive(&mut rx, 1);
    assert_eq!(packets.len(), 1);
    assert_eq!(reports.iter().map(|report| report.dropped).sum::<usize>(), 1);
}

#[test]
fn a_taken_port_is_named_with_its_address_and_a_way_out() {
    let Some(first) = open("127.0.0.7", &config()) else { return };
    let config = UdpConfig { port: first.port(), ..config() };
    let error = UdpLink::open(LinkId(1), first.local(), 0, &config).unwrap_err();
    assert!(
        matches!(error, OpenError::AddrInUse { ip, port } if ip == first.local() && port == first.port())
    );
    assert_eq!(error.errno(), libc::EADDRINUSE);
    let wanted = format!(
        "127.0.0.7 UDP port {} is taken, by another process or by this one (EADDRINUSE): close it there, use \
         another local address, or choose a private port (`DeviceBuilder::private_port`)",
        first.port()
    );
    assert_eq!(error.to_string(), wanted);
    assert!(open("127.0.0.8", &config).is_some(), "another address is another host");
}

#[test]
fn an_address_that_is_not_ours_is_named() {
    let open = |ip: &str| UdpLink::open(LinkId(0), ip.parse().unwrap(), 0, &config());
    let error = open("192.0.2.1").unwrap_err();
    assert!(error.to_string().starts_with("192.0.2.1 is not an address of this machine"), "{error}");
    for ip in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"] {
        assert!(matches!(open(ip), Err(OpenError::NotUnicast { .. })), "{ip}");
    }
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_an_ipv4_link() {
    let Some(link) = open("::ffff:127.0.0.1", &config()) else { return };
    assert_eq!(link.local(), "127.0.0.1".parse::<IpAddr>().unwrap());
    assert!(link.route("::ffff:127.0.0.2".parse().unwrap(), 4791, 9).remote.is_ipv4());
}

#[test]
fn a_link_has_eight_source_ports_and_the_interfaces_mtu() {
    let Some(link) = open("127.0.0.9", &config()) else { return };
    let mut ports = link.tx_ports().to_vec();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
    assert!(ports.iter().all(|&port| port >= 0xc000), "{ports:x?}");
    let lo = userdma_link::interface_of("127.0.0.1".parse().unwrap(), 0).unwrap().unwrap();
    assert_eq!(link.caps().mtu, lo.mtu);
    let route = link.route("127.0.0.1".parse().unwrap(), 4791, 10);
    assert_eq!((route.socket, route.local_port), (2, link.tx_ports()[2]));
}

#[test]
fn what_a_small_buffer_cannot_hold_is_counted_and_the_rest_is_whole() {
    let small = UdpConfig { recv_buffer: 212_992 / 2, ..config() };
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &small)) else {
        return;
    };
    assert_eq!(rx.recv_buffer().granted, 212_992 / 2);
    let route = tx.route(rx.local(), rx.port(), 0);
    let mut sent = 0;
    for _ in 0..60 {
        sent += tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[4112])]).packets;
    }
    let (packets, _) = receive(&mut rx, 10);
    assert!((10..60).contains(&packets.len()), "{} packets", packets.len());
    assert!(packets.iter().all(|(_, bytes)| *bytes == packet(0, 4112)));
    assert_eq!(sent, packets.len() + rx.recv_drops().unwrap() as usize);
    tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[100; 10])]);
    assert_eq!(receive(&mut rx, 10).0.len(), 10, "it goes on");
}

#[test]
fn receives_grow_with_the_queue_and_stop_at_the_limit() {
    let config = UdpConfig { recv_messages: 4, ..config() };
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config), open("127.0.0.1", &config)) else {
        return;
    };
    let route = tx.route(rx.local(), rx.port(), 0);
    for _ in 0..13 {
        tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[64, 64])]);
    }
    let (packets, reports) = receive(&mut rx, 26);
    let messages: Vec<(usize, bool)> = reports.iter().map(|report| (report.messages, report.more)).collect();
    let lone = [(1, true); 3];
    assert_eq!(messages, [&lone[..], &[(2, true), (4, true), (4, true)]].concat());
    assert_eq!(packets.len(), 26);
}

#[test]
fn faults_act_on_single_packets_of_a_super_packet() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    rx.set_faults(Some(&"loss=0.25,dup=0.1,seed=11".parse().unwrap()), Time::ZERO);
    let route = tx.route(rx.local(), rx.port(), 0);
    let mut seen = [0; 64];
    for _ in 0..20 {
        tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[200; 64])]);
        for (meta, bytes) in receive(&mut rx, 1).0 {
            assert_eq!(bytes, packet(usize::from(meta.segment), 200), "metadata stays with its packet");
            seen[usize::from(meta.segment)] += 1;
        }
    }
    let stats = rx.fault_stats().unwrap();
    assert_eq!(stats.packets, 1280);
    assert_eq!(seen.iter().sum::<u64>(), stats.packets - stats.lost + stats.duplicated);
    assert!((230..=410).contains(&stats.lost) && stats.duplicated > 50, "{stats:?}");
    rx.set_faults(Some(&"seed=1".parse().unwrap()), Time::ZERO);
    assert_eq!(rx.fault_stats(), None, "faults that do nothing are none");
}

#[test]
fn a_delayed_packet_comes_by_a_receive_that_brings_nothing_else() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    rx.set_faults(Some(&"delay=1ms".parse().unwrap()), Time::ZERO);
    let route = tx.route(rx.local(), rx.port(), 0);
    tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[50, 50])]);
    assert_eq!(receive(&mut rx, 0).0, []);
    let due = rx.next_deadline().unwrap();
    assert_eq!(due, Time::from_nanos(1_000_000));
    let mut packets = 0;
    let report = rx.recv(due, &mut |_| packets += 1);
    assert_eq!((packets, report.packets, report.messages), (2, 2, 0));
    assert_eq!(rx.next_deadline(), None);
}

#[test]
fn a_link_that_is_down_loses_both_directions_and_says_when() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let ms = |n: u64| Time::from_nanos(n * 1_000_000);
    rx.set_faults(Some(&"down=2ms..5ms".parse().unwrap()), ms(1));
    tx.set_faults(Some(&"down=2ms..5ms".parse().unwrap()), ms(1));
    let route = tx.route(rx.local(), rx.port(), 0);
    assert_eq!((rx.poll_down(ms(2)), rx.next_deadline()), (None, Some(ms(3))));
    assert_eq!(
        (rx.poll_down(ms(3)), rx.poll_down(ms(4)), rx.next_deadline()),
        (Some(true), None, Some(ms(6)))
    );
    let report = tx.send(ms(3), &mut [batch(&tx.caps(), &route, &[50; 10])]);
    assert_eq!((report.taken, tx.fault_stats().unwrap().lost), (1, 10));
    // What others send meanwhile is lost by the receiver.
    tx.send(ms(6), &mut [batch(&tx.caps(), &route, &[50; 3])]);
    while rx.fault_stats().unwrap().packets < 3 {
        rx.recv(ms(5), &mut |_| panic!("nothing comes in"));
    }
    assert_eq!((rx.poll_down(ms(6)), rx.next_deadline()), (Some(false), None));
    tx.send(ms(6), &mut [batch(&tx.caps(), &route, &[50; 2])]);
    let mut packets = 0;
    while packets < 2 {
        rx.recv(ms(6), &mut |_| packets += 1);
    }
}

#[test]
fn a_link_says_that_it_carries_less_if_it_is_told_to() {
    let Some(link) = open("127.0.0.1", &UdpConfig { mtu: Some(1500), ..config() }) else { return };
    assert_eq!(link.caps().mtu, 1500);
}

#[test]
fn a_tap_records_both_directions() {
    let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config())) else {
        return;
    };
    let capture = Capture::new(std::io::sink(), 0).unwrap();
    tx.set_tap(Some(capture.tap("tx").unwrap()));
    rx.set_tap(Some(capture.tap("rx").unwrap()));
    rx.set_faults(Some(&"dup=1".parse().unwrap()), Time::ZERO);
    let route = tx.route(rx.local(), rx.port(), 0);
    tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[50; 10]), batch(&tx.caps(), &route, &[40; 3])]);
    assert_eq!(capture.packets(), 13);
    receive(&mut rx, 26);
    assert_eq!(capture.packets(), 13 + 26, "as the device sees it: with what faults made of it");
    tx.set_tap(None);
    tx.send(Time::ZERO, &mut [batch(&tx.caps(), &route, &[50; 10])]);
    assert_eq!(capture.packets(), 39);
}
