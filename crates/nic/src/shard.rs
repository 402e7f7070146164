//! The device: what goes in, what comes out, and whose turn it is.
//!
//! A queue pair is touched in one place only, [`Shard::drive`]: it lends the machine what it may touch, then looks at
//! what has changed: a deadline, an acknowledgement owed, something to send, events, completion queues that
//! overflowed.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use userdma_ibt::{Ctx, Effects, Fill, Paces, Stats};
use userdma_mem::{LinkCaps, LinkId, TxBatch};
use userdma_objects::{MrTable, PdTable};
use userdma_verbs::{AsyncEvent, QpAttr, QpAttrMask, QpState, Qpn, Srqn, Time};

use crate::config::{INDEX_BITS, INDEX_MASK};
use crate::control::{CqEntry, Resolved};
use crate::gsi::{GSI_INDEX, Gsi};
use crate::inbound::Inbound;
use crate::multicast::Groups;
use crate::qp::QpTable;
use crate::srq::SrqTable;
use crate::timer::Timers;
use crate::transport::Transport;
use crate::windows::{WindowId, Windows};
use crate::{Doorbells, GidEntry, ShardConfig};

/// A device without IO and clock: everything between verbs calls and packets.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: ShardConfig,
    pub(crate) pds: PdTable,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: Slab<CqEntry>,
    pub(crate) ahs: Slab<Resolved>,
    pub(crate) srqs: SrqTable,
    pub(crate) qps: QpTable,
    pub(crate) windows: Windows,
    pub(crate) paces: Paces,
    pub(crate) inbound: Inbound,
    pub(crate) gsi: Gsi,
    pub(crate) groups: Groups,
    pub(crate) stats: Stats,
    effects: Effects,
    events: VecDeque<AsyncEvent>,
    /// The port says that it is down.
    pub(crate) port_is_down: bool,
    doorbells: Arc<Doorbells>,
    /// Indices whose doorbell rang, while they are looked at.
    rung: Vec<u32>,
    /// Queue pairs that may have something to send, in the order of their turns.
    ready: VecDeque<u32>,
    /// Queue pairs with requests that complete once what was filled has left.
    pub(crate) sending: Vec<u32>,
    /// Queue pairs that were too fast for a destination and wait for an answer.
    pub(crate) paced: Vec<u32>,
    /// Retransmissions and RNR waits.
    timers: Timers,
    /// Owed acknowledgements that wait for something to travel with.
    ack_timers: Timers,
}

/// What a queue pair looks like after it was touched.
struct After {
    deadline: Option<Time>,
    ack_owed_since: Option<Time>,
    window: Option<WindowId>,
}

impl Shard {
    /// A device as configured, without objects.
    pub fn new(config: ShardConfig) -> Self {
        debug_assert!(config.slot < 1023, "slot 1023 is the multicast QPN's");
        Self {
            pds: PdTable::default(),
            mrs: MrTable::new(config.seed),
            cqs: Slab::new(),
            ahs: Slab::new(),
            srqs: SrqTable::default(),
            qps: QpTable::new(config.first_index),
            windows: Windows::new(config.max_window),
            paces: Paces::default(),
            inbound: Inbound::default(),
            gsi: Gsi::default(),
            groups: Groups::default(),
            stats: Stats::default(),
            effects: Effects::default(),
            events: VecDeque::new(),
            port_is_down: false,
            doorbells: Arc::new(Doorbells::new()),
            rung: Vec::new(),
            ready: VecDeque::new(),
            sending: Vec::new(),
            paced: Vec::new(),
            timers: Timers::default(),
            ack_timers: Timers::default(),
            config,
        }
    }

    /// The GID table.
    pub fn gids(&self) -> &[GidEntry] {
        &self.config.gids
    }

