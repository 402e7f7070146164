//! Management datagrams between devices that have their port alone, and between those that share it.
//!
//! A test with a shared port runs in a process with an agent of its own: with the agent of another test's process, what it held and
//! knew would end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use userdma_agent::PortSpace;
use userdma_link::{Capture, Faults};

use super::*;
use crate::HostConfig;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A device, and what comes to it.
struct Bench {
    host: Host,
    came: Receiver<Management>,
}

impl Bench {
    fn open(config: &HostConfig) -> Self {
        let host = Host::open(config).unwrap();
        let (tell, came) = channel();
        // A receiver that has gone wants nothing more.
        host.set_management_sink(move |datagram| tell.send(datagram).is_ok()).unwrap();
        Self { host, came }
    }

    fn alone(addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| ip(text)).collect();
        Self::open(&HostConfig { addresses, private_port: Some(14_842), ..HostConfig::default() })
    }

    fn shared(addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| ip(text)).collect();
        // Others may be on the usual port of ::1.
        Self::open(&HostConfig { addresses, shared_port: Some(14_843), ..HostConfig::default() })
    }

    #[track_caller]
    fn next(&self) -> Management {
        self.came.recv_timeout(Duration::from_secs(20)).expect("a datagram")
    }

    #[track_caller]
    fn assert_answered(&self, at: &str, question: &[u8; 256], answer: &[u8; 256]) {
        self.send(at, at, question);
        assert_eq!(self.next().mad, *answer);
    }

    fn send(&self, from: &str, to: &str, mad: &[u8; 256]) {
        self.host.send_management(ip(from), ip(to), mad).unwrap();
    }
}

/// Runs the test with this name again in a process with an agent of its own; `false` in that process.
fn is_done_apart(test: &str) -> bool {
    // The word sets the process apart; the longest that counts has 24 letters.
    let word = test.replace('_', "");
    let agent = ("USERDMA_AGENT", &word[word.len() - 24..]);
    userdma_other::is_done_apart(&format!("management::tests::{test}"), &[agent])
}

/// A message of the communication manager: attribute and the first words of its body.
fn message(attribute: u8, words: &[u32]) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = attribute;
    for (at, word) in words.iter().enumerate() {
        mad[24 + 4 * at..][..4].copy_from_slice(&word.to_be_bytes());
    }
    mad
}

/// A request to `service`.
fn req(ours: u32, service: u32) -> [u8; 256] {
    message(0x10, &[ours, 0, 0, service])
}

/// Waits until so many packets are captured, and not one more. One that is sent is captured when it has left, and may have arrived.
fn await_packets(capture: &Capture, count: u64) {
    while capture.packets() < count {
        std::thread::yield_now();
    }
    assert_eq!(capture.packets(), count);
}

#[test]
fn devices_that_have_their_port_alone_exchange_datagrams() {
    let (a, b) = (Bench::alone(&["127.42.2.1", "::1"]), Bench::alone(&["127.42.2.2"]));
    assert_eq!((a.host.slot(), b.host.slot()), (0, 0));
    let capture = Capture::new(Vec::<u8>::new(), 0).unwrap();
    b.host.attach_capture(&capture).unwrap();
    a.send("127.42.2.1", "127.42.2.2", &[7; 256]);
    let (from, to) = (ip("127.42.2.1"), ip("127.42.2.2"));
    assert_eq!(b.next(), Management { from, to, mad: [7; 256] });
    b.send("127.42.2.2", "127.42.2.1", &[8; 256]);
    assert_eq!(a.next(), Management { from: to, to: from, mad: [8; 256] });
    await_packets(&capture, 2);
    a.send("::1", "::1", &[9; 256]);
    assert_eq!(a.next(), Management { from: ip("::1"), to: ip("::1"), mad: [9; 256] });
    let refused = a.host.send_management(from, ip("::1"), &[0; 256]);
    assert!(matches!(refused, Err(SendManagementError::Refused(ManagementError::NoRoute { .. }))));
}

