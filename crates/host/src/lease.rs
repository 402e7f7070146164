//! The lease: how long the progress thread stays away because somebody polls.
//!
//! A program that polls its completion queue drives the device itself; a thread that wakes for the same packets takes
//! half of its speed. A program that polls its memory, or computes, needs the thread. So the thread stays away for a
//! period and looks whether the count of polls has moved. The period adapts: it halves when packets are waiting at its
//! end though the program polls seldom, or no longer, down to 0; it doubles when polls go on and nothing waits.
//!
//! A program that polls all the time (fast, or with packets to handle in each poll) is looked after less often still:
//! packets that wait are its own business, and looking costs it some percent of its time. Unless it has been found to turn to
//! its memory in between, and to wait there for a packet that nobody took: then the long periods come back slowly.
//!
//! A thread that waits for events drives as well, and between two events the program is expected back soon. Looking
//! after it costs a wake-up each time, so the thread looks more and more seldom while events keep coming, and parks when
//! none come.

/// The lease's state: numbers in, a verdict out.
#[derive(Debug)]
pub(crate) struct Lease {
    period_ns: u64,
    /// What a spinning program's period grows to at most.
    ceiling_ns: u64,
    /// Looks since the ceiling was moved.
    calm: u32,
    polls: u64,
    /// The thread was away on the lease.
    away: bool,
    /// How long the thread stays away from a program that waits for events.
    event_period_ns: u64,
    /// The thread was away because a program waited for events; how often since then nobody did. `None`: it was not.
    missed: Option<u32>,
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
    /// Sleep for so many nanoseconds whatever comes, because somebody polls, then look again.
    Away(u64),
    /// The same because somebody waits for events.
    AwayFromWaiter(u64),
    /// Sleep until called: a waiter drives.
    Park,
}

impl Lease {
    /// The longest period, and the first, unless the program polls as fast as it can.
    pub(crate) const MAX_NS: u64 = 50_000;
    /// The longest period then. A wake-up costs a spinning program some 15 µs of one round trip, so few are better; a program
    /// that turns to polling its memory waits once as long.
    pub(crate) const SPINNING_NS: u64 = 3_200_000;
    /// Looks without such a wait after which the longest period doubles, if it was made shorter. So a program that turns to its
    /// memory again waits there for a thirtieth of the time for which it has been spinning, at most; one that goes on spinning
    /// loses some hundred wake-ups, within a tenth of a second, until it is alone again.
    const CALM_LOOKS: u32 = 16;
    /// Nanoseconds per poll of such a program, at most. A poll that brings packets counts as many.
    const SPIN_NS: u64 = 4_000;
    /// The shortest period but 0.
    pub(crate) const MIN_NS: u64 = 1_000;
    /// The first after 0 for a program that polls all the time: so long that its polls show again, even if it has only just got
    /// the processor back from this thread.
    pub(crate) const BACK_NS: u64 = 20_000;
    /// Polls between two wake-ups by packets that show a program which polls all the time.
    pub(crate) const MANY_POLLS: u64 = 16;
    /// How long the thread stays away at first from a program that waits for events.
    pub(crate) const EVENT_MIN_NS: u64 = 200_000;
    /// And at last.
    pub(crate) const EVENT_MAX_NS: u64 = 3_200_000;

    pub(crate) fn new() -> Self {
        Self {
            period_ns: Self::MAX_NS,
            ceiling_ns: Self::SPINNING_NS,
            calm: 0,
            polls: 0,
            away: false,
            event_period_ns: Self::EVENT_MIN_NS,
            missed: None,
        }
    }

