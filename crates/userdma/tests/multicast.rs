//! Groups through the Rust API: who gets a copy, who sleeps and is woken by one, what is refused, and that groups are left.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use userdma::{
    AccessFlags, Ah, AhAttr, Arm, Cq, Device, Errno, Error, Inline, Mr, Pd, QKey, Qpn, SendFlags, UdDest,
    UdQp, Wc,
};

const KEY: QKey = QKey::new(0x1234_5678);
const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SLOT: usize = 256;

struct Side {
    pd: Pd,
    cq: Cq,
    qp: UdQp,
    mr: Mr,
}

impl Side {
    fn open(address: &str) -> Self {
        Self::on(&Device::open(address).unwrap())
    }

    fn on(device: &Device) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(64).unwrap();
        Self::with(pd, cq)
    }

    fn with(pd: Pd, cq: Cq) -> Self {
        let qp = pd.create_qp(&cq, &cq).max_recv_wr(16).build_ud(KEY).unwrap();
        let mr = pd.alloc(16 * SLOT, AccessFlags::LOCAL_WRITE).unwrap();
        Self { pd, cq, qp, mr }
    }

    fn recv(&self, slot: usize) {
        self.qp.post_recv(slot as u64, &self.mr.slice(slot * SLOT..(slot + 1) * SLOT)).unwrap();
    }

    fn way_to(&self, group: IpAddr) -> Ah {
        self.pd.create_ah(&AhAttr::to(group.into())).unwrap()
    }

    fn send(&self, ah: &Ah, text: &[u8]) {
        let to = UdDest { ah, qpn: Qpn::MULTICAST, qkey: KEY };
        self.qp.post_send(99, Inline(text), &to, SendFlags::SIGNALED).unwrap();
    }

    fn completion(&self) -> Wc {
        self.cq.wait_for(1, LONG).unwrap()[0].check().unwrap()
    }

    fn text(&self, slot: usize, len: usize) -> Vec<u8> {
        let start = slot * SLOT + Ah::GRH_LEN;
        self.mr.to_vec(start..start + len).unwrap()
    }
}

fn group(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_queue_pair_of_the_group_gets_a_copy_the_senders_too() {
    let group = group("239.73.40.1");
    let sender = Side::open("127.73.40.1");
    let device = Device::open("127.73.40.2").unwrap();
    // Two of one device, one of another device on the same address, one that is not in the group.
    let all = [Side::on(&device), Side::on(&device), Side::open("127.73.40.2"), sender];
    let stranger = Side::open("127.73.40.3");
    for side in &all {
        side.recv(0);
        side.qp.attach_multicast(group).unwrap();
        side.qp.attach_multicast(group).unwrap();
    }
    stranger.recv(0);
    let sender = &all[3];
    let ah = sender.way_to(group);
    sender.send(&ah, b"to whoever is here");
    for side in &all[..3] {
        let wc = side.completion();
        assert_eq!((wc.wr_id, wc.src_qp, wc.byte_len), (0, sender.qp.qpn(), 40 + 18));
        assert_eq!(side.text(0, 18), b"to whoever is here");
        assert_eq!(
            side.mr.to_vec(32..40).unwrap(),
            [127, 73, 40, 1, 239, 73, 40, 1],
            "from, and to the group"
        );
    }
    let mut ids: Vec<_> = (0..2).map(|_| sender.completion().wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 99], "it has sent, and received");
    assert_eq!(stranger.cq.wait_for(1, Some(Duration::ZERO)).unwrap().len(), 0);
    for side in &all {
        assert_eq!(side.cq.wait_for(1, Some(Duration::ZERO)).unwrap().len(), 0, "once");
    }
}

/// Whoever sleeps has fallen asleep before there were groups.
#[test]
fn a_datagram_to_a_group_wakes_whoever_sleeps() {
    let group = group("239.73.40.2");
    let sender = Side::open("127.73.40.4");
    let side = Side::open("127.73.40.5");
    side.recv(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| side.completion());
        side.qp.attach_multicast(group).unwrap();
        let ah = sender.way_to(group);
        sender.send(&ah, b"wake up");
        assert_eq!(waiter.join().unwrap().byte_len, 47);
    });
}

