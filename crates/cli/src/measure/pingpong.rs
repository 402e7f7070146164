//! Latency: a message goes to and fro.

use userdma_link::clock;
use userdma_verbs::Time;

use super::Outcome;
use crate::failure::Failure;

/// A way to pass messages to and fro, each of which begins with a number.
pub(super) trait PingPong {
    /// Bytes of a message.
    fn len(&self) -> usize {
        8
    }

    /// Sends a number: as many of its low bytes as fit.
    fn send(&mut self, value: u64) -> Result<(), Failure>;

    /// Waits for a number.
    fn receive(&mut self) -> Result<u64, Failure>;
}

/// Sends numbers and takes the time until they are back.
pub(super) fn lead(way: &mut impl PingPong, slice_ns: u64) -> Result<Outcome, Failure> {
    let (len, trips) = (way.len() as u64, trips(way.len()));
    let mut next = 1;
    let mut window = |way: &mut _| window(way, &mut next);
    window(way)?;
    let start = clock::now();
    let mut half_trips_us = Vec::new();
    let mut before = start;
    while before.since(start).as_nanos() < slice_ns.into() {
        window(way)?;
        let now = clock::now();
        // Exact up to weeks.
        half_trips_us.push(now.since(before).as_nanos() as f64 / (2 * trips) as f64 / 1000.0);
        before = now;
    }
    way.send(mask(way.len()))?;
    let messages = half_trips_us.len() as u64 * trips * 2;
    let ns = u64::try_from(before.since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: Some(median(&mut half_trips_us)), bytes: len * messages, messages, ns })
}

/// Sends back what comes.
pub(super) fn follow(way: &mut impl PingPong) -> Result<(), Failure> {
    loop {
        match way.receive()? {
            stop if stop == mask(way.len()) => return Ok(()),
            value => way.send(value)?,
        }
    }
}

fn window(way: &mut impl PingPong, next: &mut u64) -> Result<(), Failure> {
    let last = mask(way.len()) - 1;
    for _ in 0..trips(way.len()) {
        way.send(*next)?;
        let back = way.receive()?;
        if back != *next {
            return Err(Failure::new(format!("{back:#x} came back for {next:#x}")));
        }
        *next = *next % last + 1;
    }
    Ok(())
}

/// Round trips between two looks at the clock.
fn trips(len: usize) -> u64 {
    if len <= 1 << 16 { 32 } else { 2 }
}

/// The largest number that a message of `len` bytes has room for; it ends the game.
pub(super) fn mask(len: usize) -> u64 {
    if len < 8 { (1 << (8 * len)) - 1 } else { u64::MAX }
}

/// Puts a number where a message begins.
pub(super) fn put(message: &mut [u8], value: u64) {
    let len = message.len().min(8);
    message[..len].copy_from_slice(&value.to_le_bytes()[..len]);
}

/// The number that a message begins with.
pub(super) fn number(message: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = message.len().min(8);
    bytes[..len].copy_from_slice(&message[..len]);
    u64::from_le_bytes(bytes)
}

/// Ends a loop that spins for longer than anything can take. It reads the clock rarely.
#[derive(Debug, Default)]
pub(super) struct Patience {
    turns: u32,
    since: Option<Time>,
}

impl Patience {
    /// One more turn.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(1 << 16) {
            return Ok(());
        }
        let now = clock::now();
        let since = *self.since.get_or_insert(now);
        if now.since(since).as_secs() < 5 { Ok(()) } else { Err(Failure::new("no answer within 5 s")) }
    }
}

/// The median; not a number if there is none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn numbers_fit_into_messages_of_any_length() {
        for len in [1, 2, 7, 8, 100] {
            let mut message = vec![0; len];
            put(&mut message, mask(len) - 1);
            assert_eq!(number(&message), mask(len) - 1, "{len}");
        }
    }

    struct Echo(Vec<u64>, bool);

    impl PingPong for Echo {
        fn send(&mut self, value: u64) -> Result<(), Failure> {
            self.0.push(value);
            Ok(())
        }

        fn receive(&mut self) -> Result<u64, Failure> {
            let value = self.0.last().copied().unwrap();
            Ok(if self.1 && value == 40 { 41 } else { value })
        }
    }

    #[test]
    fn a_wrong_number_is_noticed() {
        let outcome = lead(&mut Echo(Vec::new(), false), 1).unwrap();
        assert_eq!((outcome.messages, outcome.bytes), (64, 512));
        let error = lead(&mut Echo(Vec::new(), true), 1_000_000).unwrap_err();
        assert_eq!(error.to_string(), "0x29 came back for 0x28");
    }
}
