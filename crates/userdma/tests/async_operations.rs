//! Operations as futures: what each does, how each fails, and who may drive.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::asynch::{AsyncOptions, async_pair, async_pair_with, connect_async};
use common::pattern;
use futures_executor::block_on;
use futures_util::{StreamExt, future, join};
use userdma::{
    AsyncCq, Device, Error, Inline, PostError, RemoteMr, RtsAttr, Turn, WcOpcode, WcStatus, WrError,
};

#[test]
fn every_operation_does_what_it_says() {
    let (a, b) = async_pair(151);
    let (mine, theirs) = (a.mr(4096, 1), b.mr(4096, 2));
    let remote = theirs.remote();
    block_on(async {
        let (sent, received) = join!(a.qp.send(mine.slice(..100)), b.qp.recv(theirs.slice(1000..2000)));
        assert_eq!((sent?.opcode, received?.byte_len), (WcOpcode::Send, 100));
        let (_, received) = join!(a.qp.send_with_imm(Inline(b"x"), 7), b.qp.recv(theirs.slice(2000..2001)));
        assert_eq!(received?.imm(), Some(7));
        a.qp.write([mine.slice(..10), mine.slice(20..30)], remote).await?;
        let (_, received) = join!(a.qp.write_with_imm((), remote, 9), b.qp.recv(()));
        assert_eq!(received?.imm(), Some(9));
        let read = a.qp.read(mine.slice(3000..3020), remote).await?;
        assert_eq!((read.opcode, read.byte_len), (WcOpcode::RdmaRead, 20));
        theirs.store(8 * 8, 40).unwrap();
        let result = mine.slice(4088..);
        assert_eq!(a.qp.fetch_add(&result, remote.at(64), 2).await?, 40);
        assert_eq!(a.qp.compare_swap(&result, remote.at(64), 42, 50).await?, 42);
        Ok::<_, WrError>(())
    })
    .unwrap();
    let sent = pattern(4096, 1);
    assert_eq!(theirs.to_vec(1000..1100).unwrap(), sent[..100]);
    assert_eq!(theirs.to_vec(2000..2001).unwrap(), b"x");
    assert_eq!(theirs.to_vec(..20).unwrap(), [&sent[..10], &sent[20..30]].concat());
    assert_eq!(mine.to_vec(3000..3020).unwrap(), theirs.to_vec(..20).unwrap());
    assert_eq!(theirs.load(64).unwrap(), 50);
}

#[test]
fn a_future_does_nothing_before_it_is_polled() {
    let (a, b) = async_pair(152);
    let theirs = b.mr(8, 0);
    let before = theirs.to_vec(..).unwrap();
    drop(a.qp.write(Inline(b"not this"), theirs.remote()));
    block_on(a.qp.write((), theirs.remote())).unwrap();
    assert_eq!(theirs.to_vec(..).unwrap(), before);
}

#[test]
fn requests_are_executed_in_the_order_of_their_first_poll() {
    let (a, b) =
        async_pair_with(153, &AsyncOptions { qp: |qp| qp.max_send_wr(1), ..AsyncOptions::default() });
    let theirs = b.mr(8, 0);
    let all = (0..200u64).map(|i| a.qp.write(Inline(&i.to_ne_bytes()), theirs.remote()));
    // Polled in this order, and again in any.
    let all: future::JoinAll<_> = future::join_all(all);
    assert!(block_on(all).into_iter().all(|result| result.is_ok()));
    assert_eq!(theirs.load(0).unwrap(), 199);
}

#[test]
fn an_error_names_operation_status_and_queue_pair() {
    let (a, b) = async_pair(154);
    let gone = b.mr(8, 0).remote();
    let error = block_on(a.qp.write(Inline(b"late"), gone)).unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::RemAccessErr));
    let qpn = a.qp.qpn().get();
    assert_eq!(error.to_string(), format!("RDMA WRITE on queue pair {qpn:#x} failed: remote access error"));
    let flushed = block_on(a.qp.send(())).unwrap_err();
    assert!(flushed.is_flushed(), "{flushed}");
}

#[test]
fn a_request_that_cannot_be_posted_says_why_and_harms_nobody() {
    let (a, b) = async_pair(155);
    let foreign = b.mr(8, 0);
    let error = block_on(a.qp.send(foreign.slice(..))).unwrap_err();
    assert_eq!(error.to_string(), "SEND was not posted: the memory region belongs to another device");
    let short = a.mr(8, 0);
    let error = block_on(a.qp.fetch_add(short.slice(..4), foreign.remote(), 1)).unwrap_err();
    assert!(matches!(error, WrError::NotPosted { .. }), "{error}");
    block_on(a.qp.write(Inline(b"well"), foreign.remote())).unwrap();
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_send() {
    let rts = RtsAttr { rnr_retry: 1, ..RtsAttr::default() };
    let (a, _b) = async_pair_with(156, &AsyncOptions { rts, ..AsyncOptions::default() });
    let error = block_on(a.qp.send(Inline(b"?"))).unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::RnrRetryExcErr));
}

