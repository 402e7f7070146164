//! Completion queues.

mod table;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use userdma_host::Host;
use userdma_objects::Arm;
use userdma_verbs::{Qpn, Wc, WcOpcode, WcStatus};

use crate::ledger::{Ledger, SharedLedger, Tag};
use crate::{CompChannel, Device, Error};
use table::Table;

/// A completion queue. Clones are the same queue; any number of threads may poll it.
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    host: Host,
    cq: Arc<userdma_objects::Cq>,
    channel: CompChannel,
    /// Whether nobody else uses the channel.
    is_own_channel: bool,
    /// The ledgers of the queues that complete here. Held while completions are taken, so that they are looked up in
    /// their order.
    table: Mutex<Table>,
    turn: Mutex<Turn>,
    turned: Condvar,
}

/// One thread at a time sleeps on the channel, because an event wakes only one.
#[derive(Debug, Default)]
struct Turn {
    is_taken: bool,
    /// Threads that wait for their turn.
    queued: u32,
}

/// Its device and number, how many completions it has and could have.
impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, len) = (self.inner.host.name(), self.inner.cq.len());
        write!(f, "Cq({name} {}, {len} of {})", self.number(), self.capacity())
    }
}

impl Cq {
    pub(crate) fn create(
        device: &Device,
        cqe: u32,
        channel: &CompChannel,
        is_own_channel: bool,
    ) -> Result<Self, Error> {
        let comp_channel = Arc::clone(channel.channel().comp_channel());
        let cq = device.host.control(move |shard, _| shard.create_cq(cqe, Some(comp_channel)))??;
        let inner = Inner {
            host: device.host.clone(),
            cq,
            channel: channel.clone(),
            is_own_channel,
            table: Mutex::default(),
            turn: Mutex::default(),
            turned: Condvar::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Whether both are the same queue.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether a poll would find completions, or that the queue has overflowed. Drives nothing.
    pub(crate) fn has_news(&self) -> bool {
        self.inner.cq.has_news()
    }

    /// Gives a work queue a ledger whose work requests complete here.
    pub(crate) fn add_ledger(&self, make: impl FnOnce(Tag) -> Ledger) -> Arc<Ledger> {
        lock(&self.inner.table).add(make)
    }

    /// Forgets a ledger; completions of it that nobody has polled are dropped.
    pub(crate) fn remove_ledger(&self, ledger: &Arc<Ledger>) {
        let removed = lock(&self.inner.table).remove(ledger);
        // What it held is let go of without the lock.
        drop(removed);
    }

    /// Looks up receives of a shared receive queue that complete here, from now on.
    pub(crate) fn add_shared_ledger(&self, ledger: &Arc<SharedLedger>) {
        lock(&self.inner.table).add_shared(ledger);
    }

    /// Its number on the device.
    pub fn number(&self) -> u32 {
        self.inner.cq.number()
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.inner.cq.capacity()
    }

    /// Takes up to `out.len()` completions, oldest first; how many. If there is none it drives the device once, and
    /// looks again. Never waits.
    ///
    /// # Errors
    /// [`Error::CqOverflow`] once nothing is left of a queue that has overflowed; or the device is not usable.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, Error> {
        let inner = &*self.inner;
        if inner.host.prepare_poll(&inner.cq)? {
            let mut table = lock(&inner.table);
            let taken = inner.cq.poll(out);
            let known = table.translate(&mut out[..taken]);
            if known > 0 {
                return Ok(known);
            }
        }
        if inner.cq.is_used_up() {
            return Err(Error::CqOverflow { cq: self.number(), cqe: self.capacity() });
        }
        Ok(0)
    }

    /// Takes one completion, if there is one. Never waits.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn poll_one(&self) -> Result<Option<Wc>, Error> {
        let mut wc = [EMPTY];
        Ok((self.poll(&mut wc)? == 1).then_some(wc[0]))
    }

    /// As [`Cq::poll`], but sleeps until there is a completion or `timeout` has passed (then 0; never, if `None`). The
    /// sleeping thread drives the device.
    ///
    /// # Errors
    /// [`Error::SharedChannel`] for a queue made with [`Device::create_cq_on`](crate::Device::create_cq_on); else as
    /// [`Cq::poll`].
    pub fn wait(&self, out: &mut [Wc], timeout: Option<Duration>) -> Result<usize, Error> {
        if !self.inner.is_own_channel {
            return Err(Error::SharedChannel);
        }
        let deadline = Deadline::after(timeout);
        let polled = self.poll(out)?;
        if polled > 0 || out.is_empty() {
            return Ok(polled);
        }
        if !self.take_turn(&deadline) {
            return Ok(0);
        }
        let result = self.wait_in_turn(out, &deadline);
        self.give_turn();
        result
    }

