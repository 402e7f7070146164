//! Completion queues that a tokio runtime drives, with one thread and with several.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::asynch::{AsyncOptions, AsyncSide, async_pair_with};
use common::{ALL, pattern};
use tokio::task::JoinSet;
use userdma::{AsyncCq, Device, Error, Inline, WrError};

fn pair(net: u8) -> (AsyncSide, AsyncSide) {
    async_pair_with(net, &AsyncOptions { cq: AsyncCq::with_tokio, ..AsyncOptions::default() })
}

/// An echo server, and many tasks that each check every byte of their own region over one queue pair.
async fn echo_and_regions(net: u8) {
    let (a, b) = pair(net);
    let (server, theirs) = (b.qp, b.pd.alloc(16 * 1024, ALL).unwrap());
    let messages: Vec<_> = (0..16).map(|i| theirs.slice(1024 * i..1024 * (i + 1))).collect();
    let remote_mr = b.pd.alloc(TASKS * 4096, ALL).unwrap();
    let remote = remote_mr.remote();
    let echo = tokio::spawn(async move {
        let mut messages = server.receives(messages);
        for _ in 0..100 {
            let message = messages.next().await.unwrap().unwrap();
            server.send(message.slice()).await.unwrap();
        }
        server
    });
    let client = Arc::new(a.qp);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (qp, mine) = (Arc::clone(&client), a.pd.alloc(4096, ALL).unwrap());
        tasks.spawn(async move {
            for round in 0..20 {
                let (bytes, there) =
                    (pattern(4096, (task + round) as u8), remote.slice(4096 * task as u64, 4096));
                mine.write(0, &bytes).unwrap();
                qp.write(mine.slice(..), there).await.unwrap();
                mine.write(0, &[0; 4096]).unwrap();
                qp.read(mine.slice(..), there).await.unwrap();
                assert_eq!(mine.to_vec(..).unwrap(), bytes);
            }
        });
    }
    let back = a.pd.alloc(1024, ALL).unwrap();
    for i in 0..100 {
        let text = vec![i as u8; 1 + i];
        let (received, sent) = tokio::join!(client.recv(back.slice(..)), client.send(Inline(&text)));
        sent.unwrap();
        assert_eq!(received.unwrap().byte_len as usize, text.len());
        assert_eq!(back.to_vec(..text.len()).unwrap(), text);
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    drop(echo.await.unwrap());
}

#[tokio::test(flavor = "current_thread")]
async fn one_thread_runs_tasks_and_drives() {
    echo_and_regions(191).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_threads_run_tasks_and_drive() {
    echo_and_regions(192).await;
}

#[tokio::test]
async fn a_receive_that_runs_out_of_time_disturbs_nobody() {
    let (a, b) = pair(193);
    let mr = b.pd.alloc(64, ALL).unwrap();
    let mut messages = b.qp.receives([mr.slice(..)]);
    for i in 0..5u8 {
        assert!(tokio::time::timeout(Duration::from_millis(2), messages.next()).await.is_err());
        a.qp.send(Inline(&[i])).await.unwrap();
        assert_eq!(messages.next().await.unwrap().unwrap().to_vec().unwrap(), [i]);
    }
}

#[tokio::test]
async fn tasks_that_are_aborted_give_their_memory_back() {
    let (a, b) = pair(194);
    let theirs = b.pd.alloc(1 << 16, ALL).unwrap();
    let remote = theirs.remote();
    let (qp, mine) = (Arc::new(a.qp), a.pd.alloc(1 << 16, ALL).unwrap());
    for _ in 0..20 {
        let (task_qp, slice) = (Arc::clone(&qp), mine.slice(..));
        let task = tokio::spawn(async move {
            loop {
                task_qp.read(slice.clone(), remote).await.unwrap();
            }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    qp.write((), remote).await.unwrap();
    mine.deregister().expect("nothing holds it");
}

#[test]
fn a_runtime_that_ends_ends_the_futures() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let guard = runtime.enter();
    let (a, _b) = pair(195);
    drop(guard);
    drop(runtime);
    let error = futures_executor::block_on(a.qp.recv(())).unwrap_err();
    assert!(matches!(error, WrError::Cq { .. }), "{error}");
}

#[test]
fn a_queue_needs_a_runtime() {
    let device = Device::open("127.0.196.2").unwrap();
    let error = AsyncCq::with_tokio(&device, 16).unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
}

#[tokio::test]
async fn a_device_closes_with_the_last_handle_though_a_task_drives() {
    for _ in 0..5 {
        let (a, b) = pair(197);
        let mr = b.pd.alloc(8, ALL).unwrap();
        a.qp.write((), mr.remote()).await.unwrap();
    }
}

const TASKS: usize = 16;
