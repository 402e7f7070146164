//! The pipe that stands for an event channel: readable exactly while events wait.
//!
//! The program has the end that is read, so whatever it does with its descriptor is the kernel's business: `poll`, `O_NONBLOCK`,
//! copies, closing. Ours is the other end: it puts a byte in, and is told when nobody has the program's end any more.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use userdma_link::guard::{self, GuardedFd};

use super::known::{self, Key};
use crate::answer::Refused;

/// Our end.
#[derive(Debug)]
pub(super) struct Signal {
    end: GuardedFd,
    is_raised: bool,
}

impl Signal {
    /// A pipe; the program's end is open as `flags` say, `O_CLOEXEC` and `O_NONBLOCK` among them.
    pub(super) fn new(flags: c_int) -> Result<(Self, OwnedFd), Refused> {
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(last_error());
        }
        // SAFETY: made just now, and nobody else's.
        let [theirs, ours] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let set = |command, value: c_int| {
            // SAFETY: takes numbers, of a descriptor of ours.
            (unsafe { libc::fcntl(theirs.as_raw_fd(), command, value) } >= 0)
                .then_some(())
                .ok_or_else(last_error)
        };
        set(libc::F_SETFL, flags & libc::O_NONBLOCK)?;
        set(libc::F_SETFD, if flags & libc::O_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 })?;
        Ok((Self { end: ours.into(), is_raised: false }, theirs))
    }

    /// Makes the channel readable.
    pub(super) fn raise(&mut self) {
        if !self.is_raised {
            // If the program has closed its end, nobody is to be told.
            without_sigpipe(|| {
                // SAFETY: one byte, which outlives the call.
                unsafe { libc::syscall(libc::SYS_write, self.end.as_raw_fd(), [0_u8].as_ptr(), 1) }
            });
            self.is_raised = true;
        }
    }

    /// Makes it unreadable; `fd` is one of the program's descriptors of it, by which the byte is taken out. If that has become
    /// something else since, or no number is free for a moment, the channel stays readable and whoever looks finds nothing.
    pub(super) fn lower(&mut self, fd: c_int, key: Key) {
        if !self.is_raised {
            return;
        }
        // So that what is read from is what was looked at.
        let Some(copy) = copy_of(fd) else { return };
        if known::of_descriptor(copy.as_raw_fd()) != Some(key) {
            return;
        }
        if waiting(copy.as_fd()) == 0 {
            // The program has read it, where a kernel would have refused that.
            self.is_raised = false;
            return;
        }
        // SAFETY: room for one byte. It is there, so the call does not wait.
        let taken = unsafe { libc::syscall(libc::SYS_read, copy.as_raw_fd(), [0_u8].as_mut_ptr(), 1) };
        self.is_raised = taken != 1;
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// A descriptor of our own for what is behind the program's, out of the way of the program's numbers.
fn copy_of(fd: c_int) -> Option<GuardedFd> {
    // SAFETY: takes numbers, and makes a descriptor that is nobody's yet.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, guard::lowest()) };
    // SAFETY: made just now.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) }.into())
}

/// Bytes in a pipe.
fn waiting(pipe: BorrowedFd<'_>) -> c_int {
    let mut count = 0;
    // SAFETY: room for the number; a pipe has this call.
    unsafe { libc::syscall(libc::SYS_ioctl, pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    count
}

/// Runs `write`, whose failing for lack of a reader does not end the program: the signal is taken back.
fn without_sigpipe(write: impl FnOnce() -> i64) {
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sets are locals that the calls fill before they are read. A signal that waited before is left waiting.
    unsafe {
        let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigpending(pending.as_mut_ptr());
        let waited = libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), old.as_mut_ptr());
        let failed = write() < 0 && io::Error::last_os_error().kind() == io::ErrorKind::BrokenPipe;
        if failed && !waited {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(pipe.as_ptr(), std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut());
    }
}

pub(super) fn last_error() -> Refused {
    Refused(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_readable_while_it_is_raised_and_a_program_that_has_gone_ends_nobody() {
        let (mut signal, theirs) = Signal::new(libc::O_CLOEXEC).unwrap();
        let key = known::insert(theirs.as_raw_fd()).unwrap();
        signal.raise();
        signal.raise();
        assert_eq!(waiting(theirs.as_fd()), 1);
        let copy = theirs.try_clone().unwrap();
        signal.lower(copy.as_raw_fd(), key);
        assert_eq!(waiting(theirs.as_fd()), 0);
        signal.raise();
        let other = std::fs::File::open("/dev/null").unwrap();
        signal.lower(other.as_raw_fd(), key);
        signal.lower(-1, key);
        assert_eq!(waiting(theirs.as_fd()), 1, "taken out by a descriptor of the channel only");
        signal.lower(theirs.as_raw_fd(), key);
        assert_eq!(waiting(theirs.as_fd()), 0);
        drop((theirs, copy));
        signal.raise();
        known::remove(key);
    }

    #[test]
    fn a_program_that_reads_from_a_channel_is_told_again() {
        let (mut signal, theirs) = Signal::new(libc::O_CLOEXEC).unwrap();
        let key = known::insert(theirs.as_raw_fd()).unwrap();
        signal.raise();
        let mut channel = std::fs::File::from(theirs);
        assert_eq!(std::io::Read::read(&mut channel, &mut [0; 8]).unwrap(), 1);
        signal.lower(channel.as_raw_fd(), key);
        signal.raise();
        assert_eq!(waiting(channel.as_fd()), 1);
        known::remove(key);
    }

    #[test]
    fn a_copy_has_no_number_that_programs_choose() {
        let (_signal, theirs) = Signal::new(libc::O_CLOEXEC).unwrap();
        let copy = copy_of(theirs.as_raw_fd()).unwrap();
        assert!(copy.as_raw_fd() >= guard::lowest() && guard::is_guarded(copy.as_raw_fd()));
        assert_eq!(known::of_descriptor(copy.as_raw_fd()), known::of_descriptor(theirs.as_raw_fd()));
        assert!(copy_of(-1).is_none());
    }

    #[test]
    fn a_channel_has_the_flags_that_it_was_opened_with() {
        let flags = |fd: &OwnedFd| {
            // SAFETY: asks.
            let get = |command| unsafe { libc::fcntl(fd.as_raw_fd(), command) };
            (get(libc::F_GETFL) & libc::O_NONBLOCK != 0, get(libc::F_GETFD) != 0)
        };
        assert_eq!(flags(&Signal::new(libc::O_RDWR).unwrap().1), (false, false));
        assert_eq!(flags(&Signal::new(libc::O_RDWR | libc::O_NONBLOCK).unwrap().1), (true, false));
        assert_eq!(flags(&Signal::new(libc::O_RDWR | libc::O_CLOEXEC).unwrap().1), (false, true));
    }
}