#[test]
fn a_device_that_has_its_port_alone_keeps_its_own_books() {
    let a = Bench::alone(&["127.42.2.3"]);
    let wanted = PortRequest {
        space: PortSpace::Tcp,
        port: 7,
        address: ip("127.42.2.3"),
        reuse_address: false,
        af_only: true,
    };
    let first = a.host.reserve_port(&wanted).unwrap();
    let errno = a.host.reserve_port(&wanted).unwrap_err().raw_os_error();
    assert_eq!((first.port, errno), (7, Some(libc::EADDRINUSE)));
    let ephemeral = a.host.reserve_port(&PortRequest { port: 0, ..wanted }).unwrap();
    assert!((32_768..=60_999).contains(&ephemeral.port));
    a.host.begin_listening(first.id).unwrap();
    a.host.listen(7, u64::MAX, None).unwrap();
    a.host.unlisten(7, u64::MAX, None);
    a.host.release_port(first.id);
    a.host.reserve_port(&wanted).unwrap();
}

/// Both on one address of each family: everything comes to one socket, and each gets what is its own.
#[test]
fn devices_that_share_a_port_get_what_is_theirs() {
    if is_done_apart("devices_that_share_a_port_get_what_is_theirs") {
        return;
    }
    for at in ["127.42.2.4", "::1"] {
        let (a, b) = (Bench::shared(&[at]), Bench::shared(&[at]));
        let capture = Capture::new(Vec::<u8>::new(), 0).unwrap();
        b.host.attach_capture(&capture).unwrap();
        b.host.listen(0x0106_0007, u64::MAX, Some(ip(at))).unwrap();
        let errno = a.host.listen(0x0106_0007, u64::MAX, None).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::EADDRINUSE));
        let theirs = u32::from(a.host.slot()) << 22 | 5;
        a.send(at, at, &req(theirs, 0x0106_0007));
        assert_eq!(b.next(), Management { from: ip(at), to: ip(at), mad: req(theirs, 0x0106_0007) });
        let ours = u32::from(b.host.slot()) << 22 | 9;
        let rep = message(0x13, &[ours, theirs]);
        b.send(at, at, &rep);
        assert_eq!(a.next().mad, rep);
        // What was passed on is captured, too.
        await_packets(&capture, 2);
        // Nobody listens any more, but the request is known.
        b.host.unlisten(0x0106_0007, u64::MAX, Some(ip(at)));
        // Giving back does not wait; behind the answer to another question it has happened.
        b.host.listen(0x0106_0008, u64::MAX, None).unwrap();
        a.host.listen(0x0106_0007, u64::MAX, None).unwrap();
        a.send(at, at, &req(theirs, 0x0106_0007));
        assert_eq!(b.next().mad, req(theirs, 0x0106_0007));
        a.send(at, at, &req(theirs + 1, 0x0106_0007));
        assert_eq!(a.next().mad, req(theirs + 1, 0x0106_0007));
    }
}

#[test]
fn what_is_nobodys_is_answered_for_all() {
    if is_done_apart("what_is_nobodys_is_answered_for_all") {
        return;
    }
    let a = Bench::shared(&["127.42.2.5"]);
    let ours = u32::from(a.host.slot()) << 22 | 1;
    // No such service.
    a.assert_answered("127.42.2.5", &req(ours, 0x0106_0099), &message(0x12, &[0, ours, 8]));
    let dead = 1000 << 22;
    // It has ended.
    a.assert_answered("127.42.2.5", &message(0x15, &[ours, dead]), &message(0x16, &[dead, ours]));
}

#[test]
fn what_is_passed_on_suffers_the_faults_of_the_link() {
    if is_done_apart("what_is_passed_on_suffers_the_faults_of_the_link") {
        return;
    }
    let faults: Faults = "loss=1".parse().unwrap();
    let deaf =
        Bench::open(&HostConfig { addresses: vec![ip("127.42.2.6")], faults, ..HostConfig::default() });
    let ours = u32::from(deaf.host.slot()) << 22;
    deaf.send("127.42.2.6", "127.42.2.6", &req(ours, 1));
    while deaf.host.fault_stats().unwrap().lost == 0 {
        std::thread::yield_now();
    }
    assert!(deaf.came.try_recv().is_err());
}

