//! Groups (multicast): who gets what is sent to one, and who does not.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use common::netns::in_own_network;
use common::{batch, config, open, packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use userdma_link::{Capture, UdpConfig, UdpLink};
use userdma_mem::{FrameMeta, LinkId};
use userdma_verbs::Time;

/// What comes until there are `wanted` packets and no more wait.
fn receive(link: &mut UdpLink, wanted: usize) -> Vec<(FrameMeta, Vec<u8>)> {
    let mut packets = Vec::new();
    loop {
        let report = link.recv(Time::ZERO, &mut |frame| packets.push((frame.meta, frame.bytes.to_vec())));
        assert_eq!((report.dropped, report.errors), (0, 0));
        let wait = if packets.len() < wanted { 10 } else { 0 };
        if report.messages == 0 && !is_readable(link.groups().unwrap(), wait) {
            return packets;
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>, seconds: i64) -> bool {
    let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

fn send(link: &mut UdpLink, group: IpAddr, port: u16, sizes: &[usize]) {
    let route = link.route(group, port, 3);
    let report = link.send(Time::ZERO, &mut [batch(&link.caps(), &route, sizes)]);
    assert_eq!((report.packets, report.dropped), (sizes.len(), 0), "{report:?}");
}

#[test]
fn every_link_that_has_joined_gets_a_copy_and_no_other() {
    let Some(mut first) = open("127.73.1.1", &config()) else { return };
    let config = UdpConfig { port: first.port(), ..config() };
    let (Some(mut second), Some(mut other)) = (open("127.73.1.2", &config), open("127.73.1.3", &config))
    else {
        return;
    };
    let [group, another] = ["239.73.1.1", "239.73.1.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for link in [&mut first, &mut second] {
        link.join(group).unwrap();
        link.join(group).unwrap();
    }
    other.join(another).unwrap();
    assert!(first.groups().is_some());
    // One by one, and as a super-packet that each gets.
    for sizes in [&[100][..], &[900; 40], &[60, 60, 12]] {
        let port = first.port();
        send(&mut first, group, port, sizes);
        for link in [&mut first, &mut second] {
            let came = receive(link, sizes.len());
            assert_eq!(came.len(), sizes.len(), "once");
            for (number, ((meta, bytes), &size)) in came.iter().zip(sizes).enumerate() {
                assert_eq!(*bytes, packet(number, size), "packet {number} of {sizes:?}");
                assert_eq!((meta.local, meta.local_port), (group, config.port), "where it was sent to");
            }
        }
        let from = receive(&mut second, 0);
        assert!(from.is_empty());
        assert!(receive(&mut other, 0).is_empty());
    }
    assert!(first.leave(group) && !first.leave(group));
    send(&mut other, group, config.port, &[10]);
    assert_eq!(receive(&mut second, 1).len(), 1);
    assert!(receive(&mut first, 0).is_empty(), "it has left");
}

#[test]
fn a_group_is_of_a_port() {
    let Some(mut tx) = open("127.73.1.4", &config()) else { return };
    let Some(mut rx) = open("127.73.1.5", &config()) else { return };
    let group: IpAddr = "239.73.1.4".parse().unwrap();
    rx.join(group).unwrap();
    let port = rx.port();
    send(&mut tx, group, if port == 65_535 { 1024 } else { port + 1 }, &[9]);
    send(&mut tx, group, port, &[8]);
    assert_eq!(receive(&mut rx, 1).iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [8]);
    let from = (tx.local(), tx.tx_ports()[3]);
    send(&mut tx, group, port, &[7]);
    assert_eq!(
        receive(&mut rx, 1).iter().map(|(m, _)| (m.remote, m.remote_port)).collect::<Vec<_>>(),
        [from]
    );
}

#[test]
fn what_is_no_group_is_not_joined() {
    let Some(mut link) = open("127.73.1.6", &config()) else { return };
    assert!(link.join("127.73.1.7".parse().unwrap()).is_err());
    assert!(!link.leave("239.73.1.6".parse().unwrap()), "never joined");
    // The other address family, which needs no address of it.
    match link.join("ff05::73:6".parse().unwrap()) {
        Ok(()) => assert!(link.leave("ff05::73:6".parse().unwrap())),
        Err(error) => eprintln!("SKIPPED for IPv6: {error}"),
    }
}

#[test]
fn a_capture_and_faults_meet_what_comes_to_a_group() {
    let Some(mut link) = open("127.73.1.8", &config()) else { return };
    let group: IpAddr = "239.73.1.8".parse().unwrap();
    link.join(group).unwrap();
    let port = link.port();
    link.set_faults(Some(&"dup=1".parse().unwrap()), Time::ZERO);
    send(&mut link, group, port, &[50]);
    assert_eq!(receive(&mut link, 2).len(), 2, "each is repeated");
    link.set_faults(None, Time::ZERO);
    let file = std::env::temp_dir().join(format!("userdma-groups-{}.pcapng", std::process::id()));
    let capture = Capture::create(&file).unwrap();
    link.set_tap(Some(capture.tap("127.73.1.8").unwrap()));
    send(&mut link, group, port, &[50]);
    assert_eq!(receive(&mut link, 1).len(), 1);
    link.set_tap(None);
    drop(capture);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let headers = [&[0x01, 0, 0x5e, 73, 1, 8][..], &[127, 73, 1, 8, 239, 73, 1, 8]];
    let count = |wanted: &[u8]| bytes.windows(wanted.len()).filter(|window| *window == wanted).count();
    assert_eq!(headers.map(count), [2, 2], "it went out and came in");
}

/// What goes out by an interface is for the group's hardware address, with the hop limit of the route.
#[test]
fn the_hop_limit_of_the_route_is_sent_to_groups() {
    in_own_network(|network| {
        let Some(mut wire) = network.tap("wire0") else { return };
        network.bring_up("wire0", 1500);
        network.add_v4("wire0", Ipv4Addr::new(10, 9, 0, 1));
        let local = "10.9.0.1".parse().unwrap();
        let config = UdpConfig { port: 4791, hop_limit: 9, ..config() };
        let mut link = UdpLink::open(LinkId(0), local, 0, &config).unwrap();
        let group: IpAddr = "239.73.1.9".parse().unwrap();
        for (asked, wanted) in [(9, 9), (200, 200), (1, 1)] {
            let mut route = link.route(group, 4791, 0);
            route.hop_limit = asked;
            link.send(Time::ZERO, &mut [batch(&link.caps(), &route, &[8])]);
            let sent = next_to(&mut wire, &[0x01, 0x00, 0x5e, 73, 1, 9]);
            assert_eq!((sent[14 + 8], &sent[14 + 12..14 + 20]), (wanted, &[10, 9, 0, 1, 239, 73, 1, 9][..]));
            assert_eq!(sent[14 + 4..14 + 6], [0, 0], "the identification that the ICRC covers");
        }
    });
}

#[test]
fn groups_of_ipv6_need_an_interface_that_has_them() {
    in_own_network(|network| {
        let Some(mut wire) = network.tap("wire0") else { return };
        let Some(_other) = network.tap("wire1") else { return };
        network.bring_up("wire0", 1500);
        network.bring_up("wire1", 1500);
        let ip: Ipv6Addr = "fd00::1".parse().unwrap();
        if !network.add_v6("wire0", ip) || !network.add_v6("wire1", "fd01::1".parse().unwrap()) {
            eprintln!("SKIPPED for IPv6: no such address here");
            return;
        }
        let config = UdpConfig { port: 4791, hop_limit: 9, ..config() };
        let mut links = [ip.into(), "fd01::1".parse().unwrap()]
            .map(|ip| UdpLink::open(LinkId(0), ip, 0, &config).unwrap());
        assert_ne!(links[0].interface(), links[1].interface());
        for group in ["ff05::73:9", "ff02::73:9"].map(|group| group.parse::<IpAddr>().unwrap()) {
            links.iter_mut().for_each(|link| link.join(group).unwrap());
            send(&mut links[0], group, 4791, &[40, 40]);
            let sent = next_to(&mut wire, &[0x33, 0x33, 0, 0x73, 0, 9]);
            assert_eq!(sent[14 + 7], 9, "the hop limit");
            let came = receive(&mut links[0], 2);
            assert_eq!(came.len(), 2);
            assert!(came.iter().all(|(meta, _)| meta.local == group && meta.remote == IpAddr::V6(ip)));
            assert!(receive(&mut links[1], 0).is_empty(), "it came by another interface");
        }
    });
}

fn next_to(wire: &mut common::netns::Wire, hardware: &[u8]) -> Vec<u8> {
    loop {
        let sent = wire.next().unwrap();
        // UDP: the kernel tells the group's members, too.
        let next_header = if sent[12..14] == [0x08, 0x00] { sent[14 + 9] } else { sent[14 + 6] };
        if sent.starts_with(hardware) && next_header == 17 {
            return sent;
        }
    }
}
