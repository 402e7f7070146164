//! The service for all users: who gets what from it, and that its end and its start disturb nobody.
//!
//! Each test has a service of its own, by the word in `USERDMA_AGENT`, in a process that is killed with the test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod other;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use userdma_agent::{ServiceConfig, keep, serve};
use userdma_link::shared;
use userdma_other::say;

use self::other::{NOBODY, Other, run_child};

/// A service in a process of its own, and what it has told.
struct Service {
    process: userdma_other::Other,
}

impl Service {
    /// Starts the service `word`.
    fn start(word: &str) -> Self {
        Self::start_with(word, 256)
    }

    fn start_with(word: &str, devices_per_user: u16) -> Self {
        let mut service = Self::begin(word, devices_per_user, None);
        let said = service.line();
        let started = format!("serving all users as user {}", rustix::process::geteuid().as_raw());
        assert!(said.starts_with(&started), "{said}");
        service
    }

    fn begin(word: &str, devices_per_user: u16, uid: Option<u32>) -> Self {
        let mut command = userdma_other::command("child");
        command.env("USERDMA_AGENT", word).env(SERVICE, devices_per_user.to_string());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Self { process: userdma_other::Other::spawn(&mut command) }
    }

    fn line(&mut self) -> String {
        self.process.line()
    }

    fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Reads on until it says something with these words.
    fn hear(&mut self, words: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(words) {
                return line;
            }
        }
    }

    fn kill(self) {
        self.process.kill();
    }

    /// Stops it in order; what it has said last.
    fn stop(mut self) -> String {
        self.process.tell("");
        let said = self.hear("stopping");
        assert!(self.process.child.wait().unwrap().success());
        said
    }
}

/// What other processes run; a test of nothing when it is not one.
#[test]
fn child() {
    if std::env::var_os(KEEPER).is_some() {
        return keep().unwrap();
    }
    match std::env::var(SERVICE) {
        Ok(devices_per_user) => run_service(devices_per_user.parse().unwrap()),
        Err(_) => run_child(),
    }
}

fn run_service(devices_per_user: u16) {
    let start_keeper = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "child"]).env(KEEPER, "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
    };
    let config = ServiceConfig {
        devices_per_user,
        stop: std::io::stdin().as_fd().try_clone_to_owned().unwrap(),
        start_keeper: Box::new(start_keeper),
        log: Box::new(|event| say(&event.to_string())),
    };
    if let Err(error) = serve(config) {
        say(&format!("failed: {error}"));
    }
}

/// The process that this one has started, whichever of its threads did.
fn child_of(process: u32) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    children.collect::<String>().trim().parse().unwrap()
}

/// Whether this test can be two users, who may both run this program.
fn can_be_two_users() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be two users");
        return false;
    }
    let reachable =
        Command::new(std::env::current_exe().unwrap()).arg("--list").uid(NOBODY).gid(NOBODY).output();
    let is_reachable = reachable.is_ok_and(|output| output.status.success());
    if !is_reachable {
        eprintln!("SKIPPED: another user may not run this test program");
    }
    is_reachable
}

fn start_as(word: &str, address: &str, uid: u32) -> Other {
    let mut other = Other::begin(word, address, Some(uid));
    other.hear_claim();
    other
}

/// Waits until a process knows that nothing waits for the slot of another. The service may be too busy to answer in time, and it
/// may not have registered there yet.
fn await_empty_backlog(of: &mut Other, slot: u16) {
    while of.backlog(slot) != Some(0) {
        std::thread::yield_now();
    }
}

