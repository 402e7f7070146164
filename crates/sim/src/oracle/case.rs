//! Which program is run: a seed, and what is left out of it. As text it can be replayed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A program: everything that its seed draws, or what is kept of it.
///
/// As text the seed comes first, in hexadecimal, then what is kept, each part behind a comma:
/// `0x5eed0012,phases=1,requests=1.0.3+1.0.w,len=64,faults=17,calm`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Case {
    /// What everything is drawn from.
    pub seed: u64,
    /// The phases that are kept, counted from 0; `None`: all.
    pub phases: Option<BTreeSet<usize>>,
    /// The requests that are kept.
    pub requests: Option<BTreeSet<RequestId>>,
    /// The faults of the network that are kept, in the order in which they were drawn.
    pub faults: Option<BTreeSet<u64>>,
    /// No message is longer.
    pub len: Option<usize>,
    /// No host stands still, nobody stops sending, receives are posted at once.
    pub calm: bool,
}

/// A request of a program, by where it was drawn.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestId {
    /// The phase.
    pub phase: usize,
    /// The flow: twice the connection, plus the end that requests.
    pub flow: usize,
    /// Its number among the flow's requests of the phase; [`RequestId::WINDOW`] for what is done to a memory window.
    pub number: usize,
}

impl RequestId {
    /// The number of the request that binds or invalidates a flow's memory window.
    pub const WINDOW: usize = usize::MAX;
}

impl Case {
    /// All of the program of `seed`.
    pub fn whole(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Whether a phase is kept.
    pub(super) fn has_phase(&self, phase: usize) -> bool {
        self.phases.as_ref().is_none_or(|kept| kept.contains(&phase))
    }

    /// Whether a request is kept.
    pub(super) fn has_request(&self, id: RequestId) -> bool {
        self.requests.as_ref().is_none_or(|kept| kept.contains(&id))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.phase, self.flow)?;
        if self.number == Self::WINDOW { f.write_str("w") } else { write!(f, "{}", self.number) }
    }
}

impl FromStr for RequestId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('.').collect();
        let [phase, flow, number] = parts[..] else {
            return Err(format!("'{text}' is no request: PHASE.FLOW.NUMBER, or w as the number"));
        };
        let number = if number == "w" { Self::WINDOW } else { parse(number)? };
        Ok(Self { phase: parse(phase)?, flow: parse(flow)?, number })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.seed)?;
        if let Some(phases) = &self.phases {
            write!(f, ",phases={}", join(phases))?;
        }
        if let Some(requests) = &self.requests {
            write!(f, ",requests={}", join(requests))?;
        }
        if let Some(faults) = &self.faults {
            write!(f, ",faults={}", join(faults))?;
        }
        if let Some(len) = self.len {
            write!(f, ",len={len}")?;
        }
        if self.calm { f.write_str(",calm") } else { Ok(()) }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut case = Self::whole(parse_seed(parts.next().unwrap_or_default())?);
        for part in parts {
            match part.split_once('=') {
                None if part == "calm" => case.calm = true,
                Some(("phases", list)) => case.phases = Some(parse_list(list)?),
                Some(("requests", list)) => case.requests = Some(parse_list(list)?),
                Some(("faults", list)) => case.faults = Some(parse_list(list)?),
                Some(("len", len)) => case.len = Some(parse(len)?),
                Some(_) | None => return Err(format!("'{part}' is no part of a case")),
            }
        }
        Ok(case)
    }
}

/// A seed: decimal, or hexadecimal after `0x`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map_err(|error| format!("'{text}': {error}")),
        None => parse(text),
    }
}

fn join<T: ToString>(items: &BTreeSet<T>) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("+")
}

fn parse_list<T: FromStr<Err: fmt::Display> + Ord>(text: &str) -> Result<BTreeSet<T>, String> {
    text.split('+').filter(|item| !item.is_empty()).map(parse).collect()
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("'{text}': {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read() {
        let id = |phase, flow, number| RequestId { phase, flow, number };
        let case = Case {
            seed: 0x5eed_0012,
            phases: Some([1].into()),
            requests: Some([id(1, 0, 3), id(1, 2, RequestId::WINDOW)].into()),
            faults: Some(BTreeSet::new()),
            len: Some(64),
            calm: true,
        };
        let text = case.to_string();
        assert_eq!(text, "0x5eed0012,phases=1,requests=1.0.3+1.2.w,faults=,len=64,calm");
        assert_eq!(text.parse(), Ok(case));
        assert_eq!("17".parse(), Ok(Case::whole(17)));
        assert!("17,phase=1".parse::<Case>().is_err_and(|error| error.contains("phase=1")));
    }
}
