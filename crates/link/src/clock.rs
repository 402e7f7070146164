//! The clock: the one place that reads it. Everybody else is told the time.
//!
//! Through the C library, which finds the kernel's shared clock wherever the program runs; under valgrind there is none.

use userdma_verbs::Time;

/// Nanoseconds since the machine started, time asleep not counted (`CLOCK_MONOTONIC`). Needs no system call where the
/// kernel shares its clock.
#[inline]
pub fn now() -> Time {
    Time::from_nanos(read(libc::CLOCK_MONOTONIC))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards_and_wall_time_is_after_2020() {
        let first = now();
        assert!(now() >= first);
        assert!(first.plus_nanos(wall_offset_ns()).nanos() > 50 * 365 * 86_400 * 1_000_000_000);
    }
}