    /// The verdict. `is_packet_waiting` is asked if it matters.
    pub(crate) fn look(&mut self, look: &Look, is_packet_waiting: impl Fn() -> bool) -> Duty {
        let polls = look.polls.wrapping_sub(self.polls);
        let moved = polls != 0;
        // A program that arms its queue polls once more and then sleeps.
        let polling = moved && look.polls.wrapping_sub(look.armed_at) > 1;
        self.polls = look.polls;
        if let Some(duty) = self.look_at_events(look.is_waited, moved, &is_packet_waiting) {
            self.away = false;
            return duty;
        }
        match (self.away, polling) {
            (true, true) => {
                if polls.saturating_mul(Self::SPIN_NS) >= self.period_ns {
                    self.raise_ceiling();
                    self.period_ns = (self.period_ns * 2).clamp(Self::MIN_NS, self.ceiling_ns);
                } else if is_packet_waiting() {
                    self.shrink();
                } else {
                    self.grow();
                }
            }
            (true, false) => {
                if is_packet_waiting() {
                    (self.ceiling_ns, self.calm) = (Self::MAX_NS, 0);
                    self.shrink();
                }
            }
            (false, true) if self.period_ns == 0 => {
                // The packet that woke the thread is always waiting: many polls tell a program that drives.
                if polls >= Self::MANY_POLLS {
                    self.period_ns = Self::BACK_NS;
                } else if !is_packet_waiting() {
                    self.grow();
                }
            }
            (false, true | false) => {}
        }
        self.away = polling && self.period_ns > 0;
        if self.away { Duty::Away(self.period_ns) } else { Duty::Serve }
    }

    /// The verdict if the program waits for events, or did so a moment ago.
    fn look_at_events(
        &mut self,
        is_waited: bool,
        moved: bool,
        is_packet_waiting: impl Fn() -> bool,
    ) -> Option<Duty> {
        let was_waited = self.missed.is_some();
        let missed = if is_waited { 0 } else { self.missed? + 1 };
        if !is_waited && (!moved || missed > 1) {
            self.missed = None;
            if !moved && is_packet_waiting() {
                self.event_period_ns = Self::EVENT_MIN_NS;
            }
            return None;
        }
        self.missed = Some(missed);
        if !moved {
            return Some(Duty::Park);
        }
        if was_waited {
            self.event_period_ns = (self.event_period_ns * 2).min(Self::EVENT_MAX_NS);
        }
        Some(Duty::AwayFromWaiter(self.event_period_ns))
    }

    fn grow(&mut self) {
        self.period_ns = (self.period_ns * 2).clamp(Self::MIN_NS, Self::MAX_NS);
    }

    fn raise_ceiling(&mut self) {
        self.calm += 1;
        if self.calm >= Self::CALM_LOOKS {
            self.calm = 0;
            self.ceiling_ns = (self.ceiling_ns * 2).min(Self::SPINNING_NS);
        }
    }

