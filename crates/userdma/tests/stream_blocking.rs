//! Streams for threads, and between processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use common::offer::{hex, unhex};
use common::stream::{StreamOptions, check, fill, setups, stream_pair};
use userdma::{AsyncCq, Device, Endpoint, Exchange, RdmaStream, StreamAttr, StreamOffer, StreamSetup};
use userdma_other::{Other, is_other, say};

#[test]
fn one_thread_reads_while_another_writes() {
    let (a, b) = stream_pair(30, &StreamOptions::small(1 << 16, 16));
    let (a, b) = (a.into_blocking(), b.into_blocking());
    std::thread::scope(|scope| {
        for (stream, seed) in [(&a, 1), (&b, 2)] {
            scope.spawn(move || {
                let mut bytes = vec![0; 30_000];
                for position in (0..3_000_000).step_by(bytes.len()) {
                    fill(&mut bytes, position, seed);
                    (&mut &*stream).write_all(&bytes).unwrap();
                }
                stream.shutdown().unwrap();
            });
        }
        for (stream, seed) in [(&a, 2), (&b, 1)] {
            scope.spawn(move || {
                let mut come = Vec::new();
                (&mut &*stream).read_to_end(&mut come).unwrap();
                assert_eq!(come.len(), 3_000_000);
                check(&come, 0, seed);
            });
        }
    });
}

#[test]
fn reads_and_writes_give_up_when_time_is_up() {
    let (a, b) = stream_pair(31, &StreamOptions::small(1 << 14, 16));
    let (mut a, mut b) = (a.into_blocking(), b.into_blocking());
    a.set_read_timeout(Some(Duration::from_millis(20)));
    a.set_write_timeout(Some(Duration::from_millis(20)));
    assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(a.write_all(&[1; 1 << 15]).unwrap_err().kind(), ErrorKind::TimedOut);
    b.read_exact(&mut [0; 1 << 14]).unwrap();
    a.write_all(&[2; 100]).unwrap();
    a.flush().unwrap();
    let mut come = [0; 100];
    b.read_exact(&mut come).unwrap();
    assert_eq!(come, [2; 100]);
}

#[test]
fn std_copies_a_file_over_it() {
    let (a, mut b) = stream_pair(32, &StreamOptions::default());
    let mut a = a.into_blocking();
    let mut file = vec![0; 1_000_000];
    fill(&mut file, 0, 3);
    let mut come = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            io::copy(&mut &file[..], &mut a).unwrap();
            a.shutdown().unwrap();
        });
        io::copy(&mut blocking(&mut b), &mut come).unwrap();
    });
    assert_eq!(come, file);
}

/// A reader that a program makes of `poll_read` itself.
fn blocking(stream: &mut RdmaStream) -> impl Read + '_ {
    struct Reader<'a>(&'a mut RdmaStream);
    impl Read for Reader<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            futures_executor::block_on(std::future::poll_fn(|cx| self.0.poll_read(cx, buf)))
        }
    }
    Reader(stream)
}

#[test]
fn sizes_and_offers_that_there_are_not_are_refused() {
    let device = Device::open("127.45.33.2").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), AsyncCq::with_thread(&device, 256).unwrap());
    let refused = |attr| StreamSetup::new(&pd, &cq, attr).unwrap_err().to_string();
    let usual = StreamAttr::default();
    let text = "a stream with a ring of 100000 bytes and 64 messages: a power of two from 16384 to 268435456, and 16 to 4096";
    assert_eq!(refused(StreamAttr { ring: 100_000, ..usual }), text);
    assert!(refused(StreamAttr { messages: 15, ..usual }).contains("and 15 messages"));
    let (a, b) = setups(33, &StreamOptions::default());
    let offer = StreamOffer::decode(&[0x20; StreamOffer::LEN]);
    let error = a.connect(&b.endpoint(), &offer).unwrap_err().to_string();
    assert_eq!(error, "the peer's offer of a stream is not understood: it does not begin as one does");
}

/// The child is killed while this side only reads.
#[test]
fn a_reader_is_told_that_the_other_process_was_killed() {
    const TEST: &str = "a_reader_is_told_that_the_other_process_was_killed";
    const ADDRESSES: [&str; 2] = ["127.45.34.2", "127.45.34.3"];
    if is_other() {
        let stream = meet(ADDRESSES[1], |ours| {
            say(&ours);
            let mut line = String::new();
            io::stdin().read_line(&mut line).unwrap();
            line.trim().to_owned()
        });
        let mut stream = stream.into_blocking();
        stream.write_all(b"last words").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut other = Other::start(TEST, "other");
    let theirs = other.line();
    let stream = meet(ADDRESSES[0], |ours| {
        writeln!(other.child.stdin.as_ref().unwrap(), "{ours}").unwrap();
        theirs
    });
    let mut stream = stream.into_blocking();
    stream.read_exact(&mut [0; 10]).unwrap();
    other.child.kill().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60)));
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(error.to_string().starts_with("the connection is broken"), "{error}");
}

/// A stream to a process to which `exchange` brings our words, and from which it has theirs.
fn meet(address: &str, exchange: impl FnOnce(String) -> String) -> RdmaStream {
    let device = Device::open(address).unwrap();
    let attr = StreamAttr { keep_alive: Some(Duration::from_millis(50)), ..StreamAttr::default() };
    let cq = AsyncCq::with_thread(&device, StreamSetup::places(attr.messages)).unwrap();
    let setup = StreamSetup::new(&device.alloc_pd().unwrap(), &cq, attr).unwrap();
    let (peer, offer): (Endpoint, StreamOffer) = unhex(&exchange(hex(&(setup.endpoint(), setup.offer()))));
    setup.connect(&peer, &offer).unwrap()
}
