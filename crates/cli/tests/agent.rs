//! `userdma agent` as an administrator runs it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

struct Agent {
    process: Child,
    says: Lines<BufReader<ChildStderr>>,
}

impl Agent {
    fn start(word: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userdma"));
        command.arg("agent").env("USERDMA_AGENT", word).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let says = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, says }
    }

    fn line(&mut self) -> String {
        self.says.next().unwrap().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn signals_end_it_in_order_and_it_says_so() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut agent = Agent::start("clisignals");
        let user = rustix::process::geteuid().as_raw();
        let started = format!("serving all users as user {user}, 256 devices for each on an address");
        assert_eq!(agent.line(), format!("userdma agent: {started}"));
        kill_process(Pid::from_child(&agent.process), signal).unwrap();
        let last = agent.says.by_ref().map(Result::unwrap).last().unwrap();
        assert_eq!(last, "userdma agent: stopping; 0 devices stay connected");
        assert_eq!(agent.process.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_second_one_fails_with_status_1_and_names_the_first() {
    let mut first = Agent::start("clisecond");
    first.line();
    let mut second = Agent::start("clisecond");
    let user = rustix::process::geteuid().as_raw();
    let runs = format!("userdma: a service runs already, process {} of user {user}", first.process.id());
    assert_eq!(second.line(), runs);
    assert_eq!(second.process.wait().unwrap().code(), Some(1));
}
