//! Communication management: how two queue pairs are connected and disconnected, by datagrams that may be lost,
//! repeated and reordered.
//!
//! ```text
//!  active                      passive             what may go wrong
//!  ReqSent      ── REQ ──▶     ReqReceived         lost: sent again; refused: REJ, which is repeated if the REQ is
//!  RepReceived  ◀── REP ──     RepSent             lost: sent again; the REQ comes again: so does the REP
//!  Established  ── RTU ──▶     Established         lost: the REP comes again, and is answered by the RTU
//!  DreqSent     ── DREQ ──▶    DreqReceived        either side may begin, or both
//!  Timewait     ◀── DREP ──    Timewait            lost: the DREQ comes again, and is answered by the DREP
//! ```
//!
//! Who asks waits for 4.096 µs · 2^n, asks again as often as it was agreed, and gives up; an MRA makes it wait longer,
//! once each time. So everything ends. A connection belongs to whoever made it or took its [`Event::Req`], until
//! [`Cm::destroy`]; then it says goodbye on its own and disappears.
//!
//! Every message of a connection must come from the peer's address to ours, name both communication ids as far as they
//! are known, and answer the right transaction: what does not is another's, late, or forged, and changes nothing.
//! Where the standard leaves things open this does what the kernel does; what differs is in `docs/cm.md`.
//!
//! Not here: addresses and ports ([`crate::rdma`]), and queue pairs, whose numbers are only passed on.

mod conn;
mod connect;
mod disconnect;
mod event;
mod failure;
mod lap;
mod listen;
mod params;
mod receive;
mod refuse;
mod sidr;
mod state;
mod table;
pub(crate) mod time;
mod timeout;
mod types;
mod unknown;

pub use event::Event;
pub use failure::Failure;
pub use params::{RepParams, ReqParams, SidrRepParams, SidrReqParams};
pub use types::{Arrival, ConnId, ListenId, NumberChange, Outgoing, PortId};
pub use unknown::answer_unknown;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use userdma_verbs::Time;
use userdma_verbs::dice::Stream;
use userdma_wire::mad::cm::{RejectReason, SidrStatus};
use userdma_wire::mad::{Data, MAD_LEN};

use crate::queue::EventQueue;
use conn::Conn;
use listen::Listeners;
use state::State;
use table::Table;

/// The connections of a process. No IO and no clock: datagrams and the time go in, datagrams, events and a deadline
/// come out.
#[derive(Debug)]
pub struct Cm {
    ports: BTreeMap<PortId, Port>,
    table: Table,
    listeners: Listeners,
    outgoing: VecDeque<Outgoing>,
    events: EventQueue<ConnId, Event>,
    /// Upper half of our transaction ids, which nobody can guess.
    transaction_base: u64,
    stats: CmStats,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    slot: u16,
    guid: u64,
}

/// What came, beside what it was meant to be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CmStats {
    /// Messages that were sent again.
    pub retries: u64,
    /// Datagrams that are no messages of communication management.
    pub malformed: u64,
    /// Messages that belong to no connection, or to another state of one.
    pub unexpected: u64,
    /// Requests that were dropped since too many wait for their listener's answer.
    pub overflows: u64,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Connections and questions in any state.
    pub connections: usize,
    /// Listeners.
    pub listeners: usize,
    /// Entries of the indexes: 0 without connections.
    pub index_entries: usize,
    /// Datagrams and events that were not taken.
    pub waiting: usize,
}

/// Requests that may wait for one listener's answer. As many as the kernel lets a program ask for.
pub const MAX_UNDECIDED: usize = 1024;

impl Cm {
    /// Without ports and connections. `seed` should be random: communication ids begin there, and transaction ids have
    /// its upper half.
    pub fn new(seed: u64) -> Self {
        let mut stream = Stream::new(seed, 0);
        // The low 22 bits count.
        #[expect(clippy::cast_possible_truncation)]
        let start = stream.next() as u32;
        Self {
            ports: BTreeMap::new(),
            table: Table::new(start & 0x3f_ffff),
            listeners: Listeners::default(),
            outgoing: VecDeque::new(),
            events: EventQueue::default(),
            transaction_base: stream.next() & !u64::from(u32::MAX),
            stats: CmStats::default(),
        }
    }

    /// Connections may be made at this port from now on. `slot` is the upper ten bits of its communication ids, `guid`
    /// the device's.
    pub fn add_port(&mut self, port: PortId, slot: u16, guid: u64) {
        self.ports.insert(port, Port { slot: slot & 0x3ff, guid });
    }

    /// The port has gone: everything there ends without a word, and without an event.
    pub fn remove_port(&mut self, port: PortId) {
        self.ports.remove(&port);
        for id in self.listeners.of_port(port).collect::<Vec<_>>() {
            self.listeners.remove(id);
        }
        for id in self.table.of_port(port).collect::<Vec<_>>() {
            self.remove(id);
        }
        self.outgoing.retain(|outgoing| outgoing.port != port);
    }

    /// Whether nothing is left at this port: neither a connection, timewait included, nor a listener of its own.
    pub fn is_idle(&self, port: PortId) -> bool {
        self.listeners.of_port(port).next().is_none() && self.table.of_port(port).next().is_none()
    }

