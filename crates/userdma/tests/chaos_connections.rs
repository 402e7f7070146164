//! Programs that listen, connect and are connected, while the one that has the agent is killed again and again.
//!
//! Nobody hangs, whoever is not killed goes on with its connections and makes new ones, and nothing is left behind. Some ten seconds,
//! a minute with `FULL=1`; who is killed when comes from `USERDMA_CHAOS_SEED`, which is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::disallowed_types, reason = "a time limit of whole seconds")]

mod common;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use userdma::{
    ConnAttr, ConnectError, Connection, Cq, Device, Init, Inline, Listener, Mr, Pd, Qp, RemoteMr, Rts,
    SendFlags, WcStatus,
};
use userdma_other::{Other, role, say};

#[test]
fn agents_die_while_programs_connect_and_are_connected() {
    const TEST: &str = "agents_die_while_programs_connect_and_are_connected";
    if let Some(role) = role() {
        let (kind, port) = role.split_once(' ').unwrap();
        let port = port.parse().unwrap();
        return if kind == "serve" { Program::new().serve(port) } else { Program::new().call(port) };
    }
    let seed = std::env::var("USERDMA_CHAOS_SEED")
        .map_or_else(|_| u64::from(std::process::id()), |s| s.parse().unwrap());
    eprintln!("USERDMA_CHAOS_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let seconds = if std::env::var("FULL").is_ok_and(|full| full == "1") { 60 } else { 8 };
    let mut pairs: Vec<Pair> = (0..PAIRS).map(|port| Pair::start(TEST, FIRST_PORT + port)).collect();
    // All pairs are alike: who has lived through much has hardly more than who has just begun. A connection or two are under way.
    let usual = pairs[0].descriptors();
    let (mut kills, mut agents, end) = (0, 0, Instant::now() + Duration::from_secs(seconds));
    while Instant::now() < end || agents < 5 {
        let with_agent = || (0..pairs.len()).find_map(|at| Some((at, pairs[at].has_agent()?)));
        let agent = with_agent().filter(|_| random.random_bool(0.8));
        agents += u32::from(agent.is_some());
        let (at, which) =
            agent.unwrap_or_else(|| (random.random_range(0..pairs.len()), random.random_range(0..2)));
        // On the port that its server had.
        pairs[at].kill(which);
        pairs[at] = Pair::start(TEST, pairs[at].port);
        kills += 1;
        std::thread::sleep(Duration::from_millis(random.random_range(0..300)));
    }
    for descriptors in pairs.iter().map(Pair::descriptors) {
        let is_usual = descriptors.iter().zip(usual).all(|(now, usual)| *now <= usual + 16);
        assert!(is_usual, "{descriptors:?} descriptors, {usual:?} at first");
    }
    let made: u64 = pairs.into_iter().map(Pair::finish).sum();
    eprintln!(
        "{kills} processes killed, {agents} of them with the agent; the others made {made} connections"
    );
    assert!(made > 10, "{made} connections");
    // What they had goes with them: the port of the address, and the names.
    let free = Instant::now() + PATIENCE;
    while std::net::UdpSocket::bind((HERE, 4791)).is_err() {
        assert!(Instant::now() < free, "somebody keeps the address");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server, and a client that connects to it again and again.
struct Pair {
    both: [Other; 2],
    port: u16,
}

impl Pair {
    fn start(test: &str, port: u16) -> Self {
        let start =
            |kind: &str| Other::start_with(test, &format!("{kind} {port}"), &[("USERDMA_AGENT", "chaos-cm")]);
        let mut server = start("serve");
        assert_eq!(server.line(), "listens");
        let mut client = start("call");
        assert_eq!(client.line(), "connected");
        Self { both: [server, client], port }
    }

    /// Which of them has the agent.
    fn has_agent(&self) -> Option<usize> {
        self.both.iter().position(|process| {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", process.child.id()));
            let names = tasks.into_iter().flatten().flatten().map(|task| task.path().join("comm"));
            names
                .into_iter()
                .any(|name| std::fs::read_to_string(name).is_ok_and(|name| name.trim() == "userdma agent"))
        })
    }

    /// Kills one; the other notices, and ends.
    fn kill(&mut self, which: usize) {
        self.both[which].child.kill().unwrap();
        self.both[which].child.wait().unwrap();
        let other = &mut self.both[1 - which];
        let line = other.line();
        assert!(line.starts_with("gone"), "{line}");
        assert!(other.child.wait().unwrap().success());
    }

    fn descriptors(&self) -> [usize; 2] {
        self.both
            .each_ref()
            .map(|process| std::fs::read_dir(format!("/proc/{}/fd", process.child.id())).unwrap().count())
    }

    /// Ends both in order; how many connections the client has made.
    fn finish(mut self) -> u64 {
        // The client first: its server sees that it has gone.
        let mut made = 0;
        for (at, said) in [(1, "made "), (0, "gone")] {
            // One that has ended before its time says why.
            let _ = writeln!(self.both[at].child.stdin.as_mut().unwrap(), "end");
            let line = self.both[at].line();
            assert!(line.starts_with(said), "{line}");
            made = line.strip_prefix("made ").map_or(made, |count| count.parse().unwrap());
            assert!(self.both[at].child.wait().unwrap().success());
        }
        made
    }
}

/// What both kinds of programs have.
struct Program {
    device: Device,
    pd: Pd,
    mr: Mr,
}

impl Program {
    fn new() -> Self {
        let device = Device::open(HERE).unwrap();
        let pd = device.alloc_pd().unwrap();
        let mr = pd.alloc(4096, common::ALL).unwrap();
        Self { device, pd, mr }
    }

    /// A queue pair with a receive posted, and its completions.
    fn qp(&self) -> (Qp<Init>, Cq) {
        let cq = self.device.create_cq(64).unwrap();
        let qp = self.pd.create_qp(&cq, &cq).build().unwrap();
        qp.post_recv(RECV, &self.mr.slice(..8)).unwrap();
        (qp, cq)
    }

    /// Listens; the first connection stays, and when it ends, so does the program. Others are served and forgotten.
    fn serve(&self, port: u16) {
        let listener = self.listen(port);
        say("listens");
        let (first, cq) = self.accept(&listener, PATIENCE).expect("a client");
        let mut others = Vec::new();
        while !first.is_closed() && self.is_there(first.qp(), &cq) {
            others.extend(self.accept(&listener, Duration::from_millis(50)));
            others.retain(|(connection, _)| !connection.is_closed());
        }
        say("gone");
    }

    /// The server that was killed here before may still have the port for a moment.
    fn listen(&self, port: u16) -> Listener {
        let end = Instant::now() + PATIENCE;
        loop {
            match Listener::bind(&self.device, (HERE, port)) {
                Ok(listener) => return listener,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn accept(&self, listener: &Listener, patience: Duration) -> Option<(Connection<Qp<Rts>>, Cq)> {
        let request = listener.accept_blocking(Some(patience)).ok()?;
        let (qp, cq) = self.qp();
        // A client that has been killed meanwhile is no harm.
        let connection = request.accept_blocking(qp, &ConnAttr::default(), Some(PATIENCE)).ok()?;
        Some((connection, cq))
    }

    /// Connects again and again, beside a connection that stays.
    fn call(&self, port: u16) {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        std::thread::spawn(|| {
            // "end", or the one who has started us is gone.
            let _ = std::io::stdin().read_line(&mut String::new());
            IS_OVER.store(true, Ordering::Relaxed);
        });
        let (first, cq) = self.connect(port, || false).expect("a server");
        say("connected");
        let mut made = 0;
        while !IS_OVER.load(Ordering::Relaxed) {
            let done = self.round(port, || first.is_closed());
            if first.is_closed() || !self.is_there(first.qp(), &cq) {
                return say("gone");
            }
            if let Err(error) = done {
                return say(&format!("failed: {error}"));
            }
            made += 1;
        }
        say(&format!("made {made}"));
    }

    /// A connection that is made, used and ended.
    fn round(&self, port: u16, is_over: impl Fn() -> bool) -> Result<(), String> {
        let (connection, cq) = self.connect(port, is_over).map_err(|error| format!("{error:?}"))?;
        if !is_heard(connection.qp(), &cq) {
            return Err("nobody hears".to_owned());
        }
        connection.disconnect_blocking().map_err(|error| format!("{error:?}"))
    }

    /// Writes nothing; whether the peer has said that it has it.
    fn is_there(&self, qp: &Qp<Rts>, cq: &Cq) -> bool {
        qp.post_write(SEND, &self.mr.slice(..0), RemoteMr::NONE, SendFlags::SIGNALED).unwrap();
        completes(cq)
    }

    /// Asks again while nobody listens, unless `is_over`: a new agent may not know the server yet.
    fn connect(
        &self,
        port: u16,
        is_over: impl Fn() -> bool,
    ) -> Result<(Connection<Qp<Rts>>, Cq), ConnectError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (qp, cq) = self.qp();
            let attr = ConnAttr::default();
            match Connection::connect_blocking(&self.device, (HERE, port), qp, &attr, Some(PATIENCE)) {
                Ok(connection) => return Ok((connection, cq)),
                Err(ConnectError::NoListener(_)) if Instant::now() < end && !is_over() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends a message; whether it has arrived.
fn is_heard(qp: &Qp<Rts>, cq: &Cq) -> bool {
    qp.post_send(SEND, Inline(b"go on"), SendFlags::SIGNALED).unwrap();
    completes(cq)
}

/// Whether what was posted ends well. The receive of a queue pair whose connection has ended ends, too.
fn completes(cq: &Cq) -> bool {
    loop {
        let done = cq.wait_for(1, Some(PATIENCE)).unwrap();
        assert!(!done.is_empty(), "no completion");
        if let Some(wc) = done.iter().find(|wc| wc.wr_id == SEND) {
            return wc.status == WcStatus::Success;
        }
    }
}

/// Longer than anything takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
const HERE: &str = "127.71.7.1";
const FIRST_PORT: u16 = 7100;
const PAIRS: u16 = 6;
const SEND: u64 = 1;
const RECV: u64 = 2;
