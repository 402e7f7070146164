//! Time as an argument: nanoseconds since the host started, and the encodings of timeouts.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds since an origin that the host chooses. Never read from a clock below floor 5.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any time that occurs: some 584 years after the origin.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` plus `nanos` nanoseconds; [`Time::NEVER`] absorbs the overflow.
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        self.plus_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// The local ACK timeout of a queue pair: 5 bits, 4.096 µs · 2^n; 0 waits for ever.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// The timeout with exponent `exponent`: 0 ..= 31, `None` above.
    pub const fn new(exponent: u8) -> Option<Self> {
        if exponent < 32 { Some(Self(exponent)) } else { None }
    }

    /// The exponent: 0 ..= 31.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// How long to wait for an answer; `None` is for ever.
    pub const fn duration(self) -> Option<Duration> {
        if self.0 == 0 { None } else { Some(Duration::from_nanos(4096 << self.0)) }
    }

    /// When a wait that begins at `now` is over; `None` is never.
    pub const fn deadline(self, now: Time) -> Option<Time> {
        if self.0 == 0 { None } else { Some(now.plus_nanos(4096 << self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_fourteen_is_67_ms_and_zero_is_for_ever() {
        assert_eq!(
            AckTimeout::new(14).and_then(AckTimeout::duration),
            Some(Duration::from_nanos(67_108_864))
        );
        assert_eq!(AckTimeout::new(0).and_then(AckTimeout::duration), None);
        assert_eq!(AckTimeout::new(32), None);
        let timeout = AckTimeout::new(14).unwrap();
        assert_eq!(timeout.deadline(Time(5)), Some(Time(5) + timeout.duration().unwrap()));
        assert_eq!(AckTimeout::default().deadline(Time(5)), None);
    }

    #[test]
    fn time_saturates() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Time::from_nanos(5), Duration::ZERO);
    }
}
