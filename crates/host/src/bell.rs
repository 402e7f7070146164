//! An eventfd: wakes a thread that sleeps in `poll`, or stands for events in other people's `epoll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, write};

/// A descriptor that is readable from [`Bell::ring`] to [`Bell::hush`].
///
/// System calls are made directly, so that no thread is cancelled in them.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// A quiet bell. Children of `exec` do not get it.
    pub(crate) fn new() -> io::Result<Self> {
        // Blocking, because programs look at and set the flag of descriptors that we give them; reads say for
        // themselves that they do not wait.
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        // It fails only after 2^64 - 2 rings without a hush; then it is readable anyway.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; whether it was readable.
    pub(crate) fn hush(&self) -> bool {
        let mut count = [0; 8];
        let mut buffers = [io::IoSliceMut::new(&mut count)];
        loop {
            // The offset -1 stands for a descriptor without a position.
            match preadv2(&self.0, &mut buffers, u64::MAX, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                other => return other.is_ok(),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
