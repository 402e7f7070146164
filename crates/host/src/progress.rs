//! The progress thread: drives the device when nobody else does, and otherwise sleeps.
//!
//! On duty it sleeps until a packet comes, something is due, or its bell rings. While somebody polls it stays away from
//! the sockets for a lease; while somebody waits for an event it parks.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use userdma_link::clock::{self, timespec};
use userdma_link::descriptors::with_signals_blocked;

use crate::drive::Role;
use crate::gate::Visit;
use crate::lease::{Duty, Lease, Look};
use crate::shared::Shared;
use crate::sleep::{FOREVER, Sleeper};

/// Starts the thread, with every signal blocked.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let name = format!("userdma {}", shared.name);
    let shared = Arc::clone(shared);
    // From now on deadlines are the thread's, also those from before its first sleep.
    shared.watch.wake_up(Sleeper::Thread);
    shared.has_thread.store(true, Ordering::Relaxed);
    spawn_thread(Builder::new().name(name).stack_size(STACK_BYTES), move || {
        // A timer that is late by the usual 50 µs would double the lease. If it is refused, it is late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Thread { shared, lease: Lease::new() }.run();
    })
}

/// Starts a thread that drives devices: every signal of the program is blocked in it, so that it never runs a handler of
/// the program's.
///
/// # Errors
/// The system has no thread.
pub fn spawn_thread(builder: Builder, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let run = move || {
        // The thread copies memory that the program may have unmapped: those faults must reach their handler. It cannot
        // fail with these arguments.
        let _ = userdma_mem::unblock_fault_signals();
        run();
    };
    with_signals_blocked(|| builder.spawn(run))
}

struct Thread {
    shared: Arc<Shared>,
    lease: Lease,
}

impl Thread {
    fn run(mut self) {
        while self.is_wanted() {
            if self.shared.is_called.swap(false, Ordering::AcqRel) {
                self.answer_call();
            }
            match self.look() {
                Duty::Serve => self.serve(),
                Duty::Away(ns) => {
                    self.shared.watch.begin_lease();
                    self.sleep(Some(clock::now().plus_nanos(ns).nanos()), false);
                    self.shared.watch.end_lease();
                }
                Duty::AwayFromWaiter(ns) => self.sleep(Some(clock::now().plus_nanos(ns).nanos()), false),
                Duty::Park => self.park(),
            }
        }
    }

    /// Drives once. Who posts or polls meanwhile leaves commands to us.
    fn answer_call(&self) {
        while self.shared.ring(Role::Thread) == Visit::Elsewhere
            && self.shared.commands.are_waiting()
            && self.is_wanted()
        {
            self.sleep(Some(clock::now().plus_nanos(BUSY_NS).nanos()), false);
        }
        self.shared.is_served.store(true, Ordering::Release);
    }

    fn is_wanted(&self) -> bool {
        !self.shared.stop.load(Ordering::Acquire) && self.shared.check().is_ok()
    }

    fn look(&mut self) -> Duty {
        let (polls, armed_at) = self.shared.polls.counts();
        let is_waited = self.shared.waiters.are_there();
        self.lease.look(&Look { polls, armed_at, is_waited }, || self.shared.is_packet_waiting())
    }

    fn serve(&mut self) {
        match self.shared.ring(Role::Thread) {
            Visit::Drove | Visit::HandedOver => {
                if let Some(until) = self.shared.watch.fall_asleep(Sleeper::Thread) {
                    let until = (until < FOREVER).then_some(until);
                    self.sleep(until, true);
                }
            }
            // Going round until the other has done it all would be spinning.
            Visit::Elsewhere => self.sleep(Some(clock::now().plus_nanos(BUSY_NS).nanos()), false),
        }
    }

    fn park(&mut self) {
        let (parked, wake) = self.shared.watch.park();
        self.shared.wake(wake);
        if parked {
            self.sleep(None, false);
        }
    }

    /// Sleeps until the bell rings, `until` comes or, if `sockets`, a packet does. Afterwards it counts as awake.
    fn sleep(&self, until: Option<u64>, sockets: bool) {
        let shared = &*self.shared;
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let bell = PollFd::new(&shared.thread_bell, PollFlags::IN);
        let timeout = until.map(|until| timespec(until.saturating_sub(clock::now().nanos())));
        // As many links as a device has at most; the array only saves an allocation.
        let mut fds: [PollFd<'_>; MAX_FDS] = std::array::from_fn(|_| bell.clone());
        let mut len = 1;
        for (fd, socket) in fds[1..].iter_mut().zip(shared.awaited().filter(|_| sockets)) {
            *fd = PollFd::new(socket, PollFlags::IN);
            len += 1;
        }
        // An interruption or an error is an early return.
        let _ = poll(&mut fds[..len], timeout.as_ref());
        shared.watch.wake_up(Sleeper::Thread);
        if fds[0].revents().contains(PollFlags::NVAL) {
            // The program has closed what it does not know: without a bell we would go round for ever.
            tracing::error!(
                "a descriptor of the device was closed behind its back: nobody serves it any more"
            );
            shared.stop.store(true, Ordering::Release);
        } else if !fds[0].revents().is_empty() {
            shared.thread_bell.hush();
        }
    }
}

/// The bell, and for each address of a device one socket and one set of groups.
const MAX_FDS: usize = 1 + 2 * userdma_agent::Embedded::MAX_ADDRESSES;
/// How long the thread leaves the device to another driver before it looks again.
const BUSY_NS: u64 = 20_000;
/// The thread's stack: the path is shallow.
const STACK_BYTES: usize = 256 << 10;
