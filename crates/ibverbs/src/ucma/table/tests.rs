use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use userdma_host::Host;
use userdma_host::cm::{ConnParam, DeviceEntry, Devices, EventSink, Manager, Param, PortSpace};
use userdma_verbs::QpType;

use super::super::known;
use super::*;

struct Nothing;

impl Devices for Nothing {
    fn list(&self) -> Vec<DeviceEntry> {
        Vec::new()
    }

    fn open(&self, _: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
        Err(libc::ENODEV)
    }
}

impl EventSink for Nothing {
    fn push(&self, _: Event) -> bool {
        true
    }
}

/// A table with a channel, and somebody who numbers connections.
struct World {
    table: Table,
    manager: Manager,
    channel: (OwnedFd, Key),
}

impl World {
    fn new() -> Self {
        let mut table = Table::default();
        let channel = add_channel(&mut table);
        Self { table, manager: Manager::new(Arc::new(Nothing)), channel }
    }

    fn connection(&self) -> CmId {
        self.manager.create(Arc::new(Nothing), PortSpace::Tcp, QpType::Rc).unwrap()
    }

    fn add(&mut self, uid: u64) -> (Id, CmId) {
        let connection = self.connection();
        (self.table.add(connection, self.channel.1, uid).unwrap(), connection)
    }

    fn tell(&mut self, connection: CmId, kind: EventKind) -> bool {
        self.table.push(&event(connection, kind, None))
    }

    fn request(&mut self, listener: CmId) -> bool {
        let event = event(self.connection(), EventKind::ConnectRequest, Some(listener));
        self.table.push(&event)
    }

    /// Kind, name and identifier of the oldest event.
    fn take(&mut self) -> Option<(u32, u64, Id)> {
        take(&mut self.table, &self.channel)
    }

    fn is_readable(&self) -> bool {
        is_readable(&self.channel.0)
    }
}

fn event(id: CmId, kind: EventKind, listener: Option<CmId>) -> Event {
    Event { id, kind, status: 0, listener, membership: None, param: Param::Conn(ConnParam::default()) }
}

fn add_channel(table: &mut Table) -> (OwnedFd, Key) {
    let (signal, theirs) = Signal::new(libc::O_CLOEXEC).unwrap();
    // The set is one for the process, but this one's number is nobody else's.
    let key = known::insert(theirs.as_raw_fd()).unwrap();
    table.add_channel(key, signal);
    (theirs, key)
}

fn take(table: &mut Table, channel: &(OwnedFd, Key)) -> Option<(u32, u64, Id)> {
    let mut found = None;
    let taken = table.take((channel.0.as_raw_fd(), channel.1), |event| {
        found = Some((event.event, event.uid, Id(event.id)));
        Ok(())
    });
    assert_eq!(taken.is_some(), found.is_some());
    found
}

fn is_readable(channel: &OwnedFd) -> bool {
    let mut fds = libc::pollfd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&raw mut fds, 1, 0) == 1 }
}

const ESTABLISHED: u32 = EventKind::Established as u32;
const REQUEST: u32 = EventKind::ConnectRequest as u32;

#[test]
fn identifiers_are_the_smallest_that_are_free() {
    let mut world = World::new();
    let ids: Vec<_> = (0..4).map(|_| world.add(1).0).collect();
    assert_eq!(ids, [Id(0), Id(1), Id(2), Id(3)]);
    for id in [2, 0] {
        world.table.end(Id(id), world.channel.1).unwrap();
        world.table.forget(Id(id), None);
    }
    assert_eq!([world.add(1).0, world.add(1).0, world.add(1).0], [Id(0), Id(2), Id(4)]);
}

#[test]
fn an_identifier_is_found_on_its_channel_until_it_ends() {
    let mut world = World::new();
    let (id, connection) = world.add(1);
    let other = add_channel(&mut world.table);
    assert_eq!(world.table.find(id, world.channel.1), Ok(connection));
    assert_eq!(world.table.find(id, other.1), Err(INVALID));
    assert_eq!(world.table.find(Id(9), other.1), Err(NO_ID));
    world.table.end(id, world.channel.1).unwrap();
    assert_eq!(world.table.find(id, world.channel.1), Err(NO_ID));
    assert_eq!(world.table.end(id, world.channel.1), Err(NO_ID));
}

#[test]
fn a_channel_is_readable_while_events_wait_and_they_come_in_order() {
    let mut world = World::new();
    let (id, connection) = world.add(77);
    assert!(!world.is_readable());
    world.tell(connection, EventKind::AddrResolved);
    world.tell(connection, EventKind::Established);
    assert!(world.is_readable());
    assert_eq!(world.take(), Some((0, 77, id)));
    assert!(world.is_readable());
    assert_eq!(world.take(), Some((ESTABLISHED, 77, id)));
    assert!(!world.is_readable());
    assert_eq!(world.take(), None);
}

