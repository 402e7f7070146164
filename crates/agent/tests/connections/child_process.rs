//! What another process with a device does: what it is told, by lines.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use userdma_agent::{ClaimConfig, Lease, PortRequest, PortSpace, Services, Will, claim};
use userdma_other::say;
use userdma_wire::Packet;
use userdma_wire::gsi;
use userdma_wire::mad::MAD_LEN;

use super::other::{ADDRESS, Other};

impl Other {
    /// One that never asks for what comes to queue pair 1.
    pub(crate) fn start_without_connections(word: &str, address: &str) -> Self {
        let mut other = Self::spawn(Self::command(word, address).env(KIND, "plain"));
        other.hear_claim();
        other
    }

    /// A number of one of its connections.
    pub(crate) fn comm_id(&self, nth: u32) -> u32 {
        u32::from(self.slot) << 22 | nth
    }

    /// Tells it something, and what it says.
    pub(crate) fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.line()
    }

    /// The datagram that it gets next.
    pub(crate) fn frame(&mut self) -> [u8; MAD_LEN] {
        parse(&self.ask("frame 20000"))
    }

    /// All that it gets, until there are no more for a while.
    pub(crate) fn frames(&mut self) -> Vec<[u8; MAD_LEN]> {
        let next = || Some(self.ask("frame 3000")).filter(|said| said != "none");
        std::iter::from_fn(next).map(|said| parse(&said)).collect()
    }

    /// Whether it gets this one soon.
    pub(crate) fn try_frame(&mut self, mad: &[u8; MAD_LEN]) -> bool {
        loop {
            match &*self.ask("frame 100") {
                "none" => return false,
                other if parse(other) == *mad => return true,
                _ => {}
            }
        }
    }
}

/// What other processes run, in a test with the name `child`; nothing when it is not one.
pub(crate) fn run_child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: IpAddr = address.parse().unwrap();
    let config = ClaimConfig { addresses: vec![address], ..ClaimConfig::default() };
    let claimed = claim(&config).unwrap();
    let lease = claimed.lease.unwrap();
    let (tell, frames) = channel();
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let lost = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&lost);
    let sink = move |frame: userdma_agent::GsiFrame<'_>| {
        count.fetch_add(frame.lost, Ordering::Relaxed);
        let packet = Packet::parse(frame.bytes).unwrap();
        let _ = tell.send(*gsi::mad_of(&packet).unwrap());
    };
    if std::env::var_os(KIND).is_none() {
        lease.set_gsi(bell.as_fd(), Box::new(sink)).unwrap();
    }
    say(&format!("{} {} {}", claimed.slot, claimed.first_index, claimed.links[0].port()));
    for line in io::stdin().lines() {
        let line = line.unwrap();
        if let Some(next_index) = line.strip_prefix("close ") {
            lease.set_end(next_index.parse().unwrap(), false);
            drop((claimed.links, lease));
            return say("closed");
        }
        if line == "lost" {
            say(&lost.load(Ordering::Relaxed).to_string());
            continue;
        }
        say(&obey(&lease, address, &frames, &line));
    }
}

fn obey(lease: &Lease, address: IpAddr, frames: &Receiver<[u8; MAD_LEN]>, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    match words[0] {
        "listen" => told(lease.listen(service(number(1)), None), |()| "ok".to_owned()),
        "reserve" => {
            let port = u16::try_from(number(1)).unwrap();
            let reuse_address = words[2] == "1";
            let request = PortRequest { space: PortSpace::Tcp, port, address, reuse_address, af_only: true };
            told(lease.reserve(&request), |reserved| format!("{} {}", reserved.id, reserved.port))
        }
        "begin" => told(lease.begin_listening(number(1)), |()| "ok".to_owned()),
        "release" => {
            lease.release_port(number(1));
            "ok".to_owned()
        }
        "will" => {
            // The peer calls its end of each connection 77.
            let mad = super::dreq(number(1), 77);
            let will = Will { from: address, to: words[2].parse().unwrap(), mad };
            lease.set_will(number(1), Some(&will));
            "ok".to_owned()
        }
        "open" => {
            let mad = super::dreq(number(1), 77);
            lease.open_will(number(1), &Will { from: address, to: words[2].parse().unwrap(), mad });
            "ok".to_owned()
        }
        "forget" => {
            lease.set_will(number(1), None);
            "ok".to_owned()
        }
        "frame" => match frames.recv_timeout(Duration::from_millis(number(1).into())) {
            Ok(mad) => mad.map(|byte| format!("{byte:02x}")).concat(),
            Err(_) => "none".to_owned(),
        },
        other => panic!("{other}?"),
    }
}

fn told<T>(result: io::Result<T>, text: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => text(value),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => "in use".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn service(id: u32) -> Services {
    Services { id: id.into(), mask: u64::MAX }
}

fn parse(text: &str) -> [u8; MAD_LEN] {
    assert_eq!(text.len(), 2 * MAD_LEN, "{text}");
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

/// Set for a process that does not ask for what comes to queue pair 1.
const KIND: &str = "USERDMA_TEST_KIND";
