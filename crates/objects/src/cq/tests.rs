use std::sync::atomic::AtomicU64;
use std::thread;

use userdma_verbs::{Qpn, WcOpcode};

use super::*;

fn wc(wr_id: u64) -> Wc {
    Wc::new(wr_id, WcStatus::Success, WcOpcode::Send, Qpn::new(1))
}

fn flushed(wr_id: u64) -> Wc {
    Wc::new(wr_id, WcStatus::WrFlushErr, WcOpcode::Send, Qpn::new(1))
}

/// Everything in the queue, by one poll.
fn drain(cq: &Cq) -> Vec<u64> {
    let mut out = vec![wc(u64::MAX); cq.capacity() as usize + 1];
    let taken = cq.poll(&mut out);
    out[..taken].iter().map(|wc| wc.wr_id).collect()
}

fn with_channel(cqe: u32) -> (Cq, Arc<CompChannel>) {
    let channel = Arc::new(CompChannel::new(0));
    (Cq::new(7, cqe, Some(Arc::clone(&channel))), channel)
}

#[test]
fn completions_come_out_oldest_first_round_and_round() {
    let cq = Cq::new(7, 3, None);
    assert_eq!((cq.number(), cq.capacity()), (7, 3));
    let mut next = 0;
    for round in 0..20 {
        let count = round % 4;
        for wr_id in next..next + count {
            assert_eq!(cq.push(wc(wr_id), false), Pushed::Quiet);
        }
        assert_eq!(cq.is_empty(), count == 0);
        assert_eq!(drain(&cq), (next..next + count).collect::<Vec<_>>());
        assert!(cq.is_empty());
        next += count;
    }
}

#[test]
fn completions_of_a_queue_pair_are_forgotten_at_any_place_of_the_ring_and_others_keep_their_order() {
    let gone = Qpn::new(2);
    for taken in 0..5 {
        let cq = Cq::new(7, 5, None);
        for wr_id in 0..taken {
            assert_eq!(cq.push(wc(wr_id), false), Pushed::Quiet);
            assert_eq!(drain(&cq), [wr_id]);
        }
        for (wr_id, qpn) in [(10, gone), (11, Qpn::new(1)), (12, gone), (13, Qpn::new(3)), (14, gone)] {
            assert_eq!(cq.push(Wc { qpn, ..wc(wr_id) }, false), Pushed::Quiet);
        }
        assert_eq!((cq.len(), cq.forget(gone), cq.len()), (5, 3, 2));
        assert_eq!(cq.forget(gone), 0);
        (20..23).for_each(|wr_id| assert_eq!(cq.push(wc(wr_id), false), Pushed::Quiet));
        assert_eq!(cq.push(wc(23), false), Pushed::Overflow, "three places were free again");
        assert_eq!(drain(&cq), [11, 13, 20, 21, 22]);
    }
}

#[test]
fn a_queue_whose_completions_are_forgotten_is_empty_and_stays_armed_or_in_error() {
    let (cq, channel) = with_channel(1);
    assert_eq!(cq.push(wc(1), false), Pushed::Quiet);
    cq.arm(Arm::Any);
    assert_eq!(cq.forget(Qpn::new(1)), 1);
    assert!(cq.is_empty() && !cq.has_news());
    assert_eq!((cq.push(wc(2), false), channel.take_event()), (Pushed::Notify, Some(7)));
    assert_eq!(cq.push(wc(3), false), Pushed::Overflow);
    assert_eq!(cq.forget(Qpn::new(1)), 1);
    assert!(cq.is_used_up());
}

#[test]
fn a_poll_that_has_interrupted_whoever_holds_the_queue_takes_nothing_and_waits_for_nobody() {
    let cq = Cq::new(7, 2, None);
    assert_eq!(cq.push(wc(1), false), Pushed::Quiet);
    let held = lock(&cq.ring);
    assert_eq!(cq.poll_unless(&mut [wc(0)], || true), 0);
    drop(held);
    assert_eq!(cq.poll_unless(&mut [wc(0)], || true), 1, "nobody holds it");
}

#[test]
fn a_queue_grows_at_any_place_of_its_ring_and_keeps_what_it_holds() {
    for (taken, held) in [(0, 0), (0, 3), (2, 3), (3, 1), (7, 2)] {
        let cq = Cq::new(7, 3, None);
        (0..taken).for_each(|wr_id| {
            assert_eq!(cq.push(wc(wr_id), false), Pushed::Quiet);
            assert_eq!(drain(&cq), [wr_id]);
        });
        let push = |wr_id| assert_eq!(cq.push(wc(wr_id), false), Pushed::Quiet);
        (taken..taken + held).for_each(push);
        cq.grow(2);
        assert_eq!(cq.capacity(), 3, "it does not become smaller");
        cq.grow(5);
        (taken + held..taken + 5).for_each(push);
        assert_eq!((cq.capacity(), drain(&cq)), (5, (taken..taken + 5).collect()));
        (0..5).for_each(push);
        assert_eq!(cq.push(wc(9), false), Pushed::Overflow);
        cq.grow(9);
        assert_eq!(cq.push(wc(9), false), Pushed::Lost, "an error stays");
    }
}

