//! Goodput over networks of all kinds, as tables of numbers in the tree: a change of the transport shows as a change of them.
//!
//! Everything is virtual and follows from seeds, so the numbers are the same on every machine. A table that has changed fails
//! the test and shows the difference; if it is as it should be, `INSTA_UPDATE=always cargo test -p userdma-sim --test netsim`
//! takes it over.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write;
use std::time::Duration;

use userdma_sim::{ConnectOptions, Memory, QpEnd, Star, StarOptions};
use userdma_verbs::{AccessFlags, AckTimeout, Mtu, QpCap, RemoteAddr, SendOp, Sge, WcStatus};

/// Bytes of each message.
const LEN: u32 = 256 << 10;
/// Messages that a flow keeps under way.
const DEPTH: u64 = 8;

/// WRITEs or READs from one host to another, one after the other.
struct Flow {
    from: usize,
    end: QpEnd,
    local: Sge,
    remote: RemoteAddr,
    is_read: bool,
    posted: u64,
    done: u64,
}

impl Flow {
    fn new(star: &mut Star, hosts: [usize; 2], memory: &[Memory; 2], mtu: Mtu, is_read: bool) -> Self {
        let cap =
            QpCap { max_send_wr: 16, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        // 16.8 ms: more than any round trip here.
        let timeout = AckTimeout::new(12).unwrap();
        let options = ConnectOptions { cap, mtu, timeout, rd_atomic: 16, ..ConnectOptions::default() };
        let [end, _] = star.connect(hosts, &options);
        let (local, remote) = (memory[0].sge(0, LEN), memory[1].remote(0));
        Self { from: hosts[0], end, local, remote, is_read, posted: 0, done: 0 }
    }

    /// Takes completions and posts as many messages.
    fn refill(&mut self, star: &Star) {
        for wc in self.end.poll_send() {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            self.done += 1;
        }
        while self.posted < self.done + DEPTH {
            let op = if self.is_read { SendOp::Read(self.remote) } else { SendOp::Write(self.remote) };
            star.hosts[self.from].send(&self.end, self.posted, op, self.local);
            self.posted += 1;
        }
    }
}

/// What flows came to.
struct Outcome {
    /// Bits a second of each flow.
    flows: Vec<f64>,
    /// Packets on the cables, lost, and lost in queues.
    sent: u64,
    lost: u64,
    overflowed: u64,
    timeouts: u64,
}

impl Outcome {
    fn gigabits(&self) -> f64 {
        self.flows.iter().sum::<f64>() / 1e9
    }
}

/// Runs flows for some time.
fn run(options: &StarOptions, duration: Duration, make: impl FnOnce(&mut Star) -> Vec<Flow>) -> Outcome {
    let mut star = Star::new(options);
    let mut flows = make(&mut star);
    let start = star.now();
    flows.iter_mut().for_each(|flow| flow.refill(&star));
    while star.now().since(start) < duration && star.step() {
        flows.iter_mut().for_each(|flow| flow.refill(&star));
    }
    let seconds = star.now().since(start).as_secs_f64();
    let stats = star.stats();
    let timeouts = star.hosts.iter().map(|host| host.shard.stats().local_ack_timeout_err).sum();
    Outcome {
        flows: flows.iter().map(|flow| (flow.done * u64::from(LEN)) as f64 * 8.0 / seconds).collect(),
        sent: stats.sent,
        lost: stats.lost,
        overflowed: stats.overflowed,
        timeouts,
    }
}

fn memory(star: &mut Star, host: usize) -> Memory {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    star.hosts[host].memory(LEN as usize, access)
}

fn one_flow(star: &mut Star, mtu: Mtu, is_read: bool) -> Vec<Flow> {
    let memory = [memory(star, 0), memory(star, 1)];
    vec![Flow::new(star, [0, 1], &memory, mtu, is_read)]
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// One flow of WRITEs or READs: loss × MTU × window × round trip.
fn sweep(is_read: bool) -> String {
    let mut table =
        String::from("rtt us   loss %    mtu  window KiB   Gbit/s    sent    lost  queue full  timeouts\n");
    for (rtt, ms) in [(20, 40), (200, 60), (2000, 200)] {
        for loss in [0.0, 0.001, 0.01] {
            for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
                for window in [128 << 10, 1 << 20] {
                    let round_trip = micros(rtt);
                    let options =
                        StarOptions { round_trip, loss, max_window: window, ..StarOptions::default() };
                    let outcome =
                        run(&options, Duration::from_millis(ms), |star| one_flow(star, mtu, is_read));
                    let percent = loss * 100.0;
                    let kib = window >> 10;
                    write!(table, "{rtt:>6} {percent:>8} {:>6} {kib:>11}", mtu.bytes()).unwrap();
                    line(&mut table, &outcome);
                }
            }
        }
    }
    table
}

fn line(table: &mut String, outcome: &Outcome) {
    let Outcome { sent, lost, overflowed, timeouts, .. } = outcome;
    let gigabits = outcome.gigabits();
    writeln!(table, " {gigabits:>8.3} {sent:>7} {lost:>7} {overflowed:>11} {timeouts:>9}").unwrap();
}

#[test]
fn one_flow_of_writes() {
    insta::assert_snapshot!(sweep(false));
}

#[test]
fn one_flow_of_reads() {
    insta::assert_snapshot!(sweep(true));
}

/// Several hosts write to one: its cable is shared, its queue overflows.
#[test]
fn incast() {
    let mut table = String::from(
        "senders  queue KiB  least of fair share  Gbit/s    sent    lost  queue full  timeouts\n",
    );
    for senders in [2_u8, 4, 8, 16] {
        for queue_bytes in [128 << 10, 512 << 10] {
            let options = StarOptions { hosts: senders + 1, queue_bytes, ..StarOptions::default() };
            let outcome = run(&options, Duration::from_millis(100), |star| {
                let to = memory(star, 0);
                (1..=usize::from(senders))
                    .map(|from| {
                        let memory = [memory(star, from), to.clone()];
                        Flow::new(star, [from, 0], &memory, Mtu::Mtu4096, false)
                    })
                    .collect()
            });
            let least = outcome.flows.iter().copied().fold(f64::MAX, f64::min);
            let share = least * f64::from(senders) / (outcome.gigabits() * 1e9);
            write!(table, "{senders:>7} {:>10} {share:>20.2}", queue_bytes >> 10).unwrap();
            line(&mut table, &outcome);
        }
    }
    insta::assert_snapshot!(table);
}

/// Many queue pairs share the window to one destination.
#[test]
fn many_queue_pairs() {
    let mut table =
        String::from("    qps  loss %  least of fair share  Gbit/s    sent    lost  queue full  timeouts\n");
    for qps in [1_u32, 8, 64] {
        for loss in [0.0, 0.001] {
            let options = StarOptions { loss, ..StarOptions::default() };
            let outcome = run(&options, Duration::from_millis(100), |star| {
                let memory = [memory(star, 0), memory(star, 1)];
                (0..qps).map(|_| Flow::new(star, [0, 1], &memory, Mtu::Mtu4096, false)).collect()
            });
            let least = outcome.flows.iter().copied().fold(f64::MAX, f64::min);
            let share = least * f64::from(qps) / (outcome.gigabits() * 1e9);
            write!(table, "{qps:>7} {:>7} {share:>20.2}", loss * 100.0).unwrap();
            line(&mut table, &outcome);
        }
    }
    insta::assert_snapshot!(table);
}
