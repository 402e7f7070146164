//! Sends of a batch leave together.

mod common;

use userdma::{Inline, SendFlags, WcStatus};

use common::{ALL, LONG, pair};

#[test]
fn writes_of_a_batch_share_acknowledgements_and_arrive() {
    let (a, b) = pair(93);
    let target = b.pd.alloc(4096, ALL).unwrap();
    let batch = a.qp.batch();
    for id in 0..64u64 {
        let flags = if id == 63 { SendFlags::SIGNALED } else { SendFlags::empty() };
        a.qp.post_write(id, Inline(&id.to_ne_bytes()), target.remote().slice(8 * id, 8), flags).unwrap();
    }
    drop(batch);
    let wcs = a.cq.wait_for(1, LONG).unwrap();
    assert_eq!((wcs[0].wr_id, wcs[0].status), (63, WcStatus::Success));
    for id in 0..64u64 {
        assert_eq!(target.load(8 * usize::try_from(id).unwrap()).unwrap(), id);
    }
    assert_eq!(a.device.stats().unwrap().sent_pkts, 64);
    let acks = b.device.stats().unwrap().sent_acks;
    assert!(acks <= 2, "{acks} acknowledgements for one batch");
}

#[test]
fn a_batch_that_is_forgotten_holds_nothing_back_for_ever() {
    let (a, b) = pair(94);
    let target = b.pd.alloc(4096, ALL).unwrap();
    std::mem::forget(a.qp.batch());
    a.qp.post_write(1, Inline(b"late"), target.remote(), SendFlags::SIGNALED).unwrap();
    assert_eq!(a.cq.wait_for(1, LONG).unwrap()[0].status, WcStatus::Success);
    assert_eq!(target.to_vec(..4).unwrap(), b"late");
}
