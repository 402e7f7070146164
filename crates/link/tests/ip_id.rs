//! What the packets look like below the sockets: IPv4 identification, "don't fragment", the path's MTU.
//!
//! These tests look at raw packets and make a network of their own, which takes privileges. Without them they are
//! skipped and say so.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small constants")]

mod common;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::netns::in_own_network;
use common::{batch, config, open, receive};
use userdma_link::{TooLong, UdpConfig};
use userdma_mem::LinkCaps;
use userdma_verbs::Time;

/// Shows IPv4 identification, flags, and bytes after the UDP header of each packet that came to UDP port `port`.
struct Sniffer {
    socket: OwnedFd,
    port: u16,
}

impl Sniffer {
    /// Looks at all packets of this network; `None` without the privilege.
    fn new(port: u16) -> Option<Self> {
        let protocol = libc::ETH_P_IP as u16; // 0x0800
        // SAFETY: takes numbers only; the new descriptor belongs to nobody else.
        let socket = unsafe {
            let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            match libc::socket(libc::AF_PACKET, kind, i32::from(protocol.to_be())) {
                -1 => {
                    eprintln!("SKIPPED: no raw packets without privilege: {}", io::Error::last_os_error());
                    return None;
                }
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let size: i32 = 8 << 20;
        // SAFETY: the kernel reads the four bytes of `size`, which outlives the call.
        let set = unsafe {
            let size = (&raw const size).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size, 4)
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        Some(Self { socket, port })
    }

    fn packets(&self) -> Vec<(u16, u16, usize)> {
        let mut bytes = vec![0u8; 1 << 17];
        let mut found = Vec::new();
        loop {
            // SAFETY: all zero is a value of the structure.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut from_len = size_of_val(&from) as libc::socklen_t;
            // SAFETY: the kernel writes at most the lengths given, to memory that outlives the call.
            let len = unsafe {
                libc::recvfrom(
                    self.socket.as_raw_fd(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut from_len,
                )
            };
            let Ok(len) = usize::try_from(len) else { return found };
            let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let to_us = bytes[0] == 0x45 && bytes[9] == 17 && len >= 28 && word(22) == self.port;
            if to_us && from.sll_pkttype == libc::PACKET_HOST {
                found.push((word(4), word(6), len - 28));
            }
        }
    }
}

const DONT_FRAGMENT: u16 = 0x4000;

#[test]
fn segments_are_numbered_from_zero() {
    in_own_network(|network| {
        network.bring_up("lo", 65_536);
        let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config()))
        else {
            return;
        };
        let Some(sniffer) = Sniffer::new(rx.port()) else { return };
        // Beyond the link's own limit, but within UDP's: such a batch is cut up before the loopback interface.
        let caps = LinkCaps { max_batch_bytes: 65_507, ..tx.caps() };
        let route = tx.route(rx.local(), rx.port(), 4);
        let sizes = [&[1024; 63][..], &[985]].concat();
        for _ in 0..3 {
            let report = tx.send(Time::ZERO, &mut [batch(&caps, &route, &sizes)]);
            assert_eq!(report.packets, 64);
            let wanted: Vec<_> = (0u16..).zip(&sizes).map(|(id, &size)| (id, DONT_FRAGMENT, size)).collect();
            // What a socket has received has passed the sniffer before.
            assert_eq!(receive(&mut rx, 64).0.len(), 64);
            assert_eq!(sniffer.packets(), wanted);
        }
    });
}

#[test]
fn single_packets_have_number_zero() {
    in_own_network(|network| {
        network.bring_up("lo", 65_536);
        let (Some(mut tx), Some(mut rx)) = (open("127.0.0.1", &config()), open("127.0.0.1", &config()))
        else {
            return;
        };
        let Some(sniffer) = Sniffer::new(rx.port()) else { return };
        let mut route = tx.route(rx.local(), rx.port(), 0);
        for traffic_class in [0, 0, 2, 3] {
            route.traffic_class = traffic_class;
            let batches = &mut [batch(&tx.caps(), &route, &[100]), batch(&tx.caps(), &route, &[200])];
            assert_eq!(tx.send(Time::ZERO, batches).packets, 2);
            receive(&mut rx, 2);
            assert_eq!(sniffer.packets(), [(0, DONT_FRAGMENT, 100), (0, DONT_FRAGMENT, 200)]);
        }
    });
}

#[test]
fn a_packet_beyond_the_mtu_is_dropped_and_reported() {
    in_own_network(|network| {
        network.bring_up("lo", 1500);
        for (ip, headers) in [("127.0.0.1", 28), ("::1", 48)] {
            for segmentation in [true, false] {
                let config = UdpConfig { segmentation, ..config() };
                let (Some(mut tx), Some(mut rx)) = (open(ip, &config), open(ip, &config)) else { continue };
                assert_eq!(tx.caps().mtu, 1500);
                let caps = LinkCaps { max_batch_packets: 64, ..tx.caps() };
                let fits = 1500 - headers;
                let route = tx.route(rx.local(), rx.port(), 0);
                for count in [1, 5] {
                    let before = tx.caps();
                    let mut batches = [
                        batch(&caps, &route, &vec![fits; count]),
                        batch(&caps, &route, &vec![fits + 1; count]),
                        batch(&caps, &route, &[30]),
                    ];
                    let report = tx.send(Time::ZERO, &mut batches);
                    let too_long = TooLong { remote: route.remote, bytes: fits + 1 };
                    assert_eq!(report.too_long, Some(too_long), "{ip} {count} {report:?}");
                    assert_eq!((report.taken, report.packets, report.dropped), (3, count + 1, count));
                    assert_eq!(tx.caps(), before, "a long packet is no reason to stop segmenting");
                    assert!(!report.caps_changed);
                    let (packets, _) = receive(&mut rx, count + 1);
                    let sizes: Vec<usize> = packets.iter().map(|(_, bytes)| bytes.len()).collect();
                    assert_eq!(sizes, [&vec![fits; count][..], &[30]].concat());
                }
            }
        }
    });
}