#[test]
fn an_event_that_cannot_be_copied_stays() {
    let mut world = World::new();
    let (_, connection) = world.add(1);
    world.tell(connection, EventKind::Established);
    let place = (world.channel.0.as_raw_fd(), world.channel.1);
    assert_eq!(world.table.take(place, |_| Err(Refused(libc::EFAULT))), Some(Err(Refused(libc::EFAULT))));
    assert!(world.is_readable() && world.take().is_some());
}

#[test]
fn what_is_destroyed_takes_its_events_along_and_says_how_many_were_taken() {
    let mut world = World::new();
    let (id, connection) = world.add(1);
    let (other, second) = world.add(2);
    for connection in [connection, second, connection, connection] {
        world.tell(connection, EventKind::Established);
    }
    world.take();
    world.table.end(id, world.channel.1).unwrap();
    // While its connection is destroyed, something may happen still.
    world.tell(connection, EventKind::Disconnected);
    assert_eq!(world.table.forget(id, Some(world.channel.0.as_raw_fd())), (1, vec![]));
    assert_eq!(world.take(), Some((ESTABLISHED, 2, other)));
    assert!(!world.is_readable());
    assert!(world.tell(connection, EventKind::TimewaitExit) && !world.is_readable());
}

#[test]
fn a_request_names_a_new_identifier_by_the_listeners_name() {
    let mut world = World::new();
    let (listener, connection) = world.add(5);
    world.table.set_backlog(listener, world.channel.1, 2).unwrap();
    assert!(world.request(connection) && world.request(connection));
    assert!(!world.request(connection), "no more may wait");
    let (kind, uid, id) = world.take().unwrap();
    assert_eq!((kind, uid), (REQUEST, 5));
    assert!(id != listener && world.table.find(id, world.channel.1).is_ok());
    assert!(world.request(connection), "one was taken");
    world.table.end(listener, world.channel.1).unwrap();
    assert!(!world.request(connection), "the listener ends");
    let (reported, waiting) = world.table.forget(listener, Some(world.channel.0.as_raw_fd()));
    assert_eq!((reported, waiting.len()), (1, 2));
    assert!(waiting.iter().all(|&(id, _)| world.table.find(id, world.channel.1) == Err(NO_ID)));
    assert!(world.table.find(id, world.channel.1).is_ok(), "what was taken is the program's");
}

#[test]
fn a_number_that_a_destroyed_request_had_is_nobodys_but_its_new_owners() {
    let mut world = World::new();
    let (listener, connection) = world.add(5);
    world.table.set_backlog(listener, world.channel.1, 2).unwrap();
    world.request(connection);
    let request = Id(1);
    // The program has guessed it, and destroys it before it takes the event.
    world.table.end(request, world.channel.1).unwrap();
    world.table.forget(request, None);
    let (again, own) = world.add(6);
    assert_eq!(again, request);
    let other = add_channel(&mut world.table);
    let from = (world.channel.0.as_raw_fd(), world.channel.1);
    assert_eq!(world.table.migrate(listener, from, other.1), Ok(0));
    assert_eq!(world.table.find(again, world.channel.1), Ok(own), "it does not move with the listener");
    world.table.end(listener, other.1).unwrap();
    assert_eq!(world.table.forget(listener, None), (0, vec![]));
    assert_eq!(world.table.find(again, world.channel.1), Ok(own), "nor end with it");
}

#[test]
fn nothing_is_told_of_a_request_before_it_is_accepted() {
    let mut world = World::new();
    let (listener, connection) = world.add(5);
    world.table.set_backlog(listener, world.channel.1, 1).unwrap();
    let child = world.connection();
    assert!(world.table.push(&event(child, EventKind::ConnectRequest, Some(connection))));
    let id = world.take().unwrap().2;
    world.tell(child, EventKind::Rejected);
    assert!(!world.is_readable());
    world.table.set_uid(id, child, 6);
    world.tell(child, EventKind::Established);
    assert_eq!(world.take(), Some((ESTABLISHED, 6, id)));
}

