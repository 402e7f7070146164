//! A thread that asks peers which send nothing whether they are there. Each device has one of its own: it is made with the first
//! stream that wants it, sleeps between questions, and ends with the last.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use super::shared::Shared;
use crate::Error;
use crate::cq::lock;

/// The streams of a device that are watched. A child of `fork` opens devices of its own, so nothing here is its parent's.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    /// Of the thread.
    stack_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    streams: Vec<Watched>,
    has_thread: bool,
}

#[derive(Debug)]
struct Watched {
    stream: Weak<Shared>,
    interval: Duration,
    /// When it is asked next, in the time of [`userdma_host::uptime`].
    next: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self::with_stack(STACK_BYTES)
    }
}

impl Watch {
    /// Whose thread gets this much stack.
    pub(super) fn with_stack(stack_bytes: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), stack_bytes }
    }

    /// Watches a stream as long as it exists.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn add(self: &Arc<Self>, stream: &Arc<Shared>, interval: Duration) -> Result<(), Error> {
        let interval = interval.max(SHORTEST);
        let next = userdma_host::uptime().saturating_add(interval);
        let mut state = lock(&self.state);
        if !state.has_thread {
            let (builder, this) = (Builder::new().name("userdma streams".into()), Arc::clone(self));
            userdma_host::spawn_thread(builder.stack_size(self.stack_bytes), move || this.run())?;
            state.has_thread = true;
        }
        state.streams.push(Watched { stream: Arc::downgrade(stream), interval, next });
        self.changed.notify_one();
        Ok(())
    }

    fn run(&self) {
        loop {
            let mut state = lock(&self.state);
            let now = userdma_host::uptime();
            let due = state.take_due(now);
            if state.streams.is_empty() {
                state.has_thread = false;
                return;
            }
            if due.is_empty() {
                let next = state.streams.iter().map(|watched| watched.next).min().unwrap_or(now);
                // Nobody tells when a stream ends.
                let left = next.saturating_sub(now).min(LONGEST_SLEEP);
                let waited = self.changed.wait_timeout(state, left);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            drop(state);
            due.iter().for_each(|stream| stream.ask(now));
        }
    }
}

impl State {
    /// Forgets streams that are gone; those that it is time to ask.
    fn take_due(&mut self, now: Duration) -> Vec<Arc<Shared>> {
        self.streams.retain(|watched| watched.stream.strong_count() > 0);
        let due = self.streams.iter_mut().filter(|watched| watched.next <= now);
        due.filter_map(|watched| {
            watched.next = now.saturating_add(watched.interval);
            watched.stream.upgrade()
        })
        .collect()
    }
}

/// Nobody is asked more often.
const SHORTEST: Duration = Duration::from_millis(10);
/// So long after the last stream the thread is there at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// It may end connections and destroy queue pairs.
const STACK_BYTES: usize = 256 << 10;
