//! Packets that come alone, and the crowds after them: however the link receives, nothing is lost or told wrongly.

mod common;

use std::os::fd::{AsFd, AsRawFd};

use common::{batch, config, open, packet, receive};
use userdma_link::{UdpConfig, UdpLink};
use userdma_mem::Route;
use userdma_verbs::Time;

/// Two links and the way from the first to the second.
struct Two {
    tx: UdpLink,
    rx: UdpLink,
    route: Route,
}

impl Two {
    fn open(ip: &str, config: &UdpConfig) -> Option<Self> {
        let (tx, rx) = (open(ip, config)?, open(ip, config)?);
        let route = tx.route(rx.local(), rx.port(), 3);
        Some(Self { tx, rx, route })
    }

    fn send(&mut self, traffic_class: u8, sizes: &[usize]) {
        let route = Route { traffic_class, ..self.route };
        let report = self.tx.send(Time::ZERO, &mut [batch(&self.tx.caps(), &route, sizes)]);
        assert_eq!((report.packets, report.dropped), (sizes.len(), 0));
    }

    /// Sends a batch of packets of these sizes and receives it; how many messages it took, and the traffic classes.
    fn pass(&mut self, traffic_class: u8, sizes: &[usize]) -> (usize, Vec<u8>) {
        self.send(traffic_class, sizes);
        let (packets, reports) = receive(&mut self.rx, sizes.len());
        assert_eq!(packets.len(), sizes.len());
        for (number, ((meta, bytes), &size)) in packets.iter().zip(sizes).enumerate() {
            assert_eq!(*bytes, packet(number, size));
            assert_eq!((meta.remote, meta.remote_port), (self.tx.local(), self.tx.tx_ports()[3]));
            assert_eq!((meta.local, meta.local_port), (self.rx.local(), self.rx.port()));
        }
        let classes = packets.iter().map(|(meta, _)| meta.traffic_class).collect();
        (reports.iter().map(|report| report.messages).sum(), classes)
    }

    /// Whether the kernel joins packets for the receiver now.
    fn is_joining(&self) -> bool {
        let fd = self.rx.as_fd().as_raw_fd();
        let (mut value, mut len) = (0i32, 4);
        // SAFETY: the kernel writes at most four bytes to `value`, and their number to `len`; both outlive the call.
        let result = unsafe {
            libc::getsockopt(fd, libc::SOL_UDP, libc::UDP_GRO, (&raw mut value).cast(), &raw mut len)
        };
        assert_eq!(result, 0);
        value != 0
    }
}

#[test]
fn after_lone_packets_a_crowd_arrives_whole_and_is_joined_again() {
    for ip in ["127.0.0.1", "::1"] {
        let Some(mut two) = Two::open(ip, &config()) else { continue };
        assert!(two.is_joining());
        for round in 0..3 {
            for size in 0..200 {
                assert_eq!(two.pass(0, &[20 + size]), (1, vec![0]), "round {round}");
            }
            assert!(!two.is_joining());
            // An acknowledgement behind an answer.
            assert_eq!(two.pass(0, &[24, 20]).0, 2);
            assert!(!two.is_joining());

            assert_eq!(two.pass(0, &[900; 40]).0, 40, "this one comes in pieces");
            assert!(two.is_joining());
            assert_eq!(two.pass(0, &[900; 40]).0, 1);
        }
    }
}

/// The kernel tells the size of a coalesced message's packets only while it is asked to coalesce.
#[test]
fn a_crowd_that_is_queued_behind_lone_packets_arrives_whole() {
    for ip in ["127.0.0.1", "::1"] {
        let Some(mut two) = Two::open(ip, &config()) else { continue };
        for lone in 1..100 {
            two.send(0, &[24]);
            two.send(0, &[900; 40]);
            let (packets, _) = receive(&mut two.rx, 41);
            let sizes: Vec<_> = packets.iter().map(|(_, bytes)| bytes.len()).collect();
            assert_eq!(sizes, [&[24][..], &[900; 40]].concat(), "after {} lone packets", lone - 1);
            (0..lone).for_each(|_| assert_eq!(two.pass(0, &[24]).0, 1));
        }
    }
}

#[test]
fn a_mark_after_lone_packets_is_seen() {
    const ECT_0: u8 = 2;
    for ip in ["127.0.0.1", "::1"] {
        let Some(mut two) = Two::open(ip, &config()) else { continue };
        for _ in 0..200 {
            // The upper six bits make no difference.
            assert_eq!(two.pass(0b1010_0100, &[24]), (1, vec![0b1010_0100]));
        }
        let unseen = (0..100).take_while(|_| two.pass(ECT_0, &[24]).1 != [ECT_0]).count();
        assert!(unseen < 31, "{unseen}");
        for _ in 0..100 {
            assert_eq!(two.pass(ECT_0, &[24]).1, [ECT_0], "those may be marked");
        }
    }
}

#[test]
fn where_nothing_is_joined_lone_packets_change_nothing() {
    let config = UdpConfig { coalescing: false, ..config() };
    for ip in ["127.0.0.1", "::1"] {
        let Some(mut two) = Two::open(ip, &config) else { continue };
        for _ in 0..200 {
            assert_eq!(two.pass(0, &[24]), (1, vec![0]));
        }
        for _ in 0..3 {
            assert_eq!(two.pass(0, &[900; 40]).0, 40);
        }
        assert!(!two.is_joining());
    }
}