#[test]
fn a_device_that_nobody_listens_to_drops_and_counts() {
    let a = Bench::alone(&["127.42.2.7"]);
    let config =
        HostConfig { addresses: vec![ip("127.42.2.8")], private_port: Some(14_842), ..HostConfig::default() };
    let deaf = Host::open(&config).unwrap();
    a.send("127.42.2.7", "127.42.2.8", &[1; 256]);
    while deaf.stats().unwrap().drop_management == 0 {
        std::thread::yield_now();
    }
}

/// Who has let a device go hears nothing of it: its peers must not wait for him.
#[test]
fn what_nobody_takes_any_more_is_answered() {
    if is_done_apart("what_nobody_takes_any_more_is_answered") {
        return;
    }
    let alone = (Bench::alone(&["127.71.2.1"]), Bench::alone(&["127.71.2.2"]));
    let shared = (Bench::shared(&["127.71.2.1"]), Bench::shared(&["127.71.2.2"]));
    for (asks, gone) in [alone, shared] {
        gone.host.clear_management_sink();
        let [ours, theirs] = [&asks, &gone].map(|bench| u32::from(bench.host.slot()) << 22 | 5);
        asks.send("127.71.2.1", "127.71.2.2", &message(0x15, &[ours, theirs]));
        assert_eq!(asks.next().mad, message(0x16, &[theirs, ours]), "it has ended");
        let before = gone.host.stats().unwrap().drop_management;
        // No question at all.
        asks.send("127.71.2.1", "127.71.2.2", &message(0x16, &[ours, theirs]));
        while gone.host.stats().unwrap().drop_management == before {
            std::thread::yield_now();
        }
        assert!(gone.came.try_recv().is_err());
        let (tell, came) = channel();
        gone.host.set_management_sink(move |datagram| tell.send(datagram).is_ok()).unwrap();
        asks.send("127.71.2.1", "127.71.2.2", &message(0x15, &[ours, theirs]));
        assert_eq!(
            came.recv_timeout(Duration::from_secs(20)).unwrap().mad[17],
            0x15,
            "somebody has it again"
        );
    }
}

/// Packets that find no room are counted, also those that the agent had none for.
#[test]
fn what_is_lost_on_the_way_is_counted() {
    if is_done_apart("what_is_lost_on_the_way_is_counted") {
        return;
    }
    let bench = Bench::shared(&["127.71.2.3"]);
    let shared = Arc::clone(&bench.host.owner.shared);
    // Whoever drives is busy with this, and takes none.
    let flood = move |_: &mut Core, _| {
        let (remote, local) = ((ip("127.71.2.4"), 7), ip("127.71.2.3"));
        for nth in 0..MAX_PASSED_ON + 10 {
            let lost = if nth == 7 { 5 } else { 0 };
            shared.take_passed_on(&GsiFrame { remote, local, lost, bytes: &[0; 7] });
        }
    };
    bench.host.owner.command(flood).unwrap();
    while bench.host.stats().unwrap().drop_management < 15 {
        std::thread::yield_now();
    }
    assert_eq!(bench.host.stats().unwrap().drop_management, 15);
}

#[test]
fn a_sink_without_room_loses_what_is_counted() {
    let a = Bench::alone(&["127.71.2.5"]);
    a.host.set_management_sink(|_| false).unwrap();
    a.send("127.71.2.5", "127.71.2.5", &[1; 256]);
    while a.host.stats().unwrap().drop_management == 0 {
        std::thread::yield_now();
    }
}

/// A sink is let go with the device, whatever comes meanwhile.
#[test]
fn devices_close_while_datagrams_come() {
    if is_done_apart("devices_close_while_datagrams_come") {
        return;
    }
    let flood = Bench::shared(&["127.42.2.9"]);
    for round in 0..20 {
        let b = Bench::shared(&["127.42.2.9"]);
        b.host.listen(9, u64::MAX, None).unwrap();
        for nth in 0..20 {
            flood.send("127.42.2.9", "127.42.2.9", &req(round * 100 + nth, 9));
        }
        drop(b);
    }
}
