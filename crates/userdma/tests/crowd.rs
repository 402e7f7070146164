//! Many at once: posters, pollers, sleepers and calls that change objects on one device; a thousand queue pairs.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{LONG, Options, Side, connect, pair};
use userdma::{Cq, Mr, Qp, Rts, SendFlags, WcStatus};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

/// How far each kind of thread has come. The goals are some tenths of a second's work.
#[derive(Default)]
struct Progress {
    writes: AtomicU64,
    completions: AtomicU64,
    round_trips: AtomicU64,
    queue_pairs: AtomicU64,
    is_over: AtomicBool,
}

impl Progress {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn counts(&self) -> [u64; 4] {
        [&self.writes, &self.completions, &self.round_trips, &self.queue_pairs]
            .map(|n| n.load(Ordering::Relaxed))
    }

    /// Waits until all have come far enough, and ends them.
    fn watch(&self) {
        let started = userdma::uptime();
        let is_done = || self.counts().iter().zip([20_000, 500, 500, 50]).all(|(n, goal)| *n >= goal);
        while !is_done() && userdma::uptime() - started < LONG.unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.is_over.store(true, Ordering::Relaxed);
        assert!(is_done(), "somebody stands still: {:?}", self.counts());
    }
}

#[test]
fn posters_pollers_sleepers_and_control_calls_go_on_side_by_side() {
    let (a, b) = pair(209);
    let pair = || connect(&a.device, &b.device, &Options::default());
    let (posted, slept) = (pair(), pair());
    let targets = [posted.1.mr(8, 0), posted.1.mr(8, 0)];
    let progress = Progress::default();
    std::thread::scope(|scope| {
        // Two threads post to one queue pair and look at nothing but whether there is room; a third polls.
        for target in &targets {
            scope.spawn(|| post(&posted.0, target, &progress));
        }
        scope.spawn(|| poll(&posted.0.cq, &progress));
        scope.spawn(|| answer(&slept.0, true, &progress));
        scope.spawn(|| answer(&slept.1, false, &progress));
        scope.spawn(|| make(&a, &b, &progress));
        progress.watch();
    });
}

fn post(side: &Side, target: &Mr, progress: &Progress) {
    let mine = side.mr(8, 1);
    while progress.goes_on() {
        let number = progress.writes.load(Ordering::Relaxed);
        let flags = if number.is_multiple_of(20) { SIGNALED } else { UNSIGNALED };
        match side.qp.post_write(number, &mine.slice(..), target.remote(), flags) {
            Ok(()) => _ = progress.writes.fetch_add(1, Ordering::Relaxed),
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn poll(cq: &Cq, progress: &Progress) {
    while progress.goes_on() {
        if let Some(wc) = cq.poll_one().unwrap() {
            assert_eq!(wc.status, WcStatus::Success);
            progress.completions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A ping-pong between sleepers.
fn answer(side: &Side, serves: bool, progress: &Progress) {
    side.qp.post_recv(1, ()).unwrap();
    if serves {
        side.qp.post_send(2, (), SIGNALED).unwrap();
    }
    while progress.goes_on() {
        for wc in side.cq.wait_for(1, Some(Duration::from_millis(200))).unwrap() {
            assert_eq!(wc.status, WcStatus::Success);
            if wc.wr_id == 1 {
                side.qp.post_recv(1, ()).unwrap();
                side.qp.post_send(2, (), SIGNALED).unwrap();
                progress.round_trips.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Queue pairs that come, write and go, with and without having been answered; and a capture that does the same.
fn make(a: &Side, b: &Side, progress: &Progress) {
    let file = std::env::temp_dir().join(format!("userdma-crowd-{}.pcapng", std::process::id()));
    while progress.goes_on() {
        let (x, y) = connect(&a.device, &b.device, &Options::default());
        let (mine, theirs) = (x.mr(5000, 1), y.mr(5000, 2));
        x.qp.post_write(1, &mine.slice(..), theirs.remote(), UNSIGNALED).unwrap();
        let number = progress.queue_pairs.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(2) {
            x.qp.post_write(2, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
            x.done(2);
        }
        match number % 16 {
            7 => a.device.start_capture(&file).unwrap(),
            9 => _ = a.device.stop_capture().unwrap(),
            _ => _ = a.device.stats().unwrap(),
        }
    }
    a.device.stop_capture().unwrap();
    let _ = std::fs::remove_file(file);
}

/// Most of their packets ask for nothing; each queue pair gets its message, and its answer when it asks.
#[test]
fn a_thousand_queue_pairs_answer() {
    const PAIRS: u32 = 1000;
    let (a, b) = pair(213);
    let [cq_a, cq_b] = [&a, &b].map(|side| side.device.create_cq(2 * PAIRS).unwrap());
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 1));
    let pairs: Vec<_> = (0..PAIRS).map(|_| connect_small((&a, &cq_a), (&b, &cq_b))).collect();
    for _ in 0..2 {
        for (x, y) in &pairs {
            x.post_recv(1, ()).unwrap();
            y.post_send(2, (), UNSIGNALED).unwrap();
            x.post_write(3, &mine.slice(..), theirs.remote(), UNSIGNALED).unwrap();
        }
        take(&cq_a, 1, PAIRS);
        for (x, _) in &pairs {
            x.post_write(4, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
        }
        take(&cq_a, 4, PAIRS);
    }
}

fn connect_small(a: (&Side, &Cq), b: (&Side, &Cq)) -> (Qp<Rts>, Qp<Rts>) {
    let [x, y] = [a, b].map(|(side, cq)| side.pd.create_qp(cq, cq).max_send_wr(8).max_recv_wr(8));
    let (x, y) = (x.build().unwrap(), y.build().unwrap());
    let (to_x, to_y) = (x.endpoint(), y.endpoint());
    (x.connect(&to_y).unwrap(), y.connect(&to_x).unwrap())
}

fn take(cq: &Cq, wr_id: u64, count: u32) {
    let count = count as usize;
    let wcs = cq.wait_for(count, LONG).unwrap();
    assert_eq!(wcs.len(), count);
    assert!(wcs.iter().all(|wc| (wc.wr_id, wc.status) == (wr_id, WcStatus::Success)));
}
