//! Other processes for tests: this test program again, which claims an address and does what it is told.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests, each of which uses a part")]

use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use userdma_agent::{ClaimConfig, Claimed, claim};
use userdma_link::{UdpConfig, clock};
use userdma_other::say;
use userdma_verbs::{Qpn, Time};

/// Another process: this test program, in the function [`run_child`].
pub(crate) struct Other {
    process: userdma_other::Other,
    pub(crate) slot: u16,
    pub(crate) first_index: u16,
    pub(crate) port: u16,
}

impl Other {
    /// Starts a process that claims `address` from the agent `word`.
    pub(crate) fn start(word: &str, address: &str) -> Self {
        let mut other = Self::begin(word, address, None);
        other.hear_claim();
        other
    }

    /// As [`start`](Self::start), with a port to fall back on.
    pub(crate) fn start_with_fallback(word: &str, address: &str) -> Self {
        let mut other = Self::spawn(Self::command(word, address).env(FALLBACK, FALLBACK_PORT.to_string()));
        other.hear_claim();
        other
    }

    /// As [`start`](Self::start), without waiting for the slot.
    pub(crate) fn begin(word: &str, address: &str, uid: Option<u32>) -> Self {
        let mut command = Self::command(word, address);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Self::spawn(&mut command)
    }

    pub(crate) fn command(word: &str, address: &str) -> Command {
        let mut command = userdma_other::command("child");
        command.env(ADDRESS, address).env("USERDMA_AGENT", word);
        command
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self { process: userdma_other::Other::spawn(command), slot: 0, first_index: 0, port: 0 }
    }

    pub(crate) fn hear_claim(&mut self) {
        let line = self.line();
        let numbers: Vec<u16> = line.split(' ').map(|word| word.parse().expect(&line)).collect();
        (self.slot, self.first_index, self.port) = (numbers[0], numbers[1], numbers[2]);
    }

    pub(crate) fn line(&mut self) -> String {
        self.process.line()
    }

    pub(crate) fn tell(&mut self, what: &str) {
        self.process.tell(what);
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Whether a packet for its slot comes to it.
    pub(crate) fn assert_reached(&mut self, sender: &UdpSocket, address: &str) {
        let qpn = u32::from(self.slot) << 14 | 9;
        let packet = [[0; 4], qpn.to_be_bytes(), [1; 4]].concat();
        sender.send_to(&packet, (address, self.port)).unwrap();
        self.tell("receive");
        assert_eq!(self.line(), format!("{}", self.slot), "slot {}", self.slot);
    }

    /// What it knows to wait for the slot of another.
    pub(crate) fn backlog(&mut self, slot: u16) -> Option<u32> {
        self.tell(&format!("backlog {slot}"));
        self.line().parse().ok()
    }

    /// Closes its device in order, after using queue pairs up to `next_index`.
    pub(crate) fn close(self, next_index: u16) {
        self.end(&format!("close {next_index}"));
    }

    /// As [`Other::close`], though connections of its queue pairs are not over yet.
    pub(crate) fn rest(self, next_index: u16) {
        self.end(&format!("rest {next_index}"));
    }

    fn end(mut self, how: &str) {
        self.tell(how);
        assert_eq!(self.line(), "closed");
    }

    /// Stops it, and waits until each of its threads has stopped.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.process.child), Signal::STOP).unwrap();
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            // Behind the name, which is in parentheses.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        while !std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.process.child), Signal::CONT).unwrap();
    }

    pub(crate) fn kill(self) {
        self.process.kill();
    }
}

/// What other processes run, in a test with the name `child`; nothing when it is not one.
pub(crate) fn run_child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let addresses = vec![address.parse::<IpAddr>().unwrap()];
    let fallback_port = std::env::var(FALLBACK).ok().map(|port| port.parse().unwrap());
    let mut claimed = match claim(&ClaimConfig { addresses, udp: UdpConfig::default(), fallback_port }) {
        Ok(claimed) => claimed,
        Err(error) => return say(&format!("refused: {error}")),
    };
    say(&format!("{} {} {}", claimed.slot, claimed.first_index, claimed.links[0].port()));
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            None => say(&receive(&mut claimed)),
            Some(("backlog", slot)) => say(&backlog(&mut claimed, slot.parse().unwrap())),
            Some((how, next_index)) => {
                let lease = claimed.lease.as_ref().unwrap();
                lease.set_end(next_index.parse().unwrap(), how == "rest");
                drop(claimed);
                return say("closed");
            }
        }
    }
}

/// The slots of the packets that came; waits for one.
fn receive(claimed: &mut Claimed) -> String {
    let link = &mut claimed.links[0];
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::new(&*link, PollFlags::IN)], Some(&limit)).unwrap();
    let mut slots = Vec::new();
    while link
        .recv(Time::ZERO, &mut |frame| {
            let qpn = u32::from_be_bytes(frame.bytes[4..8].try_into().unwrap());
            slots.push((qpn >> 14).to_string());
        })
        .messages
        > 0
    {}
    slots.join(",")
}

/// The bytes that wait for a slot.
fn backlog(claimed: &mut Claimed, slot: u32) -> String {
    let link = &mut claimed.links[0];
    let route = link.route(link.local(), link.port(), 0);
    let backlog = link.backlog(clock::now(), &route, Qpn::new(slot << 14 | 5));
    backlog.map_or_else(|| "unknown".to_owned(), |backlog| backlog.used.to_string())
}

pub(crate) const ADDRESS: &str = "USERDMA_TEST_ADDRESS";
pub(crate) const FALLBACK: &str = "USERDMA_TEST_FALLBACK";
pub(crate) const FALLBACK_PORT: u16 = 14_791;
pub(crate) const NOBODY: u32 = 65_534;
