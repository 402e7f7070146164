//! An eventfd: wakes a thread that sleeps in `poll`, or stands for events in other people's `epoll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{EventfdFlags, eventfd};
#[cfg(not(loom))]
use rustix::io::{Errno, ReadWriteFlags, preadv2, write};
use userdma_link::guard::GuardedFd;

#[cfg(loom)]
use crate::sync::atomic::{AtomicBool, Ordering};

/// A descriptor that is readable from [`Bell::ring`] to [`Bell::hush`].
///
/// System calls are made directly, so that no thread is cancelled in them.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: GuardedFd,
    /// What stands for the descriptor in a model.
    #[cfg(loom)]
    is_rung: AtomicBool,
}

impl Bell {
    /// A quiet bell. Children of `exec` do not get it.
    pub(crate) fn new() -> io::Result<Self> {
        // Blocking, because programs look at and set the flag of descriptors that we give them; reads say for
        // themselves that they do not wait.
        let fd = eventfd(0, EventfdFlags::CLOEXEC)?.into();
        Ok(Self {
            fd,
            #[cfg(loom)]
            is_rung: AtomicBool::new(false),
        })
    }
}

#[cfg(not(loom))]
impl Bell {
    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        // It fails only after 2^64 - 2 rings without a hush; then it is readable anyway.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; whether it was readable.
    pub(crate) fn hush(&self) -> bool {
        let mut count = [0; 8];
        let mut buffers = [io::IoSliceMut::new(&mut count)];
        loop {
            // The offset -1 stands for a descriptor without a position.
            match preadv2(&self.fd, &mut buffers, u64::MAX, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                other => return other.is_ok(),
            }
        }
    }
}

/// The kernel takes the descriptor's own lock for either (as `eventfd.c eventfd_read()`), so each sees what
/// was done before the last.
#[cfg(loom)]
impl Bell {
    pub(crate) fn ring(&self) {
        self.is_rung.swap(true, Ordering::AcqRel);
    }

    pub(crate) fn hush(&self) -> bool {
        self.is_rung.swap(false, Ordering::AcqRel)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_readable_between_ring_and_hush() {
        let bell = Bell::new().unwrap();
        assert!(!bell.hush());
        bell.ring();
        bell.ring();
        assert!(bell.hush());
        assert!(!bell.hush());
    }
}
