//! Numbers as words, and rates.

use std::ffi::{CStr, c_char, c_int};

/// `ibv_wc_status_str`.
pub(crate) extern "C" fn wc_status_str(status: c_int) -> *const c_char {
    name(
        &[
            c"success",
            c"local length error",
            c"local QP operation error",
            c"local EE context operation error",
            c"local protection error",
            c"work request flushed",
            c"memory window bind error",
            c"bad response",
            c"local access error",
            c"remote invalid request",
            c"remote access error",
            c"remote operation error",
            c"transport retry counter exceeded",
            c"RNR retry counter exceeded",
            c"local RDD violation",
            c"remote invalid RD request",
            c"remote aborted",
            c"invalid EE context number",
            c"invalid EE context state",
            c"fatal error",
            c"response timeout",
            c"general error",
        ],
        status,
    )
}

/// `ibv_event_type_str`.
pub(crate) extern "C" fn event_type_str(event: c_int) -> *const c_char {
    name(
        &[
            c"completion queue error",
            c"queue pair fatal error",
            c"queue pair request error",
            c"queue pair access error",
            c"communication established",
            c"send queue drained",
            c"path migrated",
            c"path migration failed",
            c"device fatal error",
            c"port active",
            c"port error",
            c"LID change",
            c"partition key change",
            c"subnet manager change",
            c"shared receive queue error",
            c"shared receive queue limit reached",
            c"last work request reached",
            c"client reregistration",
            c"GID table change",
            c"work queue fatal error",
        ],
        event,
    )
}

/// `ibv_port_state_str`.
pub(crate) extern "C" fn port_state_str(state: c_int) -> *const c_char {
    const STATES: [&CStr; 6] = [c"no state change", c"down", c"init", c"armed", c"active", c"active defer"];
    name(&STATES, state)
}

/// `ibv_node_type_str`. The numbers start at 1.
pub(crate) extern "C" fn node_type_str(node_type: c_int) -> *const c_char {
    const TYPES: [&CStr; 8] = [
        c"unknown",
        c"channel adapter",
        c"switch",
        c"router",
        c"RNIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(&TYPES, node_type)
}

fn name(names: &[&'static CStr], number: c_int) -> *const c_char {
    let found = usize::try_from(number).ok().and_then(|number| names.get(number));
    found.copied().unwrap_or(c"unknown").as_ptr()
}

/// A rate of `enum ibv_rate`: its value, how many times 2.5 Gbit/s it is (if a whole number of times), and Mbit/s.
struct Rate {
    value: c_int,
    mult: Option<c_int>,
    mbps: c_int,
}

const fn rate(value: c_int, mult: Option<c_int>, mbps: c_int) -> Rate {
    Rate { value, mult, mbps }
}

const RATES: [Rate; 23] = [
    rate(2, Some(1), 2_500),
    rate(5, Some(2), 5_000),
    rate(3, Some(4), 10_000),
    rate(6, Some(8), 20_000),
    rate(4, Some(12), 30_000),
    rate(7, Some(16), 40_000),
    rate(8, Some(24), 60_000),
    rate(9, Some(32), 80_000),
    rate(10, Some(48), 120_000),
    rate(11, None, 14_062),
    rate(12, None, 56_250),
    rate(13, None, 112_500),
    rate(14, None, 168_750),
    rate(15, None, 25_781),
    rate(16, None, 103_125),
    rate(17, None, 206_250),
    rate(18, None, 309_375),
    rate(19, None, 28_125),
    rate(20, None, 53_125),
    rate(21, None, 425_000),
    rate(22, None, 637_500),
    rate(23, None, 850_000),
    rate(24, None, 1_275_000),
];

/// `ibv_rate_to_mult`; -1 if there is none.
pub(crate) extern "C" fn rate_to_mult(value: c_int) -> c_int {
    RATES.iter().find(|rate| rate.value == value).and_then(|rate| rate.mult).unwrap_or(-1)
}

/// `mult_to_ibv_rate`; 0, the fastest of the port, if there is none.
pub(crate) extern "C" fn mult_to_rate(mult: c_int) -> c_int {
    RATES.iter().find(|rate| rate.mult == Some(mult)).map_or(0, |rate| rate.value)
}

/// `ibv_rate_to_mbps`; -1 if there is no such rate.
pub(crate) extern "C" fn rate_to_mbps(value: c_int) -> c_int {
    RATES.iter().find(|rate| rate.value == value).map_or(-1, |rate| rate.mbps)
}

/// `mbps_to_ibv_rate`; 0, the fastest of the port, if there is none.
pub(crate) extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|rate| rate.mbps == mbps).map_or(0, |rate| rate.value)
}

#[cfg(test)]
mod tests {
    use userdma_verbs::WcStatus;

    use super::*;

    #[test]
    fn statuses_have_the_words_that_the_rest_of_the_project_uses() {
        use WcStatus as S;
        for status in [S::Success, S::LocLenErr, S::LocProtErr, S::WrFlushErr, S::RetryExcErr, S::GeneralErr]
        {
            // SAFETY: a static string.
            let word = unsafe { CStr::from_ptr(wc_status_str(status as c_int)) };
            assert_eq!(word.to_str(), Ok(status.as_str()));
        }
        // SAFETY: a static string.
        assert_eq!(unsafe { CStr::from_ptr(wc_status_str(99)) }, c"unknown");
    }

    #[test]
    fn rates_convert_there_and_back() {
        for rate in &RATES {
            assert_eq!(mbps_to_rate(rate_to_mbps(rate.value)), rate.value);
        }
        assert_eq!((rate_to_mult(3), mult_to_rate(4), rate_to_mult(11), mult_to_rate(3)), (4, 3, -1, 0));
    }
}
