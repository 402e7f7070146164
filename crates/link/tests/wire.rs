//! What really goes out by an interface, beside what we say of it.
//!
//! The tests hold the other end of the interface, in a network of their own. That takes privileges; without
//! them they are skipped and say so.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Sender, channel};

use common::netns::in_own_network;
use common::{batch, config, packet};
use pcap_file::pcapng::{Block, PcapNgReader};
use userdma_link::{Capture, UdpConfig, UdpLink};
use userdma_mem::{LinkId, TxBatch};
use userdma_verbs::Time;

struct Pipe(Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The packets of a capture file without their Ethernet headers.
fn ip_packets(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push(packet.data[14..].to_vec());
        }
    }
    packets
}

#[test]
fn a_capture_shows_every_byte_that_the_wire_carries() {
    in_own_network(|network| {
        let Some(mut wire) = network.tun("wire0") else { return };
        network.bring_up("wire0", 4200);
        network.add_v4("wire0", Ipv4Addr::new(10, 9, 0, 1));
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        let mut pairs: Vec<[IpAddr; 2]> = vec![["10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap()]];
        if network.add_v6("wire0", v6) {
            pairs.push([v6.into(), "fd00::2".parse().unwrap()]);
        } else {
            eprintln!("SKIPPED for IPv6: no such address here");
        }
        for [local, remote] in pairs {
            let mut link = UdpLink::open(LinkId(0), local, 0, &config()).unwrap();
            assert_eq!(link.caps().mtu, 4200);
            let (send, written) = channel();
            let capture = Capture::new(Pipe(send), 0).unwrap();
            link.set_tap(Some(capture.tap("wire0").unwrap()));
            let mut route = link.route(remote, 4791, 3);
            let caps = link.caps();
            let first = batch(&caps, &route, &[&[4112; 14][..], &[33]].concat());
            (route.traffic_class, route.hop_limit) = (0x6a, 5);
            let second = batch(&caps, &route, &[1000; 7]);
            let third = batch(&caps, &route, &[64]);
            assert_eq!(link.send(Time::ZERO, &mut [first, second, third]).packets, 23);
            capture.flush().unwrap();
            let captured = ip_packets(&written.try_iter().flatten().collect::<Vec<_>>());
            assert_eq!(captured.len(), 23);
            let is_ours = |packet: &Vec<u8>| match local {
                IpAddr::V4(_) => packet[9] == 17,
                IpAddr::V6(_) => packet[6] == 17, // not a neighbour's question
            };
            for (number, mut ours) in captured.into_iter().enumerate() {
                let sent = std::iter::from_fn(|| wire.next()).find(is_ours).expect("a packet");
                if local.is_ipv6() {
                    // The kernel makes up a flow label.
                    let label = sent[1] & 0x0f;
                    ours[1] |= label;
                    ours[2..4].copy_from_slice(&sent[2..4]);
                }
                assert_eq!(ours, sent, "{local} packet {number}");
            }
        }
    });
}

#[test]
fn a_full_send_buffer_leaves_the_rest_to_the_caller() {
    in_own_network(|network| {
        let Some(mut wire) = network.tap("wire0") else { return };
        network.bring_up("wire0", 4200);
        let (local, remote) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        network.add_v4("wire0", local);
        let config = UdpConfig { send_buffer: 20_000, ..config() };
        let mut link = UdpLink::open(LinkId(0), local.into(), 0, &config).unwrap();
        let route = link.route(remote.into(), 4791, 0);
        // Nobody knows the way to the neighbour yet, so the packets wait, and fill the socket's buffer.
        let mut batches: Vec<TxBatch> = (0..30).map(|_| batch(&link.caps(), &route, &[2000, 2000])).collect();
        let report = link.send(Time::ZERO, &mut batches);
        assert!(report.blocked, "{report:?}");
        assert!((1..30).contains(&report.taken), "{report:?}");
        assert_eq!((report.packets, report.dropped), (report.taken * 2, 0));
        assert!(batches[..report.taken].iter().all(TxBatch::is_empty));
        assert!(batches[report.taken..].iter().all(|batch| batch.count() == 2));
        assert_eq!(batches[report.taken].route(), Some(&route));
        assert_eq!(batches[report.taken].bytes(), [packet(0, 2000), packet(1, 2000)].concat());
        let again = link.send(Time::ZERO, &mut batches[report.taken..]);
        assert!(again.blocked && again.taken == 0 && again.packets == 0, "{again:?}");

        network.add_neighbour("wire0", remote);
        let is_udp = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 17;
        let mut udp = 0;
        while udp < 60 {
            udp += std::iter::from_fn(|| wire.waiting()).filter(is_udp).count();
            let first = batches.iter().position(|batch| !batch.is_empty()).unwrap_or(batches.len());
            let report = link.send(Time::ZERO, &mut batches[first..]);
            assert_eq!(report.dropped, 0);
            if report.packets == 0 && udp < 60 {
                let frame = wire.next().expect("what waits goes out");
                udp += usize::from(is_udp(&frame));
            }
        }
        assert!(batches.iter().all(TxBatch::is_empty));
        assert_eq!(udp, 60, "each packet went out once");
    });
}
