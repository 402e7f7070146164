//! What all who use a device share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use userdma_agent::{FellBack, Lease};
use userdma_link::guard::GuardedFd;
use userdma_link::{Capture, is_readable};
use userdma_nic::{Doorbells, GidEntry};
use userdma_objects::Cq;
use userdma_verbs::{AsyncEvent, Qpn};

use crate::bell::Bell;
use crate::channel::Descriptor;
use crate::command::{Commands, lock};
use crate::drive::{Core, Role};
use crate::events::Events;
use crate::gate::{Gated, Visit};
use crate::management::{Alone, PassedOn};
use crate::sleep::{Sleeper, Watch};
use crate::waiters::Waiters;
use crate::{HostError, fork};

/// An open device, as threads share it.
pub(crate) struct Shared {
    pub(crate) core: Gated<Core>,
    pub(crate) doorbells: Arc<Doorbells>,
    pub(crate) commands: Commands,
    pub(crate) watch: Watch,
    pub(crate) events: Events,
    pub(crate) polls: Polls,
    /// Wakes the progress thread.
    pub(crate) thread_bell: Bell,
    /// Wakes threads that wait for events.
    pub(crate) waiter_bell: Bell,
    pub(crate) waiters: Waiters,
    pub(crate) has_thread: AtomicBool,
    /// A driver has handed over to the progress thread, which must drive once whatever its lease says.
    pub(crate) is_called: AtomicBool,
    /// The progress thread has driven since it was last called.
    pub(crate) is_served: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// The receive sockets, for sleeping on.
    pub(crate) sockets: Vec<GuardedFd>,
    /// What becomes readable with datagrams to groups: one for each link that has joined any, likewise.
    pub(crate) groups: Vec<OnceLock<GuardedFd>>,
    /// The capture file, while one is written.
    pub(crate) capture: Mutex<Option<Capture>>,
    /// Channels to be made readable if the device fails, so that programs which sleep on them look and are told.
    pub(crate) channels: Mutex<Vec<Weak<Descriptor>>>,
    pub(crate) gids: Vec<GidEntry>,
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) fell_back: Option<FellBack>,
    /// The slot of a port that is shared; 0 of one that is not.
    pub(crate) slot: u16,
    pub(crate) passed_on: Arc<PassedOn>,
    /// The agent has a way to pass packets on.
    pub(crate) is_attached: Mutex<bool>,
    pub(crate) alone: Alone,
    /// Our part of a port that is shared. The last field: it goes back when the sockets are closed.
    pub(crate) lease: Option<Lease>,
}

/// Counts of polls, on a cache line of their own: pollers write, the progress thread reads now and then.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Polls {
    count: AtomicU64,
    armed_at: AtomicU64,
    /// Posts since the device was driven by anything else.
    posts: AtomicU64,
}

impl Polls {
    /// Somebody polls. A plain store: threads that do so at the same time may lose counts, which do not matter.
    #[inline]
    pub(crate) fn add(&self) {
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// A poll brought packets: the program drives, and is busy with it.
    #[inline]
    pub(crate) fn add_packets(&self) {
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(PACKETS_COUNT), Ordering::Relaxed);
    }

