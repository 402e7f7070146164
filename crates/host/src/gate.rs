//! The gate: whoever finds the device idle drives it; whoever finds it busy leaves a note for the driver and goes on.
//!
//! One word with three states, as in rxe's tasks. No caller ever waits, and no note is lost. What looks simpler, a lock
//! and a bell in words of their own, loses notes: the tests show it.

use crate::sync::UnsafeCell;
use crate::sync::atomic::AtomicU8;
use crate::sync::atomic::Ordering::{AcqRel, Acquire};

/// A value that one thread at a time works on.
#[derive(Debug)]
pub(crate) struct Gated<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// How a visit at the gate ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Visit {
    /// The caller drove until no note was left.
    Drove,
    /// The caller drove as often as it was willing to, and a note is left: somebody else must ring at once.
    HandedOver,
    /// Another thread is driving.
    Elsewhere,
}

// SAFETY: the state lets one thread at a time reach the value: the one that changed IDLE to BUSY, until it changes
// BUSY back. The pair of acquire and release at that word makes each driver see what the one before did. So sharing a
// `Gated` only ever moves `&mut T` between threads, for which `Send` suffices.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Gated<T> {}

impl<T> Gated<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { state: AtomicU8::new(IDLE), value: UnsafeCell::new(value) }
    }

    /// Runs `drive` now, at most `rounds` times, or leaves a note for the thread that is driving. Unless it is handed over,
    /// everything that the caller published before the call has been, or will be, seen by a drive.
    #[inline]
    pub(crate) fn ring(&self, rounds: u32, drive: impl FnMut(&mut T)) -> Visit {
        let enter = |state| Some(if state == IDLE { BUSY } else { ARMED });
        match self.state.fetch_update(AcqRel, Acquire, enter) {
            Ok(IDLE) => self.drive(rounds, drive),
            Ok(_) | Err(_) => Visit::Elsewhere,
        }
    }

    /// Runs `drive` if nobody is driving; leaves no note, so that callers who come again and again never keep a
    /// driver going round.
    #[inline]
    pub(crate) fn try_enter(&self, rounds: u32, drive: impl FnMut(&mut T)) -> Visit {
        match self.state.compare_exchange(IDLE, BUSY, AcqRel, Acquire) {
            Ok(_) => self.drive(rounds, drive),
            Err(_) => Visit::Elsewhere,
        }
    }

    /// The state is BUSY by our doing. If `drive` panics it stays so: nobody enters again.
    #[allow(unsafe_code)]
    fn drive(&self, rounds: u32, mut drive: impl FnMut(&mut T)) -> Visit {
        let mut round = 0;
        loop {
            // SAFETY: this thread changed IDLE to BUSY and has not changed it back, so no other thread is here. It is not
            // here twice itself: a call from within `drive` finds the state BUSY.
            self.value.with_mut(|value| drive(unsafe { &mut *value }));
            round += 1;
            if self.state.compare_exchange(BUSY, IDLE, AcqRel, Acquire).is_ok() {
                return Visit::Drove;
            }
            // Somebody left a note: take it and go round again, or leave it to another.
            if round >= rounds {
                self.state.swap(IDLE, AcqRel);
                return Visit::HandedOver;
            }
            self.state.swap(BUSY, AcqRel);
        }
    }
}

/// Nobody drives.
const IDLE: u8 = 0;
/// Somebody drives.
const BUSY: u8 = 1;
/// Somebody drives and must go round again.
const ARMED: u8 = 2;

#[cfg(test)]
mod tests;
