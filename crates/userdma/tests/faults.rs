//! Faults of the device itself: receives that are denied, a link that goes down.

mod common;

use std::time::Duration;

use common::{LONG, Options, pair_on, pair_with, pattern};
use userdma::{AsyncEvent, Device, PortState, RtsAttr, SendFlags};

#[test]
fn denied_receives_delay_messages_and_lose_none() {
    let rts = RtsAttr { rnr_retry: 7, ..RtsAttr::default() };
    let (a, b) = pair_with(79, &Options { faults: "rnr=0.3,seed=7", rts, ..Options::default() });
    let (mine, theirs) = (a.mr(4096, 1), b.mr(4096, 2));
    for id in 0..50 {
        b.qp.post_recv(id, &theirs.slice(..)).unwrap();
        a.qp.post_send(id, &mine.slice(..), SendFlags::SIGNALED).unwrap();
        b.done(id);
        a.done(id);
    }
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(4096, 1));
    let denied = b.device.stats().unwrap().sent_rnr_err;
    assert!((5..60).contains(&denied), "{denied} of some 70");
    assert_eq!(a.device.fault_stats().unwrap().packets, 0, "no fault of the network");
}

#[test]
fn a_link_that_goes_down_says_so_and_comes_back() {
    let host = |low| Device::builder().address([127, 0, 80, low]);
    let (a, b) = pair_on(host(2).faults("down=50ms..150ms"), host(3));
    let (mine, theirs) = (a.mr(4096, 1), b.mr(4096, 2));
    assert_eq!(a.device.wait_event(LONG).unwrap(), Some(AsyncEvent::PortError));
    let sent_while_down = a.device.port_attr().unwrap().state == PortState::Down;
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    a.qp.post_send(1, &mine.slice(..), SendFlags::SIGNALED).unwrap();
    assert_eq!(a.device.wait_event(Some(Duration::from_secs(20))).unwrap(), Some(AsyncEvent::PortActive));
    b.done(1);
    a.done(1);
    assert_eq!(a.device.port_attr().unwrap().state, PortState::Active);
    if sent_while_down {
        assert!(a.device.fault_stats().unwrap().lost > 0, "what was sent while it was down");
    }
}
