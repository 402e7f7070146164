//! Lone packets, bursts, strangers and marks at once: each packet arrives whole, once, in its sender's order and from its
//! sender's address, however the link receives just then.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{config, open};
use userdma_link::{Capture, UdpConfig, UdpLink, clock};
use userdma_mem::{FrameMeta, Route, TxBatch};
use userdma_verbs::Time;

/// Number of the sender (1), traffic class (1), length (2), number of the packet (4).
const HEADER: usize = 8;

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit) as usize
    }
}

fn fill(bytes: &mut [u8], sender: u8, class: u8, number: u32) {
    let len = bytes.len() as u16;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (number as usize * 31 + at * 7 + usize::from(sender)) as u8;
    }
    (bytes[0], bytes[1]) = (sender, class);
    bytes[2..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
}

/// Sends phases of lone packets and of bursts; how many packets.
fn send(mut link: UdpLink, to: (IpAddr, u16), sender: u8, sizes: (usize, usize), end: &AtomicBool) -> u32 {
    let mut random = Random(0x9e37_79b9 + u64::from(sender));
    let route = link.route(to.0, to.1, sender);
    let (mut number, mut credit) = (0, 0usize);
    let mut send = |link: &mut UdpLink, class: u8, sizes: &[usize]| {
        let mut batch = TxBatch::new(&link.caps());
        let route = Route { traffic_class: class, ..route };
        for &size in sizes {
            let Some((_, bytes)) = batch.push(&route, size) else { break };
            fill(bytes, sender, class, number);
            number += 1;
        }
        while link.send(Time::ZERO, std::slice::from_mut(&mut batch)).blocked {
            std::thread::yield_now();
        }
        credit += sizes.iter().sum::<usize>() + 800 * sizes.len();
        if credit > 200_000 {
            // So that the receiver's buffer does not run over.
            credit = 0;
            std::thread::sleep(Duration::from_micros(500));
        }
    };
    while !end.load(Ordering::Relaxed) {
        for _ in 0..random.below(260) {
            let class = if random.below(300) == 0 { 2 } else { 0 };
            send(&mut link, class, &[sizes.0 + random.below((sizes.1 - sizes.0) as u64)]);
            let pause = clock::now();
            let micros = random.below(25) as u128;
            while clock::now().since(pause).as_micros() < micros {}
        }
        for _ in 0..random.below(4) {
            let size = sizes.0 + random.below((sizes.1 - sizes.0) as u64);
            let mut burst = vec![size; 1 + random.below(64)];
            if let Some(last) = burst.last_mut() {
                *last = HEADER + random.below((size - HEADER + 1) as u64);
            }
            send(&mut link, if random.below(8) == 0 { 2 } else { 0 }, &burst);
        }
    }
    number
}