    /// The device's doorbells: rung after a post, on any thread, unless whoever posts calls [`Shard::handle_post`] himself.
    pub fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.doorbells)
    }

    /// The lower 14 bits of the QPN that the next queue pair would get.
    pub fn next_index(&self) -> u16 {
        self.qps.next_index()
    }

    /// Keeps the number of a queue pair from being given again as long as a connection of it is not over, timewait included;
    /// or lets it go. It survives the queue pair. Nothing happens if there is no such queue pair. While no other number is
    /// left, it is given again all the same, the one that has rested longest first.
    pub fn guard_qpn(&mut self, qpn: Qpn, is_guarded: bool) {
        let is_of_slot = qpn.get() >> INDEX_BITS == u32::from(self.config.slot);
        // To be let go it need not be there any more.
        let is_known = if is_guarded { self.index_of(qpn).is_some() } else { is_of_slot };
        if is_known {
            self.qps.guard(qpn.get() & INDEX_MASK, is_guarded);
        }
    }

    /// Whether there are numbers that must not be given again yet.
    pub fn guards_qpns(&self) -> bool {
        self.qps.guards()
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes over a change of a link's limits (it stopped segmenting, say).
    pub fn set_link_caps(&mut self, link: LinkId, caps: LinkCaps) {
        if let Some(entry) = self.config.links.get_mut(usize::from(link.0)) {
            *entry = caps;
        }
    }

    /// The port has gone down or come back: it says so, and an event does.
    pub fn set_port_down(&mut self, is_down: bool) {
        self.port_is_down = is_down;
        self.events.push_back(if is_down { AsyncEvent::PortError } else { AsyncEvent::PortActive });
    }

    /// Gives queue pairs whose doorbell rang a turn: [`Shard::poll_transmit`] takes over what was posted.
    #[inline]
    pub fn handle_doorbells(&mut self) {
        if !self.doorbells.is_empty() {
            self.take_doorbells();
        }
    }

    fn take_doorbells(&mut self) {
        let mut rung = std::mem::take(&mut self.rung);
        self.doorbells.drain(|index| rung.push(index));
        for index in rung.drain(..) {
            // A turn even if the window is full, so that the queue pair gets in line for it.
            self.make_ready(index);
        }
        self.rung = rung;
    }

    /// As if the doorbell of `qpn` had rung.
    pub fn handle_post(&mut self, qpn: Qpn) {
        self.make_ready(qpn.get() & INDEX_MASK);
    }

    /// The time has come that [`Shard::poll_timeout`] named, or not yet (then nothing happens). Whether an acknowledgement has
    /// waited in vain for something to go with.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let mut is_overdue = false;
        while let Some(index) = self.ack_timers.pop_due(now) {
            is_overdue |= self.check_owed_ack(now, index);
        }
        while let Some(index) = self.timers.pop_due(now) {
            match self.qps.get(index).and_then(|qp| qp.transport.deadline()) {
                Some(deadline) if deadline <= now => {
                    self.drive(now, index, Transport::handle_timeout);
                }
                Some(deadline) => self.timers.arm(index, deadline),
                None => {}
            }
        }
        is_overdue
    }

    /// Lets acknowledgements that are owed leave with the next polls, without waiting for their delay.
    #[inline]
    pub fn release_acks(&mut self) {
        while let Some(index) = self.ack_timers.pop_due(Time::NEVER) {
            self.release_owed_ack(index);
        }
    }

    /// Lets an acknowledgement that a queue pair owes leave with the next polls.
    pub(crate) fn release_owed_ack(&mut self, index: u32) {
        if self.qps.get(index).is_some_and(|qp| qp.transport.ack_owed_since().is_some()) {
            self.release_ack(index);
        }
    }

    /// Fills `batch`, which must be empty, with packets to one queue pair, and says by which link they go. `None` if
    /// there is nothing to send. Queue pairs take turns.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, batch: &mut TxBatch) -> Option<LinkId> {
        debug_assert!(batch.is_empty());
        if self.ready.is_empty() { None } else { self.take_turns(now, batch) }
    }

    fn take_turns(&mut self, now: Time, batch: &mut TxBatch) -> Option<LinkId> {
        while let Some(index) = self.ready.pop_front() {
            let Some(qp) = self.qps.get_mut(index) else {
                if index == GSI_INDEX
                    && let Some(link) = self.fill_gsi(batch)
                {
                    return Some(link);
                }
                continue;
            };
            qp.is_ready = false;
            let acks = std::mem::take(&mut qp.may_ack);
            let (window, link) = (qp.window, qp.transport.link());
            batch.set_max_packets(self.turn_packets(link, window));
            let Some(fill) = self.drive_quietly(now, index, |machine, ctx| machine.fill(ctx, batch, acks))
            else {
                continue;
            };
            self.after_fill(index, fill, acks, batch.is_empty());
            if let Some(route) = batch.route() {
                return Some(route.link);
            }
        }
        None
    }

    /// Packets of a turn: as many as the link takes at once, or fewer if others are in line or wait for the same
    /// window, which one queue pair's turn could fill each time.
    pub(crate) fn turn_packets(&self, link: Option<LinkId>, window: Option<WindowId>) -> usize {
        let caps = link.and_then(|link| self.config.links.get(usize::from(link.0)));
        let most = caps.map_or(1, |caps| caps.max_batch_packets);
        let is_alone = self.ready.is_empty() && window.is_none_or(|window| !self.windows.is_awaited(window));
        if is_alone { most } else { most.min(SHARED_TURN) }
    }

    /// Whether nothing is to be sent or told, no doorbell rings and no acknowledgement is owed: only a packet or the time
    /// can change that.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
            && self.ack_timers.is_empty()
            && self.doorbells.is_empty()
            && self.events.is_empty()
            && self.effects.channels.is_empty()
    }

    /// When [`Shard::handle_timeout`] must be called, if nothing happens before. May be early, never late.
    pub fn poll_timeout(&self) -> Option<Time> {
        match (self.timers.next(), self.ack_timers.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The oldest asynchronous event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// A completion channel with new events, by the host's number: its descriptor must be made readable.
    pub fn poll_channel(&mut self) -> Option<u32> {
        self.effects.channels.pop()
    }

    /// Lets `touch` work on a queue pair and sees to everything that follows. `None` if it does not exist.
    pub(crate) fn drive<R>(
        &mut self,
        now: Time,
        index: u32,
        touch: impl FnOnce(&mut Transport, &mut Ctx<'_>) -> R,
    ) -> Option<R> {
        let (result, has_work) = self.touch::<true, R>(now, index, touch)?;
        if has_work {
            self.make_ready(index);
        }
        Some(result)
    }

    /// The same, but whoever calls sees to the queue pair's turn.
    fn drive_quietly<R>(
        &mut self,
        now: Time,
        index: u32,
        touch: impl FnOnce(&mut Transport, &mut Ctx<'_>) -> R,
    ) -> Option<R> {
        self.touch::<false, R>(now, index, touch).map(|(result, _)| result)
    }

    /// With `TURN` also says whether the queue pair has something to send and is not in line for it.
    #[inline]
    fn touch<const TURN: bool, R>(
        &mut self,
        now: Time,
        index: u32,
        touch: impl FnOnce(&mut Transport, &mut Ctx<'_>) -> R,
    ) -> Option<(R, bool)> {
        let qp = self.qps.get_mut(index)?;
        let mut ctx = Ctx {
            now,
            mrs: &mut self.mrs,
            qp: &qp.shared,
            send_cq: &qp.send_cq,
            recv_cq: &qp.recv_cq,
            window: self.windows.window(qp.window),
            paces: &mut self.paces,
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        let result = touch(&mut qp.transport, &mut ctx);
        let has_work = TURN && !qp.is_ready && qp.transport.has_work(&ctx);
        let (deadline, ack_owed_since) = qp.transport.due();
        let after = After {
            deadline,
            // One that may leave already needs no deadline.
            ack_owed_since: ack_owed_since.filter(|_| !qp.may_ack),
            window: qp.window,
        };
        self.settle(now, index, &after);
        Some((result, has_work))
    }

    fn settle(&mut self, now: Time, index: u32, after: &After) {
        if let Some(deadline) = after.deadline {
            // Later than now, whatever the machine says, so that no timeout runs for ever.
            self.timers.arm(index, deadline.max(now.plus_nanos(1)));
        }
        if let Some(since) = after.ack_owed_since {
            self.ack_timers.arm(index, since.plus_nanos(self.config.ack_delay_ns));
        }
        if let Some(window) = after.window {
            self.wake_one(window);
        }
        if !self.effects.events.is_empty() {
            self.events.extend(self.effects.events.drain(..));
        }
        if !self.effects.overflows.is_empty() {
            self.fail_overflowed(now);
        }
    }

    /// Gives a queue pair that waits for this window its turn, if there is room. Its fill wakes the next one.
    pub(crate) fn wake_one(&mut self, window: WindowId) {
        while let Some(index) = self.windows.pop_waiting(window) {
            // Those that are gone pass it on.
            if let Some(qp) = self.qps.get_mut(index) {
                qp.is_waiting = false;
                return self.make_ready(index);
            }
        }
    }

    pub(crate) fn make_ready(&mut self, index: u32) {
        if let Some(qp) = self.qps.get_mut(index)
            && !qp.is_ready
        {
            qp.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// Puts a number that no queue pair of the table has in line.
    pub(crate) fn make_index_ready(&mut self, index: u32) {
        self.ready.push_back(index);
    }

    /// Queue pairs with more to send take their place at the end of the line.
    fn after_fill(&mut self, index: u32, fill: Fill, acks: bool, was_empty: bool) {
        let Some(qp) = self.qps.get_mut(index) else { return };
        if !qp.transport.is_reliable() {
            // Neither acknowledgements nor a window.
            self.note_unreliable(index);
            if fill == Fill::More && !was_empty {
                self.make_ready(index);
            }
            return;
        }
        // An acknowledgement that did not fit this batch goes with the next one.
        qp.may_ack |= acks && qp.transport.ack_owed_since().is_some();
        if fill == Fill::More && !was_empty {
            return self.make_ready(index);
        }
        if qp.transport.is_window_blocked()
            && !qp.is_waiting
            && let Some(window) = qp.window
        {
            qp.is_waiting = true;
            self.windows.wait(window, index);
        }
    }

    /// An acknowledgement's delay may be over: whether it is. It may also have left meanwhile, and another one be owed.
    fn check_owed_ack(&mut self, now: Time, index: u32) -> bool {
        let Some(since) = self.qps.get(index).and_then(|qp| qp.transport.ack_owed_since()) else {
            return false;
        };
        let due = since.plus_nanos(self.config.ack_delay_ns);
        let is_over = due <= now;
        if is_over {
            self.release_ack(index);
        } else {
            self.ack_timers.arm(index, due);
        }
        is_over
    }

    fn release_ack(&mut self, index: u32) {
        if let Some(qp) = self.qps.get_mut(index) {
            qp.may_ack = true;
            self.make_ready(index);
        }
    }

    /// Takes the queue pairs of completion queues that overflowed to ERR.
    #[cold]
    fn fail_overflowed(&mut self, now: Time) {
        while let Some(cq) = self.effects.overflows.pop() {
            let victims: Vec<u32> = self.qps.indices().filter(|&index| self.uses_cq(index, cq)).collect();
            for index in victims {
                self.drive(now, index, |machine, ctx| match machine.state() {
                    // Nothing is posted, or everything is flushed already.
                    QpState::Reset | QpState::Err => {}
                    QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {
                        machine.modify(ctx, QpState::Err, &QpAttr::default(), QpAttrMask::STATE, None);
                    }
                });
            }
        }
    }

    /// Sees to it that no list of queue pairs grows while packets move.
    pub(crate) fn make_room(&mut self) {
        let qps = self.qps.len();
        self.ready.reserve(qps.saturating_sub(self.ready.len()));
        self.rung.reserve(qps);
        self.sending.reserve(qps.saturating_sub(self.sending.len()));
        self.paced.reserve(qps.saturating_sub(self.paced.len()));
        let indices = self.qps.indices_end();
        self.timers.reserve(qps, indices);
        self.ack_timers.reserve(qps, indices);
        // Each completion queue has one channel at most.
        self.effects.channels.reserve(self.cqs.len());
    }

    pub(crate) fn uses_cq(&self, index: u32, cq: u32) -> bool {
        self.qps.get(index).is_some_and(|qp| qp.send_cq.number() == cq || qp.recv_cq.number() == cq)
    }

    /// Takes a queue pair that is going out of every list, and forgets its events.
    pub(crate) fn forget(&mut self, index: u32, qpn: Qpn) {
        // Its entries in the line and among those who wait name nobody then, and are passed over.
        self.timers.disarm(index);
        self.ack_timers.disarm(index);
        self.events.retain(|event| event_qpn(event) != Some(qpn));
    }

    /// Forgets the events of a completion queue that is going.
    pub(crate) fn forget_cq(&mut self, number: u32) {
        self.events.retain(|event| *event != AsyncEvent::CqError { cq: number });
    }

    /// Forgets the events of a shared receive queue that is going.
    pub(crate) fn forget_srq(&mut self, srqn: Srqn) {
        self.events.retain(|event| *event != AsyncEvent::SrqLimitReached { srqn });
    }

    /// The index of a queue pair of this device.
    pub(crate) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        let index = qpn.get() & INDEX_MASK;
        self.qps.get(index).filter(|qp| qp.shared.qpn() == qpn).map(|_| index)
    }
}

/// Packets of a turn while others want one.
const SHARED_TURN: usize = 16;

fn event_qpn(event: &AsyncEvent) -> Option<Qpn> {
    match event {
        AsyncEvent::QpFatal { qpn }
        | AsyncEvent::QpRequestError { qpn }
        | AsyncEvent::QpAccessError { qpn }
        | AsyncEvent::CommunicationEstablished { qpn }
        | AsyncEvent::SqDrained { qpn }
        | AsyncEvent::QpLastWqeReached { qpn } => Some(*qpn),
        AsyncEvent::CqError { .. }
        | AsyncEvent::SrqLimitReached { .. }
        | AsyncEvent::PortActive
        | AsyncEvent::PortError
        | AsyncEvent::GidChange
        | AsyncEvent::DeviceFatal
        | _ => None,
    }
}
