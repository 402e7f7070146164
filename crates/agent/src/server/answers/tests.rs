//! A client that does not read, and an agent that has much to tell him.

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use super::*;
use crate::desk::{Desk, LAST_SLOT};
use crate::gsi::Will;
use crate::locks::Locks;
use crate::message::{MAX_LEN, Place};
use crate::server::Held;
use crate::server::outbox::Outbox;
use userdma_link::descriptors::Peer;

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap()
}

/// An agent, and a client of it; `is_own` if it is in the agent's process.
fn join(agent: &mut Agent, slot: u16, is_own: bool) -> OwnedFd {
    let (socket, theirs) = pair();
    let peer = Peer::of(&socket).unwrap();
    agent.next_member += 1;
    let member = crate::registry::Member(agent.next_member);
    let place = Place { port: 4791, addresses: vec!["127.71.1.2".parse().unwrap()] };
    let holds = Some(Held { place, slot, taken: None });
    let answers = Outbox::default();
    agent.clients.push(Client { member, is_own, socket, peer, holds, answers, is_over: false });
    agent.join(agent.clients.len() - 1, false);
    theirs
}

fn agent() -> Agent {
    Agent::new(pair().0, Desk::new(Locks::Names, LAST_SLOT), None)
}

/// What a client reads, as long as there is something.
fn read(agent: &mut Agent, client: &OwnedFd) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut room = [0; MAX_LEN];
    while let Ok((len, _)) = packet::receive(client, &mut room, RecvFlags::empty()) {
        replies.push(Reply::decode(&room[..len]).unwrap());
        agent.flush_answers();
    }
    replies
}

#[test]
fn who_asks_much_and_reads_late_gets_every_answer() {
    let mut agent = agent();
    let client = join(&mut agent, 1, false);
    for seq in 0..5000 {
        agent.handle_gsi(0, GsiRequest::Sync { seq }, Vec::new());
    }
    let replies = read(&mut agent, &client);
    let is_answer = |(seq, reply): (u32, &Reply)| matches!(reply, Reply::Gsi(reply) if reply.seq == seq);
    assert_eq!(replies.len(), 5000);
    assert!((0..).zip(&replies).all(is_answer));
}

/// What the deputy keeps leaves room for everything else that it is told.
#[test]
fn a_stopped_deputy_has_room_for_answers() {
    let mut agent = agent();
    let _own = join(&mut agent, 1, true);
    let deputy = join(&mut agent, 2, false);
    let from = "127.71.1.2".parse().unwrap();
    let will = Will { from, to: from, mad: [7; 256] };
    for nth in 0..5000 {
        agent.handle_gsi(0, GsiRequest::SetWill { comm_id: 1 << 22 | nth, will }, Vec::new());
        agent.tell_deputy();
    }
    assert_eq!(agent.gsi.deputy_to_tell(), Some(agent.clients[1].member), "it is not told everything");
    assert!(packet::send_now(&agent.clients[1].socket, &Reply::Registered.encode(), &[]).unwrap());
    agent.handle_gsi(1, GsiRequest::Sync { seq: 9 }, Vec::new());
    assert!(agent.clients[1].answers.is_empty(), "it has left");
    let mut kept = 0;
    while agent.gsi.deputy_to_tell().is_some() {
        kept += read(&mut agent, &deputy).iter().filter(|reply| matches!(reply, Reply::Keep(_))).count();
        agent.tell_deputy();
    }
    kept += read(&mut agent, &deputy).len();
    assert_eq!(kept, 5000, "all of it later");
}

/// Nothing that is said of other things makes the agent look at what it holds for those who may come to listen.
#[test]
fn what_is_held_is_looked_at_when_somebody_begins_to_listen() {
    let mut agent = agent();
    let _client = join(&mut agent, 1, false);
    let service = crate::registry::Services { id: 7, mask: u64::MAX };
    agent.handle_gsi(0, GsiRequest::ClearWill { comm_id: 1 }, Vec::new());
    agent.handle_gsi(0, GsiRequest::Sync { seq: 1 }, Vec::new());
    agent.handle_gsi(0, GsiRequest::Release { id: 1 }, Vec::new());
    assert!(!agent.gsi.is_to_retry());
    agent.handle_gsi(0, GsiRequest::Listen { seq: 2, service, on: None }, Vec::new());
    assert!(agent.gsi.is_to_retry());
    agent.gsi.work(clock::now());
    agent.handle_gsi(0, GsiRequest::Listen { seq: 3, service, on: None }, Vec::new());
    agent.gsi.work(clock::now());
    assert!(!agent.gsi.is_to_retry());
    agent.handle_gsi(0, GsiRequest::Attach, Vec::new());
    assert!(agent.gsi.is_to_retry());
}