fn mixture(ip: &str, ranges: &[(usize, usize)], seconds: u64) {
    let Some(mut rx) = open(ip, &UdpConfig { recv_buffer: 64 << 20, ..config() }) else { return };
    let to = (rx.local(), rx.port());
    let links: Vec<_> = ranges.iter().map(|_| open(ip, &config()).unwrap()).collect();
    let ports: Vec<_> = (0u8..).zip(&links).map(|(n, link)| link.tx_ports()[usize::from(n)]).collect();
    let mut sink = open(ip, &config()).unwrap();
    let (end, sending) = (AtomicBool::new(false), AtomicUsize::new(ranges.len()));
    let file = std::env::temp_dir().join(format!("mixture{}", to.1));
    let capture = Capture::create(&file).unwrap();
    let mut next = vec![0u32; ranges.len()];
    let (mut seen, mut lost, mut large, mut empty, mut wrong_class) = (0u64, 0u64, 0u64, 0usize, 0u64);
    let (mut messages, mut wrong) = (0, 0);
    let sent: Vec<u32> = std::thread::scope(|scope| {
        let (end, sending) = (&end, &sending);
        let threads: Vec<_> = (0u8..)
            .zip(links)
            .zip(ranges)
            .map(|((n, link), &sizes)| {
                scope.spawn(move || {
                    let sent = send(link, to, n, sizes, end);
                    sending.fetch_sub(1, Ordering::SeqCst);
                    sent
                })
            })
            .collect();
        // A stranger: nothing, as much as there can be, and a joined crowd of its own is what the others do.
        scope.spawn(move || {
            let socket = UdpSocket::bind((to.0, 0)).unwrap();
            let mut giant = vec![0; 65_507];
            fill(&mut giant, 200, 0, 7);
            let mut random = Random(77);
            while !end.load(Ordering::Relaxed) {
                let bytes = if random.below(3) == 0 { &giant[..] } else { &[] };
                socket.send_to(bytes, to).unwrap();
                std::thread::sleep(Duration::from_micros(300 + random.below(2000) as u64));
            }
        });
        let started = clock::now();
        let mut random = Random(5);
        let mut quiet = 0;
        while quiet < 1000 {
            if clock::now().since(started) > Duration::from_secs(seconds) {
                end.store(true, Ordering::Relaxed);
            }
            match random.below(4000) {
                0 => rx.set_tap(Some(capture.tap("lo").unwrap())),
                1 => rx.set_tap(None),
                2..400 => {
                    let route = rx.route(sink.local(), sink.port(), 0);
                    let batch = common::batch(&rx.caps(), &route, &[16]);
                    rx.send(Time::ZERO, &mut [batch]);
                    while sink.recv(Time::ZERO, &mut |_| ()).messages > 0 {}
                }
                _ => {}
            }
            let report = rx.recv(Time::ZERO, &mut |frame| {
                let FrameMeta { remote, remote_port, traffic_class, .. } = frame.meta;
                let bytes = frame.bytes;
                let number = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
                let mut want = vec![0; usize::from(u16::from_le_bytes([bytes[2], bytes[3]]))];
                fill(&mut want, bytes[0], bytes[1], number);
                if bytes != want {
                    wrong += 1;
                    let (sender, class) = (bytes[0], bytes[1]);
                    eprintln!(
                        "{} bytes from sender {sender}, class {class}: the packet has {}",
                        bytes.len(),
                        want.len()
                    );
                    return;
                }
                assert_eq!((frame.meta.local, frame.meta.local_port, remote), (to.0, to.1, to.0));
                if bytes[0] == 200 {
                    large += 1;
                    return;
                }
                let sender = usize::from(bytes[0]);
                assert_eq!(remote_port, ports[sender], "wrong address");
                assert!(number >= next[sender], "{number} of {sender} after {}", next[sender]);
                lost += u64::from(number - next[sender]);
                next[sender] = number + 1;
                wrong_class += u64::from(traffic_class != bytes[1]);
                seen += 1;
            });
            assert_eq!(report.errors, 0);
            empty += report.dropped;
            messages += report.messages;
            quiet = if report.messages == 0 && sending.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    std::fs::remove_file(file).unwrap();
    let missing: u64 = sent.iter().zip(&next).map(|(sent, next)| u64::from(sent - next)).sum();
    eprintln!(
        "{ip}: {seen} packets in {messages} messages, {lost}+{missing} lost ({} dropped by the socket), {large} large, {empty} empty, {wrong_class} of a wrong class",
        rx.recv_drops().unwrap()
    );
    assert_eq!((wrong, lost + missing), (0, 0), "wrong boundaries, lost");
    assert!(wrong_class * 100 < seen, "{wrong_class} of {seen}");
}

#[test]
fn whatever_comes_arrives_whole_once_and_from_its_sender() {
    let seconds = std::env::var("MIXTURE_SECONDS").map_or(1, |s| s.parse().unwrap());
    for ip in ["127.0.0.1", "::1"] {
        mixture(ip, &[(HEADER, 12), (HEADER, 1500), (1024, 4200)], seconds);
        mixture(ip, &[(HEADER, 40)], seconds);
        mixture(ip, &[(1000, 4200)], seconds);
    }
}
