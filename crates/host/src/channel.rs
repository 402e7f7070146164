//! Completion channels: where threads wait for completion queues.
//!
//! The thread that waits *is* the driver: it sleeps on the channel, its bell and the sockets together and drives the device
//! when it wakes. That saves the second wake-up that an event through the progress thread costs. Programs that put the
//! channel's descriptor into a `poll` of their own are told by whoever drives.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use userdma_link::clock;
use userdma_objects::CompChannel;

use crate::bell::Bell;
use crate::call::{self, Before};
use crate::drive::Role;
use crate::gate::Visit;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::sleep::{FOREVER, Sleeper};
use crate::{HostError, waiters};

/// Why there is no event.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EventError {
    /// The device is not usable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A signal handler ran while the thread waited.
    #[error("interrupted by a signal")]
    Interrupted,
}

/// A completion channel. Its descriptor is readable while events wait.
#[derive(Debug)]
pub struct Channel {
    descriptor: Arc<Descriptor>,
    owner: Arc<Owner>,
}

/// The events of a channel and the descriptor that stands for them.
#[derive(Debug)]
pub(crate) struct Descriptor {
    channel: Arc<CompChannel>,
    bell: Bell,
}

impl Channel {
    pub(crate) fn new(owner: &Arc<Owner>, descriptor: Arc<Descriptor>) -> Self {
        Self { descriptor, owner: Arc::clone(owner) }
    }

    /// The half that completion queues are made with.
    pub fn comp_channel(&self) -> &Arc<CompChannel> {
        &self.descriptor.channel
    }

    /// Takes the oldest event, the number of the completion queue; `None` if there is none now. Does not drive.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn try_event(&self) -> Result<Option<u32>, EventError> {
        self.owner.shared.check()?;
        let event = self.descriptor.take(false);
        if event.is_none() {
            self.descriptor.settle();
        }
        Ok(event)
    }

    /// Adds an event as the completion queue `cq` does when it notifies: whoever waits wakes, and finds perhaps nothing. For
    /// programs that must end a wait.
    pub fn notify(&self, cq: u32) {
        self.descriptor.channel.push_event(cq);
        self.descriptor.signal();
    }

    /// Waits for an event; the waiting thread drives the device. `None` if `timeout` has passed.
    ///
    /// # Errors
    /// The device is not usable, or a signal handler ran.
    pub fn get_event(&self, timeout: Option<Duration>) -> Result<Option<u32>, EventError> {
        let end = timeout.map_or(FOREVER, |t| (clock::now() + t).nanos().min(FOREVER));
        // No destructor may be due while the thread sleeps: a C program may cancel it there, and only there.
        let before = call::begin();
        let result = self.take_or_wait(end, before);
        call::end(before);
        result
    }

    fn take_or_wait(&self, end: u64, before: Before) -> Result<Option<u32>, EventError> {
        self.owner.shared.check()?;
        if let Some(cq) = self.descriptor.take(false) {
            return Ok(Some(cq));
        }
        waiters::enter(&self.owner.shared);
        let result = self.wait(&self.owner.shared, end, before);
        waiters::leave(&self.owner.shared);
        result
    }

    fn wait(&self, shared: &Shared, end: u64, before: Before) -> Result<Option<u32>, EventError> {
        loop {
            // Nothing is driven before the first sleep: what is due is in the deadline, and packets end the sleep at once.
            let Some(deadline) = shared.watch.fall_asleep(Sleeper::Waiter) else {
                if let Some(cq) = self.drive(shared)? {
                    return Ok(Some(cq));
                }
                continue;
            };
            let woken = sleep(shared, &self.descriptor.bell, deadline.min(end), before);
            shared.watch.wake_up(Sleeper::Waiter);
            if woken.bell {
                shared.waiter_bell.hush();
            }
            if let Some(cq) = self.descriptor.take(false) {
                return Ok(Some(cq));
            }
            if woken.channel {
                self.descriptor.settle();
            }
            if woken.interrupted {
                return Err(EventError::Interrupted);
            }
            if let Some(cq) = self.drive(shared)? {
                return Ok(Some(cq));
            }
            if clock::now().nanos() >= end {
                return Ok(None);
            }
        }
    }

    fn drive(&self, shared: &Shared) -> Result<Option<u32>, EventError> {
        shared.check()?;
        shared.polls.add();
        // If another thread drives, it makes the descriptor readable.
        let quiet = shared.ring(Role::Waiter(&self.descriptor)) != Visit::Elsewhere;
        Ok(self.descriptor.take(quiet))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.bell.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let id = self.descriptor.channel.id();
        // If the device is gone, so is its table of channels.
        let _ = self.owner.command(move |core, _| {
            if let Some(entry) = core.channels.get_mut(id as usize) {
                *entry = None;
            }
        });
    }
}

