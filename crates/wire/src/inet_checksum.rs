//! The internet checksum: ones' complement of the ones' complement sum of 16-bit words.

/// A checksum in the making. Pieces other than the last have an even number of bytes.
#[derive(Clone, Copy)]
pub(crate) struct InetChecksum(u64);

impl InetChecksum {
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`; an odd last byte counts as if a zero followed.
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
        let odd = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
        Self(self.0 + sum + odd)
    }

    /// The checksum.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // The loop left 16 bits.
        !u16::try_from(sum).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_header_sums_to_zero() {
        // IPv4 header captured from rxe, Linux 6.12.
        let header = [
            0x45, 0x00, 0x00, 0x6c, 0xf3, 0x29, 0x40, 0x00, 0x40, 0x11, 0x32, 0x8f, 0x0a, 0x63, 0x00, 0x02,
            0x0a, 0x63, 0x00, 0x01,
        ];
        assert_eq!(InetChecksum::new().add(&header).finish(), 0);
    }

    #[test]
    fn an_odd_byte_is_padded() {
        assert_eq!(InetChecksum::new().add(&[0x12]).finish(), InetChecksum::new().add(&[0x12, 0]).finish());
    }
}
