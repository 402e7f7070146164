//! Who takes completions: a thread, a runtime's task, or a thread that runs one future.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::core::Core;
use crate::Error;

/// Takes the completions of an [`AsyncCq`](crate::AsyncCq) and wakes the futures that wait for them.
///
/// A runtime watches the descriptor ([`AsFd`]) and calls [`CqDriver::handle_events`] once before it sleeps, and whenever the
/// descriptor has become readable; edge-triggered watching is enough. Without a runtime, [`CqDriver::run`] is the body of a
/// thread, and [`CqDriver::block_on`] runs a future.
///
/// If it is dropped before the queue's users are gone, every operation ends with an error, now and from then on.
///
/// ```
/// use std::os::fd::AsFd;
/// use userdma::{AsyncCq, Device, Turn};
///
/// // A runtime of the simplest kind: it knows one descriptor.
/// let device = Device::open("127.0.21.13")?;
/// let (cq, mut driver) = AsyncCq::create(&device, 16)?;
/// assert_eq!(driver.handle_events(), Turn::Sleep);
/// let descriptor = driver.as_fd();
/// # let _ = descriptor;
/// // … poll(descriptor), handle_events, poll(descriptor), handle_events, until
/// drop(cq);
/// assert_eq!(driver.handle_events(), Turn::Ended);
/// # Ok::<_, userdma::Error>(())
/// ```
#[derive(Debug)]
pub struct CqDriver {
    core: Weak<Core>,
    /// The channel's, which outlives the channel here: whoever watches it may be slow.
    descriptor: OwnedFd,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// Sleep until the descriptor is readable.
    Sleep,
    /// Let others have a turn, then go on: more completions wait.
    Again,
    /// Stop: the queue has no users any more, or the device failed and they have been told.
    Ended,
}

impl CqDriver {
    pub(super) fn new(core: &Arc<Core>) -> Result<Self, Error> {
        let descriptor = core.channel().as_fd().try_clone_to_owned()?;
        Ok(Self { core: Arc::downgrade(core), descriptor })
    }

    /// Takes the completions that are there and wakes their futures. Never waits.
    pub fn handle_events(&mut self) -> Turn {
        match self.core.upgrade() {
            Some(core) => turn(&core),
            None => Turn::Ended,
        }
    }

    /// Takes completions, sleeping while there are none, until the queue has no users any more. The sleeping thread drives
    /// the device.
    pub fn run(mut self) {
        loop {
            match self.handle_events() {
                Turn::Sleep => self.wait(),
                Turn::Again => {}
                Turn::Ended => return,
            }
        }
    }

    /// Runs a future on this thread, which takes completions and drives the device itself: between a packet and the future
    /// that it concerns no other thread has to wake. Of other queues' futures it takes care if somebody drives those.
    ///
    /// ```
    /// # use userdma::{AccessFlags, AsyncCq, Device, Inline};
    /// # let (here, there) = (Device::open("127.0.21.14")?, Device::open("127.0.21.15")?);
    /// # let (pd, their_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    /// let (cq, mut driver) = AsyncCq::create(&here, 256)?;
    /// # let their_cq = AsyncCq::with_thread(&there, 256)?;
    /// # let (qp, their_qp) = (cq.create_qp(&pd, |qp| qp)?, their_cq.create_qp(&their_pd, |qp| qp)?);
    /// # let (to_us, to_them) = (qp.endpoint(), their_qp.endpoint());
    /// # let (qp, their_qp) = (qp.connect(&to_them)?, their_qp.connect(&to_us)?);
    /// # let mr = their_pd.alloc(8, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    /// let remote = mr.remote();
    /// driver.block_on(async { qp.write(Inline(b"directly"), remote).await })?;
    /// assert_eq!(mr.to_vec(..)?, b"directly");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let bell = Arc::new(Bell::new(&self.core));
        let waker = Waker::from(Arc::clone(&bell));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if bell.is_rung.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                return output;
            }
            match self.handle_events() {
                Turn::Sleep if !bell.is_rung.load(Ordering::Acquire) => self.wait(),
                Turn::Ended if !bell.is_rung.load(Ordering::Acquire) => std::thread::park(),
                Turn::Sleep | Turn::Again | Turn::Ended => {}
            }
        }
    }

    fn wait(&self) {
        if let Some(core) = self.core.upgrade()
            && let Err(error) = core.channel().get_event(None)
        {
            core.fail(error);
        }
    }
}

impl AsFd for CqDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for CqDriver {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade()
            && !core.is_closed()
        {
            core.fail(Error::NoDriver { cq: core.cq().number() });
        }
    }
}

fn turn(core: &Core) -> Turn {
    match try_turn(core) {
        _ if core.is_closed() => Turn::Ended,
        Ok(true) => Turn::Again,
        Ok(false) => Turn::Sleep,
        Err(error) => {
            core.fail(error);
            Turn::Ended
        }
    }
}

fn try_turn(core: &Core) -> Result<bool, Error> {
    // Taken before the completions: one that comes later leaves an event.
    while core.channel().try_event()?.is_some() {}
    core.dispatch()
}

/// Wakes a thread in [`CqDriver::block_on`].
#[derive(Debug)]
struct Bell {
    is_rung: AtomicBool,
    thread: Thread,
    core: Weak<Core>,
}

impl Bell {
    /// It is rung at first, so that the future is polled.
    fn new(core: &Weak<Core>) -> Self {
        Self { is_rung: AtomicBool::new(true), thread: std::thread::current(), core: core.clone() }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let was_rung = self.is_rung.swap(true, Ordering::AcqRel);
        // Who rings its own bell is awake.
        if was_rung || self.thread.id() == std::thread::current().id() {
            return;
        }
        self.thread.unpark();
        if let Some(core) = self.core.upgrade() {
            core.notify();
        }
    }
}
