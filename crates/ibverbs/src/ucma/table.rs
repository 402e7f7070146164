//! Identifiers and event channels of this process, and the events that wait.
//!
//! All of it is under one lock, which is held while nothing is asked of the connections: those tell events with their own lock
//! held.

mod memberships;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ffi::c_int;

use userdma_host::cm::{CmId, Event, EventKind, EventQueue};

use super::abi::EventResponse;
use super::known::Key;
use super::reply;
use super::signal::Signal;
use crate::answer::{INVALID, Refused};
pub(super) use memberships::Membership;

/// An identifier as programs name it: the smallest that is free, as the kernel's, since librdmacm keeps a table of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Id(pub(super) u32);

#[derive(Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<u32>>,
    by_connection: HashMap<CmId, Id>,
    memberships: memberships::Memberships,
    channels: HashMap<Key, Channel>,
}

/// What is known of an identifier.
struct Entry {
    connection: CmId,
    channel: Key,
    /// What the program knows it by; 0 for one that it has not accepted yet, of which nothing is told.
    uid: u64,
    /// Events that the program has taken.
    reported: u32,
    /// Requests that may still wait.
    backlog: u32,
    /// It is being destroyed: nobody finds it any more.
    is_ending: bool,
}

struct Channel {
    /// What is on it.
    ids: BTreeSet<Id>,
    /// Events that nobody has taken yet. Those of requests to connect are the listener's. Many channels have one at a time, so there
    /// is no room for more before they come.
    events: EventQueue<Id, Box<Waiting>>,
    signal: Signal,
}

/// An event that nobody has taken yet.
struct Waiting {
    /// Of a request to connect, the identifier that was made for it, and its connection: the program may have destroyed it, and
    /// another have its number.
    request: Option<(Id, CmId)>,
    /// Of a group that was joined: which membership.
    membership: Option<Membership>,
    response: EventResponse,
}

impl Table {
    pub(super) fn add_channel(&mut self, key: Key, signal: Signal) {
        self.channels.insert(key, Channel { ids: BTreeSet::new(), events: EventQueue::default(), signal });
    }

    /// Takes a channel out; what was on it and must be destroyed. Nobody finds those any more.
    pub(super) fn remove_channel(&mut self, key: Key) -> (Option<Signal>, Vec<(Id, CmId)>) {
        match self.channels.remove(&key) {
            Some(Channel { ids, signal, .. }) => (Some(signal), self.end_all(ids)),
            None => (None, Vec::new()),
        }
    }

