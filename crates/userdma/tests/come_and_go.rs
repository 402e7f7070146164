//! Queue pairs that come and go leave no memory behind. Alone in its process, whose memory it looks at.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Side, pair_on};
use userdma::{Cq, Device, SendFlags};

/// Some never meet a peer, some go with requests under way; beside them another queue pair writes.
#[test]
fn queue_pairs_that_come_and_go_leave_nothing_behind() {
    const COUNT: u64 = 2000;
    // Ports of their own: on a shared one, others' processes may have their agent in this one.
    let device = |host| Device::builder().address([127, 0, 212, host]).private_port(14_212);
    let (a, b) = pair_on(device(2), device(3));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write_on(&a, &b, &is_over));
        let cq = a.device.create_cq(16).unwrap();
        let (warm_up, measured) = (0..COUNT / 4, COUNT / 4..COUNT);
        warm_up.for_each(|number| come_and_go(&a, &b, &cq, number));
        let before = resident_bytes();
        measured.for_each(|number| come_and_go(&a, &b, &cq, number));
        let after = resident_bytes();
        is_over.store(true, Ordering::Relaxed);
        assert!(after < before + (6 << 20), "{} KiB, then {} KiB", before >> 10, after >> 10);
    });
}

fn write_on(a: &Side, b: &Side, is_over: &AtomicBool) {
    let (mine, theirs) = (a.mr(4096, 1), b.mr(4096, 0));
    while !is_over.load(Ordering::Relaxed) {
        a.qp.post_write(1, &mine.slice(..), theirs.remote(), SendFlags::SIGNALED).unwrap();
        a.done(1);
    }
}

fn come_and_go(a: &Side, b: &Side, cq: &Cq, number: u64) {
    let x = a.pd.create_qp(cq, cq).build().unwrap();
    if !number.is_multiple_of(4) {
        return;
    }
    let y = b.pd.create_qp(&b.cq, &b.cq).build().unwrap();
    let (to_x, to_y) = (x.endpoint(), y.endpoint());
    let (x, _y) = (x.connect(&to_y).unwrap(), y.connect(&to_x).unwrap());
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 1));
    for _ in 0..3 {
        x.post_write(1, &mine.slice(..), theirs.remote(), SendFlags::empty()).unwrap();
    }
}

/// Physical memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
