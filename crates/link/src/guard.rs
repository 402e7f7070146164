//! Descriptors that a host program must not close.
//!
//! Programs that make themselves daemons close every descriptor that they do not know, and some put their own where they
//! like with `dup2`. The descriptors of a device are in their table too. So each is kept away from the small numbers that
//! programs choose, and noted in a table: whoever stands in front of the C library's `close` asks [`is_guarded`] before it
//! closes a number. Without anybody there the table changes nothing.

use std::cell::Cell;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// A descriptor of ours: noted as long as it is open. Children of `exec` do not get it.
#[derive(Debug)]
pub struct GuardedFd(OwnedFd);

/// For each number the process that guards it, or 0. A forked child has a copy, in which the numbers are its parent's: it may
/// close them.
static GUARDS: [AtomicI32; MAX_GUARDED] = [const { AtomicI32::new(0) }; MAX_GUARDED];
/// Descriptors that are guarded, by this process or by one that it was forked from.
static COUNT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

impl From<OwnedFd> for GuardedFd {
    /// Takes a descriptor over, at a higher number if there is one. What it shares with others stays shared.
    fn from(fd: OwnedFd) -> Self {
        let fd =
            if fd.as_raw_fd() < lowest() { fcntl_dupfd_cloexec(&fd, lowest()).unwrap_or(fd) } else { fd };
        if let Some(guard) = guard(fd.as_raw_fd()) {
            COUNT.fetch_add(1, Ordering::Relaxed);
            guard.store(process(), Ordering::Release);
        }
        Self(fd)
    }
}

impl Drop for GuardedFd {
    fn drop(&mut self) {
        if let Some(guard) = guard(self.0.as_raw_fd()) {
            guard.store(0, Ordering::Release);
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Write for GuardedFd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for GuardedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for GuardedFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Whether a number is a descriptor of ours, in this process and in the table of descriptors that its threads share.
#[inline]
pub fn is_guarded(fd: RawFd) -> bool {
    match guard(fd).map_or(0, |guard| guard.load(Ordering::Acquire)) {
        0 => false,
        by => by == process() && !IS_APART.get(),
    }
}

/// The first guarded number of `first ..= last`.
pub fn first_guarded(first: RawFd, last: RawFd) -> Option<RawFd> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    (first.max(0)..=last.min(HIGHEST)).find(|&fd| is_guarded(fd))
}

/// From now on the calling thread has a table of descriptors of its own, in which no number is guarded.
pub fn leave() {
    IS_APART.set(true);
}

fn guard(fd: RawFd) -> Option<&'static AtomicI32> {
    GUARDS.get(usize::try_from(fd).ok()?)
}

fn process() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Above what programs choose, below what `select` can take, and in the upper half of what the process may have.
fn lowest() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    RawFd::try_from((limit / 2).min(512)).unwrap_or(0)
}

/// Higher numbers are not guarded: a process with so many descriptors has other worries.
const MAX_GUARDED: usize = 1 << 14;
const HIGHEST: RawFd = 16_383;

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_descriptor_is_guarded_while_it_is_open_and_out_of_the_way() {
        let fd = GuardedFd::from(null());
        let number = fd.as_raw_fd();
        assert!(number > 2, "{number} is one that programs choose");
        assert!(is_guarded(number));
        assert_eq!(first_guarded(number, number), Some(number));
        assert_eq!(first_guarded(number, i32::MAX), Some(number));
        let flags = rustix::io::fcntl_getfd(&fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        std::thread::spawn(move || {
            leave();
            assert!(!is_guarded(number), "the number of a table that this thread has left");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_number_that_was_guarded_is_not_when_it_is_closed() {
        // Where no other test's descriptors are.
        let high = fcntl_dupfd_cloexec(null(), lowest() + 100).unwrap();
        let fd = GuardedFd::from(high);
        let number = fd.as_raw_fd();
        assert!(is_guarded(number));
        drop(fd);
        assert!(!is_guarded(number));
    }

    #[test]
    fn numbers_that_are_none_are_not_guarded() {
        assert!(![-1, i32::MIN, i32::MAX, 0, 1, 2].into_iter().any(is_guarded));
        assert_eq!(first_guarded(3, 2), None);
    }
}
