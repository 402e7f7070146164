//! A program that has polled, then posts and does nothing more: what it has posted arrives, timers or not.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::time::Duration;

use common::{LONG, Options, Side, pair_with};
use userdma::{AckTimeout, Mr, RtsAttr, SendFlags};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn what_was_posted_arrives_without_a_timer() {
    post_and_stop(205, 0);
}

#[test]
fn what_was_posted_arrives_with_the_usual_timer() {
    post_and_stop(207, 14);
}

#[test]
fn what_was_posted_arrives_with_a_timer_of_hours() {
    post_and_stop(208, 31);
}

fn post_and_stop(net: u8, timeout: u8) {
    let rts = RtsAttr { timeout: AckTimeout::new(timeout).unwrap(), ..RtsAttr::default() };
    let (a, b) = pair_with(net, &Options { rts, ..Options::default() });
    let (mine, theirs) = (a.mr(512, 1), b.mr(8, 0));
    for round in 0..48 {
        spin(&a, &b, round);
        let last = post(&a, &mine, &theirs, round);
        await_number(&theirs, last);
        // Takes back the places.
        a.qp.post_write(9, &mine.slice(..8), theirs.remote(), SIGNALED).unwrap();
        a.done(9);
    }
}

/// Polls for a time that differs, so that the progress thread is away for another time each round; the peer polls in some.
fn spin(a: &Side, b: &Side, round: u64) {
    let started = userdma::uptime();
    while userdma::uptime() - started < Duration::from_millis(round % 12) {
        assert_eq!(a.cq.poll_one().unwrap(), None);
        if round.is_multiple_of(3) {
            assert_eq!(b.cq.poll_one().unwrap(), None);
        }
    }
}

/// Posts some numbers, all to one place; the last.
fn post(a: &Side, mine: &Mr, theirs: &Mr, round: u64) -> u64 {
    let mut last = 0;
    for number in 0..1 + round % 40 {
        let at = number as usize * 8;
        last = (round + 1) << 32 | number;
        mine.store(at, last).unwrap();
        a.qp.post_write(number, &mine.slice(at..at + 8), theirs.remote(), SendFlags::empty()).unwrap();
    }
    last
}

/// Looks at memory only.
fn await_number(theirs: &Mr, number: u64) {
    let started = userdma::uptime();
    while theirs.load(0).unwrap() != number {
        assert!(userdma::uptime() - started < LONG.unwrap(), "{number:#x} does not arrive");
        std::thread::sleep(Duration::from_micros(50));
    }
}
