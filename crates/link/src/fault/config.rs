//! Which faults, as people write them: `loss=0.01,dup=0.001,reorder=0.01,delay=1ms,corrupt=0.001,rnr=0.1,down=2s..3s,seed=7`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a bad network does. The default does nothing.
///
/// As text: fields `name=value`, separated by commas, each at most once, absent ones do nothing.
/// `loss`, `dup`, `reorder`, `corrupt` and `delay_share` are probabilities, 0 ..= 1, for each packet, `rnr` for each message that
/// needs a receive; `delay` is a number with `ns`, `us`, `ms` or `s`, `down` two of them, as `2s..3s`; `seed` is decimal, or
/// hexadecimal after `0x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that it comes twice.
    pub duplicate: f64,
    /// Probability that it is held back until 1 to 8 later ones have passed.
    pub reorder: f64,
    /// Probability that one of its bits is turned over.
    pub corrupt: f64,
    /// How long a delayed packet takes.
    pub delay: Duration,
    /// Probability that a packet is delayed, if `delay` is not zero; 1 unless said otherwise, which keeps the order.
    pub delay_share: f64,
    /// Probability that a message that needs a receive is answered as if none were posted. The device does this one: it is no
    /// fault of the network.
    pub rnr: f64,
    /// While the link is down: nothing comes in, nothing goes out, and the port says so.
    pub down: Option<Outage>,
    /// What the faults are drawn from.
    pub seed: u64,
}

/// A time without link, counted from when the faults begin, which is when the device is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outage {
    /// When the link goes down.
    pub from: Duration,
    /// When it comes back; later than `from`.
    pub until: Duration,
}

impl Faults {
    /// Whether it can do nothing at all.
    pub fn is_none(&self) -> bool {
        !self.is_of_network() && self.rnr <= 0.0
    }

    /// Whether it can do anything to the packets of a link.
    pub fn is_of_network(&self) -> bool {
        let delays = !self.delay.is_zero() && self.delay_share > 0.0;
        delays
            || self.down.is_some()
            || [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|&p| p > 0.0)
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay: Duration::ZERO,
            delay_share: 1.0,
            rnr: 0.0,
            down: None,
            seed: 0,
        }
    }
}

/// Why a text does not name faults.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseFaultsError {
    /// A part is not `name=value`.
    #[error("`{0}` is not of the form name=value")]
    NotAField(String),
    /// There is no such field.
    #[error(
        "there is no fault called `{0}`: use loss, dup, reorder, corrupt, delay, delay_share, rnr, down, seed"
    )]
    UnknownField(String),
    /// A field comes twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// Not a probability.
    #[error("{field}={value}: a probability from 0 to 1 is wanted")]
    Probability {
        /// The field.
        field: &'static str,
        /// What it was given.
        value: String,
    },
    /// Not a time.
    #[error("{field}={value}: a time is wanted, as 250us or 1.5ms (ns, us, ms, s; up to an hour)")]
    Duration {
        /// The field.
        field: &'static str,
        /// What it was given.
        value: String,
    },
    /// Not a time without link.
    #[error(
        "down={0}: two times are wanted, the second later, as 2s..3s or 500ms..1s (ns, us, ms, s; up to an hour)"
    )]
    Outage(String),
    /// Not a seed.
    #[error("seed={0}: a number below 2^64 is wanted, decimal or 0x and hexadecimal")]
    Seed(String),
}

impl FromStr for Faults {
    type Err = ParseFaultsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut faults = Self::default();
        let mut seen: Vec<&'static str> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| ParseFaultsError::NotAField(part.to_owned()))?;
            let name = faults.set(name.trim(), value.trim())?;
            if seen.contains(&name) {
                return Err(ParseFaultsError::Twice(name));
            }
            seen.push(name);
        }
        Ok(faults)
    }
}

impl Faults {
    /// Sets the field called `name`; returns its name.
    fn set(&mut self, name: &str, value: &str) -> Result<&'static str, ParseFaultsError> {
        let (name, probability) = match name {
            "loss" => ("loss", &mut self.loss),
            "dup" => ("dup", &mut self.duplicate),
            "reorder" => ("reorder", &mut self.reorder),
            "corrupt" => ("corrupt", &mut self.corrupt),
            "delay_share" => ("delay_share", &mut self.delay_share),
            "rnr" => ("rnr", &mut self.rnr),
            "down" => {
                self.down = Some(outage(value)?);
                return Ok("down");
            }
            "delay" => {
                self.delay = duration("delay", value)?;
                return Ok("delay");
            }
            "seed" => {
                self.seed = seed(value)?;
                return Ok("seed");
            }
            other => return Err(ParseFaultsError::UnknownField(other.to_owned())),
        };
        *probability = value
            .parse()
            .ok()
            .filter(|p| (0.0..=1.0).contains(p))
            .ok_or_else(|| ParseFaultsError::Probability { field: name, value: value.to_owned() })?;
        Ok(name)
    }
}

