//! Streams with tokio: every byte as it went, whatever both sides do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use common::stream::{StreamOptions, check, fill, setups, stream_pair};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use userdma::{AsyncCq, Device, Inline, StreamAttr};

/// Writes `total` bytes in pieces of any size, flushes now and then, gives up waiting now and then, and ends.
async fn write_any(mut stream: impl AsyncWrite + Unpin, total: u64, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut bytes = vec![0; 100_000];
    let mut position = 0;
    while position < total {
        let most = if rng.random_bool(0.5) { 200 } else { bytes.len() };
        let len = rng.random_range(1..=most).min((total - position) as usize);
        fill(&mut bytes[..len], position, seed);
        position += match rng.random_range(0..4) {
            0 => {
                let middle = rng.random_range(0..=len);
                let slices = [&bytes[..middle], &[], &bytes[middle..len]].map(IoSlice::new);
                stream.write_vectored(&slices).await.unwrap()
            }
            // Giving up is harmless: what was not taken is offered again.
            1 => {
                timeout(Duration::from_micros(1), stream.write(&bytes[..len])).await.map_or(0, Result::unwrap)
            }
            _ => stream.write(&bytes[..len]).await.unwrap(),
        } as u64;
        if rng.random_bool(0.1) {
            stream.flush().await.unwrap();
        }
    }
    if rng.random_bool(0.5) {
        stream.shutdown().await.unwrap();
    }
}

/// Reads pieces of any size to the end, which is after `total` bytes.
async fn read_any(mut stream: impl AsyncRead + Unpin, total: u64, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed ^ 1);
    let mut bytes = vec![0; 100_000];
    let mut position = 0;
    loop {
        let most = if rng.random_bool(0.5) { 200 } else { bytes.len() };
        let buf = &mut bytes[..rng.random_range(1..=most)];
        let read = if rng.random_bool(0.2) {
            timeout(Duration::from_micros(1), stream.read(buf)).await.ok()
        } else {
            Some(stream.read(buf).await)
        };
        let Some(read) = read else { continue };
        let len = read.unwrap();
        if len == 0 {
            break;
        }
        check(&bytes[..len], position, seed);
        position += len as u64;
    }
    assert_eq!(position, total);
}

/// Both directions at once, each with its own sizes.
async fn both_do_anything(net: u8, options: &StreamOptions, totals: [u64; 2], seed: u64) {
    println!("seed {seed:#x}");
    let (a, b) = stream_pair(net, options);
    let ((from_b, to_b), (from_a, to_a)) = (a.into_split(), b.into_split());
    let tasks = [
        tokio::spawn(write_any(to_b, totals[0], seed)),
        tokio::spawn(write_any(to_a, totals[1], seed + 1)),
        tokio::spawn(read_any(from_a, totals[0], seed)),
        tokio::spawn(read_any(from_b, totals[1], seed + 1)),
    ];
    for task in tasks {
        task.await.unwrap();
    }
}

