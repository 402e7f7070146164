//! CPUs: where the two processes run, and how much time they use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The CPUs that this process may use.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// A CPU for each of the two processes, if there are two.
pub fn two() -> Option<[usize; 2]> {
    match allowed()[..] {
        [first, second, ..] => Some([first, second]),
        _ => None,
    }
}

/// Keeps this thread, and those that it will start, on one CPU; whether the system allows it. If not, only figures suffer.
pub fn pin(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// CPU time of all threads of this process so far, nanoseconds.
pub fn process_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Neither is negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
