//! Waiting costs nothing: no thread spins while futures wait. Alone in its program, because it counts the CPU time of all
//! threads.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::time::Duration;

use common::asynch::{AsyncOptions, async_pair_with};
use futures_executor::block_on;
use futures_util::future;
use userdma::Inline;

/// CPU time of the process so far.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is one, and outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

/// CPU time that passes while `run` runs.
fn used(run: impl FnOnce()) -> Duration {
    let before = cpu_time();
    run();
    cpu_time() - before
}

/// Ports of their own: on a shared one, others' processes may have their agent in this one.
fn alone() -> AsyncOptions {
    AsyncOptions { private_port: Some(14_181), ..AsyncOptions::default() }
}

fn sleep_and_send(a: &userdma::AsyncQp) -> impl FnOnce() + '_ {
    || {
        std::thread::sleep(IDLE);
        block_on(a.send(Inline(b"wake up"))).unwrap();
    }
}

#[test]
fn waiting_takes_no_cpu_time() {
    let (a, b) = async_pair_with(181, &alone());
    let theirs = b.mr(64, 0);
    // Warm, and after traffic: leases and polls have their effect.
    let round = || {
        block_on(async {
            let (recv, sent) = future::join(b.qp.recv(theirs.slice(..)), a.qp.send(Inline(b"now"))).await;
            recv.unwrap();
            sent.unwrap();
        });
    };
    (0..100).for_each(|_| round());
    let thread = used(|| {
        std::thread::scope(|scope| {
            scope.spawn(sleep_and_send(&a.qp));
            block_on(b.qp.recv(theirs.slice(..))).unwrap();
        });
    });
    println!("driven by a thread: {thread:?} of CPU time in {IDLE:?}");
    assert!(thread < ALLOWED, "{thread:?}");
}

#[test]
#[cfg(feature = "tokio")]
fn waiting_on_tokio_takes_no_cpu_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let guard = runtime.enter();
    let (a, b) = async_pair_with(182, &AsyncOptions { cq: userdma::AsyncCq::with_tokio, ..alone() });
    drop(guard);
    let theirs = b.mr(64, 0);
    let task = used(|| {
        std::thread::scope(|scope| {
            scope.spawn(sleep_and_send(&a.qp));
            runtime.block_on(b.qp.recv(theirs.slice(..))).unwrap();
        });
    });
    println!("driven by a task: {task:?} of CPU time in {IDLE:?}");
    assert!(task < ALLOWED, "{task:?}");
}

/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(1);
/// A thread that spins uses ten times as much.
const ALLOWED: Duration = Duration::from_millis(100);