    fn shrink(&mut self) {
        self.period_ns = self.period_ns.min(Self::MAX_NS) / 2;
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
            assert_eq!(look(&mut lease, polls * 5, false), Duty::Away(50_000));
        }
        assert_eq!(look(&mut lease, 495, false), Duty::Serve, "it has stopped");
        assert_eq!(look(&mut lease, 495, true), Duty::Serve);
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
        assert_eq!(look(&mut lease, 21, true), Duty::Serve, "from now on the thread is always there");
    }

    #[test]
    fn packets_that_wait_for_a_program_that_polls_seldom_halve_it_too() {
        let mut lease = Lease::new();
        let periods = [1, 2, 3, 4].map(|polls| look(&mut lease, polls, true));
        assert_eq!(periods, [50_000, 25_000, 12_500, 6_250].map(Duty::Away));
    }

    #[test]
    fn many_polls_bring_the_lease_back_though_the_packet_that_woke_the_thread_waits() {
        let mut lease = Lease { period_ns: 0, ..Lease::new() };
        assert_eq!(look(&mut lease, 1, true), Duty::Serve, "a program that polls its memory");
        assert_eq!(look(&mut lease, 1 + Lease::MANY_POLLS, true), Duty::Away(Lease::BACK_NS));
    }

    /// Some 0.5 µs a poll, and a packet is always waiting: from nothing the lease comes to its longest.
    #[test]
    fn a_spinning_program_gets_the_whole_lease_back() {
        let mut lease = Lease { period_ns: 0, ..Lease::new() };
        let mut polls = 0;
        for _ in 0..20 {
            let away = match look(&mut lease, polls, true) {
                Duty::Away(ns) => ns,
                Duty::Serve => 20_000,
                Duty::AwayFromWaiter(_) | Duty::Park => panic!("nobody waits"),
            };
            // Half of it is lost in switching.
            polls += away / 2 / 500;
        }
        polls += 1000;
        assert_eq!(look(&mut lease, polls, true), Duty::Away(Lease::SPINNING_NS));
    }

    #[test]
    fn polls_that_go_on_with_nothing_waiting_bring_the_lease_back() {
        let mut lease = Lease { period_ns: 0, ..Lease::new() };
        let duties: Vec<_> = (1..9).map(|polls| look(&mut lease, polls, false)).collect();
        let away = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000, 50_000].map(Duty::Away);
        assert_eq!(duties, away);
    }

    #[test]
    fn a_program_that_does_nothing_but_poll_is_looked_after_less_often() {
        let mut lease = Lease::new();
        let mut polls = 0;
        let mut look_after = |more| {
            polls += more;
            look(&mut lease, polls, true)
        };
        let periods = [20, 20, 50, 100, 200, 400, 800, 800].map(&mut look_after);
        let away = [50, 100, 200, 400, 800, 1_600, 3_200, 3_200].map(|us| Duty::Away(1_000 * us));
        assert_eq!(periods, away);
        assert_eq!(look_after(10), Duty::Away(25_000), "it does other things as well");
    }

    #[test]
    fn a_program_that_waits_at_its_memory_now_and_then_is_looked_after_sooner_for_a_while() {
        let mut lease = Lease::new();
        let mut polls = 0;
        let mut spin = |lease: &mut Lease, looks: u32| {
            let mut last = Duty::Serve;
            for _ in 0..looks {
                polls += 1000;
                last = look(lease, polls, false);
            }
            (last, polls)
        };
        let (last, polls) = spin(&mut lease, 10);
        assert_eq!(last, Duty::Away(Lease::SPINNING_NS));
        assert_eq!(look(&mut lease, polls, true), Duty::Serve, "a packet came, and no poll");
        assert_eq!(spin(&mut lease, Lease::CALM_LOOKS - 1).0, Duty::Away(Lease::MAX_NS));
        assert_eq!(spin(&mut lease, Lease::CALM_LOOKS).0, Duty::Away(2 * Lease::MAX_NS));
        assert_eq!(spin(&mut lease, 10 * Lease::CALM_LOOKS).0, Duty::Away(Lease::SPINNING_NS));
    }

    #[test]
    fn a_program_that_comes_back_after_a_rest_spins_alone_within_a_tenth_of_a_second() {
        let mut lease = Lease::new();
        let (mut polls, mut away_ns, mut looks) = (1000, 0, 0);
        look(&mut lease, polls, false);
        assert_eq!(look(&mut lease, polls, true), Duty::Serve, "its last packet came when it had gone");
        while away_ns < 100_000_000 {
            polls += 1000;
            if let Duty::Away(ns) = look(&mut lease, polls, false) {
                away_ns += ns;
                looks += 1;
            }
        }
        polls += 1000;
        assert_eq!(look(&mut lease, polls, false), Duty::Away(Lease::SPINNING_NS));
        assert!(looks < 200, "{looks} wake-ups of 15 µs are less than 3 % of it");
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

    /// Looks at a program that waits for events, or does not just now.
    fn look_at(lease: &mut Lease, polls: u64, is_waited: bool, waiting: bool) -> Duty {
        lease.look(&Look { polls, armed_at: polls - 1, is_waited }, || waiting)
    }

    #[test]
    fn the_thread_steps_aside_for_a_waiter_and_parks_when_it_is_quiet() {
        let mut lease = Lease::new();
        let periods: Vec<_> = (1..8).map(|polls| look_at(&mut lease, polls, polls != 3, false)).collect();
        let ns = [200, 400, 800, 1600, 3200, 3200, 3200].map(|us| Duty::AwayFromWaiter(us * 1000));
        assert_eq!(periods, ns, "once it looked between two events");
        assert_eq!(look_at(&mut lease, 7, true, false), Duty::Park);
    }

    #[test]
    fn the_thread_takes_over_when_nobody_waits_any_more() {
        let mut lease = Lease::new();
        for polls in 1..8 {
            look_at(&mut lease, polls, true, false);
        }
        assert_eq!(look_at(&mut lease, 7, false, true), Duty::Serve);
        assert_eq!(
            look_at(&mut lease, 8, true, false),
            Duty::AwayFromWaiter(200_000),
            "packets had to wait: look more often"
        );
    }

    #[test]
    fn a_program_that_turns_from_events_to_polling_gets_the_lease() {
        let mut lease = Lease::new();
        look_at(&mut lease, 1, true, false);
        assert_eq!(look(&mut lease, 100, false), Duty::AwayFromWaiter(400_000));
        assert_eq!(look(&mut lease, 200, false), Duty::Away(50_000));
    }
}
