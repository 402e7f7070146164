//! Completion queues.

use std::sync::Arc;

use userdma_verbs::{Qpn, Wc, WcStatus};

use crate::CompChannel;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, lock, lock_unless};

/// What a completion queue waits for before it notifies its channel. A request is used up by the notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next completion that is solicited or not a success.
    Solicited,
}

/// What a push did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Pushed {
    /// The completion is in the queue.
    Quiet,
    /// The same, and the channel has a new event: its descriptor must be made readable.
    Notify,
    /// The queue is full: the completion was refused and the queue is in error. Reported once; later pushes are `Lost`.
    Overflow,
    /// The queue is in error.
    Lost,
}

/// A completion queue: a bounded ring that the device fills and callers poll, on any thread.
///
/// All its memory is set aside when it is made and touched when it is first used. The lock is held for copies only.
/// A queue that was too small once is in error for ever: what it holds can still be polled, nothing is added.
#[derive(Debug)]
pub struct Cq {
    number: u32,
    /// What the ring's `capacity` is, for those who look without its lock; changed under it.
    capacity: AtomicU32,
    channel: Option<Arc<CompChannel>>,
    /// What the ring's `len` is, for those who look without its lock; changed under it.
    count: AtomicU32,
    /// The same of the ring's `overflowed`.
    overflowed: AtomicBool,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    /// Grows to the capacity as slots are used for the first time, in memory set aside before.
    slots: Vec<Wc>,
    /// The slot of the oldest completion.
    head: usize,
    len: u32,
    capacity: u32,
    /// A completion was refused.
    overflowed: bool,
    armed: Option<Arm>,
}

impl Cq {
    /// CQ `number` of at least `cqe` entries, reporting to `channel`.
    pub fn new(number: u32, cqe: u32, channel: Option<Arc<CompChannel>>) -> Self {
        let capacity = cqe.max(1);
        let slots = Vec::with_capacity(capacity as usize);
        let ring = Ring { slots, head: 0, len: 0, capacity, overflowed: false, armed: None };
        Self {
            number,
            capacity: AtomicU32::new(capacity),
            channel,
            count: AtomicU32::new(0),
            overflowed: AtomicBool::new(false),
            ring: Mutex::new(ring),
        }
    }

