//! After `fork` the child has a copy of the device's memory, perhaps in the middle of a change, and shares its sockets
//! with the parent. The copy must not be used: it is recognised by its generation. The sockets are let go of at once, or the
//! parent's addresses would be taken as long as a child lives.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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
        // SAFETY: the handler touches atomics and makes system calls, which is allowed in a child of a program with threads.
        // If the library runs out of memory for it, forked children are not recognised; nothing else is affected.
        #[allow(unsafe_code)]
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

/// Only system calls and atomics: the child of a program with threads may do no more here.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    SLOTS.iter().for_each(Slot::let_go);
}

/// Sockets that children let go of, as long as this exists. It must end before they are closed.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<&'static Slot>);

impl Sockets {
    /// Notes these sockets. If there is no room, children keep them.
    pub(crate) fn note<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> Self {
        Self(sockets.filter_map(|socket| SLOTS.iter().find(|slot| slot.take(socket.as_raw_fd()))).collect())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.0.iter().for_each(|slot| slot.inode.store(NONE, Ordering::Release));
    }
}

/// A descriptor, and which socket it was when it was noted: the program may close what it does not know, and get the number again
/// for something of its own.
#[derive(Debug)]
struct Slot {
    /// [`NONE`] if the slot is free, or the socket's number in the file system.
    inode: AtomicU64,
    fd: AtomicI32,
}

static SLOTS: [Slot; 256] = [const { Slot { inode: AtomicU64::new(NONE), fd: AtomicI32::new(-1) } }; 256];

impl Slot {
    /// Takes the slot for a socket; false if it is not free.
    fn take(&self, fd: c_int) -> bool {
        let Some(inode) = inode(fd) else { return false };
        if self.inode.compare_exchange(NONE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.fd.store(fd, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Release);
        true
    }

    /// Child: puts another file behind the descriptor, whose owner will close it as its own.
    #[allow(unsafe_code)]
    fn let_go(&self) {
        let noted = self.inode.load(Ordering::Acquire);
        let fd = self.fd.load(Ordering::Relaxed);
        if noted == NONE || noted == TAKEN || inode(fd) != Some(noted) {
            return;
        }
        // SAFETY: system calls with a string that ends, and descriptors: one of ours, which nobody of this process uses any more,
        // and one that is made here.
        unsafe {
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if nothing >= 0 {
                libc::dup3(nothing, fd, libc::O_CLOEXEC);
                libc::close(nothing);
            }
        }
    }
}

/// The number of a socket in the file system; `None` if the descriptor is no socket.
#[allow(unsafe_code)]
fn inode(fd: c_int) -> Option<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure, which outlives it, or fails.
    let stat = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat.st_ino)
}

/// A slot that is free.
const NONE: u64 = 0;
/// A slot that is being taken.
const TAKEN: u64 = u64::MAX;
