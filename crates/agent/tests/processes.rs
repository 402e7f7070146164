//! Slots of many processes: that start at once, are killed, and outlive the one that was the agent.
//!
//! The processes of each test have an agent of their own, by the word in `USERDMA_AGENT`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod other;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;

use userdma_link::shared;

use self::other::{FALLBACK_PORT, NOBODY, Other};

/// What other processes run; a test of nothing when it is not one.
#[test]
fn child() {
    other::run_child();
}

fn slots(others: &[Other]) -> BTreeSet<u16> {
    others.iter().map(|other| other.slot).collect()
}

#[test]
fn processes_that_start_at_once_share_an_address() {
    const AT: &str = "127.0.14.2";
    const COUNT: usize = 24;
    let mut others: Vec<_> = (0..COUNT).map(|_| Other::begin("once", AT, None)).collect();
    others.iter_mut().for_each(Other::hear_claim);
    assert_eq!(slots(&others).len(), COUNT, "each has a slot of its own");
    assert_eq!(slots(&others).last(), Some(&24));
    let sender = UdpSocket::bind("127.0.14.3:0").unwrap();
    for other in &mut others {
        other.assert_reached(&sender, AT);
    }
}

#[test]
fn a_killed_process_takes_nobody_with_it_and_its_slot_comes_back() {
    const AT: &str = "127.0.14.4";
    let sender = UdpSocket::bind("127.0.14.5:0").unwrap();
    let mut others: Vec<_> = (0..5).map(|_| Other::start("killed", AT)).collect();
    let slots: Vec<_> = others.iter().map(|other| other.slot).collect();
    assert_eq!(slots, [1, 2, 3, 4, 5]);
    // Not the first, which is the agent.
    others.remove(2).kill();
    others.remove(1).close(77);
    others.remove(1).rest(40);
    let mut next = Other::start("killed", AT);
    assert_eq!((next.slot, next.first_index), (2, 77), "a slot that was given back goes on");
    let mut after = Other::start("killed", AT);
    assert_eq!(after.slot, 6, "the slot of the dead rests, and the one whose connections are not over");
    for other in others.iter_mut().chain([&mut next, &mut after]) {
        other.assert_reached(&sender, AT);
    }
}

#[test]
fn the_agents_death_disturbs_nobody() {
    const AT: &str = "127.0.14.6";
    let sender = UdpSocket::bind("127.0.14.7:0").unwrap();
    for round in 0..3 {
        let agent = Other::start("death", AT);
        let mut others: Vec<_> = (0..6).map(|_| Other::start("death", AT)).collect();
        assert_eq!(agent.slot, 1, "round {round}");
        agent.kill();
        // At once: the survivors may not have an agent yet. More than there are sockets for: the group grows.
        let mut new: Vec<_> = (0..12).map(|_| Other::begin("death", AT, None)).collect();
        new.iter_mut().for_each(Other::hear_claim);
        others.append(&mut new);
        assert_eq!(slots(&others), (1..=18).collect(), "round {round}: nobody has another's slot");
        for other in &mut others {
            other.assert_reached(&sender, AT);
        }
        others.into_iter().for_each(|other| other.close(2));
    }
    shared::check_port_free(AT.parse().unwrap(), 4791).expect("the last slot's end frees the port");
}

/// The agents die one after the other, until one process is left that was there from the beginning.
#[test]
fn the_last_of_many_agents_still_knows_the_group() {
    const AT: &str = "127.0.14.8";
    let sender = UdpSocket::bind("127.0.14.9:0").unwrap();
    let mut others: Vec<_> = (0..8).map(|_| Other::start("many", AT)).collect();
    let mut last = others.pop().unwrap();
    for other in others {
        other.kill();
        last.assert_reached(&sender, AT);
    }
    let mut new = Other::start("many", AT);
    assert_ne!(new.slot, last.slot);
    new.assert_reached(&sender, AT);
    last.assert_reached(&sender, AT);
}

#[test]
fn a_process_knows_what_waits_for_the_others_on_its_address() {
    const AT: &str = "127.61.61.4";
    let sender = UdpSocket::bind("127.61.61.5:0").unwrap();
    let agent = Other::start("backlog", AT);
    let mut ours = Other::start("backlog", AT);
    let mut other = Other::start("backlog", AT);
    assert_eq!(ours.backlog(other.slot), Some(0));
    let packet = [&[0; 4], &(u32::from(other.slot) << 14).to_be_bytes()[..], &[1; 1000]].concat();
    for _ in 0..5 {
        sender.send_to(&packet, (AT, 4791)).unwrap();
    }
    let waits = ours.backlog(other.slot).unwrap();
    assert!(waits > 5 * 1008, "{waits}");
    assert_eq!(
        (ours.backlog(ours.slot), ours.backlog(700)),
        (Some(0), None),
        "itself, and a slot without a socket"
    );
    // Slots that the group did not have when it began, of this agent and of the next.
    let mut more: Vec<_> = (0..4).map(|_| Other::start("backlog", AT)).collect();
    assert_eq!(ours.backlog(more[3].slot), Some(0));
    // The agent takes the slot of one who dies back and makes its buffer small: nobody reads there. Of one whose process is the
    // agent nobody knows it.
    let dead = more.pop().unwrap();
    let slot = dead.slot;
    dead.kill();
    while ours.backlog(slot).is_some() {
        std::thread::yield_now();
    }
    agent.kill();
    let most: Vec<_> = (0..14).map(|_| Other::start("backlog", AT)).collect();
    assert_eq!(ours.backlog(most[13].slot), Some(0));
    other.tell("receive");
    other.line();
    assert_eq!(ours.backlog(other.slot), Some(0));
}