impl Descriptor {
    /// Those of the channel with this number.
    pub(crate) fn new(id: u32) -> io::Result<Self> {
        Ok(Self { channel: Arc::new(CompChannel::new(id)), bell: Bell::new()? })
    }

    /// Makes the descriptor readable: the channel has events.
    pub(crate) fn signal(&self) {
        self.bell.ring();
    }

    /// Whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.channel.pending() == 0
    }

    /// Takes the oldest event and keeps the descriptor readable exactly while others wait. `quiet`: the events were noted
    /// by this thread's drive, which has left the descriptor alone.
    fn take(&self, quiet: bool) -> Option<u32> {
        let cq = self.channel.take_event()?;
        if quiet {
            if !self.is_empty() {
                self.bell.ring();
            }
        } else {
            self.settle();
        }
        Some(cq)
    }

    /// Ends the descriptor's being readable if no event waits. Another thread's drive notes an event, then makes the
    /// descriptor readable: who takes the event in between leaves it so.
    fn settle(&self) {
        if self.is_empty() {
            self.bell.hush();
            // An event that came in between is signalled again.
            if !self.is_empty() {
                self.bell.ring();
            }
        }
    }
}

/// What a sleep ended with.
struct Woken {
    channel: bool,
    bell: bool,
    interrupted: bool,
}

/// Sleeps until the channel, the bell or a socket is readable, or until `until`. In the C library's `ppoll`, because
/// threads of C programs may be cancelled here and nowhere else; a handler that interrupts it may drive.
#[allow(unsafe_code)]
fn sleep(shared: &Shared, channel: &Bell, until: u64, before: Before) -> Woken {
    let entry = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds = [entry(channel.as_fd()); MAX_FDS];
    fds[1] = entry(shared.waiter_bell.as_fd());
    let mut len: libc::nfds_t = 2;
    for (fd, socket) in fds[2..].iter_mut().zip(shared.awaited()) {
        *fd = entry(socket.as_fd());
        len += 1;
    }
    let ns = until.saturating_sub(clock::now().nanos());
    // Less than 2^63 seconds, and less than 10^9 ns.
    let timeout = libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    };
    let timeout = if until >= FOREVER { std::ptr::null() } else { &raw const timeout };
    call::end(before);
    // SAFETY: `fds` has at least `len` entries, and `timeout` is null or points to a duration; both outlive the call.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), len, timeout, std::ptr::null()) };
    let interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
    // The caller has it already, and gives it back.
    let _ = call::begin();
    Woken { channel: fds[0].revents != 0, bell: fds[1].revents != 0, interrupted }
}

/// The channel, the bell, and for each address of a device one socket and one set of groups.
const MAX_FDS: usize = 2 + 2 * userdma_agent::Embedded::MAX_ADDRESSES;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Host, HostConfig};

    #[allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]
    fn channel(last: u8) -> (Host, Channel) {
        let addresses = vec![[127, 0, 22, last].into()];
        let host = Host::open(&HostConfig { addresses, ..HostConfig::default() }).unwrap();
        let channel = host.create_channel().unwrap();
        (host, channel)
    }

    #[test]
    fn a_notice_ends_a_wait_and_is_an_event() {
        let (_host, channel) = channel(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| channel.get_event(None));
            channel.notify(7);
            assert_eq!(waiter.join().unwrap(), Ok(Some(7)));
        });
        assert!(!channel.descriptor.bell.hush(), "nothing is left");
    }

    /// As it is left when an event is taken before the thread that noted it signals.
    #[test]
    fn a_descriptor_that_is_readable_without_an_event_is_so_once() {
        let (_host, channel) = channel(3);
        channel.descriptor.signal();
        assert_eq!(channel.get_event(Some(Duration::from_millis(20))), Ok(None));
        assert!(!channel.descriptor.bell.hush(), "a waiter would spin");
        channel.descriptor.signal();
        assert_eq!(channel.try_event(), Ok(None));
        assert!(!channel.descriptor.bell.hush(), "a program that polls the descriptor would spin");
    }

    /// A program that sleeps on the descriptor in a `poll` of its own would otherwise sleep for ever.
    #[test]
    fn a_device_that_fails_makes_its_channels_readable() {
        let (host, channel) = channel(2);
        let panicking = std::panic::AssertUnwindSafe(|| host.control(|_, _| panic!("as if by a bug")));
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(channel.descriptor.bell.hush());
        assert_eq!(channel.try_event(), Err(EventError::Host(HostError::Failed)));
    }
}
