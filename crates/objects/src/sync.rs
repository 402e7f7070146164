//! Locks and atomics: the standard library's, or loom's when a model is checked.

#[cfg(loom)]
use loom::sync as from;
#[cfg(not(loom))]
use std::sync as from;
use std::sync::PoisonError;

pub(crate) use from::{Mutex, MutexGuard, atomic};

/// Locks a mutex whose critical sections cannot panic, so that poison says nothing about the data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
