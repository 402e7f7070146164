//! Events of an identifier, as they wait for whoever asks.

use std::collections::VecDeque;
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
    /// The peer has ended the connection; its queue pair, to be told.
    is_over: bool,
    qp: Option<(Host, Qpn)>,
    wakers: Vec<Waker>,
}

impl Queue {
    /// With room for requests.
    pub(super) fn with_backlog(backlog: u32) -> Self {
        Self { state: Mutex::new(State { backlog, ..State::default() }) }
    }

    /// The oldest event.
    pub(super) fn poll_event(&self, cx: &Context<'_>) -> Poll<Event> {
        self.poll(cx, |state| state.events.pop_front())
    }

    /// The oldest request.
    pub(super) fn poll_request(&self, cx: &Context<'_>) -> Poll<Event> {
        self.poll(cx, |state| {
            let at = state.events.iter().position(|event| event.kind == EventKind::ConnectRequest)?;
            state.requests -= 1;
            state.events.remove(at)
        })
    }

    /// Waits until the connection has ended.
    pub(super) fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(cx, |state| state.is_over.then_some(()))
    }

    fn poll<R>(&self, cx: &Context<'_>, take: impl FnOnce(&mut State) -> Option<R>) -> Poll<R> {
        let mut state = lock(&self.state);
        if let Some(taken) = take(&mut state) {
            return Poll::Ready(taken);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
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
            EventKind::Disconnected | EventKind::DeviceRemoval => {
                state.is_over = true;
                if let Some((host, qpn)) = &state.qp {
                    to_error(host, *qpn);
                }
            }
            EventKind::AddrResolved
            | EventKind::AddrError
            | EventKind::RouteResolved
            | EventKind::RouteError
            | EventKind::ConnectResponse
            | EventKind::ConnectError
            | EventKind::Unreachable
            | EventKind::Rejected
            | EventKind::Established
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
        wakers.into_iter().for_each(Waker::wake);
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
