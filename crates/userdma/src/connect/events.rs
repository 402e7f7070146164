//! Events of an identifier, as they wait for whoever asks.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use userdma_host::Host;
use userdma_host::cm::{CmId, Event, EventKind, EventSink};
use userdma_verbs::{QpAttr, QpAttrMask, QpState, Qpn};

use crate::cq::lock;

/// Events that nobody has taken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Requests among them, and how many may wait.
    requests: u32,
    backlog: u32,
    /// Both sides have said yes: what comes then of refusals and silence ends the connection.
    is_made: bool,
    /// The peer has ended the connection; its queue pair, to be told.
    is_over: bool,
    qp: Option<(Host, Qpn)>,
    /// Who waits, by the place that each has.
    wakers: Vec<(u64, Waker)>,
    last_place: u64,
}

/// A future's place among those who wait. It ends with the future: whoever has given up is not kept.
#[derive(Debug)]
struct Place<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waker = lock(&self.queue.state).leave(self.number);
        // It may hold anything, so without the lock.
        drop(waker);
    }
}

impl State {
    /// Takes the waker of a place.
    fn leave(&mut self, number: u64) -> Option<Waker> {
        let at = self.wakers.iter().position(|&(of, _)| of == number)?;
        Some(self.wakers.swap_remove(at).1)
    }

    /// The connection has ended.
    fn end(&mut self) {
        self.is_over = true;
        if let Some((host, qpn)) = &self.qp {
            to_error(host, *qpn);
        }
    }

    /// The oldest request; that there is none if none will come any more.
    fn next_request(&mut self) -> Option<Option<Event>> {
        if self.is_over { Some(None) } else { self.take_request().map(Some) }
    }

    fn take_request(&mut self) -> Option<Event> {
        let at = self.events.iter().position(|event| event.kind == EventKind::ConnectRequest)?;
        self.requests -= 1;
        self.events.remove(at)
    }
}

impl Queue {
    /// With room for requests.
    pub(super) fn with_backlog(backlog: u32) -> Self {
        Self { state: Mutex::new(State { backlog, ..State::default() }) }
    }

    /// The oldest event.
    pub(super) async fn event(&self) -> Event {
        self.wait(|state| state.events.pop_front()).await
    }

    /// Waits until the connection has ended.
    pub(super) async fn over(&self) {
        self.wait(|state| state.is_over.then_some(())).await;
    }

    /// The oldest request; `None` if none will come any more.
    pub(super) async fn request(&self) -> Option<Event> {
        self.wait(State::next_request).await
    }

    /// The same for an owner who is asked again and again: who asked last is woken.
    pub(super) fn poll_request(&self, cx: &Context<'_>) -> Poll<Option<Event>> {
        self.poll(OWNER, cx, State::next_request)
    }

    /// Requests that nobody has taken.
    pub(super) fn take_requests(&self) -> Vec<CmId> {
        let mut state = lock(&self.state);
        std::iter::from_fn(|| state.take_request()).map(|event| event.id).collect()
    }

    async fn wait<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> R {
        let number = {
            let mut state = lock(&self.state);
            state.last_place += 1;
            state.last_place
        };
        let place = Place { queue: self, number };
        poll_fn(|cx| self.poll(place.number, cx, &mut take)).await
    }

    fn poll<R>(&self, number: u64, cx: &Context<'_>, take: impl FnOnce(&mut State) -> Option<R>) -> Poll<R> {
        let mut state = lock(&self.state);
        if let Some(taken) = take(&mut state) {
            return Poll::Ready(taken);
        }
        let before = state.leave(number);
        state.wakers.push((number, cx.waker().clone()));
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// The identifier's queue pair goes to the error state when the connection ends: its receives end then, too.
    pub(super) fn watch(&self, host: &Host, qpn: Qpn) {
        let mut state = lock(&self.state);
        state.qp = Some((host.clone(), qpn));
        if state.is_over {
            to_error(host, qpn);
        }
    }

    /// Takes what another queue has of `id`.
    pub(super) fn take_over(&self, other: &Self, id: CmId) {
        let moved = {
            let mut other = lock(&other.state);
            // Mostly it has nothing, and the requests of others stay where they are.
            if other.events.iter().all(|event| event.id != id) {
                return;
            }
            let (of_it, others): (VecDeque<_>, VecDeque<_>) =
                other.events.drain(..).partition(|event| event.id == id);
            other.events = others;
            of_it
        };
        for event in moved {
            // It is no request, of which there may be too many.
            let _ = self.push(event);
        }
    }
}

impl EventSink for Queue {
    fn push(&self, event: Event) -> bool {
        let mut state = lock(&self.state);
        match event.kind {
            EventKind::ConnectRequest if state.requests >= state.backlog => return false,
            EventKind::ConnectRequest => state.requests += 1,
            EventKind::ConnectResponse | EventKind::Established => state.is_made = true,
            EventKind::Disconnected | EventKind::DeviceRemoval => state.end(),
            // A peer that dies behind its answer has somebody else say that there is no such connection.
            EventKind::Rejected | EventKind::Unreachable | EventKind::ConnectError if state.is_made => {
                state.end();
            }
            EventKind::AddrResolved
            | EventKind::AddrError
            | EventKind::RouteResolved
            | EventKind::RouteError
            | EventKind::ConnectError
            | EventKind::Unreachable
            | EventKind::Rejected
            | EventKind::MulticastJoin
            | EventKind::MulticastError
            | EventKind::AddrChange
            | EventKind::TimewaitExit => {}
        }
        state.events.push_back(event);
        true
    }

    /// A waker may run anything, also whoever takes the event.
    fn wake(&self) {
        let wakers = std::mem::take(&mut lock(&self.state).wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn answers_disconnect(&self) -> bool {
        true
    }
}

/// The queue pair exists: it is destroyed after its identifier.
fn to_error(host: &Host, qpn: Qpn) {
    let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    // One that is in the error state already, or a device that is not usable, has told what depends on it.
    let _ = host.control(move |shard, now| shard.modify_qp(now, qpn, &attr, QpAttrMask::STATE));
}

/// The place of an owner who keeps no future.
const OWNER: u64 = 0;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use userdma_host::cm::{ConnParam, DeviceEntry, Devices, Manager, Param, PortSpace};
    use userdma_verbs::QpType;

    use super::*;

    struct Nothing;

    impl Devices for Nothing {
        fn list(&self) -> Vec<DeviceEntry> {
            Vec::new()
        }

        fn open(&self, _: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
            Err(19)
        }
    }

    /// Of an identifier that has nothing else.
    fn push(queue: &Queue, kind: EventKind) {
        let manager = Manager::new(Arc::new(Nothing));
        let id = manager.create(Arc::new(Queue::default()), PortSpace::Tcp, QpType::Rc).unwrap();
        let param = Param::Conn(ConnParam::default());
        assert!(queue.push(Event { id, kind, status: 0, listener: None, membership: None, param }));
    }

    #[test]
    fn a_refusal_ends_a_connection_that_was_made() {
        for made in [EventKind::ConnectResponse, EventKind::Established] {
            for end in [EventKind::Rejected, EventKind::Unreachable, EventKind::ConnectError] {
                let queue = Queue::default();
                push(&queue, end);
                assert!(!queue.is_over(), "whoever connects is told by the event");
                push(&queue, made);
                push(&queue, end);
                assert!(queue.is_over());
            }
        }
    }
}
