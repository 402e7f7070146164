//! Repeatable randomness: SplitMix64 (Steele, Lea and Flood's generator), and a die that falls on one side with a given
//! probability. What the same seed draws is the same for ever: people write seeds down.

/// A stream of random numbers, set by a seed and the number of the stream.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// Stream `number` of `seed`.
    pub const fn new(seed: u64, number: u64) -> Self {
        // One step of a generator that starts at the number keeps the streams of neighbouring seeds apart.
        let mut first = Self(number);
        Self(seed ^ first.next())
    }

    /// The stream that begins at a seed itself.
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 32 bits: the upper half of the next 64.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Says yes with a fixed probability.
#[derive(Clone, Debug)]
pub struct Dice {
    /// Yes below this, of 2^53.
    threshold: u64,
    stream: Stream,
}

impl Dice {
    /// Of probability 0.0 ..= 1.0; outside it is clamped, and not a number is never.
    pub fn new(probability: f64, stream: Stream) -> Self {
        // A product of at most 2^53 that is not negative: the cast only cuts the fraction (and turns NaN into 0).
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let threshold = (probability.clamp(0.0, 1.0) * (1u64 << 53) as f64) as u64;
        Self { threshold, stream }
    }

    /// Casts it.
    pub fn cast(&mut self) -> bool {
        self.stream.next() >> 11 < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_and_always_are_exact() {
        let mut never = Dice::new(0.0, Stream::new(1, 1));
        let mut always = Dice::new(1.0, Stream::new(1, 1));
        assert!((0..10_000).all(|_| !never.cast() && always.cast()));
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let draw = |seed, number| Stream::new(seed, number).next();
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert_eq!(draw(7, 1), draw(7, 1));
    }
}
