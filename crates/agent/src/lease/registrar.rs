//! What a device has told the agent of its connections, and what it is yet to tell.
//!
//! Any thread of the program adds to it; the thread that keeps the slot tells the agent. What the agent has granted is kept here,
//! too, since it must be told to the next one. What waits to be told is bounded by what a device may have: of a will only the last
//! state counts, and everything else that wants no answer takes back what was granted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use userdma_link::clock;
use userdma_verbs::Time;

use crate::gsi::{GsiFrame, MAX_BOOKED, PortError, PortRequest, Will};
use crate::message::GsiRequest;
use crate::registry::Services;

/// Who takes packets to queue pair 1 of the device.
pub(super) type Sink = Box<dyn Fn(GsiFrame<'_>) + Send>;

/// What is shared with the thread that keeps the slot.
#[derive(Default)]
pub(super) struct Registrar {
    state: Mutex<State>,
    answered: Condvar,
    told: Condvar,
    sink: Mutex<Option<Sink>>,
}

#[derive(Debug, Default)]
struct State {
    /// What is ours, by number, and whether we listen there.
    reserved: BTreeMap<u32, (PortRequest, bool)>,
    /// To what we listen, and how often we have said so.
    listens: BTreeMap<(Services, Option<IpAddr>), usize>,
    wills: BTreeMap<u32, Will>,
    /// Wills that this agent has.
    told: BTreeSet<u32>,
    /// Wills that have changed since.
    changed: BTreeSet<u32>,
    /// The agent is in our own process, and would die with it.
    is_agent_ours: bool,
    /// The agent was told at once lately, so that it is worth waiting for.
    is_prompt: bool,
    asked: BTreeMap<u32, Asked>,
    outbox: VecDeque<GsiRequest>,
    /// What was said of connections that have ended, and when: an agent may die before it has seen to it.
    opened: VecDeque<(Time, GsiRequest)>,
    next: u32,
}

/// A request that wants an answer.
#[derive(Debug)]
struct Asked {
    request: GsiRequest,
    answer: Option<Result<u16, PortError>>,
    /// Nobody waits any more: what is granted goes back.
    is_abandoned: bool,
}

impl Registrar {
    /// A number that names one thing of this device.
    pub(super) fn number(&self) -> u32 {
        self.lock().number()
    }

    /// Asks the agent; `poke` makes the thread that keeps the slot look. `None` if there is no answer within `patience`: then it
    /// has not happened, or is taken back.
    pub(super) fn ask(
        &self,
        request: impl FnOnce(u32) -> GsiRequest,
        poke: impl FnOnce(),
        patience: Duration,
    ) -> Option<Result<u16, PortError>> {
        let end = clock::now() + patience;
        let mut state = self.lock();
        let seq = state.number();
        let request = request(seq);
        state.outbox.push_back(request.clone());
        state.asked.insert(seq, Asked { request, answer: None, is_abandoned: false });
        drop(state);
        poke();
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.asked.get(&seq).and_then(|asked| asked.answer) {
                state.asked.remove(&seq);
                return Some(answer);
            }
            let left = Duration::from_nanos(end.nanos().saturating_sub(clock::now().nanos()));
            if left.is_zero() {
                state.abandon(seq);
                return None;
            }
            state = self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives a port back.
    pub(super) fn release(&self, id: u32) {
        let mut state = self.lock();
        if state.reserved.remove(&id).is_some() {
            state.outbox.push_back(GsiRequest::Release { id });
        }
    }

    /// Listens no longer.
    pub(super) fn unlisten(&self, service: Services, on: Option<IpAddr>) {
        let mut state = self.lock();
        if let Some(count) = state.listens.get_mut(&(service, on)) {
            *count -= 1;
            if *count == 0 {
                state.listens.remove(&(service, on));
            }
            state.outbox.push_back(GsiRequest::Unlisten { service, on });
        }
    }

    /// Notes what is to be sent for a connection if the process dies. There is no room for more than [`MAX_BOOKED`].
    pub(super) fn set_will(&self, comm_id: u32, will: Option<&Will>) {
        let mut state = self.lock();
        match will {
            Some(will) if state.wills.len() < MAX_BOOKED || state.wills.contains_key(&comm_id) => {
                state.wills.insert(comm_id, *will);
            }
            Some(_) => return,
            None => drop(state.wills.remove(&comm_id)),
        }
        // The agent need not hear of what came and went while it did not listen.
        if will.is_some() || state.told.contains(&comm_id) {
            state.changed.insert(comm_id);
        } else {
            state.changed.remove(&comm_id);
        }
    }

    /// A connection has ended: this is to be sent until the peer knows, whatever becomes of the device.
    pub(super) fn open_will(&self, comm_id: u32, will: &Will) {
        let mut state = self.lock();
        state.wills.remove(&comm_id);
        state.changed.remove(&comm_id);
        state.told.remove(&comm_id);
        // No more than the device may have, also while nobody listens.
        if state.outbox.len() < MAX_BOOKED && state.opened.len() < MAX_BOOKED {
            let request = GsiRequest::OpenWill { comm_id, will: *will };
            state.forget_opened();
            state.opened.push_back((clock::now(), request.clone()));
            state.outbox.push_back(request);
        }
    }

    /// Waits until the agent has been told of a will, unless it has let others wait in vain since it last took one; whether it has.
    pub(super) fn wait_until_told(&self, comm_id: u32, patience: Duration) -> bool {
        let is_pending = |state: &mut State| state.is_prompt && state.changed.contains(&comm_id);
        let waited = self.told.wait_timeout_while(self.lock(), patience, is_pending);
        let (mut state, end) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_prompt &= !end.timed_out();
        !state.changed.contains(&comm_id)
    }

    /// Sets who takes packets. When this returns the one before is not called any more.
    pub(super) fn set_sink(&self, sink: Option<Sink>) {
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = sink;
    }

    /// Hands packets over; whether somebody has taken them.
    pub(super) fn hand_over(&self, packets: &[Vec<u8>]) -> bool {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = &*sink else { return false };
        packets.iter().filter_map(|packet| GsiFrame::decode(packet)).for_each(sink);
        true
    }

    /// Keeper: whether the agent is in our own process.
    pub(super) fn note_agent(&self, is_ours: bool) {
        self.lock().is_agent_ours = is_ours;
    }

    /// Whether the agent would die with our process.
    pub(super) fn is_agent_ours(&self) -> bool {
        self.lock().is_agent_ours
    }

    /// Keeper: a new agent is to be told everything.
    pub(super) fn begin_again(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.outbox.clear();
        state.told.clear();
        state.changed = state.wills.keys().copied().collect();
        let reserved = state.reserved.iter();
        let restore = reserved.map(|(&id, &(port, listens))| GsiRequest::Restore { id, listens, port });
        let relisten = |(&(service, on), &count): (&(Services, Option<IpAddr>), &usize)| {
            std::iter::repeat_n(GsiRequest::Relisten { service, on }, count)
        };
        let listens = state.listens.iter().flat_map(relisten);
        let asked = state.asked.values().filter(|asked| asked.answer.is_none() && !asked.is_abandoned);
        state.outbox.extend(restore.chain(listens).chain(asked.map(|asked| asked.request.clone())));
        state.asked.retain(|_, asked| !asked.is_abandoned);
        state.forget_opened();
        state.outbox.extend(state.opened.iter().map(|(_, request)| request.clone()));
    }

    /// Keeper: whether there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        let state = self.lock();
        !state.outbox.is_empty() || !state.changed.is_empty()
    }

    /// Keeper: tells the agent what there is to tell, by `send`, which says whether there was room. Wills come first: whoever has
    /// an answer knows that the agent has those of before.
    pub(super) fn tell<E>(&self, mut send: impl FnMut(GsiRequest) -> Result<bool, E>) -> Result<(), E> {
        let mut guard = self.lock();
        let state = &mut *guard;
        while let Some(&comm_id) = state.changed.first() {
            let will = state.wills.get(&comm_id).copied();
            let request = match will {
                Some(will) => GsiRequest::SetWill { comm_id, will },
                None => GsiRequest::ClearWill { comm_id },
            };
            if !send(request)? {
                return Ok(());
            }
            state.changed.remove(&comm_id);
            if will.is_some() {
                state.told.insert(comm_id);
            } else {
                state.told.remove(&comm_id);
            }
        }
        state.is_prompt = true;
        self.told.notify_all();
        while let Some(request) = state.outbox.front() {
            if !send(request.clone())? {
                return Ok(());
            }
            state.outbox.pop_front();
        }
        Ok(())
    }

    /// Keeper: the agent has answered.
    pub(super) fn answer(&self, seq: u32, result: Result<u16, PortError>) {
        let mut state = self.lock();
        let Some(asked) = state.asked.get_mut(&seq) else { return };
        asked.answer = Some(result);
        let (request, is_abandoned) = (asked.request.clone(), asked.is_abandoned);
        if is_abandoned {
            state.asked.remove(&seq);
        }
        if let Ok(port) = result {
            state.granted(request, port, is_abandoned);
        }
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the lists whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Registrar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrar").finish_non_exhaustive()
    }
}

impl State {
    /// What was said so long ago has been seen to.
    fn forget_opened(&mut self) {
        let now = clock::now().nanos();
        while self.opened.front().is_some_and(|(at, _)| at.nanos() + OPENED_NS < now) {
            self.opened.pop_front();
        }
    }

    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Whoever has asked has gone.
    fn abandon(&mut self, seq: u32) {
        let Some(asked) = self.asked.get_mut(&seq) else { return };
        asked.is_abandoned = true;
        let before = self.outbox.len();
        self.outbox.retain(|request| *request != asked.request);
        if self.outbox.len() < before {
            // The agent has not even been told.
            self.asked.remove(&seq);
        }
    }

    /// The agent has granted a request: it is noted, or given back if nobody waits for it.
    fn granted(&mut self, request: GsiRequest, port: u16, is_abandoned: bool) {
        match request {
            GsiRequest::Reserve { id, .. } if is_abandoned => {
                self.outbox.push_back(GsiRequest::Release { id })
            }
            GsiRequest::Reserve { id, port: asked, .. } => {
                self.reserved.insert(id, (PortRequest { port, ..asked }, false));
            }
            GsiRequest::BeginListening { id, .. } if is_abandoned => {
                self.outbox.push_back(GsiRequest::EndListening { id });
            }
            GsiRequest::BeginListening { id, .. } => {
                if let Some((_, listens)) = self.reserved.get_mut(&id) {
                    *listens = true;
                }
            }
            GsiRequest::Listen { service, on, .. } if is_abandoned => {
                self.outbox.push_back(GsiRequest::Unlisten { service, on });
            }
            GsiRequest::Listen { service, on, .. } => *self.listens.entry((service, on)).or_default() += 1,
            GsiRequest::Attach
            | GsiRequest::Sync { .. }
            | GsiRequest::Restore { .. }
            | GsiRequest::Release { .. }
            | GsiRequest::Relisten { .. }
            | GsiRequest::Unlisten { .. }
            | GsiRequest::SetWill { .. }
            | GsiRequest::ClearWill { .. }
            | GsiRequest::OpenWill { .. }
            | GsiRequest::EndListening { .. }
            | GsiRequest::Bequest(_) => {}
        }
    }
}

/// How long an agent may take until peers know that a connection has ended.
const OPENED_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests;
