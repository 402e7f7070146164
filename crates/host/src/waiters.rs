//! Threads that wait for events of completion channels, and drive the device while they do.
//!
//! A thread of a C program may be cancelled while it sleeps. It is unwound then, and nothing of ours that lies on its stack is
//! asked. So what says that a thread is counted does not lie there: it belongs to the thread, and is dropped with it.

use std::cell::Cell;
use std::sync::Arc;

use crate::shared::Shared;
use crate::sleep::{Sleeper, Watch};
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

    /// One less.
    fn subtract(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Somebody waits no more: the last leaves everything to the progress thread. Whom to wake, and whether the others must look:
    /// they may sleep longer than this one did, or one has come just now and what it has said of its sleep was overwritten.
    fn hand_over(&self, watch: &Watch) -> (Option<Sleeper>, bool) {
        let wake = if self.are_there() { None } else { watch.leave(Sleeper::Waiter) };
        (wake, self.are_there())
    }
}

impl Shared {
    fn one_waiter_less(&self) {
        self.waiters.subtract();
        self.after_a_waiter();
    }

    fn after_a_waiter(&self) {
        let (wake, must_look) = self.waiters.hand_over(&self.watch);
        self.wake(wake);
        if must_look {
            self.waiter_bell.ring();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;

    /// The last waiter leaves while another comes and falls asleep: the watch knows of its sleep, or it is woken and says so
    /// again. Otherwise the progress thread would neither park nor sleep.
    #[test]
    fn a_waiter_that_comes_while_the_last_leaves_is_known_to_sleep() {
        loom::model(|| {
            let room = Arc::new((Waiters::default(), Watch::new()));
            room.1.wake_up(Sleeper::Waiter);
            room.0.add();
            let other = {
                let room = Arc::clone(&room);
                thread::spawn(move || {
                    room.1.wake_up(Sleeper::Waiter);
                    room.0.add();
                    room.1.fall_asleep(Sleeper::Waiter)
                })
            };
            room.0.subtract();
            let (_, must_look) = room.0.hand_over(&room.1);
            let until = other.join().unwrap();
            assert!(until.is_some(), "nothing is due");
            assert!(must_look || room.1.park().0, "it sleeps, and counts as absent");
        });
    }
}