#[test]
fn a_poll_takes_no_more_than_it_has_room_for() {
    let cq = Cq::new(7, 4, None);
    for wr_id in 0..4 {
        let _ = cq.push(wc(wr_id), false);
    }
    let mut out = [wc(99); 2];
    assert_eq!(cq.poll(&mut []), 0);
    assert_eq!((cq.poll(&mut out), out.map(|wc| wc.wr_id)), (2, [0, 1]));
    assert_eq!(cq.poll(&mut out[..1]), 1);
    assert_eq!((cq.poll(&mut out), out.map(|wc| wc.wr_id)), (1, [3, 1]), "what lies beyond is not touched");
}

#[test]
fn an_overflow_is_reported_once_and_nothing_is_added_after_it() {
    let (cq, channel) = with_channel(2);
    let _ = cq.push(wc(0), false);
    let _ = cq.push(wc(1), false);
    assert!(!cq.has_overflowed());
    cq.arm(Arm::Any);
    assert_eq!(cq.push(wc(2), false), Pushed::Overflow);
    assert!(cq.has_overflowed());
    assert_eq!(cq.push(flushed(3), true), Pushed::Lost);
    assert_eq!(drain(&cq), [0, 1], "what was there stays");
    assert_eq!(cq.push(wc(4), false), Pushed::Lost, "room does not help");
    assert!(cq.is_empty() && cq.has_overflowed());
    assert_eq!(channel.pending(), 0, "a refused completion does not notify");
}

#[test]
fn a_queue_of_no_entries_has_one() {
    let cq = Cq::new(7, 0, None);
    assert_eq!(cq.capacity(), 1);
    assert_eq!(cq.push(wc(0), false), Pushed::Quiet);
    assert_eq!(cq.push(wc(1), false), Pushed::Overflow);
}

#[test]
fn a_push_notifies_if_the_queue_is_armed_for_it() {
    let (any, solicited) = (Some(Arm::Any), Some(Arm::Solicited));
    let rows = [
        (None, wc(0), false, false),
        (None, wc(0), true, false),
        (None, flushed(0), true, false),
        (any, wc(0), false, true),
        (any, wc(0), true, true),
        (any, flushed(0), false, true),
        (solicited, wc(0), false, false),
        (solicited, wc(0), true, true),
        (solicited, flushed(0), false, true),
        (solicited, flushed(0), true, true),
    ];
    for (armed, wc, is_solicited, notifies) in rows {
        let (cq, channel) = with_channel(8);
        armed.into_iter().for_each(|arm| cq.arm(arm));
        let expected = if notifies { Pushed::Notify } else { Pushed::Quiet };
        assert_eq!(cq.push(wc, is_solicited), expected, "{armed:?}, {:?}, {is_solicited}", wc.status);
        assert_eq!(channel.take_event(), notifies.then_some(7));
        // A request that was used up is gone; one that was not stays.
        assert_eq!(cq.push(flushed(1), true) == Pushed::Notify, armed.is_some() && !notifies);
    }
}

#[test]
fn a_stronger_request_is_not_weakened_and_a_weaker_one_is_strengthened() {
    let rows = [
        ([Arm::Any, Arm::Solicited], Pushed::Notify),
        ([Arm::Solicited, Arm::Any], Pushed::Notify),
        ([Arm::Any, Arm::Any], Pushed::Notify),
        ([Arm::Solicited, Arm::Solicited], Pushed::Quiet),
    ];
    for (requests, expected) in rows {
        let (cq, channel) = with_channel(8);
        requests.into_iter().for_each(|arm| cq.arm(arm));
        assert_eq!(cq.push(wc(0), false), expected, "{requests:?}");
        assert_eq!(cq.push(wc(0), false), Pushed::Quiet, "two requests, one notification");
        assert!(channel.pending() <= 1);
    }
}

#[test]
fn what_was_there_before_the_request_does_not_notify() {
    let (cq, channel) = with_channel(8);
    let _ = cq.push(wc(0), true);
    cq.arm(Arm::Any);
    assert_eq!(channel.pending(), 0);
    assert_eq!(drain(&cq), [0], "whoever armed polls once more");
    assert_eq!(cq.push(wc(1), false), Pushed::Notify);
}

#[test]
fn a_queue_without_a_channel_never_notifies() {
    let cq = Cq::new(7, 8, None);
    cq.arm(Arm::Any);
    assert_eq!(cq.push(flushed(0), true), Pushed::Quiet);
    assert!(cq.channel().is_none());
}

