//! Threads that wait for events of completion channels, and drive the device while they do.
//!
//! A thread of a C program may be cancelled while it sleeps. It is unwound then, and nothing of ours that lies on its stack is
//! asked. So what says that a thread is counted does not lie there: it belongs to the thread, and is dropped with it.

use std::cell::Cell;
use std::sync::Arc;

use crate::shared::Shared;
use crate::sleep::Sleeper;
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// How many threads wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters(AtomicU32);

/// Where this thread is counted.
struct Counted(Cell<Option<Arc<Shared>>>);

thread_local! {
    static COUNTED: Counted = const { Counted(Cell::new(None)) };
}

/// Counts this thread.
pub(crate) fn enter(shared: &Arc<Shared>) {
    shared.watch.wake_up(Sleeper::Waiter);
    shared.waiters.add();
    // A count that is left over is that of a wait from which a handler of the program has jumped. A thread that is about to
    // end, whose own things are gone, is not cancelled any more.
    let before = COUNTED.try_with(|counted| counted.0.replace(Some(Arc::clone(shared)))).ok().flatten();
    if let Some(before) = before {
        before.one_waiter_less();
    }
}

/// Ends what [`enter`] has begun.
pub(crate) fn leave(shared: &Shared) {
    match COUNTED.try_with(|counted| counted.0.take()) {
        Ok(Some(_)) | Err(_) => shared.one_waiter_less(),
        // A handler of the program waited on this thread meanwhile, and has ended our count with its own.
        Ok(None) => shared.after_a_waiter(),
    }
}

/// The thread ends while it waits.
impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.one_waiter_less();
        }
    }
}

impl Waiters {
    /// One more. What the thread says of its sleep afterwards comes after what a thread that has left before says.
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Shared {
    fn one_waiter_less(&self) {
        self.waiters.0.fetch_sub(1, Ordering::SeqCst);
        self.after_a_waiter();
    }

    /// Somebody waits no more: the last leaves everything to the progress thread. If others wait, or one has come just now, they
    /// may sleep longer than this one did, or what they have said of it was overwritten: let one look.
    fn after_a_waiter(&self) {
        if !self.waiters.are_there() {
            self.wake(self.watch.leave(Sleeper::Waiter));
        }
        if self.waiters.are_there() {
            self.waiter_bell.ring();
        }
    }
}
