//! Many processes on one address, of which some are killed at any moment, the one that has the agent more often than others.
//!
//! Nobody hangs, whoever is not killed verifies every byte, and nothing is left behind. Ten seconds, a minute with `FULL=1`; what
//! is killed when comes from `USERDMA_CHAOS_SEED`, which is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]
#![allow(clippy::disallowed_types, reason = "a time limit of whole seconds")]

mod common;

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::offer::{hex, unhex};
use common::{ALL, LONG, pattern};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma::{Cq, Device, Endpoint, Inline, Mr, Qp, RemoteMr, Rts, SendFlags, Wc, WcStatus};
use userdma_other::{Other, role, say};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn killed_processes_leave_nothing_behind_and_take_nobody_with_them() {
    const TEST: &str = "killed_processes_leave_nothing_behind_and_take_nobody_with_them";
    const HERE: &str = "127.61.63.2";
    if role().is_some() {
        return talk(HERE);
    }
    let seed = std::env::var("USERDMA_CHAOS_SEED")
        .map_or_else(|_| u64::from(std::process::id()), |s| s.parse().unwrap());
    eprintln!("USERDMA_CHAOS_SEED={seed}");
    let seconds = if std::env::var("FULL").is_ok_and(|full| full == "1") { 60 } else { 10 };
    let mut chaos = Chaos { test: TEST, word: "chaos", random: SmallRng::seed_from_u64(seed), kills: 0 };
    let mut pairs = chaos.start(25);
    // The first pair is spared: it sees everything, and must not grow.
    let before = pairs[0].each_ref().map(descriptors);
    let end = Instant::now() + Duration::from_secs(seconds);
    // A machine that is busy needs longer to kill and to start enough.
    while Instant::now() < end || chaos.kills <= 10 && Instant::now() < end + Duration::from_secs(60) {
        chaos.kill_some(&mut pairs);
        let pause = chaos.random.random_range(20..200);
        std::thread::sleep(Duration::from_millis(pause));
    }
    until("every live process has a slot, and no other has", || names("chaos", "/4791/") == 50);
    assert_eq!(
        pairs[0].each_ref().map(descriptors),
        before,
        "descriptors of processes that lived through it"
    );
    let rounds: u64 = pairs.into_iter().map(finish).sum();
    eprintln!("{} processes killed, {rounds} rounds of those that were not", chaos.kills);
    assert!(chaos.kills > 10 && rounds > 20, "{} killed, {rounds} rounds", chaos.kills);
    until("the last process's end frees the names", || names("chaos", "") == 0);
    until("and the port", || std::net::UdpSocket::bind((HERE, 4791)).is_ok());
}

#[test]
fn two_hundred_processes_on_one_address_at_once() {
    const TEST: &str = "two_hundred_processes_on_one_address_at_once";
    const HERE: &str = "127.61.63.3";
    if role().is_some() {
        return talk(HERE);
    }
    let chaos = Chaos { test: TEST, word: "crowd", random: SmallRng::seed_from_u64(0), kills: 0 };
    let pairs = chaos.start(100);
    assert_eq!(names("crowd", "/4791/"), 200);
    for rounds in pairs.into_iter().map(finish) {
        assert!(rounds > 0);
    }
}

/// What kills, and how many it has killed.
struct Chaos {
    test: &'static str,
    word: &'static str,
    random: SmallRng,
    kills: u32,
}

type Pair = [Other; 2];

impl Chaos {
    /// Pairs of processes that talk to each other.
    fn start(&self, count: usize) -> Vec<Pair> {
        let process = || Other::start_with(self.test, "talk", &[("USERDMA_AGENT", self.word)]);
        let mut pairs: Vec<Pair> = (0..count).map(|_| [process(), process()]).collect();
        for [a, b] in &mut pairs {
            let (to_a, to_b) = (a.line(), b.line());
            a.tell(&to_b);
            b.tell(&to_a);
        }
        for process in pairs.iter_mut().flatten() {
            assert_eq!(process.line(), "connected");
        }
        pairs.iter_mut().flatten().for_each(|process| process.tell("go"));
        // Who is told to end before it runs at all has nothing to say.
        for process in pairs.iter_mut().flatten() {
            assert_eq!(process.line(), "talks");
        }
        pairs
    }

    /// Kills one of each of up to three pairs at once, waits until the others notice, and starts new pairs in their place.
    fn kill_some(&mut self, pairs: &mut Vec<Pair>) {
        let count = self.random.random_range(1..=3);
        for _ in 0..count {
            let mut at = self.random.random_range(1..pairs.len());
            let mut which = self.random.random_range(0..2);
            if self.random.random_bool(0.3)
                && let Some((pair, member)) = with_agent(pairs)
                && pair > 0
            {
                (at, which) = (pair, member);
            }
            let mut pair = pairs.swap_remove(at);
            pair[which].child.kill().unwrap();
            pair[which].child.wait().unwrap();
            self.kills += 1;
            assert_eq!(pair[1 - which].line(), "gone");
            assert!(pair[1 - which].child.wait().unwrap().success());
        }
        pairs.extend(self.start(count));
    }
}

/// The pair and the member of it whose process has the agent, if one has it at this moment.
fn with_agent(pairs: &[Pair]) -> Option<(usize, usize)> {
    let is_agent = |process: &Other| threads(process).iter().any(|(name, _)| name == "userdma agent");
    let mut all = pairs.iter().enumerate().flat_map(|(at, pair)| [(at, 0, &pair[0]), (at, 1, &pair[1])]);
    all.find(|(_, _, process)| is_agent(process)).map(|(at, which, _)| (at, which))
}