#[test]
fn two_queues_share_a_channel() {
    let channel = Arc::new(CompChannel::new(3));
    let queues = [1, 2].map(|number| Cq::new(number, 4, Some(Arc::clone(&channel))));
    for cq in &queues {
        cq.arm(Arm::Any);
        assert_eq!(cq.channel().map(|channel| channel.id()), Some(3));
    }
    let _ = queues[1].push(wc(0), false);
    let _ = queues[0].push(wc(0), false);
    assert_eq!([channel.take_event(), channel.take_event(), channel.take_event()], [Some(2), Some(1), None]);
}

#[test]
fn memory_is_set_aside_when_the_queue_is_made() {
    let cq = Cq::new(7, 1000, None);
    assert!(cq.memory_bytes() >= 1000 * size_of::<Wc>());
    let at = || lock(&cq.ring).slots.as_ptr();
    let before = at();
    for wr_id in 0..5000 {
        let _ = cq.push(wc(wr_id), false);
        if wr_id % 1000 == 999 {
            assert_eq!(drain(&cq).len(), 1000);
        }
    }
    assert_eq!(at(), before, "the ring did not move");
}

/// Completions of each producer in a test with threads.
const EACH: u64 = 5_000;

#[test]
fn every_completion_is_polled_once_and_in_order_by_many_threads() {
    const PRODUCERS: u64 = 2;
    let cq = Cq::new(7, 64, None);
    let left = AtomicU64::new(PRODUCERS * EACH);
    let polled: Vec<Vec<u64>> = thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let cq = &cq;
            scope.spawn(move || {
                for n in 0..EACH {
                    // Room for all producers, so that none of them overflows the queue.
                    while cq.count.load(Ordering::Relaxed) > 32 {
                        thread::yield_now();
                    }
                    assert_eq!(cq.push(wc(producer << 32 | n), false), Pushed::Quiet);
                    // What this thread pushed, it must see, unless another took it.
                    assert!(!cq.is_empty() || left_is_lower(cq));
                }
            });
        }
        let pollers: Vec<_> = (0..2).map(|_| scope.spawn(|| poll_until_done(&cq, &left))).collect();
        pollers.into_iter().map(|poller| poller.join().expect("no panic")).collect()
    });
    assert_eq!(polled.iter().map(Vec::len).sum::<usize>() as u64, PRODUCERS * EACH);
    let mut all: Vec<_> = polled.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, PRODUCERS * EACH, "each of them once");
    for seen in &polled {
        for producer in 0..PRODUCERS {
            assert!(seen.iter().filter(|id| *id >> 32 == producer).is_sorted(), "in order at each poller");
        }
    }
    assert!(cq.is_empty() && !cq.has_overflowed());
}

/// With the lock held nobody is half way: the hint and the ring agree.
fn left_is_lower(cq: &Cq) -> bool {
    let ring = lock(&cq.ring);
    ring.len == cq.count.load(Ordering::Relaxed)
}

fn poll_until_done(cq: &Cq, left: &AtomicU64) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut out = [wc(0); 8];
    while left.load(Ordering::Relaxed) > 0 {
        let taken = cq.poll(&mut out);
        seen.extend(out[..taken].iter().map(|wc| wc.wr_id));
        left.fetch_sub(taken as u64, Ordering::Relaxed);
        if taken == 0 {
            thread::yield_now();
        }
    }
    seen
}

#[test]
fn a_completion_that_was_pushed_before_is_seen_by_the_hint() {
    let cq = Cq::new(7, 4, None);
    let turn = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..EACH {
                let _ = cq.push(wc(n), false);
                // Relaxed would do for the machine at hand; Release is what the promise speaks of.
                turn.store(2 * n + 1, Ordering::Release);
                while turn.load(Ordering::Acquire) == 2 * n + 1 {
                    thread::yield_now();
                }
            }
        });
        for n in 0..EACH {
            while turn.load(Ordering::Acquire) != 2 * n + 1 {
                thread::yield_now();
            }
            assert!(!cq.is_empty());
            assert_eq!(drain(&cq), [n]);
            turn.store(2 * n + 2, Ordering::Release);
        }
    });
}

#[test]
fn whoever_arms_polls_and_then_waits_misses_nothing() {
    let (cq, channel) = with_channel(64);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..EACH {
                while cq.count.load(Ordering::Relaxed) > 32 {
                    thread::yield_now();
                }
                assert_ne!(cq.push(wc(n), false), Pushed::Overflow);
            }
            done.store(true, Ordering::Release);
        });
        let mut next = 0;
        while next < EACH {
            cq.arm(Arm::Any);
            let polled = drain(&cq);
            let is_idle = polled.is_empty();
            for wr_id in polled {
                assert_eq!(wr_id, next);
                next += 1;
            }
            while is_idle && channel.take_event().is_none() {
                // Read in this order: once it is done, whatever it notified is there.
                let is_done = done.load(Ordering::Acquire);
                assert!(!is_done || channel.pending() > 0, "asleep with {} of {EACH} polled", next);
                thread::yield_now();
            }
        }
    });
}
