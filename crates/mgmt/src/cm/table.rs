//! All connections, what they are found by, and when their time is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use userdma_verbs::{Qpn, Time};

use super::conn::{Conn, QpKey, RequestKey};
use super::state::State;
use super::types::{ConnId, ListenId, NumberChange, Peer, PortId};

/// The connections of a process by their local communication ids.
#[derive(Debug)]
pub(super) struct Table {
    all: BTreeMap<u32, Conn>,
    by_port: BTreeSet<(PortId, u32)>,
    by_request: BTreeMap<RequestKey, u32>,
    by_qp: BTreeMap<QpKey, u32>,
    deadlines: BTreeSet<(Time, u32)>,
    /// Those that only wait for time to pass, the oldest first; some may have gone or be alive again.
    lingering: VecDeque<u32>,
    /// Requests that wait for their owner's answer, of each listener.
    undecided: BTreeMap<ListenId, usize>,
    /// Our queue pairs' numbers that must not be given again, and how many connections each is in.
    guarded: BTreeMap<(PortId, Qpn), usize>,
    number_changes: VecDeque<NumberChange>,
    /// The index that is tried next.
    next: u32,
}

impl Table {
    /// An empty table whose ids begin somewhere that `start` says.
    pub(super) fn new(start: u32) -> Self {
        Self {
            all: BTreeMap::new(),
            by_port: BTreeSet::new(),
            by_request: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            lingering: VecDeque::new(),
            undecided: BTreeMap::new(),
            guarded: BTreeMap::new(),
            number_changes: VecDeque::new(),
            next: start,
        }
    }

