//! The lease: how long the progress thread stays away because somebody polls.
//!
//! A program that polls its completion queue drives the device itself; a thread that wakes for the same packets takes
//! half of its speed. A program that polls its memory, or computes, needs the thread. So the thread stays away for a period and
//! looks whether the count of polls has moved. The period adapts: it halves when the program had stopped polling
//! and packets were waiting, down to 0; it doubles when polls go on and nothing waits.

/// The lease's state: numbers in, a verdict out.
#[derive(Debug)]
pub(crate) struct Lease {
    period_ns: u64,
    polls: u64,
    away: bool,
}

/// What the thread sees when it looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Look {
    /// Polls counted so far. Only differences matter.
    pub(crate) polls: u64,
    /// What the count was when a completion queue was armed last.
    pub(crate) armed_at: u64,
    /// Whether a thread waits for an event: it drives.
    pub(crate) is_waited: bool,
}

/// What the thread does now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Duty {
    /// Drive, then sleep until a packet comes or something is due.
    Serve,
    /// Sleep for so many nanoseconds whatever comes, then look again.
    Away(u64),
    /// Sleep until called: a waiter drives.
    Park,
}

impl Lease {
    /// The longest period, and the first.
    pub(crate) const MAX_NS: u64 = 50_000;
    /// The shortest period but 0.
    pub(crate) const MIN_NS: u64 = 1_000;
    /// How long the thread stays away from a waiter before it looks whether it is still needed.
    pub(crate) const WAITER_NS: u64 = 200_000;

    pub(crate) fn new() -> Self {
        Self { period_ns: Self::MAX_NS, polls: 0, away: false }
    }

    /// The verdict. `is_packet_waiting` is asked if it matters.
    pub(crate) fn look(&mut self, look: &Look, is_packet_waiting: impl FnOnce() -> bool) -> Duty {
        let moved = look.polls != self.polls;
        // A program that arms its queue polls once more and then sleeps.
        let polling = moved && look.polls.wrapping_sub(look.armed_at) > 1;
        self.polls = look.polls;
        if look.is_waited {
            self.away = moved;
            return if moved { Duty::Away(Self::WAITER_NS) } else { Duty::Park };
        }
        match (self.away, polling) {
            (true, true) => {
                if self.period_ns < Self::MAX_NS && !is_packet_waiting() {
                    self.grow();
                }
            }
            (true, false) => {
                if is_packet_waiting() {
                    self.shrink();
                }
            }
            (false, true) if self.period_ns == 0 => {
                if !is_packet_waiting() {
                    self.grow();
                }
            }
            (false, true | false) => {}
        }
        self.away = polling && self.period_ns > 0;
        if self.away { Duty::Away(self.period_ns) } else { Duty::Serve }
    }

    fn grow(&mut self) {
        self.period_ns = (self.period_ns * 2).clamp(Self::MIN_NS, Self::MAX_NS);
    }

    fn shrink(&mut self) {
        self.period_ns /= 2;
        if self.period_ns < Self::MIN_NS {
            self.period_ns = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Looks with a poll count, nothing armed, nobody waiting.
    fn look(lease: &mut Lease, polls: u64, waiting: bool) -> Duty {
        lease.look(&Look { polls, armed_at: u64::MAX / 2, is_waited: false }, || waiting)
    }

    #[test]
    fn a_poller_keeps_the_thread_away_for_50_us_at_a_time() {
        let mut lease = Lease::new();
        assert_eq!(look(&mut lease, 0, false), Duty::Serve);
        for polls in 1..100 {
            assert_eq!(look(&mut lease, polls * 100, polls % 3 == 0), Duty::Away(50_000));
        }
        assert_eq!(look(&mut lease, 9_900, false), Duty::Serve, "it has stopped");
        assert_eq!(look(&mut lease, 9_900, true), Duty::Serve);
    }

    #[test]
    fn packets_that_wait_for_a_program_that_stopped_polling_halve_the_lease_to_nothing() {
        let mut lease = Lease::new();
        let mut periods = Vec::new();
        for polls in (1..20).step_by(2) {
            if let Duty::Away(ns) = look(&mut lease, polls, true) {
                periods.push(ns);
                assert_eq!(look(&mut lease, polls, true), Duty::Serve);
            }
        }
        assert_eq!(periods, [50_000, 25_000, 12_500, 6_250, 3_125, 1_562]);
        assert_eq!(look(&mut lease, 100, true), Duty::Serve, "from now on the thread is always there");
    }

    #[test]
    fn polls_that_go_on_with_nothing_waiting_bring_the_lease_back() {
        let mut lease = Lease { period_ns: 0, polls: 0, away: false };
        let duties: Vec<_> = (1..9).map(|polls| look(&mut lease, polls, false)).collect();
        let away = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000, 50_000].map(Duty::Away);
        assert_eq!(duties, away);
    }

    #[test]
    fn arming_ends_the_lease() {
        let mut lease = Lease::new();
        assert_eq!(look(&mut lease, 1000, false), Duty::Away(50_000));
        // Armed after 1,500 polls, one more poll as the verbs demand, then asleep.
        let armed = Look { polls: 1501, armed_at: 1500, is_waited: false };
        assert_eq!(lease.look(&armed, || false), Duty::Serve);
        let polling = Look { polls: 1600, armed_at: 1500, is_waited: false };
        assert_eq!(lease.look(&polling, || false), Duty::Away(50_000));
    }

    #[test]
    fn the_thread_steps_aside_for_a_waiter_and_parks_when_it_is_quiet() {
        let mut lease = Lease::new();
        let waited = |polls| Look { polls, armed_at: polls, is_waited: true };
        let mut look = |polls| lease.look(&waited(polls), || unreachable!("nobody cares"));
        assert_eq!(look(3), Duty::Away(200_000));
        assert_eq!(look(4), Duty::Away(200_000));
        assert_eq!(look(4), Duty::Park);
    }
}