fn check_port_free(address: &str) {
    // The keeper ends by itself.
    while shared::check_port_free(address.parse().unwrap(), 4791).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn two_users_share_an_address_and_see_nothing_of_each_other() {
    const AT: &str = "127.47.20.2";
    if !can_be_two_users() {
        return;
    }
    let sender = UdpSocket::bind("127.47.20.3:0").unwrap();
    let mut service = Service::start("users");
    let mut others: Vec<_> =
        [NOBODY, NOBODY - 1, NOBODY].into_iter().map(|uid| start_as("users", AT, uid)).collect();
    assert_eq!(others.iter().map(|other| other.slot).collect::<Vec<_>>(), [1, 2, 3]);
    let said = service.hear("device opened");
    let pid = others[0].id();
    assert_eq!(said, format!("user {NOBODY}, process {pid}: device opened, slot 1 on {AT}"));
    for other in &mut others {
        other.assert_reached(&sender, AT);
    }
    let own = others[0].slot;
    await_empty_backlog(&mut others[2], own);
    assert_eq!(others[1].backlog(own), None, "a device of another user");
    // A slot goes to nobody else while the address is in use.
    others.remove(0).close(40);
    let mut stranger = start_as("users", AT, NOBODY - 1);
    let mut same = start_as("users", AT, NOBODY);
    assert_eq!((stranger.slot, same.slot, same.first_index), (4, 1, 40));
    for other in [&mut stranger, &mut same] {
        other.assert_reached(&sender, AT);
    }
    service.hear("device closed, slot 1");
}

#[test]
fn the_services_death_disturbs_nobody_and_the_next_goes_on() {
    const AT: &str = "127.47.20.4";
    let sender = UdpSocket::bind("127.47.20.5:0").unwrap();
    let mut service = Service::start("death");
    // More than a group begins with: it has grown when the service dies.
    let mut others: Vec<_> = (0..6).map(|_| Other::start("death", AT)).collect();
    for round in 0..3 {
        service.kill();
        for other in &mut others {
            other.assert_reached(&sender, AT);
        }
        // One dies, one comes while there is no service.
        others.remove(1).kill();
        let mut early = Other::begin("death", AT, None);
        service = Service::start("death");
        early.hear_claim();
        others.push(early);
        others.push(Other::start("death", AT));
        let slots: std::collections::BTreeSet<_> = others.iter().map(|other| other.slot).collect();
        assert_eq!(slots.len(), others.len(), "round {round}: nobody has another's slot");
        for other in &mut others {
            other.assert_reached(&sender, AT);
        }
    }
    let known = others[0].slot;
    // Who goes on may ask the new service.
    await_empty_backlog(&mut others[1], known);
    others.into_iter().for_each(|other| other.close(2));
    check_port_free(AT);
}

#[test]
fn who_dies_without_a_service_is_found_by_the_next() {
    const AT: &str = "127.47.20.6";
    let service = Service::start("lost");
    let _first = Other::start("lost", AT);
    let second = Other::start("lost", AT);
    let third = Other::start("lost", AT);
    service.kill();
    second.kill();
    third.close(77);
    let mut service = Service::start("lost");
    let mut said = [service.hear("owner of slot"), service.hear("owner of slot")];
    said.sort();
    assert!(said[0].starts_with(&format!("owner of slot 2 on {AT} ended")), "{said:?}");
    assert!(said[1].starts_with(&format!("owner of slot 3 on {AT} ended")), "{said:?}");
    assert_eq!(Other::start("lost", AT).slot, 4, "the slots of the dead rest");
}

#[test]
fn a_stopped_service_leaves_what_is_connected() {
    const AT: &str = "127.47.20.8";
    let sender = UdpSocket::bind("127.47.20.9:0").unwrap();
    let service = Service::start("stop");
    let mut other = Other::start("stop", AT);
    assert_eq!(service.stop(), "stopping; 1 device stays connected");
    other.assert_reached(&sender, AT);
    let mut service = Service::start("stop");
    service.hear("device goes on, slot 1");
    other.assert_reached(&sender, AT);
    assert_eq!(service.stop(), "stopping; 1 device stays connected");
    // With the last device the keeper ends.
    other.close(2);
    check_port_free(AT);
}

#[test]
fn a_killed_keeper_is_started_again_and_has_everything() {
    const AT: &str = "127.47.20.10";
    let sender = UdpSocket::bind("127.47.20.11:0").unwrap();
    let mut service = Service::start("keeper");
    let mut others: Vec<_> = (0..5).map(|_| Other::start("keeper", AT)).collect();
    let keeper = child_of(service.id());
    let keeper = rustix::process::Pid::from_raw(keeper).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    service.hear("keeper lost");
    service.hear("keeper started again");
    service.kill();
    let mut service = Service::start("keeper");
    for _ in 0..5 {
        service.hear("device goes on");
    }
    others.push(Other::start("keeper", AT));
    assert_eq!(others[5].slot, 6);
    for other in &mut others {
        other.assert_reached(&sender, AT);
    }
}

#[test]
fn who_shares_an_address_already_goes_on_without_the_service() {
    const AT: &str = "127.47.20.12";
    let sender = UdpSocket::bind("127.47.20.13:0").unwrap();
    let mut first = Other::start("before", AT);
    let mut service = Service::begin("before", 256, None);
    service.hear("serving all users");
    service.hear(&format!("not served as long as it lasts: {AT} belongs to"));
    let mut second = Other::start("before", AT);
    assert_eq!((first.slot, second.slot), (1, 2), "one group");
    let mut elsewhere = Other::start("before", "127.47.20.14");
    service.hear("device opened, slot 1 on 127.47.20.14");
    elsewhere.assert_reached(&sender, "127.47.20.14");
    for other in [&mut first, &mut second] {
        other.assert_reached(&sender, AT);
    }
    [first, second].into_iter().for_each(|other| other.close(2));
    let mut third = Other::start("before", AT);
    service.hear(&format!("device opened, slot 1 on {AT}"));
    third.assert_reached(&sender, AT);
}

#[test]
fn a_user_who_has_all_he_may_have_is_refused() {
    const AT: &str = "127.47.20.16";
    let mut service = Service::start_with("bound", 2);
    let _others = [Other::start("bound", AT), Other::start("bound", AT)];
    let said = Other::begin("bound", AT, None).line();
    assert!(said.starts_with("refused: slot of the port: 127.47.20.16: user "), "{said}");
    assert!(said.ends_with("has 2 devices already, as many as the service gives to one user"), "{said}");
    service.hear("device refused: 127.47.20.16: user ");
}

#[test]
fn a_second_service_names_the_first() {
    let service = Service::start("twice");
    let said = Service::begin("twice", 256, None).line();
    let uid = rustix::process::geteuid().as_raw();
    let first = format!("failed: a service runs already, process {} of user {uid}", service.id());
    assert_eq!(said, first);
}

#[test]
fn a_service_of_a_user_whom_nobody_has_named_is_not_asked() {
    const AT: &str = "127.47.20.18";
    if !can_be_two_users() {
        return;
    }
    let mut squatter = Service::begin("squat", 256, Some(NOBODY));
    squatter.hear("serving all users as user 65534");
    let said = Service::begin("squat", 256, None).line();
    assert!(said.starts_with("failed: somebody else has the service's name, process "), "{said}");
    assert!(said.ends_with(" of user 65534"), "{said}");
    let first = Other::start("squat", AT);
    let second = start_as("squat", "127.47.20.19", NOBODY - 1);
    assert_eq!((first.slot, second.slot), (1, 1), "each has an agent of his own user");
    // Only who says so trusts it, and its own user.
    let trusting = start_as("squat,service=65534", "127.47.20.20", NOBODY - 1);
    let said = squatter.hear("device opened");
    let opened =
        format!("user {}, process {}: device opened, slot 1 on 127.47.20.20", NOBODY - 1, trusting.id());
    assert_eq!(said, opened);
    start_as("squat", "127.47.20.21", NOBODY).close(2);
    squatter.hear("device opened, slot 1 on 127.47.20.21");
    start_as("squat,service=off", "127.47.20.22", NOBODY).close(2);
}

/// What no process of ours says.
#[test]
fn who_asks_for_what_is_not_his_is_cut_off() {
    const AT: &str = "127.47.20.24";
    let mut service = Service::start("wrong");
    let victim = Other::start("wrong", AT);
    // A registration of the victim's slot, without what proves that it is ours: an address in the form of IPv6 behind port and
    // count, slot, no other address, no parks.
    let ip = [&[0; 10], &[0xff, 0xff][..], &[127, 47, 20, 24]].concat();
    let place = [&4791_u16.to_be_bytes()[..], &[1], &ip].concat();
    let register = [&[2], &place[..], &victim.slot.to_be_bytes(), &[0; 16], &[0]].concat();
    let other_port = [&[1, 0, 0], &53_u16.to_be_bytes()[..], &[1], &ip].concat();
    for (message, expected) in [
        (register, "has slot 1, it says, of which nothing is known here, cut off"),
        (other_port, "port 4791 only"),
        (vec![9], "says what makes no sense, cut off"),
    ] {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(b"userdma/3/service/wrong").unwrap()).unwrap();
        rustix::io::write(&socket, &message).unwrap();
        service.hear(expected);
    }
}

/// Somebody who has the keeper's name only keeps the service from starting.
#[test]
fn a_keeper_of_another_user_is_not_trusted() {
    if !can_be_two_users() {
        return;
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new_abstract_name(b"userdma/3/keeper/false").unwrap()).unwrap();
    listen(&socket, 1).unwrap();
    let said = Service::begin("false", 256, Some(NOBODY)).line();
    let who = format!("failed: keeper of the sockets: process {} of user 0 has its name", std::process::id());
    assert_eq!(said, who);
}

const SERVICE: &str = "USERDMA_TEST_SERVICE";
const KEEPER: &str = "USERDMA_TEST_KEEPER";
