//! The bytes that each side starts with, and where payloads are taken from.

/// A side of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Role {
    /// Posts operations.
    Client = 0,
    /// Is operated on.
    Server = 1,
}

/// Bytes on either side of what may be written.
pub(crate) const GUARD: usize = 64;
/// What guards hold.
pub(crate) const POISON: u8 = 0xa5;
/// First bytes of the region, left to atomics.
pub(crate) const ATOMICS: u64 = 64;
/// Immediate data of the first message; each further message adds one.
pub(crate) const IMM0: u32 = 0x1bad_cafe;

/// Byte `i` of the region that `role` exposes, before anybody wrote to it.
pub(crate) fn pattern(i: u64, role: Role) -> u8 {
    let sum = i
        .wrapping_mul(7)
        .wrapping_add(i >> 8)
        .wrapping_add((i >> 16).wrapping_mul(13))
        .wrapping_add(role as u64);
    sum.to_le_bytes()[0]
}

/// Bytes `from .. from + len` of the pattern.
pub(crate) fn bytes(from: u64, len: usize, role: Role) -> Vec<u8> {
    (from..).take(len).map(|i| pattern(i, role)).collect()
}

/// Where in the client's region the payload of its k-th SEND or k-th WRITE starts.
pub(crate) fn source_of(k: u32) -> u64 {
    u64::from(k.wrapping_mul(37) % 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_the_one_that_is_written_down() {
        assert_eq!(bytes(0, 3, Role::Client), [0, 7, 14]);
        assert_eq!(pattern(256, Role::Server), 2);
        assert_eq!(pattern(0x1_0000, Role::Client), 13);
        assert_eq!((source_of(0), source_of(1), source_of(111)), (0, 37, 11));
    }
}
