//! How long answers take, measured on packets that were sent once.

use userdma_verbs::{Psn, Time};

/// The round trip of one connection, smoothed, and how much it varies.
///
/// One packet at a time is timed, from when it leaves until it is answered. If anything is sent again meanwhile, nobody knows
/// which of the two was answered, and the measurement is given up.
#[derive(Debug)]
pub(super) struct RoundTrip {
    timed: Option<(Psn, Time)>,
    /// Nanoseconds; 0 before the first measurement.
    smoothed_ns: u64,
    deviation_ns: u64,
    patience_ns: u64,
    /// The shortest of all.
    least_ns: u64,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self { timed: None, smoothed_ns: 0, deviation_ns: 0, patience_ns: FIRST_PATIENCE_NS, least_ns: 0 }
    }
}

impl RoundTrip {
    /// A packet that asks for an answer leaves for the first time.
    #[inline]
    pub(super) fn begin(&mut self, psn: Psn, now: Time) {
        if self.timed.is_none() {
            self.timed = Some((psn, now));
        }
    }

    /// Something is sent again.
    pub(super) fn give_up(&mut self) {
        self.timed = None;
    }

    /// Everything before `una` is answered.
    #[inline]
    pub(super) fn handle_answer(&mut self, una: Psn, now: Time) {
        if let Some((psn, sent)) = self.timed
            && psn.is_before(una)
        {
            self.timed = None;
            self.learn(now.nanos().saturating_sub(sent.nanos()));
        }
    }

    fn learn(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns, self.least_ns) = (sample_ns, sample_ns / 2, sample_ns);
        } else {
            let off = self.smoothed_ns.abs_diff(sample_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8;
            self.least_ns = self.least_ns.min(sample_ns);
        }
        let overdue = self.smoothed_ns.saturating_add(self.deviation_ns.saturating_mul(4));
        self.patience_ns = overdue.max(LEAST_PATIENCE_NS);
    }

    /// How much of a window of `limit` bytes waits in queues instead of travelling, as the round trip is longer than the
    /// shortest; all of it if nothing is known.
    pub(super) fn queued(&self, limit: u32) -> u32 {
        let excess = self.smoothed_ns.saturating_sub(self.least_ns);
        match (u64::from(limit).saturating_mul(excess)).checked_div(self.smoothed_ns) {
            Some(bytes) => u32::try_from(bytes).unwrap_or(limit),
            None => limit,
        }
    }

    /// After how much silence an answer is overdue, nanoseconds.
    #[inline]
    pub(super) fn patience_ns(&self) -> u64 {
        self.patience_ns
    }
}

/// Silence that is never called overdue: a peer whose thread must be woken first, or shares a processor, takes as long.
const LEAST_PATIENCE_NS: u64 = 1_000_000;
/// The same before the first measurement.
const FIRST_PATIENCE_NS: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    #[test]
    fn patience_follows_the_round_trip_and_how_it_varies_but_is_a_millisecond_at_least() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.patience_ns(), FIRST_PATIENCE_NS);
        trip.begin(Psn::new(1), us(0));
        trip.handle_answer(Psn::new(2), us(20));
        assert_eq!(trip.patience_ns(), LEAST_PATIENCE_NS);
        for k in 1..100 {
            trip.begin(Psn::new(k), us(0));
            trip.handle_answer(Psn::new(k + 1), us(2000));
        }
        let steady = trip.patience_ns();
        assert!((2_000_000..2_100_000).contains(&steady), "{steady}");
        for k in 100..200 {
            trip.begin(Psn::new(k), us(0));
            trip.handle_answer(Psn::new(k + 1), us(if k % 2 == 0 { 1000 } else { 3000 }));
        }
        let shaky = trip.patience_ns();
        assert!((5_000_000..7_000_000).contains(&shaky), "{shaky}");
    }

    #[test]
    fn what_was_sent_twice_is_not_measured_and_one_packet_is_timed_at_a_time() {
        let mut trip = RoundTrip::default();
        trip.begin(Psn::new(5), us(0));
        trip.begin(Psn::new(6), us(3_000));
        trip.handle_answer(Psn::new(5), us(4_000));
        assert_eq!(trip.patience_ns(), FIRST_PATIENCE_NS, "those before it are answered, it is not");
        trip.give_up();
        trip.handle_answer(Psn::new(7), us(9_000));
        assert_eq!(trip.patience_ns(), FIRST_PATIENCE_NS);
    }

    #[test]
    fn what_the_round_trip_has_grown_by_was_spent_in_queues() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.queued(1000), 1000, "nothing is known");
        for k in 0..100 {
            trip.begin(Psn::new(k), us(0));
            trip.handle_answer(Psn::new(k + 1), us(if k < 10 { 50 } else { 200 }));
        }
        assert!((740..=750).contains(&trip.queued(1000)), "{}", trip.queued(1000));
    }
}