/// The one that has the agent is stopped, as by a debugger or Ctrl-Z.
#[test]
fn a_stopped_agent_is_named_to_those_who_come_and_disturbs_nobody_else() {
    const AT: &str = "127.61.64.2";
    let sender = UdpSocket::bind("127.61.64.3:0").unwrap();
    let agent = Other::start("stopped", AT);
    let mut other = Other::start("stopped", AT);
    agent.stop();
    let said = Other::begin("stopped", AT, None).line();
    let expected = format!("refused: process {}, which hands out slots of the port", agent.id());
    assert!(said.starts_with(&expected) && said.ends_with("is it stopped?"), "{said}");
    other.assert_reached(&sender, AT);
    // It goes without being stopped by the agent, which takes the slot back when it can.
    other.close(40);
    agent.go_on();
    let mut next = Other::start("stopped", AT);
    assert_eq!((next.slot, next.first_index), (2, 40));
    next.assert_reached(&sender, AT);
}

/// A stopped process does not tell the next agent what it has: nobody gets its slot, and the others go on.
#[test]
fn what_a_stopped_process_has_is_given_to_nobody() {
    const AT: &str = "127.61.64.4";
    let sender = UdpSocket::bind("127.61.64.5:0").unwrap();
    let agent = Other::start("sleeper", AT);
    let mut sleeper = Other::start("sleeper", AT);
    let mut other = Other::start("sleeper", AT);
    sleeper.stop();
    agent.kill();
    let mut new = Other::start("sleeper", AT);
    assert_eq!(new.slot, 1, "that of the dead");
    other.assert_reached(&sender, AT);
    new.assert_reached(&sender, AT);
    sleeper.go_on();
    sleeper.assert_reached(&sender, AT);
}

#[test]
fn who_has_the_port_alone_is_named() {
    const AT: &str = "127.0.14.10";
    let stranger = UdpSocket::bind((AT, 4791)).unwrap();
    let said = Other::begin("alone", AT, None).line();
    let ours = format!("(process {})", std::process::id());
    assert!(
        said.starts_with("refused: 127.0.14.10 UDP port 4791 is taken") && said.contains(&ours),
        "{said}"
    );
    drop(stranger);
    assert_eq!(Other::start("alone", AT).slot, 1);
}

#[test]
fn who_falls_back_from_a_taken_port_is_followed_by_the_next() {
    const AT: &str = "127.61.61.8";
    let sender = UdpSocket::bind("127.61.61.9:0").unwrap();
    let stranger = UdpSocket::bind((AT, 4791)).unwrap();
    let mut first = Other::start_with_fallback("fallback", AT);
    let mut second = Other::start_with_fallback("fallback", AT);
    drop(stranger);
    let mut third = Other::start_with_fallback("fallback", AT);
    // The first was the agent; what it knew is told by the others.
    first.assert_reached(&sender, AT);
    first.kill();
    let mut fourth = Other::start_with_fallback("fallback", AT);
    for other in [&mut second, &mut third, &mut fourth] {
        assert_eq!(other.port, FALLBACK_PORT, "slot {}", other.slot);
        other.assert_reached(&sender, AT);
    }
    assert_eq!(Other::start_with_fallback("fallback", "127.61.61.10").port, 4791, "another address");
    assert_eq!(Other::start("fallback", AT).port, 4791, "who does not want to fall back");
    [second, third, fourth].into_iter().for_each(|other| other.close(2));
    assert_eq!(Other::start_with_fallback("fallback", AT).port, 4791, "nobody is on the other port any more");
}

#[test]
fn another_users_port_is_refused_with_his_number() {
    const AT: &str = "127.0.14.11";
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can be two users");
    }
    let mut first = Other::start("users", AT);
    let reachable =
        Command::new(std::env::current_exe().unwrap()).arg("--list").uid(NOBODY).gid(NOBODY).output();
    if !reachable.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: another user may not run this test program");
    }
    let said = Other::begin("users", AT, Some(NOBODY)).line();
    assert!(said.starts_with("refused: 127.0.14.11 UDP port 4791 is taken"), "{said}");
    assert!(said.contains("127.0.14.11 belongs to a program of user 0"), "{said}");
    let mut other = Other::begin("users", "127.0.14.12", Some(NOBODY));
    other.hear_claim();
    assert_eq!(other.slot, 1, "other addresses are free, from an agent of his own");
    first.assert_reached(&UdpSocket::bind("127.0.14.13:0").unwrap(), AT);
}
