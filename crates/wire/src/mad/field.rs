//! Fields of MADs by their place: a byte, a bit of it, and a width.

use std::fmt;

use userdma_verbs::{Gid, Lid, PKey, Psn, QKey, Qpn};

use super::MAD_LEN;

/// Where a field stands. Bits are counted from the most significant one of its first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    byte: usize,
    bit: usize,
    width: usize,
}

impl Place {
    /// `width` bits from bit `bit` of byte `byte` of the MAD on.
    pub(super) const fn new(byte: usize, bit: usize, width: usize) -> Self {
        Self { byte, bit, width }
    }

    /// The byte that it begins in.
    pub(super) const fn byte(self) -> usize {
        self.byte
    }

    /// The bits as a number; of a field wider than 64 bits the last ones.
    pub(super) fn value(self, mad: &[u8; MAD_LEN]) -> u64 {
        (0..self.width).fold(0, |value, index| value << 1 | u64::from(self.is_set(mad, index)))
    }

    /// Puts the low bits of `value` there, and leaves its neighbors alone.
    fn put(self, mad: &mut [u8; MAD_LEN], value: u64) {
        for index in 0..self.width {
            let at = self.bit + index;
            let Some(byte) = mad.get_mut(self.byte + at / 8) else { return };
            let mask = 0x80u8 >> (at % 8);
            let is_set = value >> (self.width - 1 - index) & 1 == 1;
            *byte = if is_set { *byte | mask } else { *byte & !mask };
        }
    }

    fn is_set(self, mad: &[u8; MAD_LEN], index: usize) -> bool {
        let at = self.bit + index;
        mad.get(self.byte + at / 8).is_some_and(|byte| byte & 0x80 >> (at % 8) != 0)
    }

    /// The field as bytes, of which there are `N` in every field that is read so.
    fn bytes<const N: usize>(self, mad: &[u8; MAD_LEN]) -> [u8; N] {
        mad.get(self.byte..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn put_bytes(self, mad: &mut [u8; MAD_LEN], bytes: &[u8]) {
        if let Some(room) = mad.get_mut(self.byte..self.byte + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }
}

/// A value that stands in a field.
pub(super) trait Field: Sized {
    /// Reads it; `None` if what stands there means nothing.
    fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self>;

    /// Writes it. What is wider than the field is cut to its low bits.
    fn write(&self, mad: &mut [u8; MAD_LEN], place: Place);

    /// The value as people read it.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! numbers {
    ($($number:ty, $format:literal);*) => { $(
        impl Field for $number {
            fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
                Self::try_from(place.value(mad)).ok()
            }

            fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
                place.put(mad, u64::from(*self));
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self)
            }
        }
    )* };
}

numbers!(u8, "{}"; u16, "{:#06x}"; u32, "{:#010x}"; u64, "{:#018x}");

macro_rules! identifiers {
    ($($identifier:ident: $number:ty),*) => { $(
        impl Field for $identifier {
            fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
                <$number>::read(mad, place).map(Self::new)
            }

            fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
                self.get().write(mad, place);
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )* };
}

identifiers!(Qpn: u32, Psn: u32, PKey: u16, QKey: u32, Lid: u16);

impl Field for bool {
    fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
        Some(place.value(mad) != 0)
    }

    fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
        place.put(mad, u64::from(*self));
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", u8::from(*self))
    }
}

impl Field for Gid {
    fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
        Some(Self::new(place.bytes(mad)))
    }

    fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
        place.put_bytes(mad, &self.bytes());
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes that a message carries and does not look at, such as private data: always all `N`, since no message tells
/// how many of them mean something. Those that were not given are zero.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Data<const N: usize>([u8; N]);

impl<const N: usize> Data<N> {
    /// How many bytes there are.
    pub const LEN: usize = N;
    /// Nothing but zeros.
    pub const EMPTY: Self = Self([0; N]);

    /// `bytes`, followed by zeros; `None` if they are more than `N`.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }

    /// All of them.
    pub const fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Default for Data<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The bytes up to the last that is not zero, in hexadecimal.
impl<const N: usize> fmt::Display for Data<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        for byte in self.0.iter().take(end) {
            write!(f, "{byte:02x}")?;
        }
        match end {
            0 => f.write_str("zeros"),
            _ => Ok(()),
        }
    }
}

impl<const N: usize> fmt::Debug for Data<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data<{N}>({self})")
    }
}

impl<const N: usize> Field for Data<N> {
    fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
        Some(Self(place.bytes(mad)))
    }

    fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
        place.put_bytes(mad, &self.0);
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A field as people read it.
pub(super) struct Shown<'a, F>(pub(super) &'a F);

impl<F: Field> fmt::Display for Shown<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f)
    }
}
