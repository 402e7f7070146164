//! A thread that asks peers which send nothing whether they are there. It is made with the first stream that wants it, sleeps
//! between questions, and ends with the last.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use super::shared::Shared;
use crate::Error;
use crate::cq::lock;

/// The streams of the process that are watched.
#[derive(Debug)]
struct Watch {
    streams: Vec<Watched>,
    /// The process whose thread runs: a child of fork has none.
    runs_in: Option<u32>,
}

#[derive(Debug)]
struct Watched {
    stream: Weak<Shared>,
    interval: Duration,
    /// When it is asked next, in the time of [`userdma_host::uptime`].
    next: Duration,
}

/// Watches a stream as long as it exists.
///
/// # Errors
/// The system has no thread.
pub(super) fn add(stream: &Arc<Shared>, interval: Duration) -> Result<(), Error> {
    let interval = interval.max(SHORTEST);
    let next = userdma_host::uptime().saturating_add(interval);
    let mut watch = lock(&WATCH);
    if watch.runs_in != Some(std::process::id()) {
        let name = Builder::new().name("userdma streams".into()).stack_size(STACK_BYTES);
        userdma_host::spawn_thread(name, run)?;
        watch.runs_in = Some(std::process::id());
    }
    watch.streams.push(Watched { stream: Arc::downgrade(stream), interval, next });
    CHANGED.notify_one();
    Ok(())
}

fn run() {
    loop {
        let mut watch = lock(&WATCH);
        let now = userdma_host::uptime();
        let due = watch.take_due(now);
        if watch.streams.is_empty() {
            watch.runs_in = None;
            return;
        }
        if due.is_empty() {
            let next = watch.streams.iter().map(|watched| watched.next).min().unwrap_or(now);
            let waited = CHANGED.wait_timeout(watch, next.saturating_sub(now));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        drop(watch);
        due.iter().for_each(Shared::ask);
    }
}

impl Watch {
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

static WATCH: Mutex<Watch> = Mutex::new(Watch { streams: Vec::new(), runs_in: None });
static CHANGED: Condvar = Condvar::new();
/// Nobody is asked more often.
const SHORTEST: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 64 << 10;