    /// Gives a connection a number.
    ///
    /// # Errors
    /// The channel was closed meanwhile, and what was on it is destroyed already.
    pub(super) fn add(&mut self, connection: CmId, channel: Key, uid: u64) -> Result<Id, Refused> {
        let on = self.channels.get_mut(&channel).ok_or(CLOSED)?;
        let entry = Entry { connection, channel, uid, reported: 0, backlog: 0, is_ending: false };
        let id = if let Some(Reverse(free)) = self.free.pop() {
            self.entries[free as usize] = Some(entry);
            Id(free)
        } else {
            let id = Id(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
            self.entries.push(Some(entry));
            id
        };
        on.ids.insert(id);
        self.by_connection.insert(connection, id);
        Ok(id)
    }

    /// The connection of an identifier on this channel. As `ucma.c _ucma_find_context()`.
    pub(super) fn find(&self, id: Id, channel: Key) -> Result<CmId, Refused> {
        self.entry(id, channel).map(|entry| entry.connection)
    }

    /// The program may be told of a connection from now on, by this name. It may be on another channel by now, or gone.
    pub(super) fn set_uid(&mut self, id: Id, connection: CmId, uid: u64) {
        if let Some(Some(entry)) = self.entries.get_mut(id.0 as usize)
            && entry.connection == connection
        {
            entry.uid = uid;
        }
    }

    pub(super) fn set_backlog(&mut self, id: Id, channel: Key, backlog: u32) -> Result<CmId, Refused> {
        let entry = self.entry_mut(id, channel)?;
        entry.backlog = backlog;
        Ok(entry.connection)
    }

    /// From now on nobody finds the identifier, but events still come until its connection is destroyed.
    pub(super) fn end(&mut self, id: Id, channel: Key) -> Result<CmId, Refused> {
        let entry = self.entry_mut(id, channel)?;
        entry.is_ending = true;
        Ok(entry.connection)
    }

    /// Forgets an identifier whose connection is destroyed, and its events: how many the program has taken, and requests
    /// that it has not, which must be destroyed too. `fd` is a descriptor of its channel, if one is at hand.
    pub(super) fn forget(&mut self, id: Id, fd: Option<c_int>) -> (u32, Vec<(Id, CmId)>) {
        let Some(entry) = self.entries.get_mut(id.0 as usize).and_then(Option::take) else {
            return (0, Vec::new());
        };
        self.free.push(Reverse(id.0));
        self.by_connection.remove(&entry.connection);
        self.memberships.remove_all(id);
        let requests = self.drop_events(id, entry.channel, fd);
        if let Some(channel) = self.channels.get_mut(&entry.channel) {
            channel.ids.remove(&id);
        }
        let requests: Vec<_> = requests.into_iter().filter_map(|request| self.still_there(request)).collect();
        (entry.reported, self.end_all(requests))
    }

    /// The identifier of a request, unless its number is another's by now, or nobody's.
    fn still_there(&self, (id, connection): (Id, CmId)) -> Option<Id> {
        let entry = self.entries.get(id.0 as usize)?.as_ref();
        entry.filter(|entry| entry.connection == connection).map(|_| id)
    }

    /// Drops the events of an identifier that nobody has taken; the requests among them.
    fn drop_events(&mut self, of: Id, channel: Key, fd: Option<c_int>) -> Vec<(Id, CmId)> {
        let Some(queue) = self.channels.get_mut(&channel) else { return Vec::new() };
        let dropped = queue.events.extract(of, |_| true);
        if let Some(fd) = fd {
            queue.settle(fd, channel);
        }
        dropped.into_iter().filter_map(|event| event.request).collect()
    }

    /// Moves an identifier and its events to another channel; how many events the program has taken so far.
    pub(super) fn migrate(&mut self, id: Id, from: (c_int, Key), to: Key) -> Result<u32, Refused> {
        if !self.channels.contains_key(&to) {
            return Err(CLOSED);
        }
        let entry = self.entry_mut(id, from.1)?;
        entry.channel = to;
        let reported = entry.reported;
        if from.1 == to {
            return Ok(reported);
        }
        let Some(old) = self.channels.get_mut(&from.1) else { return Err(INVALID) };
        let moved = old.events.extract(id, |_| true);
        old.settle(from.0, from.1);
        // The program may have moved one by itself.
        let requests = moved.iter().filter_map(|event| self.still_there(event.request?));
        let requests = requests.filter(|&request| self.entry(request, from.1).is_ok());
        let ids: BTreeSet<_> = requests.chain([id]).collect();
        if let Some(old) = self.channels.get_mut(&from.1) {
            ids.iter().for_each(|id| _ = old.ids.remove(id));
        }
        for request in &ids {
            if let Some(Some(entry)) = self.entries.get_mut(request.0 as usize) {
                entry.channel = to;
            }
        }
        if let Some(new) = self.channels.get_mut(&to) {
            new.ids.extend(ids);
            moved.into_iter().for_each(|event| new.push(id, *event));
        }
        Ok(reported)
    }

    /// Something has happened. Whether there was room for it.
    pub(super) fn push(&mut self, event: &Event) -> bool {
        if event.kind == EventKind::ConnectRequest {
            self.push_request(event)
        } else {
            self.push_other(event)
        }
    }

    /// As `ucma.c ucma_event_handler()`: what happens to a connection that the program has not accepted is not told.
    fn push_other(&mut self, event: &Event) -> bool {
        let Some(&id) = self.by_connection.get(&event.id) else { return true };
        let Some(Some(entry)) = self.entries.get(id.0 as usize) else { return true };
        let (uid, channel) = (entry.uid, entry.channel);
        let membership = event.membership.map(Membership);
        // Of a group the event names the membership.
        let (name, number) = match membership {
            Some(membership) => (self.memberships.uid(membership), membership.0),
            None => (Some(uid), id.0),
        };
        if let Some(name) = name.filter(|_| uid != 0) {
            let response = reply::event(event, name, number);
            self.queue(channel, id, Waiting { request: None, membership, response });
        }
        true
    }

    /// As `ucma.c ucma_connect_event_handler()`: the event names the new identifier and says what the listener is known by.
    fn push_request(&mut self, event: &Event) -> bool {
        let Some(&of) = event.listener.and_then(|listener| self.by_connection.get(&listener)) else {
            return false;
        };
        let Some(Some(listener)) = self.entries.get_mut(of.0 as usize) else { return false };
        if listener.is_ending || listener.backlog == 0 {
            return false;
        }
        let (uid, channel) = (listener.uid, listener.channel);
        let Ok(id) = self.add(event.id, channel, 0) else { return false };
        if let Some(Some(listener)) = self.entries.get_mut(of.0 as usize) {
            listener.backlog -= 1;
        }
        let response = reply::event(event, uid, id.0);
        self.queue(channel, of, Waiting { request: Some((id, event.id)), membership: None, response });
        true
    }

    /// Gives the oldest event of a channel to `take`, which may refuse it; then it stays. `None` if there is none.
    pub(super) fn take(
        &mut self,
        (fd, key): (c_int, Key),
        take: impl FnOnce(&EventResponse) -> Result<(), Refused>,
    ) -> Option<Result<(), Refused>> {
        let channel = self.channels.get_mut(&key)?;
        let Some((of, event)) = channel.events.front() else {
            channel.settle(fd, key);
            return None;
        };
        if let Err(refused) = take(&event.response) {
            return Some(Err(refused));
        }
        let (of, is_request, membership) = (*of, event.request.is_some(), event.membership);
        channel.events.pop();
        channel.settle(fd, key);
        if let Some(Some(entry)) = self.entries.get_mut(of.0 as usize) {
            entry.reported += 1;
            entry.backlog += u32::from(is_request);
        }
        if let Some(membership) = membership {
            self.memberships.note_reported(membership);
        }
        Some(Ok(()))
    }

    /// An identifier on this channel joins a group, which the program knows by `uid`.
    pub(super) fn add_membership(&mut self, id: Id, channel: Key, uid: u64) -> Result<Membership, Refused> {
        self.entry(id, channel)?;
        Ok(self.memberships.add(id, uid))
    }

    /// It leaves the group: events that the program has not taken are dropped. How many it has. As `ucma.c ucma_leave_multicast()`.
    pub(super) fn leave(
        &mut self,
        membership: Membership,
        (fd, channel): (c_int, Key),
    ) -> Result<u32, Refused> {
        let of = self.memberships.owner(membership).ok_or(NO_ID)?;
        self.entry(of, channel)?;
        let reported = self.memberships.remove(membership);
        if let Some(queue) = self.channels.get_mut(&channel) {
            queue.events.extract(of, |event| event.membership == Some(membership));
            queue.settle(fd, channel);
        }
        Ok(reported)
    }

    fn queue(&mut self, channel: Key, of: Id, event: Waiting) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(of, event);
        }
    }

    fn entry(&self, id: Id, channel: Key) -> Result<&Entry, Refused> {
        let entry = self.entries.get(id.0 as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| !entry.is_ending).ok_or(NO_ID)?;
        if entry.channel == channel { Ok(entry) } else { Err(INVALID) }
    }

    fn entry_mut(&mut self, id: Id, channel: Key) -> Result<&mut Entry, Refused> {
        let entry = self.entries.get_mut(id.0 as usize).and_then(Option::as_mut);
        let entry = entry.filter(|entry| !entry.is_ending).ok_or(NO_ID)?;
        if entry.channel == channel { Ok(entry) } else { Err(INVALID) }
    }

    /// Ends these, as far as they do not end already.
    fn end_all(&mut self, ids: impl IntoIterator<Item = Id>) -> Vec<(Id, CmId)> {
        let end = |id: Id| {
            let entry = self.entries.get_mut(id.0 as usize)?.as_mut();
            let entry = entry.filter(|entry| !entry.is_ending)?;
            entry.is_ending = true;
            Some((id, entry.connection))
        };
        ids.into_iter().filter_map(end).collect()
    }
}

impl Channel {
    fn push(&mut self, of: Id, event: Waiting) {
        self.events.push(of, Box::new(event));
        self.signal.raise();
    }

    /// Sees to it that the channel is readable only while events wait.
    fn settle(&mut self, fd: c_int, key: Key) {
        if self.events.is_empty() {
            self.signal.lower(fd, key);
        }
    }
}

/// The program has closed the channel.
const CLOSED: Refused = Refused(libc::EBADF);
/// There is no such identifier.
const NO_ID: Refused = Refused(libc::ENOENT);

#[cfg(test)]
mod tests;
