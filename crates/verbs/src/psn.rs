//! Packet sequence numbers: 24-bit serial arithmetic.

use std::fmt;

/// A packet sequence number: 24 bits, compared modulo 2^24.
///
/// There is no `Ord`: "before" is only defined between numbers less than half the space apart, which is
/// what [`Psn::distance`] returns.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Psn(u32);

impl Psn {
    /// The number with this value; bits above the 24th are dropped.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// The value: 0 ..= 2^24 - 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `count` packets after `self`.
    #[must_use]
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number `count` packets before `self`.
    #[must_use]
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Packets from `earlier` to `self`, negative if `self` comes first: -2^23 ..= 2^23 - 1.
    pub const fn distance(self, earlier: Self) -> i32 {
        // The shift puts the 24-bit difference at the top of the word, so that the shift back extends its sign.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// Whether `self` comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_wraps() {
        assert_eq!(Psn::new(1).distance(Psn::new(0xff_ffff)), 2);
        assert_eq!(Psn::new(0xff_ffff).distance(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x80_0000).distance(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).distance(Psn::new(0)), 0x7f_ffff);
    }

    #[test]
    fn add_and_sub_are_inverse_across_the_wrap() {
        assert_eq!(Psn::new(0xff_fffe).add(5), Psn::new(3));
        assert_eq!(Psn::new(3).sub(5), Psn::new(0xff_fffe));
        assert!(Psn::new(0xff_fffe).is_before(Psn::new(3)));
    }
}