    /// Its number on the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Acquire)
    }

    /// Makes room for at least `cqe` entries. What it holds stays; it never becomes smaller. A queue that has overflowed stays
    /// in error.
    pub fn grow(&self, cqe: u32) {
        let mut ring = lock(&self.ring);
        if cqe > ring.capacity {
            ring.grow(cqe);
            self.capacity.store(cqe, Ordering::Release);
        }
    }

    /// Its channel.
    pub fn channel(&self) -> Option<&Arc<CompChannel>> {
        self.channel.as_ref()
    }

    /// Whether it is empty: one load, no lock.
    ///
    /// A completion whose push happened before the call is seen. One that is being pushed at this moment may be
    /// missed, and one that another thread is taking at this moment may be seen.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Completions that it holds, as [`Cq::is_empty`] sees them.
    pub fn len(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Device: adds a completion; `solicited` if the sender asked for notification.
    pub fn push(&self, wc: Wc, solicited: bool) -> Pushed {
        let mut ring = lock(&self.ring);
        if ring.overflowed {
            return Pushed::Lost;
        }
        if ring.len == ring.capacity {
            ring.overflowed = true;
            self.overflowed.store(true, Ordering::Release);
            return Pushed::Overflow;
        }
        ring.append(wc);
        self.publish(&ring);
        let Some(channel) = &self.channel else {
            return Pushed::Quiet;
        };
        let fires = match ring.armed {
            None => false,
            Some(Arm::Any) => true,
            Some(Arm::Solicited) => solicited || wc.status != WcStatus::Success,
        };
        if !fires {
            return Pushed::Quiet;
        }
        ring.armed = None;
        // Under the ring's lock, so that whoever finds the queue disarmed also finds the event.
        channel.push_event(self.number);
        Pushed::Notify
    }

    /// Takes up to `out.len()` completions, oldest first; how many. Safe for several callers at once.
    #[inline]
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        self.poll_unless(out, || false)
    }

    /// The same for callers who may have interrupted whoever holds the queue's lock, as handlers of signals do: if it is held at
    /// this moment and `gives_up` says so, nothing is taken.
    // Left to itself the compiler decides anew with each change anywhere: 24 instructions a poll.
    #[inline(always)]
    pub fn poll_unless(&self, out: &mut [Wc], gives_up: impl FnOnce() -> bool) -> usize {
        if self.is_empty() || out.is_empty() {
            return 0;
        }
        self.take(out, gives_up)
    }

    /// Device: removes what the queue pair `qpn` has completed and nobody has polled; how many. The queue pair completes nothing
    /// meanwhile. Others' completions keep their order; a poll on another thread has taken a completion before, or finds it gone.
    ///
    /// An event that one of them has raised stays: whoever is woken finds nothing.
    pub fn forget(&self, qpn: Qpn) -> u32 {
        self.forget_where(|wc| wc.qpn == qpn)
    }

    /// Device: the same for sends only. What a queue pair has received from a shared receive queue stays: its completion says
    /// which receive of that queue is used up.
    pub fn forget_sends(&self, qpn: Qpn) -> u32 {
        self.forget_where(|wc| wc.qpn == qpn && !wc.opcode.is_recv())
    }

    fn forget_where(&self, goes: impl Fn(&Wc) -> bool) -> u32 {
        let mut ring = lock(&self.ring);
        let forgotten = ring.forget(goes);
        self.publish(&ring);
        forgotten
    }

    /// Asks for one notification. A stronger request (`Any`) is not weakened by a later `Solicited`.
    ///
    /// Only completions that are added afterwards notify. A caller that wants to sleep therefore polls once more
    /// after arming. Without a channel nothing happens.
    pub fn arm(&self, arm: Arm) {
        let mut ring = lock(&self.ring);
        match (ring.armed, arm) {
            (Some(Arm::Any), Arm::Any | Arm::Solicited) => {}
            (None | Some(Arm::Solicited), Arm::Any | Arm::Solicited) => ring.armed = Some(arm),
        }
    }

    /// Whether a completion was refused.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Whether a caller that wants to sleep must not: there is a completion, or the queue is in error and will never
    /// notify again. No lock.
    ///
    /// Asked after [`Cq::arm`], `false` promises an event when either comes, whatever other callers poll.
    pub fn has_news(&self) -> bool {
        // In this order: whoever sees that another caller has taken the last completion also sees that a later one was
        // refused before.
        !self.is_empty() || self.has_overflowed()
    }

    /// Whether the queue is in error and everything that it held has been taken. No lock.
    pub fn is_used_up(&self) -> bool {
        // In this order: whoever sees the error also sees the completions that came before it.
        self.has_overflowed() && self.is_empty()
    }

    /// Bytes of memory that the queue takes once all of it has been used.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.capacity() as usize * size_of::<Wc>()
    }

    fn take(&self, out: &mut [Wc], gives_up: impl FnOnce() -> bool) -> usize {
        let Some(mut ring) = lock_unless(&self.ring, gives_up) else { return 0 };
        let taken = ring.take(out);
        self.publish(&ring);
        taken
    }

    fn publish(&self, ring: &Ring) {
        self.count.store(ring.len, Ordering::Release);
    }
}

impl Ring {
    /// Adds a completion; the ring is not full.
    fn append(&mut self, wc: Wc) {
        let tail = wrap(self.head + self.len as usize, self.capacity as usize);
        match self.slots.get_mut(tail) {
            Some(slot) => *slot = wc,
            // The first time round: the tail is the next slot that does not exist yet.
            None => self.slots.push(wc),
        }
        self.len += 1;
    }

    fn take(&mut self, out: &mut [Wc]) -> usize {
        let capacity = self.capacity as usize;
        let before = self.len;
        for wc in out.iter_mut().take(before as usize) {
            *wc = self.slots[self.head];
            self.head = wrap(self.head + 1, capacity);
            self.len -= 1;
        }
        (before - self.len) as usize
    }

    /// Removes the completions of a queue pair; how many.
    fn forget(&mut self, goes: impl Fn(&Wc) -> bool) -> u32 {
        let slot_of = |place: u32| wrap(self.head + place as usize, self.capacity as usize);
        let mut kept = 0;
        for place in 0..self.len {
            let wc = self.slots[slot_of(place)];
            if !goes(&wc) {
                self.slots[slot_of(kept)] = wc;
                kept += 1;
            }
        }
        let forgotten = self.len - kept;
        self.len = kept;
        forgotten
    }

    /// Moves to a larger ring, oldest first.
    fn grow(&mut self, capacity: u32) {
        let mut slots = Vec::with_capacity(capacity as usize);
        let held = (0..self.len as usize).map(|place| wrap(self.head + place, self.capacity as usize));
        slots.extend(held.map(|slot| self.slots[slot]));
        (self.slots, self.head, self.capacity) = (slots, 0, capacity);
    }
}

/// `slot`, less than twice the capacity, in the ring.
fn wrap(slot: usize, capacity: usize) -> usize {
    if slot >= capacity { slot - capacity } else { slot }
}

#[cfg(loom)]
#[cfg(test)]
mod models;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