/// As the guide says: whoever only receives learns of it by a question.
#[test]
fn a_write_of_nothing_asks_whether_the_peer_is_there() {
    let rts = RtsAttr { retry_cnt: 1, ..RtsAttr::default() };
    let (a, b) = async_pair_with(167, &AsyncOptions { rts, ..AsyncOptions::default() });
    let mine = a.mr(64, 0);
    let mut messages = a.qp.receives([mine.slice(..32), mine.slice(32..)]);
    block_on(a.qp.write((), RemoteMr::NONE)).unwrap();
    drop(b);
    let error = block_on(a.qp.write((), RemoteMr::NONE)).unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::RetryExcErr));
    let next = block_on(messages.next());
    assert!(next.unwrap().unwrap_err().is_flushed(), "the stream of messages ends");
}

#[test]
fn a_peer_that_is_gone_ends_everything() {
    let rts = RtsAttr { retry_cnt: 1, ..RtsAttr::default() };
    let (a, b) = async_pair_with(157, &AsyncOptions { rts, ..AsyncOptions::default() });
    let remote = b.mr(8, 0).remote();
    drop(b);
    let mine = a.mr(8, 0);
    let (write, recv) = block_on(future::join(a.qp.write(Inline(b"?"), remote), a.qp.recv(mine.slice(..))));
    assert_eq!(write.unwrap_err().status(), Some(WcStatus::RetryExcErr));
    assert!(recv.unwrap_err().is_flushed());
}

#[test]
fn a_queue_pair_in_error_ends_all_its_futures() {
    let (a, _b) =
        async_pair_with(158, &AsyncOptions { qp: |qp| qp.max_recv_wr(2), ..AsyncOptions::default() });
    let mine = a.mr(8, 0);
    let mut all = pin!(future::join_all((0..10).map(|_| a.qp.recv(mine.slice(..)))));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(all.as_mut().poll(&mut cx).is_pending());
    a.qp.modify_to_err().unwrap();
    let results = block_on(all);
    assert!(results.iter().all(|result| result.as_ref().is_err_and(WrError::is_flushed)), "{results:?}");
}

#[test]
fn a_queue_pair_that_is_dropped_ends_all_its_futures() {
    let (a, _b) =
        async_pair_with(159, &AsyncOptions { qp: |qp| qp.max_recv_wr(2), ..AsyncOptions::default() });
    let mine = a.mr(8, 0);
    let mut all = pin!(future::join_all((0..10).map(|_| a.qp.recv(mine.slice(..)))));
    let never = a.qp.recv(mine.slice(..));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(all.as_mut().poll(&mut cx).is_pending());
    drop(a.qp);
    mine.write(0, b"ours now").unwrap();
    let results = block_on(all);
    assert!(results.iter().all(|result| matches!(result, Err(WrError::Destroyed { .. }))), "{results:?}");
    assert!(matches!(block_on(never), Err(WrError::Destroyed { .. })));
    mine.deregister().expect("nothing holds it");
}