    /// Begins to listen to the services whose id is `service_id` where `mask` has ones (0: to that one only), on one
    /// address of a port or on all of all ports.
    ///
    /// # Errors
    /// [`Failure::InUse`] if one of them is listened to there already.
    pub fn listen(
        &mut self,
        service_id: u64,
        mask: u64,
        on: Option<(PortId, IpAddr)>,
    ) -> Result<ListenId, Failure> {
        self.listeners.add(service_id, mask, on)
    }

    /// Listens no longer. Requests whose events were not taken yet are refused; the others stay with their owner.
    pub fn unlisten(&mut self, listener: ListenId) {
        if !self.listeners.remove(listener) {
            return;
        }
        let is_for = |event: &Event| event.listener() == Some(listener);
        let untaken = self.events.iter().filter(|(_, event)| is_for(event)).map(|&(conn, _)| conn);
        for ConnId(id) in untaken.collect::<Vec<_>>() {
            if let Some(conn) = self.table.get(id) {
                let answer = if matches!(conn.state, State::SidrReqReceived) {
                    sidr::refusal(conn, SidrStatus::Unsupported)
                } else {
                    conn.rej(id, RejectReason::InvalidServiceId, &[], Data::EMPTY)
                };
                self.transmit(id, answer);
            }
            self.remove(id);
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        self.events.pop()
    }

    /// When [`Cm::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.table.next_deadline()
    }

    /// The next queue pair whose number must not be given again from now on, or may be: from the first message that names it
    /// to the end of timewait.
    pub fn poll_number(&mut self) -> Option<NumberChange> {
        self.table.poll_number()
    }

    /// The DREQ that somebody else is to send if this process dies, and to repeat until it is answered; `None` in
    /// states in which the peer needs none.
    pub fn will(&self, conn: ConnId) -> Option<Outgoing> {
        let state = self.table.get(conn.0).filter(|conn| conn.state.is_connected())?;
        let dreq = state.dreq(conn.0, self.transaction_id(conn.0), Data::EMPTY);
        Some(state.peer.send(dreq))
    }

    /// The DREQs that wait for an answer, owned or not.
    pub fn goodbyes(&self) -> impl Iterator<Item = (ConnId, Outgoing)> + '_ {
        self.table.iter().filter_map(|(id, conn)| match &conn.state {
            State::DreqSent(asking) | State::Answered { goodbye: Some(asking), .. } => {
                Some((ConnId(id), conn.peer.send(asking.mad.bytes())))
            }
            State::Idle
            | State::ReqSent(_)
            | State::ReqReceived { .. }
            | State::RepSent(_)
            | State::RepReceived { .. }
            | State::Established { .. }
            | State::DreqReceived { .. }
            | State::Timewait { .. }
            | State::Answered { goodbye: None, .. }
            | State::SidrReqSent(_)
            | State::SidrReqReceived => None,
        })
    }

    /// What came, in numbers.
    pub const fn stats(&self) -> CmStats {
        self.stats
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.table.len(),
            listeners: self.listeners.len(),
            index_entries: self.table.index_len(),
            waiting: self.outgoing.len() + self.events.len(),
        }
    }

    /// The connection that its owner speaks of.
    fn owned(&self, conn: ConnId) -> Result<&Conn, Failure> {
        self.table.get(conn.0).filter(|conn| conn.is_owned).ok_or(Failure::NoConnection)
    }

    /// The same, if it is in a state in which this can be done.
    fn owned_in(&self, conn: ConnId, is_right: impl FnOnce(&State) -> bool) -> Result<&Conn, Failure> {
        let conn = self.owned(conn)?;
        if is_right(&conn.state) { Ok(conn) } else { Err(Failure::State(conn.state.name())) }
    }

    /// The transaction id of what we begin ourselves.
    const fn transaction_id(&self, id: u32) -> u64 {
        self.transaction_base | id as u64
    }

    /// Sends a message of a connection.
    fn transmit(&mut self, id: u32, mad: [u8; MAD_LEN]) {
        let outgoing = self.table.get(id).map(|conn| conn.peer.send(mad));
        self.outgoing.extend(outgoing);
    }

    /// Tells the owner, if there is one.
    fn tell(&mut self, id: u32, event: Event) {
        if self.table.get(id).is_some_and(|conn| conn.is_owned) {
            self.events.push(ConnId(id), event);
        }
    }

    /// Begins timewait, and ends with an event or by itself.
    fn enter_timewait(&mut self, now: Time, id: u32, drep: Option<state::Mad>) {
        let Some(conn) = self.table.get(id) else { return };
        let end = now + time::timewait(conn.ack_timeout);
        self.table.enter(id, State::Timewait { drep }, Some(end));
    }

    /// Idle is the end of what has no owner.
    fn enter_idle(&mut self, id: u32) {
        self.table.enter(id, State::Idle, None);
        if self.table.get(id).is_some_and(|conn| !conn.is_owned) {
            self.table.remove(id);
        }
    }

    /// Nothing is left of it.
    fn remove(&mut self, id: u32) {
        self.table.remove(id);
        self.events.forget(ConnId(id));
    }
}
