//! Which pipes are event channels, by their numbers in the file system: a set that is looked at without a lock, in handlers of
//! signals and in children of `fork`.
//!
//! A descriptor of a channel may be copied, passed on and closed as the program likes; the pipe's number stays.

use std::ffi::c_int;
use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The number of a pipe.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key(u64);

impl Key {
    /// As [`Key::get`] told it.
    pub(super) const fn new(inode: u64) -> Self {
        Self(inode)
    }

    pub(super) const fn get(self) -> u64 {
        self.0
    }
}

/// The numbers, each as close behind its place as there is room.
static SLOTS: [AtomicU64; MAX_CHANNELS] = [const { AtomicU64::new(EMPTY) }; MAX_CHANNELS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether somebody changes the numbers, which takes a microsecond.
static IS_CHANGING: AtomicBool = AtomicBool::new(false);
/// The file system that pipes are in.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Whether this process, or one that it was forked from, has a channel. One load.
#[inline]
pub(crate) fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// The channel behind a descriptor. Safe at any time; `errno` stays.
pub(crate) fn of_descriptor(fd: c_int) -> Option<Key> {
    pipe_of(fd).and_then(|(device, inode)| of_pipe(device, inode))
}

/// The channel that a pipe is.
pub(crate) fn of_pipe(device: u64, inode: u64) -> Option<Key> {
    let is_here = device == DEVICE.load(Ordering::Relaxed) && contains(inode);
    is_here.then_some(Key(inode))
}

/// Notes the pipe behind a descriptor.
pub(super) fn insert(fd: c_int) -> Option<Key> {
    let (device, inode) = pipe_of(fd)?;
    let _change = Change::begin();
    DEVICE.store(device, Ordering::Relaxed);
    put(inode).then_some(Key(inode))
}

/// Whether there was room.
fn put(inode: u64) -> bool {
    let free = probe(inode).find(|slot| slot.load(Ordering::Relaxed) <= GONE);
    if let Some(slot) = free {
        slot.store(inode, Ordering::Release);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    free.is_some()
}

/// Forgets it.
pub(super) fn remove(Key(inode): Key) {
    let _change = Change::begin();
    let Some(at) = places(inode).find(|&at| SLOTS[at].load(Ordering::Relaxed) == inode) else { return };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    SLOTS[at].store(GONE, Ordering::Release);
    // Nobody needs to look past what nothing follows.
    if SLOTS[(at + 1) % MAX_CHANNELS].load(Ordering::Relaxed) == EMPTY {
        let before = (0..MAX_CHANNELS).map(|back| &SLOTS[(at + MAX_CHANNELS - back) % MAX_CHANNELS]);
        before
            .take_while(|slot| slot.load(Ordering::Relaxed) == GONE)
            .for_each(|slot| slot.store(EMPTY, Ordering::Release));
    }
}

/// A child of `fork`: whoever was about to change something is not in this process.
pub(super) fn forget_changes() {
    IS_CHANGING.store(false, Ordering::Relaxed);
}

/// The right to change the numbers.
struct Change;

impl Change {
    fn begin() -> Self {
        while IS_CHANGING.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        Self
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        IS_CHANGING.store(false, Ordering::Release);
    }
}

fn contains(inode: u64) -> bool {
    let mut seen = probe(inode).map(|slot| slot.load(Ordering::Acquire));
    inode > GONE && seen.find(|&found| found == EMPTY || found == inode) == Some(inode)
}

fn probe(inode: u64) -> impl Iterator<Item = &'static AtomicU64> {
    places(inode).map(|at| &SLOTS[at])
}

fn places(inode: u64) -> impl Iterator<Item = usize> {
    // The kernel counts pipes, so numbers are spread as it is.
    let first = usize::try_from(inode % MAX_CHANNELS as u64).unwrap_or(0);
    (0..MAX_CHANNELS).map(move |step| (first + step) % MAX_CHANNELS)
}

/// The file system and number of the pipe behind a descriptor. The system call itself: the C library's function is ours.
fn pipe_of(fd: c_int) -> Option<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure, which outlives it, or fails; the thread's error number is put back.
    let stat = unsafe {
        let errno = *libc::__errno_location();
        let failed = libc::syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0;
        *libc::__errno_location() = errno;
        if failed {
            return None;
        }
        stat.assume_init()
    };
    (stat.st_mode & libc::S_IFMT == libc::S_IFIFO).then_some((stat.st_dev, stat.st_ino))
}

/// A slot that nothing was ever put in, or nothing that anybody looks for lies behind it.
const EMPTY: u64 = 0;
/// A slot that is free, but others may lie behind it.
const GONE: u64 = 1;
/// More channels than a process usually may have descriptors: each has two.
const MAX_CHANNELS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_pipe_is_known_by_any_of_its_descriptors_until_it_is_removed() {
        let (read, write) = std::io::pipe().unwrap();
        assert_eq!(of_descriptor(read.as_raw_fd()), None);
        let key = insert(read.as_raw_fd()).unwrap();
        let copy = read.try_clone().unwrap();
        for fd in [read.as_raw_fd(), write.as_raw_fd(), copy.as_raw_fd()] {
            assert_eq!(of_descriptor(fd), Some(key));
        }
        let other = std::io::pipe().unwrap().0;
        assert_eq!(of_descriptor(other.as_raw_fd()), None);
        assert_eq!((of_descriptor(-1), of_descriptor(1_000_000)), (None, None));
        remove(key);
        assert_eq!(of_descriptor(read.as_raw_fd()), None);
    }

    #[test]
    fn what_is_removed_hides_nothing_that_shares_its_place() {
        // Where no pipe of another test is.
        let first = pipe_of(std::io::pipe().unwrap().0.as_raw_fd()).unwrap().1 + MAX_CHANNELS as u64 / 2;
        let all: Vec<u64> = (0..4).map(|i| first + i * MAX_CHANNELS as u64).collect();
        for &inode in &all {
            probe(inode)
                .find(|slot| slot.load(Ordering::Relaxed) <= GONE)
                .unwrap()
                .store(inode, Ordering::Release);
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        remove(Key(all[1]));
        assert_eq!(all.iter().map(|&inode| contains(inode)).collect::<Vec<_>>(), [true, false, true, true]);
        all.iter().for_each(|&inode| remove(Key(inode)));
        assert!(
            probe(first).take(8).all(|slot| slot.load(Ordering::Relaxed) == EMPTY),
            "nothing is left to step over"
        );
    }
}
