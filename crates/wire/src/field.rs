//! Fields that fill no whole integer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 24-bit big-endian number.
///
/// Not exported; `pub` only because the derive on a header that ends with it names its type in public.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
#[allow(unreachable_pub)]
pub struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of `value`.
    pub(crate) const fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        Self([a, b, c])
    }

    /// The value: 0 ..= 2^24 - 1.
    pub(crate) const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}