/// The names of a process's threads, and how many descriptors each sees.
fn threads(process: &Other) -> Vec<(String, usize)> {
    let tasks =
        std::fs::read_dir(format!("/proc/{}/task", process.child.id())).into_iter().flatten().flatten();
    let thread = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let descriptors = std::fs::read_dir(task.path().join("fd")).map_or(0, Iterator::count);
        (name.trim().to_owned(), descriptors)
    };
    tasks.map(thread).collect()
}

/// The descriptors that a process has, its threads with descriptors of their own left out.
fn descriptors(process: &Other) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.child.id())).unwrap().count()
}

/// How many abstract names there are of the agent `word` that contain `part`. Other tests have agents whose word begins alike.
fn names(word: &str, part: &str) -> usize {
    use std::os::unix::fs::MetadataExt;
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    let ours = format!("@userdma/3/{uid}/{word}");
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    let is_ours = |rest: &str| (rest.is_empty() || rest.starts_with('/')) && rest.contains(part);
    all.lines().filter(|line| line.split_once(&ours).is_some_and(|(_, rest)| is_ours(rest))).count()
}

/// Waits until something is so. It soon is, on a machine that is not overloaded.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a pair in order; how often it has written, read and compared.
fn finish(mut pair: Pair) -> u64 {
    pair.iter_mut().for_each(|process| process.tell("end"));
    let rounds = pair.each_mut().map(|process| process.line().parse::<u64>().expect("a count of rounds"));
    assert!(pair.iter_mut().all(|process| process.child.wait().unwrap().success()));
    rounds.iter().sum()
}

/// What the other processes do: each round writes the peer's memory, reads it back, compares, and sends the round's number.
/// Until the standard input says that it is enough, or the peer is gone.
fn talk(here: &str) {
    let mut peer = Peer::meet(here);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        // "end", or the one who has started us is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let mut rounds = 0;
    while !IS_OVER.load(Ordering::Relaxed) {
        if !peer.round(rounds) {
            // The peer may have been told to end before us.
            return say(&if IS_OVER.load(Ordering::Relaxed) {
                rounds.to_string()
            } else {
                "gone".to_owned()
            });
        }
        rounds += 1;
        if rounds == 1 {
            say("talks");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    say(&rounds.to_string());
}

/// A connection to another process, and the memory for it.
struct Peer {
    qp: Qp<Rts>,
    /// Of sends, writes and reads, and of receives.
    cqs: [Cq; 2],
    mine: Mr,
    back: Mr,
    inbox: Mr,
    remote: RemoteMr,
    received: u64,
    _theirs: Mr,
    _device: Device,
}

impl Peer {
    fn meet(here: &str) -> Self {
        let device = Device::open(here).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cqs = [64, 64].map(|size| device.create_cq(size).unwrap());
        let [mine, back, theirs] = [LEN; 3].map(|len| pd.alloc(len, ALL).unwrap());
        let inbox = pd.alloc(8 * RECEIVES, ALL).unwrap();
        let qp = pd.create_qp(&cqs[0], &cqs[1]).build().unwrap();
        for at in 0..RECEIVES {
            qp.post_recv(at as u64, &inbox.slice(8 * at..8 * (at + 1))).unwrap();
        }
        say(&hex(&(qp.endpoint(), theirs.remote())));
        let (peer, remote): (Endpoint, RemoteMr) = unhex(&heard());
        let qp = qp.connect(&peer).unwrap();
        say("connected");
        assert_eq!(heard(), "go");
        Self { qp, cqs, mine, back, inbox, remote, received: 0, _theirs: theirs, _device: device }
    }

    /// One round; `false` if the peer is gone.
    fn round(&mut self, number: u64) -> bool {
        let bytes = pattern(LEN, number as u8);
        self.mine.write(0, &bytes).unwrap();
        self.qp.post_write(1, &self.mine.slice(..), self.remote, SIGNALED).unwrap();
        self.qp.post_read(2, &self.back.slice(..), self.remote, SIGNALED).unwrap();
        self.qp.post_send(3, Inline(&number.to_be_bytes()), SIGNALED).unwrap();
        let done = self.cqs[0].wait_for(3, LONG).unwrap();
        assert_eq!(done.len(), 3, "no completion for 20 s");
        if let Some(failed) = done.iter().find(|wc| wc.status != WcStatus::Success) {
            assert_eq!(failed.status, WcStatus::RetryExcErr, "{failed:?}");
            return false;
        }
        assert!(self.back.to_vec(..).unwrap() == bytes, "round {number}: other bytes came back than went");
        while let Some(wc) = self.cqs[1].poll_one().unwrap() {
            self.take_message(&wc);
        }
        true
    }

    /// A message, which must be the next.
    fn take_message(&mut self, wc: &Wc) {
        assert_eq!(wc.status, WcStatus::Success);
        let at = wc.wr_id as usize;
        let slice = || 8 * at..8 * (at + 1);
        assert_eq!(self.inbox.to_vec(slice()).unwrap(), self.received.to_be_bytes());
        self.received += 1;
        self.qp.post_recv(wc.wr_id, &self.inbox.slice(slice())).unwrap();
    }
}

/// The next line of the standard input.
fn heard() -> String {
    std::io::stdin().lock().lines().next().expect("a line").unwrap()
}

/// Bytes that are written and read each round: some packets, the last not full.
const LEN: usize = 20_001;
const RECEIVES: usize = 16;
