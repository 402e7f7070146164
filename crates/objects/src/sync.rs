//! Locks and atomics: the standard library's, or loom's when a model is checked.

#[cfg(loom)]
use loom::sync as from;
#[cfg(not(loom))]
use std::sync as from;
use std::sync::{PoisonError, TryLockError};

pub(crate) use from::{Mutex, MutexGuard, atomic};

/// Locks a mutex whose critical sections cannot panic, so that poison says nothing about the data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks as [`lock`], but not if the mutex is locked at this moment and whoever calls `gives_up`.
#[inline]
pub(crate) fn lock_unless<T>(mutex: &Mutex<T>, gives_up: impl FnOnce() -> bool) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if gives_up() => None,
        Err(TryLockError::WouldBlock) => Some(lock(mutex)),
    }
}