fn seed(of_test: u64) -> u64 {
    std::env::var("USERDMA_TEST_SEED").map_or(of_test, |seed| seed.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_programs_get_every_byte_as_it_went() {
    for case in 0..6_u16 {
        let options = StreamOptions::small(1 << (14 + case), 16 + 8 * case);
        both_do_anything(1, &options, [3_000_000, 2_000_000], seed(0x5eed + 16 * u64::from(case))).await;
    }
}

#[tokio::test]
async fn random_programs_on_one_thread_that_drives_as_well() {
    let options = StreamOptions { cq: AsyncCq::with_tokio, ..StreamOptions::small(1 << 16, 32) };
    both_do_anything(2, &options, [3_000_000, 5_000_000], seed(0x0dd)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_programs_over_a_bad_network() {
    let options = StreamOptions {
        faults: "loss=0.01,reorder=0.01,dup=0.01,seed=3",
        ..StreamOptions::small(1 << 17, 64)
    };
    both_do_anything(3, &options, [3_000_000, 3_000_000], seed(0xbad)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sides_of_different_sizes_agree_on_the_smaller() {
    let attr = |ring, messages| StreamAttr { ring, messages, ..StreamAttr::default() };
    let options = StreamOptions { attr: [attr(1 << 20, 16), attr(1 << 15, 400)], ..StreamOptions::default() };
    let (a, b) = stream_pair(4, &options);
    assert_eq!((a.ring_len(), b.ring_len()), (1 << 15, 1 << 15));
    drop((a, b));
    both_do_anything(4, &options, [1_000_000, 1_000_000], seed(0xd1f)).await;
}

/// 1 GiB with 0.1 % of the packets lost, while the other direction carries 64 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_under_loss() {
    let options = StreamOptions { faults: "loss=0.001,seed=5", ..StreamOptions::default() };
    let (a, b) = stream_pair(5, &options);
    let ((from_b, to_b), (from_a, to_a)) = (a.into_split(), b.into_split());
    let tasks = [
        tokio::spawn(write_all(to_b, 1 << 30, 1)),
        tokio::spawn(write_all(to_a, 64 << 20, 2)),
        tokio::spawn(read_all(from_a, 1 << 30, 1)),
        tokio::spawn(read_all(from_b, 64 << 20, 2)),
    ];
    for task in tasks {
        task.await.unwrap();
    }
}

async fn write_all(mut stream: impl AsyncWrite + Unpin, total: u64, seed: u64) {
    let mut bytes = vec![0; 1 << 18];
    for position in (0..total).step_by(bytes.len()) {
        fill(&mut bytes, position, seed);
        stream.write_all(&bytes).await.unwrap();
    }
    stream.shutdown().await.unwrap();
}

async fn read_all(mut stream: impl AsyncRead + Unpin, total: u64, seed: u64) {
    let mut bytes = vec![0; 1 << 18];
    let mut position = 0;
    loop {
        let len = stream.read(&mut bytes).await.unwrap();
        if len == 0 {
            break;
        }
        check(&bytes[..len], position, seed);
        position += len as u64;
    }
    assert_eq!(position, total);
}

#[tokio::test]
async fn thousands_of_small_writes_arrive_though_nobody_looks_at_the_stream_again() {
    let (mut a, mut b) = stream_pair(6, &StreamOptions::default());
    for i in 0..10_000_u32 {
        a.write_all(&i.to_be_bytes()).await.unwrap();
    }
    for i in 0..10_000 {
        assert_eq!(b.read_u32().await.unwrap(), i);
    }
    drop(a);
    assert_eq!(b.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn two_sides_that_only_write_wait_for_each_other_to_read() {
    let (mut a, mut b) = stream_pair(7, &StreamOptions::small(1 << 15, 16));
    let bytes = vec![7; 1 << 16];
    for stream in [&mut a, &mut b] {
        let written = timeout(Duration::from_millis(200), stream.write_all(&bytes)).await;
        assert!(written.is_err(), "32 KiB fit, and nobody reads");
    }
    let mut come = vec![0; 1 << 15];
    a.read_exact(&mut come).await.unwrap();
    b.read_exact(&mut come).await.unwrap();
    assert!(come.iter().all(|&byte| byte == 7));
    for stream in [&mut a, &mut b] {
        stream.write_all(&bytes[..1 << 15]).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_shutdown_the_other_direction_goes_on() {
    let (mut a, mut b) = stream_pair(8, &StreamOptions::default());
    a.write_all(b"question").await.unwrap();
    a.shutdown().await.unwrap();
    assert_eq!(a.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut text = String::new();
    b.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    for _ in 0..100 {
        b.write_all(&[1; 10_000]).await.unwrap();
        a.read_exact(&mut [0; 10_000]).await.unwrap();
    }
    b.shutdown().await.unwrap();
    assert_eq!(a.read(&mut [0]).await.unwrap(), 0);
    a.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_was_written_before_a_stream_is_dropped_arrives() {
    for len in [1, 1000, 200_000] {
        let (mut a, mut b) = stream_pair(9, &StreamOptions::default());
        let mut bytes = vec![0; len];
        fill(&mut bytes, 0, 9);
        a.write_all(&bytes).await.unwrap();
        drop(a);
        let mut come = Vec::new();
        b.read_to_end(&mut come).await.unwrap();
        assert_eq!(come, bytes);
    }
}

#[tokio::test]
async fn a_peer_that_has_dropped_the_stream_ends_reads_and_breaks_writes() {
    let (a, mut b) = stream_pair(10, &StreamOptions::default());
    drop(a);
    assert_eq!(b.read(&mut [0]).await.unwrap(), 0);
    let error = b.write(b"nobody reads this").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(error.to_string(), "the peer has closed the stream");
    b.shutdown().await.unwrap();
}

/// A writer that waits for room is told, too.
#[tokio::test]
async fn a_writer_that_waits_is_told_that_the_peer_has_gone() {
    let (a, mut b) = stream_pair(11, &StreamOptions::small(1 << 14, 16));
    let task = tokio::spawn(async move { b.write_all(&[0; 1 << 16]).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(a);
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// The other side never connects: nothing that this side sends is answered.
#[tokio::test]
async fn a_reader_is_told_that_nobody_answers() {
    let attr = StreamAttr { keep_alive: Some(Duration::from_millis(20)), ..StreamAttr::default() };
    let (a, b) = setups(12, &StreamOptions { attr: [attr; 2], ..StreamOptions::default() });
    let mut a = a.connect(&b.endpoint(), &b.offer()).unwrap();
    let error = timeout(Duration::from_secs(60), a.read(&mut [0])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let text = error.to_string();
    assert!(text.starts_with("the connection is broken: RDMA WRITE on queue pair"), "{text}");
    assert_eq!(a.write(b"x").await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(a.shutdown().await.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(b);
}

#[tokio::test]
async fn an_idle_stream_that_is_asked_goes_on() {
    let attr = StreamAttr { keep_alive: Some(Duration::from_millis(10)), ..StreamAttr::default() };
    let (mut a, mut b) = stream_pair(13, &StreamOptions { attr: [attr; 2], ..StreamOptions::default() });
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        a.write_all(b"still here").await.unwrap();
        b.read_exact(&mut [0; 10]).await.unwrap();
    }
}

/// The other side is a queue pair that says it has read what was never sent.
#[tokio::test]
async fn a_peer_that_tells_what_cannot_be_breaks_the_stream() {
    let (a, b) = setups(16, &StreamOptions::default());
    let device = Device::open("127.45.16.4").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), AsyncCq::with_thread(&device, 256).unwrap());
    let liar = cq.create_qp(&pd, |qp| qp).unwrap();
    let (to_a, ring) = (a.endpoint(), a.offer().ring());
    let mut a = a.connect(&liar.endpoint(), &b.offer()).unwrap();
    let liar = liar.connect(&to_a).unwrap();
    liar.write_with_imm(Inline(b"true"), ring, 0).await.unwrap();
    a.read_exact(&mut [0; 4]).await.unwrap();
    // It may not be acknowledged any more.
    let _ = liar.write_with_imm((), ring, 1).await;
    let error = a.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let text = "the peer does not keep to the protocol of streams: more bytes read than were sent";
    assert_eq!(error.to_string(), text);
    assert_eq!(a.write(b"x").await.unwrap_err().kind(), ErrorKind::InvalidData);
    // Nothing that it sends arrives any more.
    assert!(liar.write(Inline(b"false"), ring).await.is_err());
}

#[test]
fn a_runtime_that_ends_ends_the_stream() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let guard = runtime.enter();
    let options = StreamOptions { cq: AsyncCq::with_tokio, ..StreamOptions::default() };
    let (mut a, _b) = stream_pair(14, &options);
    drop(guard);
    drop(runtime);
    let error = futures_executor::block_on(std::future::poll_fn(|cx| a.poll_read(cx, &mut [0]))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
}

/// Unmodified programs of tokio's: lines, and a copy in both directions.
#[tokio::test]
async fn codecs_and_copies_of_tokio_work_on_it() {
    let (a, b) = stream_pair(15, &StreamOptions::default());
    let echo = tokio::spawn(async move {
        let (mut from, mut to) = b.into_split();
        tokio::io::copy(&mut from, &mut to).await.unwrap()
    });
    let (from, mut to) = a.into_split();
    let writer = tokio::spawn(async move {
        for i in 0..1000 {
            to.write_all(format!("line {i}\n").as_bytes()).await.unwrap();
        }
    });
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(from));
    for i in 0..1000 {
        assert_eq!(lines.next_line().await.unwrap().unwrap(), format!("line {i}"));
    }
    assert_eq!(lines.next_line().await.unwrap(), None);
    writer.await.unwrap();
    assert_eq!(echo.await.unwrap(), 8890);
}
