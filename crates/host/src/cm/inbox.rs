//! What waits for the thread of a connection manager: datagrams that have arrived, and the next thing that is due.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, TryLockError};

use userdma_link::clock;
use userdma_mgmt::cm::PortId;
use userdma_verbs::Time;

use crate::Management;
use crate::command::lock;

/// What waits for the thread.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<Waiting>,
    changed: Condvar,
    has_said_farewell: AtomicBool,
}

/// What the thread does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Takes what has arrived, and does what is due.
    Serve(VecDeque<(PortId, Management)>),
    /// The process ends: tells all peers.
    Farewell,
    /// Ends.
    Stop,
}

#[derive(Debug, Default)]
struct Waiting {
    arrived: VecDeque<(PortId, Management)>,
    due: Option<Time>,
    is_farewell: bool,
    stop: bool,
}

impl Inbox {
    /// A datagram has arrived; whether there is room for it. Called by drivers of devices, within the gate. What does not fit is
    /// lost, as the network may lose it.
    pub(super) fn put(&self, port: PortId, management: Management) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.arrived.len() < MAX_WAITING;
        if has_room {
            state.arrived.push_back((port, management));
            self.changed.notify_one();
        }
        has_room
    }

    /// The next thing is due at `due`.
    pub(super) fn set_due(&self, due: Option<Time>) {
        let mut state = lock(&self.state);
        let is_sooner = due.is_some_and(|due| state.due.is_none_or(|before| due < before));
        state.due = due;
        if is_sooner {
            self.changed.notify_one();
        }
    }

    /// The thread shall end.
    pub(super) fn stop(&self) {
        lock(&self.state).stop = true;
        self.changed.notify_one();
    }

    /// The process ends; whether the thread could be told. Waits for no lock: whoever was interrupted may hold it.
    pub(super) fn ask_for_farewell(&self) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        state.is_farewell = true;
        self.changed.notify_one();
        true
    }

    /// The thread has told all peers.
    pub(super) fn note_farewell(&self) {
        self.has_said_farewell.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub(super) fn has_said_farewell(&self) -> bool {
        self.has_said_farewell.load(Ordering::Acquire)
    }

    /// Sleeps until there is something to do.
    pub(super) fn wait(&self) -> Work {
        let mut state = lock(&self.state);
        loop {
            if state.stop {
                return Work::Stop;
            }
            if std::mem::take(&mut state.is_farewell) {
                return Work::Farewell;
            }
            let now = clock::now();
            if !state.arrived.is_empty() || state.due.is_some_and(|due| due <= now) {
                return Work::Serve(std::mem::take(&mut state.arrived));
            }
            state = match state.due {
                Some(due) => {
                    let waited = self.changed.wait_timeout(state, due.since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Datagrams that may wait: some milliseconds of a thousand connections that begin at once.
const MAX_WAITING: usize = 1 << 14;
