//! After `fork` the child has a copy of the device's memory, perhaps in the middle of a change, and shares its sockets
//! with the parent. The copy must not be used: it is recognised by its generation. Nor must the child keep the sockets that
//! packets come in by, since their port would stay taken when the parent has gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, fstat, open};

use crate::exit;

/// Counts the forks that lie between this process and the first one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which process of a chain of forks this is. One load.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Sees to it that children count one more. Needed before the first device is opened.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler adds to an atomic, takes a lock only if it is free, and makes system calls, which is all allowed
        // in a child of a program with threads. If the library runs out of memory for it, forked children are not
        // recognised; nothing else is affected.
        #[allow(unsafe_code)]
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let Ok(null) = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { return };
    exit::each_open(|device| device.inherited.iter().for_each(|socket| socket.give_up(&null)));
}

/// A descriptor that a child of the process must not keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    number: RawFd,
    inode: u64,
}

impl Inherited {
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(Self { number: socket.as_fd().as_raw_fd(), inode: fstat(socket)?.st_ino })
    }

    /// Puts `null` in its place in this process: the number stays taken, since the copy of its owner may close it. Not if the
    /// program has closed it, and has the number for something else.
    fn give_up(self, null: &OwnedFd) {
        // SAFETY: the number is only asked about; what is not open is an error.
        #[allow(unsafe_code)]
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.number) };
        if fstat(descriptor).is_ok_and(|found| found.st_ino == self.inode) {
            // SAFETY: the descriptor is the device's, which does not use it in this process any more.
            #[allow(unsafe_code)]
            unsafe {
                libc::dup3(null.as_raw_fd(), self.number, libc::O_CLOEXEC);
            }
        }
    }
}
