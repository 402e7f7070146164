//! Queue pair 1 of an address that processes share: who gets what comes for it, whatever dies meanwhile.
//!
//! The processes of each test have an agent of their own, by the word in `USERDMA_AGENT`. A socket of the test is the host at the
//! other end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "connections/child_process.rs"]
mod child_process;
mod other;
#[path = "connections/peer.rs"]
mod peer;

use other::Other;
use peer::{Peer, attribute, drep, dreq, rej, rep, req, words};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// What other processes run; a test of nothing when it is not one.
#[test]
fn child() {
    child_process::run_child();
}

#[test]
fn each_gets_what_is_its_own() {
    const AT: &str = "127.42.3.1";
    let peer = Peer::new("127.42.3.2", AT);
    let mut others: Vec<_> = (0..12).map(|_| Other::start("own", AT)).collect();
    for (service, other) in others.iter_mut().enumerate() {
        assert_eq!(other.ask(&format!("listen {service}")), "ok");
    }
    for (service, other) in (0u32..).zip(&mut others) {
        let [first, second] = [req(service, service), rep(77, other.comm_id(5))];
        peer.send(&first);
        peer.send(&second);
        assert_eq!((other.frame(), other.frame()), (first, second), "service {service}");
    }
    peer.send(&req(1, 12));
    assert_eq!(peer.recv(), rej(1), "nobody listens to that");
    peer.send(&dreq(1, 900 << 22));
    assert_eq!(peer.recv(), drep(900 << 22, 1), "nobody has that slot");
}

#[test]
fn a_service_is_one_processs_until_it_ends() {
    const AT: &str = "127.42.3.3";
    let peer = Peer::new("127.42.3.4", AT);
    let (mut a, mut b) = (Other::start("one", AT), Other::start("one", AT));
    assert_eq!(b.ask("listen 7"), "ok");
    assert_eq!(a.ask("listen 7"), "in use");
    peer.send(&req(1, 7));
    assert_eq!(b.frame(), req(1, 7));
    b.kill();
    // The agent learns of it in its own time.
    while a.ask("listen 7") != "ok" {}
    peer.send(&req(1, 7));
    assert_eq!(a.frame(), req(1, 7), "what the dead one got is known no more");
}

/// As programs do that say "connect now" and listen then. On a machine that is busy it may take longer than a request waits.
#[test]
fn a_request_waits_a_little_for_who_listens() {
    const AT: &str = "127.42.3.23";
    let peer = Peer::new("127.42.3.24", AT);
    let mut ours = Other::start("soon", AT);
    let is_waited_for = |service| {
        peer.send(&req(1, service));
        assert_eq!(ours.ask(&format!("listen {service}")), "ok");
        peer.send(&req(2, service));
        let first = ours.frame();
        if first == req(1, service) {
            assert_eq!(ours.frame(), req(2, service));
        }
        first == req(1, service)
    };
    assert!((100..150).any(is_waited_for));
}

#[test]
fn ports_are_shared_by_the_kernels_rules_across_processes() {
    const AT: &str = "127.42.3.5";
    let (mut a, mut b) = (Other::start("ports", AT), Other::start("ports", AT));
    let reserved = b.ask("reserve 7 0");
    let (id, port) = reserved.split_once(' ').expect(&reserved);
    assert_eq!((port, a.ask("reserve 7 0")), ("7", "in use".to_owned()));
    assert_eq!(b.ask(&format!("release {id}")), "ok");
    // Giving back does not wait: the answer to another question comes behind it.
    assert_eq!(b.ask("reserve 8 1").rsplit_once(' ').unwrap().1, "8");
    assert_eq!(a.ask("reserve 7 0").rsplit_once(' ').unwrap().1, "7");
    let shared = a.ask("reserve 8 1");
    let (id, _) = shared.split_once(' ').expect(&shared);
    assert_eq!(a.ask(&format!("begin {id}")), "in use");
    b.kill();
    while a.ask(&format!("begin {id}")) != "ok" {}
    let ephemeral: u16 = a.ask("reserve 0 0").rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!((32_768..=60_999).contains(&ephemeral));
}

/// The request is sent once: it waits for the next agent, and that for the listener.
#[test]
fn the_agents_death_loses_no_request() {
    const AT: &str = "127.42.3.6";
    let peer = Peer::new("127.42.3.7", AT);
    for round in 0..5 {
        let agent = Other::start("death", AT);
        let mut listener = Other::start("death", AT);
        let mut others: Vec<_> = (0..3).map(|_| Other::start("death", AT)).collect();
        assert_eq!(listener.ask("listen 7"), "ok");
        assert_eq!(listener.ask("reserve 7 0").rsplit_once(' ').unwrap().1, "7");
        agent.kill();
        let [first, second] = [req(round, 7), dreq(9, listener.comm_id(3))];
        peer.send(&first);
        peer.send(&second);
        let mut came = [listener.frame(), listener.frame()];
        came.sort_by_key(attribute);
        assert_eq!(came, [first, second], "round {round}");
        // What the listener has is its own under the new agent, too.
        for other in &mut others {
            assert_eq!(other.ask("listen 7"), "in use");
            assert_eq!(other.ask("reserve 7 0"), "in use");
        }
    }
}