impl fmt::Display for Faults {
    /// The text that parses to the same faults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("loss", self.loss, 0.0),
            ("dup", self.duplicate, 0.0),
            ("reorder", self.reorder, 0.0),
            ("corrupt", self.corrupt, 0.0),
            ("delay_share", self.delay_share, 1.0),
            ("rnr", self.rnr, 0.0),
        ];
        for (name, value, _) in fields.iter().filter(|(_, value, default)| value != default) {
            write!(f, "{name}={value},")?;
        }
        if !self.delay.is_zero() {
            write!(f, "delay={}ns,", self.delay.as_nanos())?;
        }
        if let Some(Outage { from, until }) = self.down {
            write!(f, "down={}ns..{}ns,", from.as_nanos(), until.as_nanos())?;
        }
        write!(f, "seed={}", self.seed)
    }
}

fn duration(field: &'static str, value: &str) -> Result<Duration, ParseFaultsError> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let number = |(unit, seconds): &(&str, f64)| {
        value.strip_suffix(unit)?.trim().parse::<f64>().ok().map(|number| number * seconds)
    };
    UNITS
        .iter()
        .find_map(number)
        .filter(|seconds| (0.0..=3600.0).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| ParseFaultsError::Duration { field, value: value.to_owned() })
}

fn outage(value: &str) -> Result<Outage, ParseFaultsError> {
    let times = value.split_once("..").and_then(|(from, until)| {
        let time = |text: &str| duration("down", text.trim()).ok();
        Some(Outage { from: time(from)?, until: time(until)? })
    });
    times
        .filter(|outage| outage.from < outage.until)
        .ok_or_else(|| ParseFaultsError::Outage(value.to_owned()))
}

fn seed(value: &str) -> Result<u64, ParseFaultsError> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    }
    .map_err(|_| ParseFaultsError::Seed(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Faults>().unwrap_err().to_string()
    }

    #[test]
    fn all_fields_are_read() {
        let faults: Faults =
            "loss=0.01,dup=0.001, reorder=0.02,delay=1ms,corrupt=0.003,seed=7,delay_share=0.5,rnr=0.1,down=2s .. 2500ms"
                .parse()
                .unwrap();
        let wanted = Faults {
            loss: 0.01,
            duplicate: 0.001,
            reorder: 0.02,
            corrupt: 0.003,
            delay: Duration::from_millis(1),
            delay_share: 0.5,
            rnr: 0.1,
            down: Some(Outage { from: Duration::from_secs(2), until: Duration::from_millis(2500) }),
            seed: 7,
        };
        assert_eq!(faults, wanted);
        assert_eq!(faults.to_string().parse::<Faults>().unwrap(), wanted);
    }

    #[test]
    fn nothing_is_no_fault() {
        assert!("".parse::<Faults>().unwrap().is_none());
        assert!("seed=0xff".parse::<Faults>().unwrap().is_none());
        assert_eq!("seed=0xff".parse::<Faults>().unwrap().seed, 255);
        assert!(!"delay=10us".parse::<Faults>().unwrap().is_none());
        assert!(!"loss=1".parse::<Faults>().unwrap().is_none());
        assert!(!"down=0s..1ms".parse::<Faults>().unwrap().is_none());
        let rnr = "rnr=0.5".parse::<Faults>().unwrap();
        assert!(!rnr.is_none() && !rnr.is_of_network());
    }

    #[test]
    fn times_have_units() {
        let delay = |text: &str| text.parse::<Faults>().unwrap().delay;
        assert_eq!(delay("delay=250ns"), Duration::from_nanos(250));
        assert_eq!(delay("delay=1.5ms"), Duration::from_micros(1500));
        assert_eq!(delay("delay=2s"), Duration::from_secs(2));
    }

    #[test]
    fn errors_name_field_and_value() {
        assert_eq!(error("loss=1.5"), "loss=1.5: a probability from 0 to 1 is wanted");
        assert_eq!(error("dup=often"), "dup=often: a probability from 0 to 1 is wanted");
        assert_eq!(error("corrupt=NaN"), "corrupt=NaN: a probability from 0 to 1 is wanted");
        assert!(error("delay=5").starts_with("delay=5: a time is wanted"));
        assert!(error("delay=-1ms").starts_with("delay=-1ms: a time is wanted"));
        assert_eq!(error("rnr=2"), "rnr=2: a probability from 0 to 1 is wanted");
        for down in ["2s", "2s..1s", "1s..1s", "1..2", "..2s", "-1s..2s"] {
            assert!(
                error(&format!("down={down}")).starts_with(&format!("down={down}: two times are wanted"))
            );
        }
        assert!(error("seed=-1").starts_with("seed=-1: a number below 2^64"));
        assert!(error("lost=0.1").starts_with("there is no fault called `lost`"));
        assert_eq!(error("loss"), "`loss` is not of the form name=value");
        assert_eq!(error("loss=0.1,loss=0.2"), "loss is given twice");
    }
}