#[test]
fn what_moves_to_another_channel_takes_its_events_and_requests_along() {
    let mut world = World::new();
    let (listener, connection) = world.add(5);
    let (stays, second) = world.add(6);
    let other = add_channel(&mut world.table);
    world.table.set_backlog(listener, world.channel.1, 2).unwrap();
    world.tell(second, EventKind::Established);
    world.request(connection);
    let from = (world.channel.0.as_raw_fd(), world.channel.1);
    assert_eq!(world.table.migrate(stays, (other.0.as_raw_fd(), other.1), from.1), Err(INVALID));
    assert_eq!(world.table.migrate(listener, from, other.1), Ok(0));
    assert!(world.is_readable() && is_readable(&other.0));
    assert_eq!(world.take(), Some((ESTABLISHED, 6, stays)));
    assert!(!world.is_readable());
    let (kind, uid, id) = take(&mut world.table, &other).unwrap();
    assert_eq!((kind, uid), (REQUEST, 5));
    assert!(world.table.find(id, other.1).is_ok() && world.table.find(listener, other.1).is_ok());
    assert_eq!(world.table.migrate(listener, (other.0.as_raw_fd(), other.1), other.1), Ok(1));
    let mut close = |key| world.table.remove_channel(key).1.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(close(from.1), [stays], "what has moved does not end with it");
    assert_eq!(close(other.1), [listener, id]);
}

#[test]
fn a_channel_that_is_closed_ends_what_is_on_it() {
    let mut world = World::new();
    let (listener, connection) = world.add(5);
    world.table.set_backlog(listener, world.channel.1, 2).unwrap();
    world.request(connection);
    let (signal, ended) = world.table.remove_channel(world.channel.1);
    assert!(signal.is_some() && ended.len() == 2);
    assert!(!world.request(connection) && world.tell(connection, EventKind::Established));
    for (id, _) in ended {
        assert_eq!(world.table.forget(id, None), (0, vec![]));
    }
    assert_eq!(world.take(), None);
}

#[test]
fn nothing_is_made_on_or_moved_to_a_channel_that_is_closed() {
    let mut world = World::new();
    let (id, connection) = world.add(1);
    let other = add_channel(&mut world.table);
    assert_eq!(world.table.remove_channel(other.1).1, vec![]);
    assert_eq!(world.table.add(world.connection(), other.1, 2), Err(CLOSED));
    let from = (world.channel.0.as_raw_fd(), world.channel.1);
    assert_eq!(world.table.migrate(id, from, other.1), Err(CLOSED));
    assert_eq!(world.table.find(id, world.channel.1), Ok(connection), "it stays where it was");
    assert_eq!(world.add(3).0, Id(1), "no number is taken");
}

#[test]
fn a_membership_has_events_of_its_own_until_it_is_left() {
    let mut world = World::new();
    let (id, connection) = world.add(77);
    let first = world.table.add_membership(id, world.channel.1, 501).unwrap();
    let second = world.table.add_membership(id, world.channel.1, 502).unwrap();
    assert_eq!((first, second), (Membership(0), Membership(1)));
    let join = |Membership(number)| Event {
        membership: Some(number),
        ..event(connection, EventKind::MulticastJoin, None)
    };
    let key = (world.channel.0.as_raw_fd(), world.channel.1);
    for membership in [first, second, second] {
        assert!(world.table.push(&join(membership)));
    }
    assert_eq!(world.take(), Some((12, 501, Id(0))), "it names the membership");
    assert_eq!(world.take(), Some((12, 502, Id(1))));
    assert_eq!(world.table.leave(second, key), Ok(1), "one was taken");
    assert!(!world.is_readable(), "the other is gone");
    assert_eq!(world.table.leave(second, key), Err(NO_ID));
    let other = add_channel(&mut world.table);
    assert_eq!(world.table.leave(first, (other.0.as_raw_fd(), other.1)), Err(INVALID));
    assert!(world.table.push(&join(second)), "nobody is told");
    assert!(!world.is_readable());
    world.table.end(id, world.channel.1).unwrap();
    assert_eq!(world.table.forget(id, Some(key.0)), (2, vec![]), "of the identifier, too");
    assert_eq!(world.table.leave(first, key), Err(NO_ID), "it went with its identifier");
}

#[test]
fn memberships_have_the_smallest_numbers_that_are_free() {
    let mut world = World::new();
    let (first, second) = (world.add(1).0, world.add(2).0);
    let key = (world.channel.0.as_raw_fd(), world.channel.1);
    let join = |world: &mut World, id| world.table.add_membership(id, key.1, 7).unwrap().0;
    assert_eq!([first, second, first, second].map(|id| join(&mut world, id)), [0, 1, 2, 3]);
    world.table.leave(Membership(2), key).unwrap();
    world.table.end(second, key.1).unwrap();
    world.table.forget(second, None);
    assert_eq!([first; 4].map(|id| join(&mut world, id)), [1, 2, 3, 4]);
}
