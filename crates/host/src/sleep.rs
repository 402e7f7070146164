//! Who sleeps until when, so that a driver that finds an earlier deadline wakes somebody, and nobody needlessly.
//!
//! A sleeper says until when it sleeps, then looks at the deadline once more; a driver says what the deadline is, then looks
//! until when they sleep. Between the two steps of each lies a sequentially consistent fence, so at least one of the two
//! sees the other's word.

use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU64, fence};

/// When the device must be driven next, and until when the progress thread and the waiters sleep. Nanoseconds.
#[derive(Debug)]
pub(crate) struct Watch {
    deadline: AtomicU64,
    thread: AtomicU64,
    waiter: AtomicU64,
    /// Whether the thread is away on a lease and looks at the device soon.
    is_leased: AtomicBool,
}

/// One of those who sleep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sleeper {
    /// The progress thread.
    Thread,
    /// Threads that wait for an event of a completion channel, all together.
    Waiter,
}

/// The deadline that has come.
pub(crate) const NOW: u64 = 0;
/// No deadline.
pub(crate) const FOREVER: u64 = u64::MAX - 2;

/// Awake, or will look at the device in a moment.
const AWAKE: u64 = 0;
/// The progress thread has left everything, sockets too, to a waiter.
const PARKED: u64 = u64::MAX - 1;
/// Does not exist.
const ABSENT: u64 = u64::MAX;

impl Watch {
    /// Nothing is due; nobody is there.
    pub(crate) fn new() -> Self {
        Self {
            deadline: AtomicU64::new(FOREVER),
            thread: AtomicU64::new(ABSENT),
            waiter: AtomicU64::new(ABSENT),
            is_leased: AtomicBool::new(false),
        }
    }

    /// The thread goes away because somebody polls.
    pub(crate) fn begin_lease(&self) {
        self.is_leased.store(true, Release);
    }

    /// The thread is back and looks at the device.
    pub(crate) fn end_lease(&self) {
        self.is_leased.store(false, Relaxed);
        fence(SeqCst);
    }

    /// Whether what was posted before this call is looked at after the lease, at the latest.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        fence(SeqCst);
        self.is_leased.load(Acquire)
    }

    /// The same, as a driver sees it: a thread that is back from its lease rings, and so drives after it, or makes it go round
    /// again.
    #[inline]
    pub(crate) fn seems_leased(&self) -> bool {
        self.is_leased.load(Relaxed)
    }

    /// Driver: the device must be driven again at `deadline`, at most [`FOREVER`]. Whom to wake, because all sleep longer.
    #[inline]
    pub(crate) fn set_deadline(&self, deadline: u64) -> Option<Sleeper> {
        self.deadline.store(deadline, Release);
        fence(SeqCst);
        self.whom_to_wake(deadline)
    }

    /// Sleeper: announces sleep until the deadline. Until when to sleep; `None` if the device must be driven now.
    pub(crate) fn fall_asleep(&self, who: Sleeper) -> Option<u64> {
        let until = self.deadline.load(Acquire);
        self.word(who).store(until, Release);
        fence(SeqCst);
        (until != NOW && self.deadline.load(Acquire) >= until).then_some(until)
    }

    /// Sleeper: is awake and will look at the device.
    pub(crate) fn wake_up(&self, who: Sleeper) {
        self.word(who).store(AWAKE, Release);
    }

    /// The progress thread leaves everything to the waiters. Whether it may: not if there is none. The second is whom to
    /// wake, because they sleep past the deadline that was the thread's.
    pub(crate) fn park(&self) -> (bool, Option<Sleeper>) {
        self.thread.store(PARKED, Release);
        fence(SeqCst);
        if self.waiter.load(Acquire) == ABSENT {
            self.wake_up(Sleeper::Thread);
            return (false, None);
        }
        (true, self.whom_to_wake(self.deadline.load(Acquire)))
    }

    /// The last waiter, or the thread, is no longer there. Whom to wake in its place.
    pub(crate) fn leave(&self, who: Sleeper) -> Option<Sleeper> {
        self.word(who).store(ABSENT, Release);
        fence(SeqCst);
        if who == Sleeper::Waiter && self.thread.compare_exchange(PARKED, AWAKE, AcqRel, Acquire).is_ok() {
            return Some(Sleeper::Thread);
        }
        self.whom_to_wake(self.deadline.load(Acquire))
    }

    /// The one who must be woken, who counts as awake from now on. A waiter is preferred: it is there to drive.
    #[inline]
    fn whom_to_wake(&self, deadline: u64) -> Option<Sleeper> {
        let (thread, waiter) = (self.thread.load(Acquire), self.waiter.load(Acquire));
        if deadline >= FOREVER || deadline >= thread.min(waiter) {
            return None;
        }
        self.wake_one(thread, waiter)
    }

    fn wake_one(&self, thread: u64, waiter: u64) -> Option<Sleeper> {
        for (who, until) in [(Sleeper::Waiter, waiter), (Sleeper::Thread, thread)] {
            if until != ABSENT && self.word(who).compare_exchange(until, AWAKE, AcqRel, Acquire).is_ok() {
                return Some(who);
            }
        }
        // Nobody is there, or they have just changed: whoever does that looks at the deadline afterwards.
        None
    }

    fn word(&self, who: Sleeper) -> &AtomicU64 {
        match who {
            Sleeper::Thread => &self.thread,
            Sleeper::Waiter => &self.waiter,
        }
    }
}

#[cfg(test)]
mod tests;
