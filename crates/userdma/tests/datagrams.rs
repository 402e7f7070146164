//! Datagrams through the Rust API: there and back, what is refused, and that a receiver's buffer is not overrun.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

use std::time::Duration;

use userdma::{
    AccessFlags, Ah, AhAttr, Cq, Device, Error, Gid, Inline, Mr, Pd, PostError, QKey, QpState, SendFlags,
    UdDest, UdQp, WcFlags, WcStatus,
};

const KEY: QKey = QKey::new(0x1234_5678);
const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SLOT: usize = 4096 + Ah::GRH_LEN;

struct Side {
    device: Device,
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
        Self::sized(device, 64)
    }

    /// With so many receives.
    fn sized(device: &Device, receives: u32) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(2048).unwrap();
        let qp = pd.create_qp(&cq, &cq).max_recv_wr(receives).build_ud(KEY).unwrap();
        let mr = pd.alloc(receives as usize * SLOT, AccessFlags::LOCAL_WRITE).unwrap();
        Self { device: device.clone(), pd, cq, qp, mr }
    }

    fn recv(&self, slot: u64) {
        let start = slot as usize * SLOT;
        self.qp.post_recv(slot, &self.mr.slice(start..start + SLOT)).unwrap();
    }

    fn way_to(&self, peer: &Self) -> Ah {
        self.pd.create_ah(&AhAttr::to(peer.qp.gid())).unwrap()
    }

    /// The next completion, a success.
    fn completion(&self) -> userdma::Wc {
        self.cq.wait_for(1, LONG).unwrap()[0].check().unwrap()
    }
}

fn to<'a>(ah: &'a Ah, peer: &UdQp) -> UdDest<'a> {
    UdDest { ah, qpn: peer.qpn(), qkey: KEY }
}

#[test]
fn a_datagram_is_answered_by_who_gets_it() {
    let (a, b) = (Side::open("127.0.84.1"), Side::open("127.0.84.2"));
    a.recv(0);
    b.recv(0);
    let way = a.way_to(&b);
    a.qp.post_send_with_imm(1, Inline(b"question"), 42, &to(&way, &b.qp), SendFlags::empty()).unwrap();
    // The handle may go at once.
    drop(way);
    let wc = b.completion();
    assert_eq!((wc.byte_len, wc.src_qp, wc.imm()), (48, a.qp.qpn(), Some(42)));
    assert!(wc.flags.contains(WcFlags::GRH));
    assert_eq!(b.mr.to_vec(40..48).unwrap(), b"question");

    let header: [u8; Ah::GRH_LEN] = b.mr.to_vec(..Ah::GRH_LEN).unwrap().try_into().unwrap();
    let back = b.pd.create_ah_back(&header).unwrap();
    let answer = UdDest { ah: &back, qpn: wc.src_qp, qkey: KEY };
    b.mr.write(100, b"answer").unwrap();
    b.qp.post_send(2, &b.mr.slice(100..106), &answer, SendFlags::empty()).unwrap();
    assert_eq!((a.completion().src_qp, a.mr.to_vec(40..46).unwrap()), (b.qp.qpn(), b"answer".to_vec()));
    assert!(matches!(b.pd.create_ah_back(&[0; 40]), Err(Error::NoSource)));
}

#[test]
fn what_is_too_long_is_refused() {
    let (a, b) = (Side::open("127.0.84.3"), Side::open("127.0.84.4"));
    let way = a.way_to(&b);
    assert_eq!(way.max_len(), 4096);
    let error = a.qp.post_send(1, &a.mr.slice(..4097), &to(&way, &b.qp), SendFlags::SIGNALED).unwrap_err();
    assert!(matches!(error, Error::Post(PostError::DatagramTooLong { len: 4097, max: 4096 })), "{error}");
    assert!(a.cq.wait_for(1, Some(Duration::ZERO)).unwrap().is_empty());
}

#[test]
fn a_handle_of_another_device_is_refused() {
    let (a, b) = (Side::open("127.0.84.5"), Side::open("127.0.84.6"));
    let way = b.way_to(&a);
    let error = a.qp.post_send(1, Inline(b"x"), &to(&way, &a.qp), SendFlags::empty()).unwrap_err();
    assert!(matches!(error, Error::OtherDevice(_)), "{error}");
    assert!(matches!(a.pd.create_ah(&AhAttr::to(Gid::default())), Err(Error::CreateAh(_))));
}

#[test]
fn a_failed_send_queue_goes_on_after_resume() {
    let (a, b) = (Side::open("127.0.84.7"), Side::open("127.0.84.8"));
    b.recv(0);
    let way = a.way_to(&b);
    let foreign = a.device.alloc_pd().unwrap().alloc(64, AccessFlags::LOCAL_WRITE).unwrap();
    a.qp.post_send(1, &foreign.slice(..), &to(&way, &b.qp), SendFlags::SIGNALED).unwrap();
    let wc = a.cq.wait_for(1, LONG).unwrap()[0];
    assert_eq!((wc.wr_id, wc.status, a.qp.state()), (1, WcStatus::LocProtErr, QpState::Sqe));
    a.qp.resume().unwrap();
    a.qp.post_send(2, Inline(b"again"), &to(&way, &b.qp), SendFlags::SIGNALED).unwrap();
    assert_eq!((a.completion().wr_id, b.completion().byte_len), (2, 45));
}