#[test]
fn the_peers_of_the_dead_are_told() {
    const AT: &str = "127.42.3.8";
    let peer = Peer::new("127.42.3.9", AT);
    let _agent = Other::start("wills", AT);
    let mut dying = Other::start("wills", AT);
    let ids = [1, 2, 3].map(|nth| dying.comm_id(nth));
    for id in ids {
        dying.ask(&format!("will {id} {}", peer.address()));
    }
    // One connection has ended in order.
    dying.ask(&format!("forget {}", ids[1]));
    assert_eq!(dying.ask("listen 1"), "ok", "behind which everything has been told");
    dying.kill();
    let mut told: Vec<_> = (0..2).map(|_| peer.recv()).collect();
    told.sort_by_key(|mad| words(mad)[0]);
    assert_eq!(told, [dreq(ids[0], 77), dreq(ids[2], 77)]);
    // Who does not answer is told again; who does is not.
    peer.send(&drep(77, ids[0]));
    for _ in 0..2 {
        peer.recv_until(&dreq(ids[2], 77));
    }
    // The dead one's peer ends the connection, too.
    peer.send(&dreq(77, ids[0]));
    peer.recv_until(&drep(ids[0], 77));
}

/// The one that has the agent dies: another process has kept its wills.
#[test]
fn the_peers_of_the_agents_own_process_are_told() {
    const AT: &str = "127.42.3.16";
    let peer = Peer::new("127.42.3.17", AT);
    for round in 0..3 {
        let mut agent = Other::start("own-wills", AT);
        let deputies: Vec<_> = (0..2).map(|_| Other::start("own-wills", AT)).collect();
        let ids = [1, 2].map(|nth| agent.comm_id(nth));
        for id in ids {
            agent.ask(&format!("will {id} {}", peer.address()));
        }
        assert_eq!(agent.ask("listen 1"), "ok");
        agent.ask(&format!("forget {}", ids[0]));
        assert_eq!(agent.ask("listen 2"), "ok");
        agent.kill();
        assert_eq!(peer.recv(), dreq(ids[1], 77), "round {round}");
        peer.send(&drep(77, ids[1]));
        peer.send(&dreq(77, ids[1]));
        peer.recv_until(&drep(ids[1], 77));
        drop(deputies);
        peer.forget_answers();
    }
}

/// Both who has a will and who knows it die before anybody notices: a third one has kept it.
#[test]
fn the_agent_and_a_process_die_in_the_same_moment() {
    const AT: &str = "127.71.3.1";
    let peer = Peer::new("127.71.3.2", AT);
    let agent = Other::start("both", AT);
    let mut deputy = Other::start("both", AT);
    let mut dying = Other::start("both", AT);
    let ids = [1, 2].map(|nth| dying.comm_id(nth));
    for id in ids {
        dying.ask(&format!("will {id} {}", peer.address()));
    }
    dying.ask(&format!("forget {}", ids[0]));
    assert_eq!(dying.ask("listen 1"), "ok", "behind which the agent knows everything");
    assert_eq!(deputy.ask("listen 2"), "ok", "and the deputy");
    agent.stop();
    dying.kill();
    agent.kill();
    assert_eq!(peer.recv(), dreq(ids[1], 77));
    peer.send(&drep(77, ids[1]));
}

/// The connection has ended and the device lives on, or not: the peer that has not said that it knows is told by the agent.
#[test]
fn what_was_said_once_is_said_again_until_it_is_heard() {
    const AT: &str = "127.71.3.3";
    let peer = Peer::new("127.71.3.4", AT);
    let _agent = Other::start("again", AT);
    let mut other = Other::start("again", AT);
    let ids = [1, 2].map(|nth| other.comm_id(nth));
    for id in ids {
        other.ask(&format!("will {id} {}", peer.address()));
        other.ask(&format!("open {id} {}", peer.address()));
    }
    let mut told = [peer.recv(), peer.recv()];
    told.sort_by_key(|mad| words(mad)[0]);
    assert_eq!(told, ids.map(|id| dreq(id, 77)));
    peer.send(&drep(77, ids[0]));
    other.close(2);
    for _ in 0..2 {
        peer.recv_until(&dreq(ids[1], 77));
    }
}

/// Who closes while the agent is stopped does not wait for ever, however much there is to tell.
#[test]
fn a_device_closes_though_the_agent_is_stopped() {
    const AT: &str = "127.71.3.5";
    let agent = Other::start("stopped", AT);
    let mut other = Other::start("stopped", AT);
    let ids: Vec<_> = (0..3000).map(|nth| other.comm_id(nth)).collect();
    for id in &ids {
        other.ask(&format!("will {id} 127.71.3.6"));
    }
    assert_eq!(other.ask("listen 1"), "ok");
    agent.stop();
    for id in &ids {
        other.ask(&format!("forget {id}"));
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        other.close(2);
        tell.send(())
    });
    assert!(told.recv_timeout(std::time::Duration::from_secs(60)).is_ok(), "it has closed");
}

