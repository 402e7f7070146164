//! Streams by address and port.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use common::LONG;
use common::stream::{check, fill};
use futures_executor::block_on;
use userdma::{AsyncCq, BlockingStream, ConnAttr, Connection, Device, RdmaListener, StreamAttr};
use userdma_other::{Other, is_other, say};

fn device(net: u8, host: u8) -> Device {
    Device::builder().address([127, 45, net, host]).open().unwrap()
}

fn listen(device: &Device) -> RdmaListener {
    let address = device.gids().next().unwrap().ip();
    RdmaListener::bind_with(device, (address, 0), StreamAttr::default(), AsyncCq::with_thread).unwrap()
}

#[test]
fn threads_connect_in_three_lines() {
    let (server, client) = (device(70, 2), device(70, 3));
    let mut listener = listen(&server);
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let client = &client;
            scope.spawn(move || {
                let mut stream = BlockingStream::connect(client, address, LONG).unwrap();
                let mut bytes = vec![0; 300_000];
                fill(&mut bytes, 0, seed);
                stream.write_all(&bytes).unwrap();
                stream.shutdown().unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                check(&back, 0, seed);
                assert_eq!(back.len(), bytes.len());
            });
        }
        for _ in 0..4 {
            let mut stream = listener.accept_blocking(LONG).unwrap();
            scope.spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            });
        }
    });
}

/// What is no stream is refused with words, and holds up nobody.
#[test]
fn who_wants_something_else_is_refused_and_told_why() {
    let (server, client) = (device(71, 2), device(71, 3));
    let mut listener = listen(&server);
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (pd, cq) = (client.alloc_pd().unwrap(), AsyncCq::with_thread(&client, 256).unwrap());
            let qp = cq.create_qp(&pd, |qp| qp).unwrap();
            let result = block_on(Connection::connect(&client, address, qp, &ConnAttr::saying(*b"hello")));
            let text = result.unwrap_err().to_string();
            assert!(text.contains("the peer's offer of a stream is not understood"), "{text}");
            BlockingStream::connect(&client, address, LONG).unwrap().write_all(b"a stream").unwrap();
        });
        let mut text = String::new();
        listener.accept_blocking(LONG).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a stream");
    });
}

#[test]
fn a_reader_is_told_at_once_that_the_other_process_was_killed() {
    const TEST: &str = "a_reader_is_told_at_once_that_the_other_process_was_killed";
    if is_other() {
        let server = device(72, 2);
        let mut listener = listen(&server);
        say(&listener.local_addr().to_string());
        let mut stream = listener.accept_blocking(LONG).unwrap();
        stream.write_all(b"last words").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    // Somebody whose agent lives on.
    let (_other, client) = (device(72, 2), device(72, 3));
    let mut other = Other::start(TEST, "other");
    let mut stream = BlockingStream::connect(&client, &*other.line(), LONG).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    other.child.kill().unwrap();
    stream.set_read_timeout(LONG);
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(error.to_string().starts_with("the connection is broken"), "{error}");
}

#[cfg(feature = "tokio")]
mod with_tokio {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use userdma::RdmaStream;

    use super::*;

    #[tokio::test]
    async fn tasks_connect_in_three_lines() {
        let (server, client) = (device(73, 2), device(73, 3));
        let mut listener = RdmaListener::bind(&server, "127.45.73.2:0").unwrap();
        let address = listener.local_addr();
        let echo = tokio::spawn(async move {
            let stream = listener.accept().await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.45.73.3");
            let (mut from, mut to) = stream.into_split();
            tokio::io::copy(&mut from, &mut to).await.unwrap()
        });
        let mut stream = RdmaStream::connect(&client, address).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        assert_eq!(echo.await.unwrap(), 5);
    }
}
