//! What the tests of links share.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "tests"
)]

pub(crate) mod netns;

use std::net::IpAddr;

use userdma_link::{RecvReport, UdpConfig, UdpLink};
use userdma_mem::{FrameMeta, LinkCaps, LinkId, Route, TxBatch};
use userdma_verbs::Time;

/// A port of the kernel's choice, so that tests do not meet.
pub(crate) fn config() -> UdpConfig {
    UdpConfig { port: 0, ..UdpConfig::default() }
}

/// A link on `ip`; `None`, and a line that says so, if this system has no such addresses.
pub(crate) fn open(ip: &str, config: &UdpConfig) -> Option<UdpLink> {
    let ip: IpAddr = ip.parse().unwrap();
    match UdpLink::open(LinkId(0), ip, 0, config) {
        Ok(link) => Some(link),
        Err(error) if ip.is_ipv6() && matches!(error.errno(), libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => {
            eprintln!("SKIPPED for {ip}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The packets that a test sends: each byte tells which packet it belongs to, and where it stands.
pub(crate) fn packet(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// A batch of packets of these sizes, all of which must fit.
pub(crate) fn batch(caps: &LinkCaps, route: &Route, sizes: &[usize]) -> TxBatch {
    let mut batch = TxBatch::new(caps);
    for (number, &size) in sizes.iter().enumerate() {
        let (_, bytes) = batch.push(route, size).expect("the batch has room");
        bytes.copy_from_slice(&packet(number, size));
    }
    batch
}

/// The packets that come in until there are `wanted` of them and no more wait. Gives up, with fewer, if the wire
/// is silent for ten seconds.
pub(crate) fn receive(link: &mut UdpLink, wanted: usize) -> (Vec<(FrameMeta, Vec<u8>)>, Vec<RecvReport>) {
    let (mut packets, mut reports) = (Vec::new(), Vec::new());
    loop {
        let report = link.recv(Time::ZERO, &mut |frame| packets.push((frame.meta, frame.bytes.to_vec())));
        if report.messages > 0 || report.errors > 0 {
            reports.push(report);
        } else if packets.len() >= wanted || !readable(link) {
            return (packets, reports);
        }
    }
}

/// Waits until something comes in, ten seconds at most.
pub(crate) fn readable(link: &UdpLink) -> bool {
    let mut fds = [rustix::event::PollFd::new(link, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0
}
