//! A lock that a child of `fork` finds free, whoever held it in the parent.
//!
//! Other threads may be in the middle of a call when one forks. They are not there in the child, and what they hold is never let go
//! of. What such a lock guards is the parent's: the child begins with nothing.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::devices::lock;

/// A lock of each process.
pub(crate) struct ForkLock<T> {
    /// The process whose lock it is, and whether that makes it anew just now. 0 for nobody's.
    owner: AtomicU32,
    lock: UnsafeCell<Mutex<T>>,
}

// SAFETY: all that is done with the inner lock is to lock it, which threads may do at once, but for making it anew, which one
// thread does before any other of its process looks at it.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T: Default> ForkLock<T> {
    /// What is in it in this process. Whoever holds it does not fork.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_as(std::process::id())
    }

    fn lock_as(&self, process: u32) -> MutexGuard<'_, T> {
        loop {
            let owner = self.owner.load(Ordering::Acquire);
            if owner == process {
                // SAFETY: it is not made anew any more in this process.
                return lock(unsafe { &*self.lock.get() });
            }
            let making = process | MAKING;
            if owner == making {
                // Another thread is about to be done.
                spin_loop();
                continue;
            }
            let taken = self.owner.compare_exchange(owner, making, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                // SAFETY: no thread of this process has looked at it, and this one alone may do so now. What was there is the
                // parent's, perhaps in the middle of a change: it is not dropped.
                unsafe { self.lock.get().write(Mutex::default()) };
                self.owner.store(process, Ordering::Release);
            }
        }
    }
}

impl<T: Default> Default for ForkLock<T> {
    fn default() -> Self {
        Self { owner: AtomicU32::new(0), lock: UnsafeCell::default() }
    }
}

/// No process has such a number: there are 2^22 at most.
const MAKING: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_it_free_and_empty() {
        let own = ForkLock::<u8>::default();
        *own.lock_as(1) = 7;
        let held = own.lock_as(1);
        assert_eq!(*held, 7);
        // As in a child, where this thread is not.
        std::mem::forget(held);
        assert_eq!(*own.lock_as(2), 0);
        *own.lock_as(2) = 8;
        assert_eq!(*own.lock_as(2), 8);
    }

    #[test]
    fn a_child_of_a_parent_that_was_making_it_makes_its_own() {
        let own = ForkLock::<u8>::default();
        own.owner.store(1 | MAKING, Ordering::Relaxed);
        assert_eq!(*own.lock_as(2), 0);
    }
}
