use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const PORT: u16 = 4791;

fn ip(host: u8) -> IpAddr {
    IpAddr::from([127, 0, 12, host])
}

/// The slots whose sockets get a packet that is sent to each of `slots`; each packet must reach one socket, the right one.
fn assert_steered(group: &Group, sender: &UdpSocket, slots: impl IntoIterator<Item = u16>) {
    for slot in slots {
        let socket = UdpSocket::from(group.socket(slot).unwrap());
        let qpn = u32::from(slot) << 14 | 77;
        let packet = [[0; 4], qpn.to_be_bytes(), [7; 4]].concat();
        sender.send_to(&packet, (group.ip, group.port)).unwrap();
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "nothing came to slot {slot}");
        let mut room = [0; 64];
        let len = socket.recv(&mut room).unwrap();
        assert_eq!(room[..len], packet, "slot {slot}");
        assert!(!userdma_link::is_readable(&socket), "slot {slot} has more than its packet");
    }
}

fn sender(host: u8) -> UdpSocket {
    UdpSocket::bind((ip(host), 0)).unwrap()
}

#[test]
fn each_slot_gets_its_packets_while_the_group_grows() {
    let mut group = Group::create(ip(2), PORT).unwrap();
    let sender = sender(3);
    assert_eq!(group.len(), FIRST_LEN);
    assert_steered(&group, &sender, 0..4);
    for slot in [3, 4, 16, 17, 70, 300] {
        let had = group.len();
        assert_eq!(group.reach(slot).unwrap(), usize::from(slot) >= had);
        let len = u16::try_from(group.len()).unwrap();
        assert!(len > slot);
        assert_steered(&group, &sender, [0, 1, slot, len - 1]);
    }
    assert_eq!(group.parks().len(), 2);
    assert_steered(&group, &sender, 0..300);
}

#[test]
fn a_group_reaches_every_slot_and_no_further() {
    let mut group = Group::create(ip(4), PORT).unwrap();
    group.reach(1022).unwrap();
    assert_eq!((group.len(), group.parks().len()), (Group::MAX_LEN, 5));
    assert_steered(&group, &sender(5), [0, 252, 253, 505, 506, 758, 759, 1011, 1012, 1022]);
}

#[test]
fn a_group_on_ipv6_steers_too() {
    let ip = IpAddr::from(std::net::Ipv6Addr::LOCALHOST);
    // Nobody else in these tests has this port.
    let mut group = match Group::create(ip, 14_791) {
        Ok(group) => group,
        Err(error) => return eprintln!("SKIPPED: no IPv6 here: {error}"),
    };
    group.reach(9).unwrap();
    assert_steered(&group, &UdpSocket::bind((ip, 0)).unwrap(), 0..10);
}

#[test]
fn a_port_that_somebody_has_is_never_joined() {
    let group = Group::create(ip(6), PORT).unwrap();
    let error = Group::create(ip(6), PORT).unwrap_err();
    assert!(matches!(error, OpenError::AddrInUse { .. }), "a group of the same user: {error}");
    assert_steered(&group, &sender(7), 0..4);
    drop(group);
    let group = Group::create(ip(6), PORT).unwrap();
    assert_steered(&group, &sender(7), 0..4);
    let _plain = UdpSocket::bind((ip(8), PORT)).unwrap();
    assert!(matches!(Group::create(ip(8), PORT), Err(OpenError::AddrInUse { .. })));
}

#[test]
fn what_cannot_be_a_groups_address_is_refused() {
    assert!(matches!(Group::create([0, 0, 0, 0].into(), PORT), Err(OpenError::NotUnicast { .. })));
    assert!(matches!(Group::create([192, 0, 2, 9].into(), PORT), Err(OpenError::AddrNotAvailable { .. })));
}

/// Another process makes 300 sockets, hands over the parks and is killed.
#[test]
fn three_hundred_slots_outlive_their_maker() {
    const TEST: &str = "group::tests::three_hundred_slots_outlive_their_maker";
    if std::env::var_os(CHILD).is_some() {
        make_group_and_wait_for_death();
    }
    let (ours, theirs) = socket_pair();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(CHILD, "1")
        .stdin(theirs)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (_, ends) = crate::packet::receive(&ours, &mut [0; 8], rustix::net::RecvFlags::empty()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ends.len(), 2, "300 sockets are two parks");
    let error = Group::create(ip(9), PORT).unwrap_err();
    assert!(matches!(error, OpenError::AddrInUse { .. }), "the group is alive, without its maker: {error}");
    let mut group = Group::from_ends(ip(9), PORT, ends).unwrap();
    assert!(group.len() >= 300);
    let sender = sender(10);
    assert_steered(&group, &sender, 0..300);
    // Taking sockets out and closing them changed nothing, and the group still grows.
    let len = u16::try_from(group.len()).unwrap();
    group.reach(len + 5).unwrap();
    assert_steered(&group, &sender, [0, 1, 299, len - 1, len, len + 5]);
    drop(group);
    Group::create(ip(9), PORT).expect("the last holder of the parks has gone");
}

fn make_group_and_wait_for_death() -> ! {
    let mut group = Group::create(ip(9), PORT).unwrap();
    group.reach(299).unwrap();
    let ends: Vec<_> = group.parks().iter().map(Park::end).collect();
    crate::packet::send(&std::io::stdin(), b"parks", &ends).unwrap();
    loop {
        std::thread::park();
    }
}

fn socket_pair() -> (OwnedFd, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

#[test]
fn a_dead_process_keeps_its_packets_and_a_link_drops_them() {
    let group = Group::create(ip(11), PORT).unwrap();
    let sender = sender(12);
    let packet = [[0; 4], (2u32 << 14 | 5).to_be_bytes(), [9; 4]].concat();
    for _ in 0..3 {
        sender.send_to(&packet, (ip(11), PORT)).unwrap();
    }
    let copy = group.socket(2).unwrap();
    let mut fds = [PollFd::new(&copy, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
    let config = userdma_link::UdpConfig { port: PORT, ..Default::default() };
    let member = group.socket(2).unwrap();
    let mut link =
        userdma_link::UdpLink::open_member(userdma_mem::LinkId(0), ip(11), member, &config).unwrap();
    assert_eq!(link.port(), PORT);
    assert!(link.recv_buffer().granted > 100_000, "{:?}", link.recv_buffer());
    assert!(!userdma_link::is_readable(&link.as_fd()), "old packets wait");
    sender.send_to(&packet, (ip(11), PORT)).unwrap();
    let mut fds = [PollFd::new(&link, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
    let mut came = Vec::new();
    link.recv(userdma_verbs::Time::ZERO, &mut |frame| came.push(frame.bytes.to_vec()));
    assert_eq!(came, [packet]);
}

const CHILD: &str = "USERDMA_TEST_CHILD";
