//! Time: what leaves when, and that nothing happens when nothing is to be done. Virtual, to the nanosecond.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use userdma_sim::{ConnectOptions, Fate, Memory, Pair, PairOptions, QpEnd};
use userdma_verbs::{AccessFlags, AckTimeout, RnrTimer, SendOp, Time, Wc, WcStatus};
use userdma_wire::Operation;

const LATENCY: Duration = Duration::from_micros(5);

struct Bench {
    pair: Pair,
    ends: [QpEnd; 2],
    source: Memory,
    target: Memory,
    start: Time,
}

impl Bench {
    fn new(options: &ConnectOptions) -> Self {
        Self::with(&PairOptions { latency: LATENCY, ..PairOptions::default() }, options)
    }

    fn with(pair: &PairOptions, options: &ConnectOptions) -> Self {
        let mut pair = Pair::new(pair);
        pair.net.start_trace();
        let ends = pair.connect(options);
        let source = pair.hosts[0].memory(1 << 20, AccessFlags::LOCAL_WRITE);
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let target = pair.hosts[1].memory(1 << 20, rights);
        let start = pair.now();
        Self { pair, ends, source, target, start }
    }

    /// Host 0 posts a SEND of 8 bytes.
    fn send(&self, wr_id: u64) {
        self.pair.hosts[0].send(&self.ends[0], wr_id, SendOp::Send, self.source.sge(0, 8));
    }

    fn recv(&self, wr_id: u64) {
        self.pair.hosts[1].recv(&self.ends[1], wr_id, self.target.sge(0, 64));
    }

    /// Since the start, in nanoseconds.
    fn elapsed(&self) -> u64 {
        nanos(self.pair.now().since(self.start))
    }