#[test]
fn places_of_the_completion_queue_are_set_aside_and_come_back() {
    let options =
        AsyncOptions { cqe: 16, qp: |qp| qp.max_send_wr(8).max_recv_wr(8), ..AsyncOptions::default() };
    let (a, _b) = async_pair_with(160, &options);
    let error = a.cq.create_qp(&a.pd, |qp| qp.max_send_wr(1).max_recv_wr(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the queue pair may have 2 completions, completion queue 0 has room for 0 of 16"
    );
    drop(a.qp);
    a.cq.create_qp(&a.pd, |qp| qp.max_send_wr(8).max_recv_wr(8)).unwrap();
}

#[test]
fn a_queue_without_any_place_is_an_error_and_no_wait() {
    let options = AsyncOptions { qp: |qp| qp.max_recv_wr(0), ..AsyncOptions::default() };
    let (a, _b) = async_pair_with(161, &options);
    if a.qp.cap().max_recv_wr > 0 {
        return; // The device gave it some.
    }
    let error = block_on(a.qp.recv(())).unwrap_err();
    let WrError::NotPosted { reason, .. } = error else { panic!("{error}") };
    assert!(matches!(*reason, Error::Post(PostError::QueueFull { max: 0 })), "{reason}");
}

#[test]
fn messages_come_as_a_stream_in_order_until_the_first_error() {
    let (a, b) = async_pair(162);
    let theirs = b.mr(4 * 64, 0);
    let mut messages = b.qp.receives((0..4).map(|i| theirs.slice(64 * i..64 * (i + 1))));
    block_on(async {
        let sender = async {
            for i in 0..100u8 {
                a.qp.send_with_imm(Inline(&vec![i; usize::from(i % 64)]), i.into()).await.unwrap();
            }
            a.qp.write_with_imm(Inline(b"elsewhere"), theirs.remote(), 100).await.unwrap();
        };
        let receiver = async {
            for i in 0..100u8 {
                let message = messages.next().await.unwrap().unwrap();
                assert_eq!((message.imm(), message.len()), (Some(i.into()), usize::from(i % 64)));
                assert_eq!(message.to_vec().unwrap(), vec![i; usize::from(i % 64)]);
            }
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!((message.imm(), message.to_vec().unwrap().len()), (Some(100), 0));
        };
        join!(sender, receiver);
    });
    b.qp.modify_to_err().unwrap();
    let last: Vec<_> = block_on(messages.by_ref().collect());
    assert_eq!(last.len(), 1, "then it ends");
    assert!(last[0].as_ref().is_err_and(WrError::is_flushed));
}

#[test]
fn a_stream_waits_while_the_program_holds_all_its_messages() {
    let (a, b) = async_pair(163);
    let theirs = b.mr(8, 0);
    let mut messages = b.qp.receives([theirs.slice(..)]);
    let held = block_on(future::join(a.qp.send(Inline(b"1")), messages.next())).1.unwrap().unwrap();
    let mut next = pin!(messages.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let (second, sent) = block_on(async {
        let next = async { next.await.unwrap().unwrap().to_vec().unwrap() };
        let send = async {
            assert_eq!(held.to_vec().unwrap(), b"1");
            drop(held);
            a.qp.send(Inline(b"2")).await
        };
        join!(next, send)
    });
    sent.unwrap();
    assert_eq!(second, b"2");
}

#[test]
fn one_thread_drives_and_runs_the_future_itself() {
    let (a, b) = (Device::open("127.0.164.2").unwrap(), Device::open("127.0.164.3").unwrap());
    let (a_cq, mut driver) = AsyncCq::create(&a, 256).unwrap();
    let b_cq = AsyncCq::with_thread(&b, 256).unwrap();
    let (a, b) = connect_async((a, a_cq), (b, b_cq), &AsyncOptions::default());
    let (mine, theirs) = (a.mr(8, 0), b.mr(8, 0));
    let echo = std::thread::spawn(move || {
        block_on(async {
            for _ in 0..100 {
                b.qp.recv(theirs.slice(..)).await.unwrap();
                b.qp.send(theirs.slice(..)).await.unwrap();
            }
        });
        b
    });
    for i in 0..100u64 {
        let (sent, _) =
            driver.block_on(async { join!(a.qp.send(Inline(&i.to_ne_bytes())), a.qp.recv(mine.slice(..))) });
        sent.unwrap();
        assert_eq!(mine.load(0).unwrap(), i);
    }
    // Something else than a completion ends the wait, too.
    let (tell, told) = futures_channel();
    std::thread::spawn(tell);
    driver.block_on(told);
    drop(echo.join().unwrap());
}

/// A future that another thread ends.
fn futures_channel() -> (impl FnOnce() + Send, impl Future<Output = ()>) {
    use std::sync::{Arc, Mutex};
    let state = Arc::new(Mutex::new((false, None::<Waker>)));
    let other = Arc::clone(&state);
    let tell = move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let waker = {
            let mut state = other.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    };
    let told = future::poll_fn(move |cx| {
        let mut state = state.lock().unwrap();
        state.1 = Some(cx.waker().clone());
        if state.0 { Poll::Ready(()) } else { Poll::Pending }
    });
    (tell, told)
}

#[test]
fn a_queue_whose_driver_is_dropped_ends_all_its_futures() {
    let (a, b) = (Device::open("127.0.165.2").unwrap(), Device::open("127.0.165.3").unwrap());
    let (a_cq, mut driver) = AsyncCq::create(&a, 256).unwrap();
    let b_cq = AsyncCq::with_thread(&b, 256).unwrap();
    let (a, _b) = connect_async((a, a_cq), (b, b_cq), &AsyncOptions::default());
    assert_eq!(driver.handle_events(), Turn::Sleep);
    let mut waits = pin!(a.qp.recv(()));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(driver);
    let error = block_on(waits).unwrap_err();
    let reason = "nobody drives completion queue 0: its driver was dropped";
    assert_eq!(error.to_string(), format!("receive did not end: {reason}"));
    assert!(matches!(block_on(a.qp.send(())), Err(WrError::Cq { .. })));
    drop(a.qp);
    let late = a.cq.create_qp(&a.pd, |qp| qp).unwrap();
    assert!(matches!(block_on(late.recv(())), Err(WrError::Cq { .. })), "also on a new queue pair");
}

#[test]
fn a_device_closes_with_the_last_handle_though_a_thread_drives() {
    for _ in 0..5 {
        let (a, b) = async_pair(166);
        block_on(a.qp.write((), b.mr(8, 0).remote())).unwrap();
    }
}
