//! Latency: eight bytes go to and fro.

use userdma_link::clock;
use userdma_verbs::Time;

use super::Outcome;
use crate::failure::Failure;

/// A way to pass eight bytes to and fro.
pub(super) trait PingPong {
    /// Sends a number.
    fn send(&mut self, value: u64) -> Result<(), Failure>;

    /// Waits for a number.
    fn receive(&mut self) -> Result<u64, Failure>;
}

/// Sends numbers and takes the time until they are back.
pub(super) fn lead(way: &mut impl PingPong, slice_ns: u64) -> Result<Outcome, Failure> {
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
        half_trips_us.push(now.since(before).as_nanos() as f64 / (2 * WINDOW) as f64 / 1000.0);
        before = now;
    }
    way.send(STOP)?;
    let messages = half_trips_us.len() as u64 * WINDOW * 2;
    let ns = u64::try_from(before.since(start).as_nanos()).unwrap_or(u64::MAX);
    Ok(Outcome { half_trip_us: Some(median(&mut half_trips_us)), bytes: 8 * messages, messages, ns })
}

/// Sends back what comes.
pub(super) fn follow(way: &mut impl PingPong) -> Result<(), Failure> {
    loop {
        match way.receive()? {
            STOP => return Ok(()),
            value => way.send(value)?,
        }
    }
}

fn window(way: &mut impl PingPong, next: &mut u64) -> Result<(), Failure> {
    for _ in 0..WINDOW {
        way.send(*next)?;
        let back = way.receive()?;
        if back != *next {
            return Err(Failure::new(format!("{back:#x} came back for {next:#x}")));
        }
        *next += 1;
    }
    Ok(())
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

/// Round trips between two looks at the clock.
const WINDOW: u64 = 32;
/// The number that ends it.
const STOP: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
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
