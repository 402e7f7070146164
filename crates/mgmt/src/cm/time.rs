//! How long things take: exponents of 4.096 µs, as messages carry them, and bounds, as messages may carry anything.

use std::time::Duration;

/// 4.096 µs · 2^`exponent`; exponents above 24 (69 s) are taken as 24, or a peer could make us wait for hours.
pub(super) const fn timeout(exponent: u8) -> Duration {
    let exponent = if exponent > MAX_EXPONENT { MAX_EXPONENT } else { exponent };
    Duration::from_nanos(4096 << exponent)
}

/// How long an answer takes at most: there and back, and the peer's time to think.
pub(super) fn answer_time(packet_life_time: u8, response_timeout: u8) -> Duration {
    2 * timeout(packet_life_time) + timeout(response_timeout)
}

/// The local ACK timeout of a path whose other end takes `ack_delay` to acknowledge, as exponents: the longer of the
/// round trip and the delay, and one more where both are alike. As `cm.c cm_ack_timeout()`.
pub(crate) fn ack_timeout(ack_delay: u8, packet_life_time: u8) -> u8 {
    let round_trip = packet_life_time.saturating_add(1);
    let longer = round_trip.max(ack_delay);
    let is_alike = round_trip.abs_diff(ack_delay) <= 1;
    longer.saturating_add(u8::from(is_alike)).min(31)
}

/// How long a connection stays in timewait. As `cm.c cm_enter_timewait()`, where it is the ACK timeout.
pub(super) fn timewait(ack_timeout: u8) -> Duration {
    timeout(ack_timeout).min(MAX_TIMEWAIT)
}

/// How long an answer is kept for a question that is asked again: until the peer has asked twice more.
pub(super) fn linger(peers_wait: Duration) -> Duration {
    (2 * peers_wait + timeout(16)).min(MAX_LINGER)
}

const MAX_EXPONENT: u8 = 24;
const MAX_TIMEWAIT: Duration = Duration::from_secs(20);
const MAX_LINGER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_wait_of_a_req_is_the_kernels_within_its_rounding() {
        // The kernel counts milliseconds: 2 · 256 + 4096 (captured: 4.627 s).
        let wait = answer_time(16, 20);
        assert!(wait > Duration::from_millis(4608) && wait < Duration::from_millis(4900), "{wait:?}");
    }

    #[test]
    fn ack_timeouts_are_the_kernels() {
        for ((delay, life), expected) in [
            ((15, 16), 17),
            ((16, 16), 18),
            ((17, 16), 18),
            ((18, 16), 19),
            ((20, 16), 20),
            ((0, 16), 17),
            ((31, 31), 31),
        ] {
            assert_eq!(ack_timeout(delay, life), expected, "delay {delay}, life {life}");
        }
    }

    #[test]
    fn nobody_makes_us_wait_for_hours() {
        assert_eq!(timeout(255), timeout(24));
        assert!(timewait(31) <= MAX_TIMEWAIT && linger(timeout(31)) <= MAX_LINGER);
    }
}
