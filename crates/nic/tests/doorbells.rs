//! Doorbells under threads: whatever was posted is sent, whoever posted it when.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use userdma_sim::{ConnectOptions, Pair, PairOptions};
use userdma_verbs::{AccessFlags, SendFlags, SendOp, SendWr, WcStatus};

#[test]
fn no_post_is_lost_however_many_threads_ring() {
    const THREADS: u32 = 4;
    const POSTS: u32 = 500;
    let mut pair = Pair::new(&PairOptions::default());
    let options = ConnectOptions { cqe: POSTS, ..ConnectOptions::default() };
    let connections: Vec<_> = (0..THREADS).map(|_| pair.connect(&options)).collect();
    let to = pair.hosts[1].memory(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let doorbells = pair.hosts[0].shard.doorbells();
    let finished = AtomicU32::new(0);
    let mut completed = 0;
    thread::scope(|scope| {
        for [end, _] in &connections {
            let (end, to, doorbells, finished) = (end.clone(), to.clone(), doorbells.clone(), &finished);
            scope.spawn(move || {
                for wr_id in 0..u64::from(POSTS) {
                    let op = SendOp::Write(to.remote(0));
                    let flags = SendFlags::SIGNALED | SendFlags::INLINE;
                    let wr = SendWr { wr_id, op, flags, sgl: &[], inline: b"x" };
                    while end.qp.post_send(&wr).is_err() {
                        thread::yield_now();
                    }
                    doorbells.ring(end.qp.qpn());
                }
                finished.fetch_add(1, Ordering::Release);
            });
        }
        loop {
            let all = finished.load(Ordering::Acquire) == THREADS;
            pair.drive();
            for [end, _] in &connections {
                let wcs = end.poll_send();
                assert!(wcs.iter().all(|wc| wc.status == WcStatus::Success));
                completed += u32::try_from(wcs.len()).unwrap();
            }
            if all {
                break;
            }
            thread::yield_now();
        }
    });
    assert_eq!(completed, THREADS * POSTS);
}

#[test]
fn a_bell_for_a_queue_pair_that_is_gone_or_never_was_is_harmless() {
    let mut pair = Pair::new(&PairOptions::default());
    let [end, _] = pair.connect(&ConnectOptions::default());
    let (now, qpn) = (pair.now(), end.qp.qpn());
    pair.hosts[0].shard.destroy_qp(now, qpn).unwrap();
    pair.hosts[0].ring(qpn);
    pair.hosts[0].ring(userdma_verbs::Qpn::MULTICAST);
    pair.hosts[0].ring(userdma_verbs::Qpn::new(0));
    pair.drive();
    assert!(pair.net.is_empty());
}