    /// Takes a connection of a device with this slot in; its id, or `None` if there are too many.
    pub(super) fn insert(&mut self, slot: u16, conn: Conn) -> Option<u32> {
        if self.all.len() >= MAX_CONNECTIONS {
            return None;
        }
        // At most a quarter of the ids of a slot is in use, so this ends soon.
        let id = loop {
            self.next = self.next.wrapping_add(1) & INDEX_MASK;
            let id = u32::from(slot) << ConnId::INDEX_BITS | self.next;
            if self.next != 0 && !self.all.contains_key(&id) {
                break id;
            }
        };
        self.by_port.insert((conn.peer.port, id));
        self.all.insert(id, conn);
        Some(id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Conn> {
        self.all.get(&id)
    }

    /// To change anything but state, deadline and keys.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Conn> {
        self.all.get_mut(&id)
    }

    /// The connection with this local id, if these are its addresses.
    pub(super) fn of_peer(&self, id: u32, peer: &Peer) -> Option<&Conn> {
        self.all.get(&id).filter(|conn| conn.peer == *peer)
    }

    /// Those at a port.
    pub(super) fn of_port(&self, port: PortId) -> impl Iterator<Item = u32> {
        self.by_port.range((port, 0)..=(port, u32::MAX)).map(|&(_, id)| id)
    }

    pub(super) fn by_request(&self, key: &RequestKey) -> Option<u32> {
        self.by_request.get(key).copied()
    }

    pub(super) fn by_qp(&self, key: &QpKey) -> Option<u32> {
        self.by_qp.get(key).copied()
    }

    /// From now on the connection is found by what its request is recognized by.
    pub(super) fn index_request(&mut self, id: u32, key: RequestKey) {
        if let Some(conn) = self.all.get_mut(&id) {
            conn.request_key = Some(key);
            self.by_request.insert(key, id);
        }
    }

    /// From now on the connection is found by the peer's queue pair.
    pub(super) fn index_qp(&mut self, id: u32, key: QpKey) {
        if let Some(conn) = self.all.get_mut(&id) {
            conn.qp_key = Some(key);
            self.by_qp.insert(key, id);
        }
    }

    /// The one way to another state.
    pub(super) fn enter(&mut self, id: u32, state: State, deadline: Option<Time>) {
        let Some(conn) = self.all.get_mut(&id) else { return };
        let (was_undecided, was_lingering) = (conn.state.is_undecided(), conn.state.is_lingering());
        let was_guarding = conn.state.guards_number();
        conn.state = state;
        let (number, is_guarding) = ((conn.peer.port, conn.local_qpn), conn.state.guards_number());
        let (listener, is_undecided) = (conn.listener, conn.state.is_undecided());
        let (is_idle, is_lingering) = (matches!(conn.state, State::Idle), conn.state.is_lingering());
        if is_idle && let Some(key) = conn.request_key.take() {
            self.by_request.remove(&key);
        }
        if (is_idle || is_lingering)
            && let Some(key) = conn.qp_key.take()
        {
            self.by_qp.remove(&key);
        }
        self.set_deadline(id, deadline);
        self.count(listener, was_undecided, is_undecided);
        self.guard(number, was_guarding, is_guarding);
        if is_lingering && !was_lingering {
            self.lingering.push_back(id);
            self.bound_lingering();
        }
    }

    /// When the time of the state that it is in is over.
    pub(super) fn set_deadline(&mut self, id: u32, deadline: Option<Time>) {
        let Some(conn) = self.all.get_mut(&id) else { return };
        if let Some(old) = conn.deadline {
            self.deadlines.remove(&(old, id));
        }
        conn.deadline = deadline;
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    pub(super) fn remove(&mut self, id: u32) {
        // Leaves the indexes and the counts.
        self.enter(id, State::Idle, None);
        if let Some(conn) = self.all.remove(&id) {
            self.by_port.remove(&(conn.peer.port, id));
        }
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// A connection whose time is over; it has no deadline then.
    pub(super) fn take_expired(&mut self, now: Time) -> Option<u32> {
        let &(at, id) = self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.set_deadline(id, None);
        Some(id)
    }

    /// Requests of a listener that wait for their owner's answer.
    pub(super) fn undecided(&self, listener: ListenId) -> usize {
        self.undecided.get(&listener).copied().unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Conn)> {
        self.all.iter().map(|(&id, conn)| (id, conn))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The next queue pair whose number is guarded now, or no longer.
    pub(super) fn poll_number(&mut self) -> Option<NumberChange> {
        self.number_changes.pop_front()
    }

    /// Entries of everything but the connections themselves.
    pub(super) fn index_len(&self) -> usize {
        self.by_port.len()
            + self.by_request.len()
            + self.by_qp.len()
            + self.deadlines.len()
            + self.undecided.len()
            + self.guarded.len()
    }

    fn count(&mut self, listener: Option<ListenId>, was: bool, is: bool) {
        let Some(listener) = listener else { return };
        match (was, is) {
            (false, true) => *self.undecided.entry(listener).or_default() += 1,
            (true, false) => {
                if let Some(count) = self.undecided.get_mut(&listener) {
                    *count -= 1;
                    if *count == 0 {
                        self.undecided.remove(&listener);
                    }
                }
            }
            (false, false) | (true, true) => {}
        }
    }

    /// A number is told with the first connection that guards it, and with the last.
    fn guard(&mut self, (port, qpn): (PortId, Qpn), was: bool, is: bool) {
        match (was, is) {
            (false, true) => {
                let count = self.guarded.entry((port, qpn)).or_default();
                *count += 1;
                if *count == 1 {
                    self.number_changes.push_back(NumberChange { port, qpn, is_guarded: true });
                }
            }
            (true, false) => {
                if let Some(count) = self.guarded.get_mut(&(port, qpn)) {
                    *count -= 1;
                    if *count == 0 {
                        self.guarded.remove(&(port, qpn));
                        self.number_changes.push_back(NumberChange { port, qpn, is_guarded: false });
                    }
                }
            }
            (false, false) | (true, true) => {}
        }
    }

    /// Whoever connects and disconnects all day must not fill the memory: of those that only wait for time to pass the
    /// oldest that nobody owns goes before its time. Two for each that comes, so that those with an owner, which stay,
    /// cost no long search.
    fn bound_lingering(&mut self) {
        for _ in 0..2 {
            if self.lingering.len() <= MAX_LINGERING {
                return;
            }
            let Some(id) = self.lingering.pop_front() else { return };
            match self.all.get(&id) {
                Some(conn) if conn.state.is_lingering() && conn.is_owned => self.lingering.push_back(id),
                Some(conn) if conn.state.is_lingering() => self.remove(id),
                Some(_) | None => {}
            }
        }
    }
}

/// More connections than this there are not, in whatever state.
pub(super) const MAX_CONNECTIONS: usize = 1 << 17;

/// More than this wait in timewait, or to repeat an answer, only if somebody owns them.
pub(super) const MAX_LINGERING: usize = 8192;

const INDEX_MASK: u32 = (1 << ConnId::INDEX_BITS) - 1;
