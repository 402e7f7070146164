//! The clock: the one place that reads it. Everybody else is told the time.
//!
//! Through the C library, which finds the kernel's shared clock wherever the program runs; under valgrind there is none.

use rustix::event::Timespec;
use userdma_verbs::Time;

/// Nanoseconds since the machine started, time asleep not counted (`CLOCK_MONOTONIC`). Needs no system call where the
/// kernel shares its clock.
#[inline]
pub fn now() -> Time {
    Time::from_nanos(read(libc::CLOCK_MONOTONIC))
}

/// A duration for the kernel.
pub fn timespec(ns: u64) -> Timespec {
    // At most 2^64 ns, which are less than 2^63 s; the remainder is below 10^9.
    Timespec { tv_sec: (ns / 1_000_000_000).cast_signed(), tv_nsec: (ns % 1_000_000_000).cast_signed() }
}

/// A clock for somebody who asks again and again: within two microseconds it may tell the same time.
///
/// Reading the clock waits until everything before it is done, memory included: between a packet and its answer that takes
/// longer than most of what is in between. A look at the processor's counter of ticks does not wait.
#[derive(Debug)]
pub struct RecentClock {
    now: Time,
    /// When the clock was read, in ticks.
    ticks: u64,
    has_ticks: bool,
}

impl RecentClock {
    /// Reads the clock.
    pub fn new() -> Self {
        let mut clock = Self { now: Time::ZERO, ticks: 0, has_ticks: ticks::are_steady() };
        clock.read();
        clock
    }

    /// The time, at most 2000 ticks ago: a microsecond at 2 GHz. Never less than before.
    #[inline]
    pub fn now(&mut self) -> Time {
        if self.has_ticks && is_fresh(self.ticks, ticks::count()) { self.now } else { self.read() }
    }

    /// The same, if that is cheap; else `None`, and the clock is to be read when the time is needed.
    #[inline]
    pub fn early(&mut self) -> Option<Time> {
        self.has_ticks.then(|| self.now())
    }

    /// The time now.
    pub fn read(&mut self) -> Time {
        if self.has_ticks {
            // First, so that the time is never older than it seems.
            self.ticks = ticks::count();
        }
        self.now = now();
        self.now
    }
}

impl Default for RecentClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a time that was read at `then` is good enough at `at`. Two processors' counters may differ by a little; what
/// seems to lie ahead is far away, too.
#[inline]
fn is_fresh(then: u64, at: u64) -> bool {
    at.wrapping_sub(then) < FRESH_TICKS
}

/// What to add to [`now`], in nanoseconds, to get nanoseconds since 1970. It changes when somebody sets the
/// machine's clock.
pub fn wall_offset_ns() -> u64 {
    read(libc::CLOCK_REALTIME).saturating_sub(read(libc::CLOCK_MONOTONIC))
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a timespec of ours, and the call keeps nothing of it. It fails for unknown clocks only.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    // Neither clock is negative on a running machine; 2^64 ns are 584 years.
    t.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.cast_unsigned())
}

/// The processor's counter of ticks.
#[cfg(target_arch = "x86_64")]
mod ticks {
    use core::arch::x86_64::{__cpuid, _rdtsc};

    /// Whether it goes on at one pace, asleep or awake ("invariant TSC"), and the program may read it.
    pub(super) fn are_steady() -> bool {
        const POWER: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        is_allowed() && __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & INVARIANT_TSC != 0
    }

    /// Whether reading it is no fault (`PR_SET_TSC`).
    fn is_allowed() -> bool {
        let mut allowed = 0;
        // SAFETY: the kernel writes one `int`, which outlives the call.
        let result = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut allowed) };
        result == 0 && allowed == libc::PR_TSC_ENABLE
    }

    #[inline]
    pub(super) fn count() -> u64 {
        // SAFETY: every processor of this kind has the instruction, and it touches no memory. A program that has forbidden
        // itself to read the counter ends with a signal.
        unsafe { _rdtsc() }
    }
}

/// No counter is used on other processors.
#[cfg(not(target_arch = "x86_64"))]
mod ticks {
    pub(super) fn are_steady() -> bool {
        false
    }

    pub(super) fn count() -> u64 {
        0
    }
}

/// How long a time is good enough.
const FRESH_TICKS: u64 = 2000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_fresh_for_a_while() {
        let fresh =
            [0, 1, FRESH_TICKS - 1, FRESH_TICKS, u64::MAX].map(|later| is_fresh(70, later.wrapping_add(70)));
        assert_eq!(fresh, [true, true, true, false, false]);
    }

    #[test]
    fn a_recent_time_is_recent_and_never_ahead() {
        let mut clock = RecentClock::new();
        let mut last = Time::ZERO;
        for _ in 0..10_000 {
            let told = clock.now();
            assert!(last <= told && told <= now());
            last = told;
        }
        std::thread::sleep(Duration::from_millis(1));
        assert!(clock.now().since(last) >= Duration::from_millis(1));
    }

    #[test]
    fn time_does_not_run_backwards_and_wall_time_is_after_2020() {
        let first = now();
        assert!(now() >= first);
        assert!(first.plus_nanos(wall_offset_ns()).nanos() > 50 * 365 * 86_400 * 1_000_000_000);
    }
}