    /// What was sent since the last time: nanoseconds since the start, and the packet's first words.
    fn sent(&mut self) -> Vec<(u64, String)> {
        let start = self.start;
        let parse = |line: String| {
            let (time, rest) = line.trim_start().split_once(" us  ").unwrap();
            let (micros, fraction) = time.split_once('.').unwrap();
            let at = micros.parse::<u64>().unwrap() * 1000 + fraction.parse::<u64>().unwrap();
            let what = rest.split("  ").nth(1).unwrap().trim_start_matches("RC ").to_owned();
            (at - start.nanos(), what)
        };
        self.pair.net.take_trace().into_iter().map(parse).collect()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn all(times: &[u64], what: &str) -> Vec<(u64, String)> {
    times.iter().map(|&time| (time, what.to_owned())).collect()
}

fn statuses(wcs: &[Wc]) -> Vec<WcStatus> {
    wcs.iter().map(|wc| wc.status).collect()
}

#[test]
fn an_rnr_nak_is_waited_for_to_the_nanosecond_though_the_ack_timeout_lies_behind_it() {
    let mut bench = Bench::new(&ConnectOptions {
        min_rnr_timer: RnrTimer::new(12).unwrap(),
        timeout: AckTimeout::new(14).unwrap(),
        ..ConnectOptions::default()
    });
    bench.send(1);
    bench.pair.drive_for(Duration::from_millis(2));
    let round = 2 * 5_000 + 640_000;
    let sends: Vec<_> = bench.sent().into_iter().filter(|(_, what)| what == "SEND Only").collect();
    assert_eq!(sends, all(&[0, round, 2 * round, 3 * round], "SEND Only"));
    bench.recv(9);
    bench.pair.drive();
    assert_eq!(statuses(&bench.ends[0].poll_send()), [WcStatus::Success]);
}

#[test]
fn silence_is_waited_for_as_long_as_the_timeout_says_and_given_up_after_the_retries() {
    let mut bench = Bench::new(&ConnectOptions { retry_cnt: 2, ..ConnectOptions::default() });
    bench.pair.net.set_filter(|_| Fate::Drop);
    bench.recv(9);
    bench.send(1);
    bench.pair.drive();
    let timeout = 4096 << 8;
    assert_eq!(bench.sent(), all(&[0, timeout, 2 * timeout], "SEND Only"));
    assert_eq!(bench.elapsed(), 3 * timeout);
    assert_eq!(statuses(&bench.ends[0].poll_send()), [WcStatus::RetryExcErr]);
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut bench =
        Bench::new(&ConnectOptions { timeout: AckTimeout::new(0).unwrap(), ..ConnectOptions::default() });
    bench.pair.net.set_filter(|_| Fate::Drop);
    bench.send(1);
    bench.pair.drive();
    assert_eq!((bench.sent().len(), bench.pair.next()), (1, None));
    assert!(bench.ends[0].poll_send().is_empty());
}

#[test]
fn an_owed_acknowledgement_leaves_after_its_delay_and_at_once_when_released() {
    for (release, at) in [(false, 5_000 + 10_000), (true, 5_000)] {
        let mut bench = Bench::new(&ConnectOptions::default());
        bench.recv(9);
        bench.send(1);
        assert!(bench.pair.step());
        if release {
            bench.pair.release_acks(1);
        }
        bench.pair.drive();
        let acks: Vec<_> = bench.sent().into_iter().filter(|(_, what)| what == "Acknowledge").collect();
        assert_eq!(acks, all(&[at], "Acknowledge"));
    }
}

#[test]
fn an_owed_acknowledgement_leaves_behind_the_reply_in_the_same_batch() {
    let mut bench = Bench::new(&ConnectOptions::default());
    bench.recv(9);
    bench.send(1);
    assert!(bench.pair.step());
    let back = bench.pair.hosts[1].memory(64, AccessFlags::empty());
    let sink = bench.pair.hosts[0].memory(64, AccessFlags::LOCAL_WRITE);
    bench.pair.hosts[0].recv(&bench.ends[0], 8, sink.sge(0, 64));
    bench.pair.hosts[1].send(&bench.ends[1], 2, SendOp::Send, back.sge(0, 8));
    bench.pair.progress();
    let sent: Vec<_> =
        bench.sent().into_iter().filter(|&(at, _)| at == 5_000).map(|(_, what)| what).collect();
    assert_eq!(sent, ["SEND Only", "Acknowledge"]);
}

#[test]
fn a_connection_at_rest_has_no_deadline() {
    let mut bench = Bench::new(&ConnectOptions::default());
    for wr_id in 0..20 {
        bench.recv(wr_id);
        bench.send(wr_id);
    }
    bench.pair.hosts[0].send(
        &bench.ends[0],
        20,
        SendOp::Read(bench.target.remote(0)),
        bench.source.sge(0, 100_000),
    );
    bench.pair.drive();
    assert_eq!(bench.ends[0].poll_send().len(), 21);
    assert_eq!(bench.pair.next(), None);
    assert!(bench.elapsed() < 2_000_000, "and no timeout was waited for on the way: {} ns", bench.elapsed());
}

#[test]
fn two_senders_to_one_socket_share_its_window() {
    let options = ConnectOptions::default();
    let mut bench = Bench::with(&PairOptions { max_window: 32 << 10, ..PairOptions::default() }, &options);
    let [second, _other] = bench.pair.connect(&options);
    let under_way = Arc::new(Mutex::new((0u64, 0u64)));
    let count = Arc::clone(&under_way);
    // Payload that was sent and not acknowledged: what the receiver's socket may have to hold.
    bench.pair.net.set_filter(move |transit| {
        let packet = transit.packet().unwrap();
        let mut count = count.lock().unwrap();
        if packet.info().op == Operation::Write {
            count.0 += packet.payload().len() as u64;
        } else {
            count.0 = 0;
        }
        count.1 = count.1.max(count.0);
        Fate::Deliver
    });
    for (end, wr_id) in [(&bench.ends[0], 1), (&second, 2)] {
        bench.pair.hosts[0].write(end, wr_id, bench.source.sge(0, 400_000), bench.target.remote(0));
    }
    let mut finished = Vec::new();
    while bench.pair.step() {
        for end in [&bench.ends[0], &second] {
            finished.extend(end.poll_send().iter().map(|wc| (wc.wr_id, bench.pair.now().since(bench.start))));
        }
    }
    let [(_, first), (_, last)] = finished[..] else { panic!("{finished:?}") };
    assert!(last < first * 11 / 10, "they take turns, and end together: {finished:?}");
    assert!(under_way.lock().unwrap().1 <= 40 << 10, "{under_way:?}");
}