    /// Somebody arms a completion queue.
    pub(crate) fn arm(&self) {
        self.armed_at.store(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Somebody posts: how many have since the device was driven by anything but posts.
    #[inline]
    pub(crate) fn add_post(&self) -> u64 {
        let posts = self.posts.load(Ordering::Relaxed).wrapping_add(1);
        self.posts.store(posts, Ordering::Relaxed);
        posts
    }

    /// The device is driven by something else than a post.
    #[inline]
    pub(crate) fn forget_posts(&self) {
        self.posts.store(0, Ordering::Relaxed);
    }

    /// How many, and how many when a queue was armed last.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.armed_at.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.gids.iter().map(|gid| gid.local).collect();
        f.debug_struct("Shared")
            .field("name", &self.name)
            .field("addresses", &addresses)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Whether this process may use the device, and the device works.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), HostError> {
        if fork::generation() != self.generation {
            return Err(HostError::Forked);
        }
        if self.commands.is_closed() {
            return Err(HostError::Failed);
        }
        Ok(())
    }

    /// Drives, or leaves a note for whoever drives. Who it was.
    #[inline]
    pub(crate) fn ring(&self, role: Role<'_>) -> Visit {
        let visit = self.core.ring(self.rounds(), |core| self.progress(core, role));
        self.hand_over(visit);
        visit
    }

    /// Something was posted: drives, or leaves it to somebody who is certain to drive soon.
    ///
    /// A program that posts one request after another while it polls for completions gains by sending several together:
    /// from the third on only each sixteenth post drives. The others leave with that, with the next empty poll, or, if
    /// none comes, when the progress thread comes back from its lease. Without a lease each post drives.
    #[inline]
    pub(crate) fn post(&self, qpn: Qpn) {
        let posts = self.polls.add_post();
        if posts > SINGLE_POSTS && !posts.is_multiple_of(POSTS_PER_DRIVE) && self.watch.is_leased() {
            self.doorbells.ring(qpn);
            return;
        }
        // Who drives tells the device himself: the doorbell is for others.
        if self.try_enter(Role::Post(Some(qpn))) == Visit::Elsewhere {
            self.doorbells.ring(qpn);
            let _ = self.ring(Role::Post(None));
        }
    }

    /// Drives if nobody does.
    #[inline]
    pub(crate) fn try_enter(&self, role: Role<'_>) -> Visit {
        let visit = self.core.try_enter(self.rounds(), |core| self.progress(core, role));
        self.hand_over(visit);
        visit
    }

    /// A poll drives if nobody does. Where commands wait, which it does not execute, it lets others in before.
    #[inline]
    pub(crate) fn poll(&self, cq: &Cq) -> Visit {
        if self.commands.are_waiting() {
            std::thread::yield_now();
        }
        self.try_enter(Role::Poll(cq))
    }

    fn progress(&self, core: &mut Core, role: Role<'_>) {
        let bomb = Bomb(self);
        core.progress(self, role);
        std::mem::forget(bomb);
    }

    /// How often a driver goes round for others before it calls the progress thread.
    #[inline]
    fn rounds(&self) -> u32 {
        if self.has_thread.load(Ordering::Relaxed) { MAX_ROUNDS } else { u32::MAX }
    }

    #[inline]
    fn hand_over(&self, visit: Visit) {
        match visit {
            Visit::Drove | Visit::Elsewhere => {}
            Visit::HandedOver => self.wake_thread(),
        }
    }

    /// Calls the progress thread, which drives as soon as it is awake.
    #[cold]
    pub(crate) fn wake_thread(&self) {
        self.call_thread();
        self.thread_bell.ring();
    }

    /// The same, for who rings the bell himself afterwards.
    pub(crate) fn call_thread(&self) {
        self.watch.wake_up(Sleeper::Thread);
        // Before the bell: the thread hushes it, then looks.
        self.is_called.store(true, Ordering::Release);
    }

    /// Wakes who must be woken.
    #[inline]
    pub(crate) fn wake(&self, who: Option<Sleeper>) {
        match who {
            None => {}
            Some(Sleeper::Thread) => self.thread_bell.ring(),
            Some(Sleeper::Waiter) => self.waiter_bell.ring(),
        }
    }

    /// The device has met an error of its own: nobody enters again, everybody is told.
    #[cold]
    fn fail(&self) {
        tracing::error!(device = %self.name, "internal error, the device stops");
        self.commands.close();
        self.events.push(AsyncEvent::DeviceFatal);
        self.thread_bell.ring();
        self.waiter_bell.ring();
        lock(&self.channels).iter().filter_map(Weak::upgrade).for_each(|channel| channel.signal());
    }

    /// Notes a new channel, and forgets those that are gone.
    pub(crate) fn add_channel(&self, channel: &Arc<Descriptor>) {
        let mut channels = lock(&self.channels);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }

    /// Whether a packet waits to be received.
    pub(crate) fn is_packet_waiting(&self) -> bool {
        self.awaited().any(is_readable)
    }

    /// What becomes readable when packets come.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &GuardedFd> {
        self.sockets.iter().chain(self.groups.iter().filter_map(OnceLock::get))
    }
}

/// Ends the device if a drive panics.
struct Bomb<'a>(&'a Shared);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// What a poll counts that brings packets.
const PACKETS_COUNT: u64 = 32;
/// Posts in a row that each drive the device.
const SINGLE_POSTS: u64 = 2;
/// Afterwards one in so many does.
const POSTS_PER_DRIVE: u64 = 16;
/// Rounds at the gate for the sake of others: enough for bursts, few enough that nobody serves for long.
const MAX_ROUNDS: u32 = 64;