/// What comes for connections that its slot had before it is answered for a device that has none.
#[test]
fn a_device_without_connections_lets_the_agent_answer() {
    const AT: &str = "127.71.3.7";
    let peer = Peer::new("127.71.3.8", AT);
    let _agent = Other::start("plain", AT);
    let plain = Other::start_without_connections("plain", AT);
    peer.send(&dreq(1, plain.comm_id(5)));
    assert_eq!(peer.recv(), drep(plain.comm_id(5), 1));
}

/// A thousand requests at once while nobody takes them: none is lost, and more are counted.
#[test]
fn a_thousand_requests_wait_for_a_process_that_is_busy() {
    const AT: &str = "127.71.3.9";
    let peer = Peer::new("127.71.3.10", AT);
    let mut agent = Other::start("busy", AT);
    let mut busy = Other::start("busy", AT);
    assert_eq!(busy.ask("listen 1"), "ok");
    assert_eq!(agent.ask("listen 2"), "ok");
    busy.stop();
    for nth in 0..20_000 {
        peer.send(&req(nth, 1));
        if nth % 100 == 99 {
            // The agent has taken what came before it.
            peer.send(&req(nth, 2));
            assert_eq!(agent.frame(), req(nth, 2));
        }
    }
    busy.go_on();
    let came = busy.frames();
    assert!((0..).zip(&came).all(|(nth, mad)| *mad == req(nth, 1)));
    let came = u32::try_from(came.len()).unwrap();
    assert!(came >= 2000, "{came} came");
    peer.send(&req(20_000, 1));
    assert_eq!(busy.frame(), req(20_000, 1));
    assert_eq!(busy.ask("lost"), (20_000 - came).to_string());
}

#[test]
fn a_device_that_closes_in_order_leaves_no_will() {
    const AT: &str = "127.42.3.10";
    let peer = Peer::new("127.42.3.11", AT);
    let _agent = Other::start("order", AT);
    let mut other = Other::start("order", AT);
    let id = other.comm_id(1);
    other.ask(&format!("will {id} {}", peer.address()));
    other.ask(&format!("forget {id}"));
    other.close(2);
    peer.send(&req(5, 7));
    assert_eq!(peer.recv(), rej(5), "and no end of a connection before it");
}

/// A process that is stopped takes nothing: what is for it is lost when its line is full, and nobody else waits.
#[test]
fn a_flood_to_a_stopped_process_disturbs_nobody() {
    const AT: &str = "127.42.3.12";
    let peer = Peer::new("127.42.3.13", AT);
    let mut agent = Other::start("full", AT);
    let mut stopped = Other::start("full", AT);
    assert_eq!(stopped.ask("listen 1"), "ok");
    assert_eq!(agent.ask("listen 2"), "ok");
    stopped.stop();
    for nth in 0..20_000 {
        peer.send(&req(nth, 1));
        if nth % 2000 == 0 {
            peer.send_until_taken(&req(nth, 2), &mut agent);
        }
    }
    assert_eq!(agent.ask("reserve 9 0").rsplit_once(' ').unwrap().1, "9");
    stopped.go_on();
    stopped.frame();
    let mut next = Other::start("full", AT);
    assert_eq!(next.ask("listen 3"), "ok");
    peer.send_until_taken(&req(1, 3), &mut next);
}

/// Anything at all, to slot 0 of an address.
#[test]
fn garbage_to_queue_pair_1_moves_nothing() {
    const AT: &str = "127.42.3.14";
    let peer = Peer::new("127.42.3.15", AT);
    let mut agent = Other::start("garbage", AT);
    let mut other = Other::start("garbage", AT);
    assert_eq!(other.ask("listen 7"), "ok");
    let seed = 0x5eed;
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..30_000u32 {
        let mut mad = [0u8; 256];
        rng.fill(&mut mad[..]);
        // Mostly messages of the communication manager, of every attribute.
        if round % 4 != 0 {
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&(round % 0x20).to_be_bytes()[2..]);
        }
        let mut packet = peer.packet(&mad).to_vec();
        match round % 5 {
            0 => packet.truncate(rng.random_range(0..packet.len())),
            1 => packet[rng.random_range(0..280)] ^= 1 << rng.random_range(0..8u8),
            2 => packet.extend([0; 40]),
            _ => {}
        }
        // To slot 0 in any case.
        if packet.len() > 7 {
            packet[4..7].copy_from_slice(&[0, 0, 0]);
        }
        peer.send_bytes(&packet);
    }
    peer.forget_answers();
    assert_eq!(agent.ask("listen 8"), "ok", "seed {seed:#x}");
    peer.send_until_taken(&req(1, 7), &mut other);
    assert_eq!(Other::start("garbage", AT).ask("listen 9"), "ok");
}
