//! Futures that are dropped, at every stage and at random; queues of two places; two tasks on one completion queue.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use common::asynch::{AsyncOptions, AsyncSide, async_pair, async_pair_with};
use common::pattern;
use futures_executor::block_on;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{future, join};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma::{Inline, WorkRequest};

/// Polls once, for nobody.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn two_places(net: u8) -> (AsyncSide, AsyncSide) {
    let qp = |qp: userdma::QpBuilder| qp.max_send_wr(2).max_recv_wr(2);
    async_pair_with(net, &AsyncOptions { qp, cqe: 4, ..AsyncOptions::default() })
}

#[test]
fn a_request_that_waits_for_a_place_is_taken_back() {
    let (a, b) = two_places(171);
    let (mine, theirs) = (a.mr(8, 0), b.mr(64, 0));
    assert!(a.qp.cap().max_recv_wr == 2, "the test counts on it");
    // Two are posted and take messages; two wait, of which the first goes.
    let [mut r1, mut r2] = [(); 2].map(|()| b.qp.recv(theirs.slice(..8)));
    let [mut r3, mut r4] = [16..24, 32..40].map(|range| b.qp.recv(theirs.slice(range)));
    for recv in [&mut r1, &mut r2, &mut r3, &mut r4] {
        assert!(poll_once(recv).is_pending());
    }
    drop(r3);
    block_on(async {
        for i in 1..=3u64 {
            mine.store(0, i).unwrap();
            a.qp.send(mine.slice(..)).await.unwrap();
        }
        r1.await.unwrap();
        r2.await.unwrap();
        r4.await.unwrap();
    });
    assert_eq!(theirs.load(32).unwrap(), 3);
    assert_eq!(theirs.to_vec(16..24).unwrap(), pattern(64, 0)[16..24]);
}

#[test]
fn a_posted_request_is_executed_and_its_memory_kept_though_nobody_waits() {
    let (a, b) = async_pair(172);
    let (mine, theirs) = (a.mr(1 << 20, 1), b.mr(1 << 20, 2));
    let mut read = a.qp.read(mine.slice(..), theirs.remote());
    assert!(poll_once(&mut read).is_pending());
    drop(read);
    let busy = mine.deregister().unwrap_err();
    block_on(a.qp.write((), theirs.remote())).unwrap();
    // What came later has ended, so it has, too.
    assert_eq!(busy.mr.to_vec(..).unwrap(), pattern(1 << 20, 2));
    busy.mr.deregister().expect("nothing holds it any more");
}

#[test]
fn a_request_that_has_completed_and_was_not_polled_is_forgotten() {
    let (a, b) = two_places(173);
    let theirs = b.mr(8, 0);
    let mut waited = 0;
    while waited < 100 {
        let mut write = a.qp.write(Inline(b"12345678"), theirs.remote());
        // On a busy machine the answer may be there when the poll looks for it.
        if poll_once(&mut write).is_pending() {
            block_on(a.qp.write((), theirs.remote())).unwrap();
            waited += 1;
        }
    }
}

#[test]
fn a_receive_that_was_dropped_takes_its_message_and_no_other() {
    let (a, b) = async_pair(174);
    let theirs = b.mr(16, 0);
    let mut first = b.qp.recv(theirs.slice(..8));
    assert!(poll_once(&mut first).is_pending());
    drop(first);
    let (second, _, _) = block_on(async {
        join!(b.qp.recv(theirs.slice(8..)), a.qp.send(Inline(b"lost")), a.qp.send(Inline(b"kept")))
    });
    assert_eq!(second.unwrap().byte_len, 4);
    assert_eq!(theirs.to_vec(8..12).unwrap(), b"kept");
}

