//! Verbs calls that are not on the data path: queued for whoever drives, answered to the caller who waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use userdma_verbs::Time;

use crate::HostError;
use crate::drive::Core;

/// Something to be done with the device.
pub(crate) type Command = Box<dyn FnOnce(&mut Core, Time) + Send>;

/// Commands that wait for the next drive.
#[derive(Default)]
pub(crate) struct Commands {
    /// Their number, so that a drive without any costs one load.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Command>>,
    /// Nobody will drive any more.
    closed: AtomicBool,
}

impl Commands {
    /// Adds a command for the next drive; the caller rings afterwards.
    pub(crate) fn push(&self, command: Command) -> Result<(), HostError> {
        let mut queue = lock(&self.queue);
        // Under the lock: a command is either refused here or found by `close`.
        if self.closed.load(Ordering::Acquire) {
            return Err(HostError::Failed);
        }
        queue.push_back(command);
        self.waiting.store(queue.len(), Ordering::Release);
        Ok(())
    }

    /// Driver: whether there is a command. One load.
    #[inline]
    pub(crate) fn are_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Driver: the oldest command. One load if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Option<Command> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let command = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Release);
        command
    }

    /// Refuses everything from now on; those who wait for an answer are told.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        self.closed.store(true, Ordering::Release);
        let orphans = std::mem::take(&mut *queue);
        self.waiting.store(0, Ordering::Release);
        drop(queue);
        drop(orphans);
    }

    /// Whether everything is refused. One load.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands").field("waiting", &self.waiting).field("closed", &self.closed).finish()
    }
}

/// The place where an answer arrives, and the right to put it there. Dropping the right without use is an answer too.
pub(crate) struct Reply<R>(Arc<Slot<R>>);

/// The caller's end.
pub(crate) struct Answer<R>(Arc<Slot<R>>);

struct Slot<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

enum State<R> {
    Waiting,
    Answered(R),
    Abandoned,
}

/// A connected pair.
pub(crate) fn reply<R>() -> (Reply<R>, Answer<R>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
    (Reply(Arc::clone(&slot)), Answer(slot))
}

impl<R> Reply<R> {
    /// Gives the answer.
    pub(crate) fn send(self, answer: R) {
        *lock(&self.0.state) = State::Answered(answer);
        // The drop wakes the caller.
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if matches!(*state, State::Waiting) {
            *state = State::Abandoned;
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl<R> Answer<R> {
    /// Waits for the answer; `None` if nobody will give one. Until it is there `again` is called now and then, first often, then
    /// seldom: not every driver executes commands.
    pub(crate) fn wait(self, again: impl Fn()) -> Option<R> {
        let mut pause = SHORT;
        for attempt in 0_u32.. {
            let mut state = lock(&self.0.state);
            if matches!(*state, State::Waiting) && attempt >= EAGER {
                let waited = self.0.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                pause = (2 * pause).min(LONG);
            }
            match std::mem::replace(&mut *state, State::Waiting) {
                State::Answered(answer) => return Some(answer),
                State::Abandoned => return None,
                State::Waiting => {}
            }
            drop(state);
            if attempt < EAGER {
                std::thread::yield_now();
            }
            again();
        }
        None
    }
}

/// Attempts without a pause: a post or a poll takes less than a microsecond mostly.
const EAGER: u32 = 8;
/// The first pause between later ones, and the longest.
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_millis(2);

/// A panic while one of these locks is held leaves a queue or a slot whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_caller_is_told() {
        let commands = Commands::default();
        let (reply, answer) = reply::<u32>();
        commands.push(Box::new(move |_, _| reply.send(1))).unwrap();
        commands.close();
        assert_eq!(answer.wait(|| ()), None);
        assert_eq!(commands.push(Box::new(|_, _| ())), Err(HostError::Failed));
        assert!(commands.next().is_none());
    }

    #[test]
    fn an_answer_given_before_the_wait_is_not_lost() {
        let (reply, answer) = reply();
        reply.send("yes");
        assert_eq!(answer.wait(|| ()), Some("yes"));
    }

    #[test]
    fn a_command_that_nobody_else_executes_is_executed_by_who_waits() {
        let (reply, answer) = reply();
        let command = std::cell::RefCell::new((0, Some(reply)));
        let at_the_twentieth = || {
            let (attempts, reply) = &mut *command.borrow_mut();
            *attempts += 1;
            if *attempts == 20 {
                reply.take().unwrap().send("done");
            }
        };
        assert_eq!(answer.wait(at_the_twentieth), Some("done"));
    }
}