/// Far more than the receiver's buffer holds, on one address, where the sender sees how full it is.
#[test]
fn a_sender_on_the_same_address_does_not_overrun_the_receiver() {
    const COUNT: u64 = 1000;
    let device = Device::open("127.0.84.9").unwrap();
    let a = Side::on(&device);
    let b = Side::sized(&Device::open("127.0.84.9").unwrap(), COUNT as u32);
    for slot in 0..COUNT {
        b.recv(slot);
    }
    let way = a.way_to(&b);
    let mut left = 0;
    for number in 0..COUNT {
        while number - left >= 64 {
            left += a.cq.wait_for(1, LONG).unwrap().len() as u64;
        }
        let flags = SendFlags::SIGNALED;
        a.qp.post_send(number, &a.mr.slice(..4096), &to(&way, &b.qp), flags).unwrap();
    }
    let mut arrived = 0;
    while arrived < COUNT {
        let wcs = b.cq.wait_for(1, LONG).unwrap();
        assert!(!wcs.is_empty(), "{arrived} of {COUNT} arrived");
        arrived += wcs.len() as u64;
    }
}

/// Several queue pairs of each of two processes' devices, whose receives are in one queue.
struct Shared {
    pd: Pd,
    cq: Cq,
    qps: Vec<UdQp>,
    mr: Mr,
    _srq: userdma::Srq,
}

impl Shared {
    const PAIRS: usize = 8;
    const EACH: usize = 100;

    /// With as many receives as messages will come.
    fn open(address: &str) -> Self {
        let receives = Self::PAIRS * Self::EACH;
        let device = Device::open(address).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(4 * receives as u32).unwrap();
        let srq = pd.create_srq(receives as u32, 1).unwrap();
        let mr = pd.alloc(receives * 64, AccessFlags::LOCAL_WRITE).unwrap();
        for slot in 0..receives {
            srq.post_recv(slot as u64, &mr.slice(slot * 64..slot * 64 + 64)).unwrap();
        }
        let make = |_| pd.create_qp(&cq, &cq).max_send_wr(256).srq(&srq).build_ud(KEY).unwrap();
        let qps = (0..Self::PAIRS).map(make).collect();
        Self { pd, cq, qps, mr, _srq: srq }
    }

    /// Each queue pair sends to the peer's of the same place, all that it has at once.
    fn send(&self, peer: &Self) {
        for (pair, qp) in self.qps.iter().enumerate() {
            let way = self.pd.create_ah(&AhAttr::to(peer.qps[pair].gid())).unwrap();
            for number in 0..Self::EACH {
                let text = [pair as u8, number as u8];
                qp.post_send(u64::MAX, Inline(&text), &to(&way, &peer.qps[pair]), SendFlags::SIGNALED)
                    .unwrap();
            }
        }
    }

    /// What has come to each queue pair, once all has.
    fn received(&self) -> Vec<Vec<u8>> {
        let mut came = vec![Vec::new(); Self::PAIRS];
        let (mut sent, mut arrived) = (0, 0);
        while sent + arrived < 2 * Self::PAIRS * Self::EACH {
            let wcs = self.cq.wait_for(1, LONG).unwrap();
            assert!(!wcs.is_empty(), "{arrived} arrived, {sent} sent");
            for wc in wcs.iter().map(|wc| wc.check().unwrap()) {
                if wc.wr_id == u64::MAX {
                    sent += 1;
                    continue;
                }
                arrived += 1;
                let start = wc.wr_id as usize * 64 + Ah::GRH_LEN;
                let text = self.mr.to_vec(start..start + 2).unwrap();
                assert_eq!(self.qps[usize::from(text[0])].qpn(), wc.qpn, "it came to another queue pair");
                came[usize::from(text[0])].push(text[1]);
            }
        }
        came
    }
}

/// As many receives as messages are enough, whichever queue pairs they come to, while both sides send.
#[test]
fn queue_pairs_that_share_their_receives_lose_nothing_in_both_directions() {
    let (a, b) = (Shared::open("127.0.84.10"), Shared::open("127.0.84.10"));
    a.send(&b);
    b.send(&a);
    let there = std::thread::scope(|scope| {
        let there = scope.spawn(|| b.received());
        let all: Vec<u8> = (0..Shared::EACH as u8).collect();
        assert!(a.received().iter().all(|came| *came == all));
        there.join().unwrap()
    });
    assert!(there.iter().all(|came| came.len() == Shared::EACH));
}