    /// Waits for `count` completions; fewer, or none, if `timeout` has passed, or if an error came after the first of them: the
    /// next call tells it. Whether each is a success says [`Wc::check`](crate::Wc::check).
    ///
    /// # Errors
    /// As [`Cq::wait`]; no completion was taken.
    pub fn wait_for(&self, count: usize, timeout: Option<Duration>) -> Result<Vec<Wc>, Error> {
        let deadline = Deadline::after(timeout);
        let mut all = vec![EMPTY; count];
        let mut filled = 0;
        while filled < count {
            match self.wait(&mut all[filled..], deadline.left()) {
                Ok(0) => break,
                Ok(taken) => filled += taken,
                // Errors stay: a queue in error is so for ever, and so is a device that is not usable.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        all.truncate(filled);
        Ok(all)
    }

    /// Asks for one event on the channel, for the next completion (or the next solicited or failed one). Poll once more
    /// afterwards: what is in the queue already raises no event.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn req_notify(&self, arm: Arm) -> Result<(), Error> {
        Ok(self.inner.host.req_notify(&self.inner.cq, arm)?)
    }

    /// The loop of the verbs: poll, arm, look once more, sleep. An event may be left from an earlier round: it costs a
    /// round.
    fn wait_in_turn(&self, out: &mut [Wc], deadline: &Deadline) -> Result<usize, Error> {
        loop {
            self.req_notify(Arm::Any)?;
            // A look is enough: packets that are here already end the sleep at once.
            if !self.has_news() && self.inner.channel.get_event(deadline.left())?.is_none() {
                return self.poll(out);
            }
            let polled = self.poll(out)?;
            if polled > 0 {
                return Ok(polled);
            }
        }
    }

    /// Waits until no other thread waits; false if time has run out.
    fn take_turn(&self, deadline: &Deadline) -> bool {
        let mut turn = lock(&self.inner.turn);
        while turn.is_taken {
            let left = deadline.left().unwrap_or(Duration::MAX);
            if left.is_zero() {
                return false;
            }
            turn.queued += 1;
            let result = self.inner.turned.wait_timeout(turn, left);
            turn = result.unwrap_or_else(PoisonError::into_inner).0;
            turn.queued -= 1;
        }
        turn.is_taken = true;
        true
    }

    fn give_turn(&self) {
        let mut turn = lock(&self.inner.turn);
        turn.is_taken = false;
        // Notifying nobody would cost a system call.
        if turn.queued > 0 {
            self.inner.turned.notify_one();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let number = self.cq.number();
        // Receives of shared queues get their places back, though nobody has polled their completions.
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        if table.has_shared() {
            let mut wcs = [EMPTY; 32];
            while let taken @ 1.. = self.cq.poll(&mut wcs) {
                table.translate(&mut wcs[..taken]);
            }
        }
        // Queue pairs hold it, so it is not busy; a device that is not usable needs no tidying.
        let _ = self.host.control(move |shard, _| shard.destroy_cq(number));
    }
}

/// When a call gives up.
pub(crate) struct Deadline(Option<std::time::Duration>);

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.map(|timeout| userdma_host::uptime().saturating_add(timeout)))
    }

    /// Time that is left; `None` without end.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.saturating_sub(userdma_host::uptime()))
    }
}

/// A panic while one of these is held leaves it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an array for completions starts with.
pub(crate) const EMPTY: Wc = Wc::new(0, WcStatus::GeneralErr, WcOpcode::Send, Qpn::new(0));

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread has polled the completions just before this one fell asleep. Asleep it would hang: nobody wakes it.
    #[test]
    fn whoever_would_sleep_on_a_queue_in_error_is_told() {
        let device = Device::open("127.0.22.20").unwrap();
        let cq = device.create_cq(1).unwrap();
        let inner = &cq.inner.cq;
        while !inner.has_overflowed() {
            let _ = inner.push(EMPTY, false);
        }
        while !inner.is_empty() {
            inner.poll(&mut [EMPTY]);
        }
        let result = cq.wait_in_turn(&mut [EMPTY], &Deadline::after(None));
        assert!(matches!(result, Err(Error::CqOverflow { .. })), "{result:?}");
    }
}
