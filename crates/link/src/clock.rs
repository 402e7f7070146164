//! The clock: the one place that reads it. Everybody else is told the time.

use rustix::time::{ClockId, clock_gettime};
use userdma_verbs::Time;

/// Nanoseconds since the machine started, time asleep not counted (`CLOCK_MONOTONIC`). Needs no system call where the
/// kernel shares its clock.
pub fn now() -> Time {
    Time::from_nanos(read(ClockId::Monotonic))
}

/// What to add to [`now`], in nanoseconds, to get nanoseconds since 1970. It changes when somebody sets the
/// machine's clock.
pub fn wall_offset_ns() -> u64 {
    read(ClockId::Realtime).saturating_sub(read(ClockId::Monotonic))
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    // Neither clock is negative on a running machine; 2^64 ns are 584 years.
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
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
