//! Bytes that cannot be right by accident: each depends on its place and on a seed.

use serde::{Deserialize, Serialize};

/// A part of memory that holds the pattern of a seed, from its beginning.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Part {
    /// Where it starts in the region.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Which pattern.
    pub seed: u64,
    /// Where in the pattern it starts: a message that was scattered has several parts.
    pub skip: usize,
}

/// The first byte that is wrong.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Difference {
    /// Where in the region.
    pub offset: usize,
    /// What should be there.
    pub expected: u8,
    /// What is there.
    pub found: u8,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, expected, found } = self;
        write!(f, "byte {offset} of the region is {found:#04x} and should be {expected:#04x}")
    }
}

/// `len` bytes of the pattern of `seed`. Seed 0 is all zero.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    if seed == 0 {
        return vec![0; len];
    }
    let mut out = Vec::with_capacity(len.next_multiple_of(8));
    let mut state = seed;
    while out.len() < len {
        out.extend(next(&mut state).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// What a region of `len` bytes holds that is zero but for `parts`.
pub fn region(len: usize, parts: &[Part]) -> Vec<u8> {
    let mut out = vec![0; len];
    for part in parts {
        let pattern = bytes(part.seed, part.skip + part.len);
        if let Some(room) = out.get_mut(part.offset..part.offset + part.len) {
            room.copy_from_slice(&pattern[part.skip..]);
        }
    }
    out
}

/// The first difference between what should be there and what is.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<Difference> {
    let offset = expected.iter().zip(found).position(|(e, f)| e != f)?;
    Some(Difference { offset, expected: expected[offset], found: found[offset] })
}

/// The generator "splitmix64": every seed gives another sequence, and no byte pattern repeats early.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_and_a_wrong_byte_is_found_where_it_is() {
        assert_ne!(bytes(1, 64), bytes(2, 64));
        assert_eq!(bytes(1, 64)[..13], bytes(1, 13));
        let expected = region(32, &[Part { offset: 4, len: 8, seed: 1, skip: 3 }]);
        assert_eq!(
            (&expected[4..12], &expected[..4], &expected[12..]),
            (&bytes(1, 11)[3..], &[0; 4][..], &[0; 20][..])
        );
        let mut found = expected.clone();
        assert_eq!(difference(&expected, &found), None);
        found[20] ^= 0x40;
        let wrong = difference(&expected, &found).unwrap();
        assert_eq!(wrong, Difference { offset: 20, expected: 0, found: 0x40 });
        assert_eq!(wrong.to_string(), "byte 20 of the region is 0x40 and should be 0x00");
    }
}