/// Nobody calls the receiver's device: its thread sees to it.
#[test]
fn a_device_that_nobody_drives_takes_what_comes_to_a_group() {
    let group = group("239.73.40.3");
    let sender = Side::open("127.73.40.6");
    let device = Device::open("127.73.40.7").unwrap();
    let channel = device.create_comp_channel().unwrap();
    let side = Side::with(device.alloc_pd().unwrap(), device.create_cq_on(16, &channel).unwrap());
    side.recv(0);
    side.qp.attach_multicast(group).unwrap();
    side.cq.req_notify(Arm::Any).unwrap();
    let ah = sender.way_to(group);
    sender.send(&ah, b"anybody?");
    let mut fds = [libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    // SAFETY: one entry, which outlives the call.
    assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, 20_000) }, 1);
    assert!(channel.try_event().unwrap().is_some_and(|event| event.is_of(&side.cq)));
}

#[test]
fn who_detaches_gets_nothing_more_and_the_last_leaves() {
    let group = group("239.73.40.4");
    let sender = Side::open("127.73.40.8");
    let device = Device::open("127.73.40.9").unwrap();
    let [first, second] = [Side::on(&device), Side::on(&device)];
    for side in [&first, &second] {
        side.qp.attach_multicast(group).unwrap();
        (0..2).for_each(|slot| side.recv(slot));
    }
    assert!(is_in(group));
    first.qp.detach_multicast(group).unwrap();
    let ah = sender.way_to(group);
    sender.send(&ah, b"one");
    assert_eq!(second.completion().wr_id, 0);
    assert_eq!(first.cq.wait_for(1, Some(Duration::ZERO)).unwrap().len(), 0);
    let error = first.qp.detach_multicast(group).unwrap_err();
    assert_eq!(error.to_string(), "no such attachment of the queue pair to the group");
    assert!(is_in(group), "there is another");
    drop(second);
    assert!(!is_in(group), "a queue pair that goes leaves");
    // The device goes on, and may come back.
    first.qp.attach_multicast(group).unwrap();
    sender.send(&ah, b"two");
    assert_eq!(first.completion().wr_id, 0);
}

#[test]
fn what_is_no_group_is_refused_and_named() {
    let side = Side::open("127.73.40.10");
    let error = side.qp.attach_multicast(group("127.73.40.10")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot attach the queue pair: ::ffff:127.73.40.10 is no group's GID: 224.0.0.0/4 (as ::ffff:224.0.0.0/100) and ff00::/8 are"
    );
    for single in ["127.73.40.10", "0.0.0.0", "fd00::1"] {
        assert_eq!(side.qp.attach_multicast(group(single)).unwrap_err().errno(), Errno::Einval);
    }
    assert!(matches!(side.pd.create_ah(&AhAttr::to(group("ff05::1").into())), Err(Error::CreateAh(_))));
}

#[test]
fn who_keeps_a_groups_port_alone_keeps_us_from_it_and_nothing_is_left() {
    let group = group("239.73.40.5");
    let side = Side::open("127.73.40.11");
    let alone = std::net::UdpSocket::bind((group, 4791)).unwrap();
    let error = side.qp.attach_multicast(group).unwrap_err();
    assert_eq!(error.errno(), Errno::Eaddrinuse);
    let start = "cannot attach the queue pair: the system does not let us into the group: 239.73.40.5 UDP port 4791 is taken";
    assert!(error.to_string().starts_with(start), "{error}");
    assert!(side.qp.detach_multicast(group).is_err() && !is_in(group));
    drop(alone);
    side.qp.attach_multicast(group).unwrap();
    assert!(is_in(group));
}

/// Whether an interface of this machine is in a group of IPv4.
fn is_in(group: IpAddr) -> bool {
    let IpAddr::V4(group) = group else { panic!("a group of IPv4") };
    // As the machine has it in memory.
    let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    std::fs::read_to_string("/proc/net/igmp").unwrap().contains(&wanted)
}