#[test]
fn a_stream_loses_nothing_when_waiting_is_given_up() {
    let (a, b) = async_pair(175);
    let theirs = b.mr(2 * 8, 0);
    let mut messages = b.qp.receives([theirs.slice(..8), theirs.slice(8..)]);
    for i in 0..50u64 {
        for _ in 0..3 {
            let mut next = pin!(messages.next());
            assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        block_on(a.qp.send(Inline(&i.to_ne_bytes()))).unwrap();
        assert_eq!(block_on(messages.next()).unwrap().unwrap().to_vec().unwrap(), i.to_ne_bytes());
    }
}

/// A thousand operations from many tasks over a queue of two places: all are done, in order, and neither queue overflows.
#[test]
fn a_thousand_operations_pass_two_places() {
    let (a, b) = two_places(176);
    assert_eq!((a.cq.capacity(), a.qp.cap().max_send_wr), (4, 2), "the test counts on it");
    let theirs = b.mr(8, 0);
    theirs.store(0, 0).unwrap();
    let result = a.mr(8 * 1000, 0);
    let values = block_on(future::join_all((0..1000).map(|i| {
        let slice = result.slice(8 * i..8 * (i + 1));
        a.qp.fetch_add(slice, theirs.remote(), 1)
    })));
    let values: Vec<_> = values.into_iter().map(Result::unwrap).collect();
    assert_eq!(values, (0..1000).collect::<Vec<_>>(), "first come, first served");
}

#[test]
fn two_threads_share_a_completion_queue_and_each_gets_its_own() {
    let (a, b) = async_pair(177);
    let theirs = b.mr(2 * 4096, 0);
    let task = |half: usize| {
        let (qp, mine, remote) = (&a.qp, a.mr(4096, half as u8), theirs.remote());
        move || {
            block_on(async {
                for round in 0..200 {
                    let bytes = pattern(4096, (half + 2 * round) as u8);
                    mine.write(0, &bytes).unwrap();
                    let there = remote.slice(4096 * half as u64, 4096);
                    qp.write(mine.slice(..), there).await.unwrap();
                    mine.write(0, &[0; 4096]).unwrap();
                    assert_eq!(qp.read(mine.slice(..), there).await.unwrap().byte_len, 4096);
                    assert_eq!(mine.to_vec(..).unwrap(), bytes);
                }
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(task(0));
        scope.spawn(task(1));
    });
}

/// Random READs and WRITEs, of which a third is dropped after a random number of polls, over a network that loses packets.
/// Those that are not dropped see right bytes; at the end every byte is what some WRITE put there, and all memory is free.
#[test]
fn random_cancellations_disturb_nobody() {
    let seed = std::env::var("USERDMA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_a511);
    println!("USERDMA_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let qp = |qp: userdma::QpBuilder| qp.max_send_wr(8).max_recv_wr(1);
    let faults = "loss=0.01,reorder=0.01,seed=11";
    let options = AsyncOptions { faults, qp, cqe: 9, ..AsyncOptions::default() };
    let (a, b) = async_pair_with(178, &options);
    // The left half is read and never written; in the right half each slot has one writer of one value.
    let source = b.mr(SLOTS * SLOT, 3);
    let target = b.mr(SLOTS * SLOT, 4);
    let (reads, writes) = (a.mr(SLOTS * SLOT, 0), a.mr(SLOTS * SLOT, 5));
    let mut dropped = 0;
    block_on(async {
        let mut pending = FuturesUnordered::new();
        let mut busy = [false; SLOTS];
        for _ in 0..3000 {
            let slot = rng.random_range(0..SLOTS);
            if !std::mem::replace(&mut busy[slot], true) {
                let len = rng.random_range(1..=SLOT);
                let range = SLOT * slot..SLOT * slot + len;
                let remote = |mr: &userdma::Mr| mr.remote().slice(range.start as u64, len as u64);
                let request = if slot % 2 == 0 {
                    a.qp.read(reads.slice(range.clone()), remote(&source))
                } else {
                    a.qp.write(writes.slice(range.clone()), remote(&target))
                };
                match rng.random_range(0..3) {
                    0 => {
                        dropped += 1;
                        give_up(request, rng.random_range(0..3));
                        // It may go on for a while: nobody else may use its slot.
                    }
                    _ => pending.push(async move { (slot, len, request.await) }),
                }
            }
            if rng.random_bool(0.7)
                && let Some((slot, len, result)) = pending.next().await
            {
                result.unwrap();
                check(slot, len, &reads, &source);
                busy[slot] = false;
            }
            if busy.iter().filter(|busy| **busy).count() > SLOTS / 2 && pending.is_empty() {
                // All that is left was given up; what comes last on the queue ends after it.
                a.qp.write((), target.remote()).await.unwrap();
                busy.fill(false);
            }
        }
        while let Some((slot, len, result)) = pending.next().await {
            result.unwrap();
            check(slot, len, &reads, &source);
        }
        a.qp.write((), target.remote()).await.unwrap();
    });
    assert!(dropped > 100, "{dropped}");
    let (before, sent, after) =
        (pattern(SLOTS * SLOT, 4), writes.to_vec(..).unwrap(), target.to_vec(..).unwrap());
    for at in 0..SLOTS * SLOT {
        assert!(after[at] == before[at] || after[at] == sent[at], "byte {at}");
    }
    assert_eq!(source.to_vec(..).unwrap(), pattern(SLOTS * SLOT, 3));
    for mr in [reads, writes] {
        mr.deregister().expect("nothing holds it");
    }
}

/// Drops a request after so many polls.
fn give_up(mut request: WorkRequest, polls: u32) {
    for _ in 0..polls {
        if poll_once(&mut request).is_ready() {
            return;
        }
    }
}

/// What a READ has brought.
fn check(slot: usize, len: usize, reads: &userdma::Mr, source: &userdma::Mr) {
    if slot.is_multiple_of(2) {
        let range = SLOT * slot..SLOT * slot + len;
        assert_eq!(reads.to_vec(range.clone()).unwrap(), source.to_vec(range).unwrap());
    }
}

const SLOTS: usize = 64;
const SLOT: usize = 10_000;
