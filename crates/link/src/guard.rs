//! The descriptors of devices: which a host program must not close, and of which a forked child must not keep a copy.
//!
//! Programs that make themselves daemons close every descriptor that they do not know, and some put their own where they
//! like with `dup2`. The descriptors of a device are in their table too. So each is kept away from the small numbers that
//! programs choose, and noted in a table: whoever stands in front of the C library's `close` asks [`is_guarded`] before it
//! closes a number. Without anybody there the table changes nothing.
//!
//! A child shares sockets with its parent: it would keep the parent's addresses taken as long as it lives. So the same table says
//! of which descriptors it lets go ([`let_go`]). Every descriptor of a device is in it exactly as long as it is open.

use std::cell::Cell;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// A descriptor of ours: noted as long as it is open. Children of `exec` do not get it.
#[derive(Debug)]
pub struct GuardedFd(OwnedFd);

/// What is known of a number.
struct Guard {
    /// The process that guards it, or 0. A forked child has a copy, in which the numbers are its parent's: it may close them.
    by: AtomicI32,
    /// The number of the socket in the file system; 0 if it is no socket. The program may close what it does not know, and get the
    /// descriptor's number again for something of its own.
    socket: AtomicU64,
}

static GUARDS: [Guard; MAX_GUARDED] =
    [const { Guard { by: AtomicI32::new(0), socket: AtomicU64::new(0) } }; MAX_GUARDED];
/// Descriptors that are guarded, by this process or by one that it was forked from.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// No higher number was ever guarded.
static TOP: AtomicI32 = AtomicI32::new(-1);

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
            TOP.fetch_max(fd.as_raw_fd(), Ordering::Relaxed);
            guard.socket.store(socket(fd.as_raw_fd()), Ordering::Relaxed);
            guard.by.store(process(), Ordering::Release);
        }
        Self(fd)
    }
}

impl Drop for GuardedFd {
    fn drop(&mut self) {
        if let Some(guard) = guard(self.0.as_raw_fd()) {
            guard.by.store(0, Ordering::Release);
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
    match guard(fd).map_or(0, |guard| guard.by.load(Ordering::Acquire)) {
        0 => false,
        by => by == process() && !IS_APART.get(),
    }
}

/// The first guarded number of `first ..= last`.
pub fn first_guarded(first: RawFd, last: RawFd) -> Option<RawFd> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    (first.max(0)..=last.min(TOP.load(Ordering::Relaxed))).find(|&fd| is_guarded(fd))
}

/// Forked child: lets go of every socket that a process which it was forked from guards. Behind its number, which has an owner in
/// the copy of the parent's memory, is `/dev/null` from now on.
///
/// Only system calls and atomics: the child of a program with threads may do no more.
pub fn let_go() {
    for fd in 0..=TOP.load(Ordering::Relaxed) {
        let Some(guard) = guard(fd) else { return };
        let by = guard.by.load(Ordering::Acquire);
        let noted = guard.socket.load(Ordering::Relaxed);
        if by != 0 && by != process() && noted != 0 && noted == socket(fd) {
            replace(fd);
        }
    }
}

/// Puts `/dev/null` behind a descriptor.
fn replace(fd: RawFd) {
    // SAFETY: system calls with a string that ends, and descriptors: one of ours, which nobody of this process uses any more, and
    // one that is made here.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if nothing >= 0 {
            libc::dup3(nothing, fd, libc::O_CLOEXEC);
            libc::close(nothing);
        }
    }
}

/// The number of a socket in the file system; 0 if the descriptor is none.
fn socket(fd: RawFd) -> u64 {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure, which outlives it, or fails.
    let stat = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return 0;
        }
        stat.assume_init()
    };
    if stat.st_mode & libc::S_IFMT == libc::S_IFSOCK { stat.st_ino } else { 0 }
}

/// From now on the calling thread has a table of descriptors of its own, in which no number is guarded.
pub fn leave() {
    IS_APART.set(true);
}

fn guard(fd: RawFd) -> Option<&'static Guard> {
    GUARDS.get(usize::try_from(fd).ok()?)
}

fn process() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// The lowest number of a device's descriptors: above what programs choose, below what `select` can take, and in the upper half
/// of what the process may have.
pub fn lowest() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    RawFd::try_from((limit / 2).min(512)).unwrap_or(0)
}

/// Higher numbers are not guarded: a process with so many descriptors has other worries.
const MAX_GUARDED: usize = 1 << 14;

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
