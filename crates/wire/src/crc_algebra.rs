//! What CRC-32 allows because it is linear: which two bytes must change for the CRC to change by so much.
//!
//! A CRC register is a polynomial modulo P over GF(2), kept with its coefficient of x^0 in bit 31. Running it
//! over a zero byte multiplies by x^8, and x has an inverse modulo P; so a difference seen at the end of a
//! message can be taken back to the place that caused it, however many bytes lie between.

/// P without its x^32, in the register's bit order.
const POLY: u32 = 0xedb8_8320;

/// The two bytes, as they lie in memory, by which two messages must differ so that their CRCs differ by
/// `crc_diff`, if `tail_len` bytes follow the two and nothing else differs. `None` if no two bytes do that.
///
/// Exact for every `tail_len` below 65534; longer messages do not exist in IP packets.
pub(crate) fn solve_two_bytes(crc_diff: u32, tail_len: usize) -> Option<[u8; 2]> {
    // Back over the tail and over the two bytes themselves: what remains is the two bytes as a polynomial
    // times x^16, which fills the low half of the register, or it is not two bytes' doing.
    let back = tail_len + 2;
    let mut register = multiply(crc_diff, BACK_BYTES[back & 0xff]);
    if back > 0xff {
        register = multiply(register, BACK_PAGES[back >> 8 & 0xff]);
    }
    u16::try_from(register).ok().map(u16::to_le_bytes)
}

/// x^(-8·n), by n.
static BACK_BYTES: [u32; 256] = powers(inverse_of_x_to_the(8));
/// x^(-8·256·n), by n.
static BACK_PAGES: [u32; 256] = powers(inverse_of_x_to_the(8 * 256));

/// The polynomial 1.
const ONE: u32 = 1 << 31;

const fn powers(base: u32) -> [u32; 256] {
    let mut table = [ONE; 256];
    let mut n = 1;
    while n < table.len() {
        table[n] = multiply(table[n - 1], base);
        n += 1;
    }
    table
}

const fn inverse_of_x_to_the(exponent: u32) -> u32 {
    let mut value = ONE;
    let mut n = 0;
    while n < exponent {
        value = divide_by_x(value);
        n += 1;
    }
    value
}

/// a · b mod P.
const fn multiply(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut shifted = a;
    let mut bit = 0;
    while bit < 32 {
        // All ones if the coefficient of x^bit in b is 1: no branch, the bits are as good as random.
        product ^= shifted & (b >> (31 - bit) & 1).wrapping_neg();
        shifted = multiply_by_x(shifted);
        bit += 1;
    }
    product
}

const fn multiply_by_x(a: u32) -> u32 {
    a >> 1 ^ POLY & (a & 1).wrapping_neg()
}

const fn divide_by_x(a: u32) -> u32 {
    let carry = a >> 31;
    (a ^ POLY & carry.wrapping_neg()) << 1 | carry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_undoes_multiplication() {
        for value in [1, ONE, 0xdead_beef, u32::MAX, POLY] {
            assert_eq!(divide_by_x(multiply_by_x(value)), value);
            assert_eq!(multiply(value, ONE), value);
        }
        assert_eq!(multiply(BACK_BYTES[255], inverse_of_x_to_the(8)), BACK_PAGES[1]);
    }

    #[test]
    fn every_pair_of_bytes_is_found_again() {
        let message = |pair: [u8; 2], tail: &[u8]| {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(b"before");
            hasher.update(&pair);
            hasher.update(tail);
            hasher.finalize()
        };
        let tail = [0x5a; 37];
        let base = message([0, 0], &tail);
        for pair in (0..=u16::MAX).map(u16::to_be_bytes) {
            assert_eq!(solve_two_bytes(base ^ message(pair, &tail), tail.len()), Some(pair));
        }
    }

    #[test]
    fn the_tail_may_have_any_length() {
        let tail: Vec<u8> = (0..9000u32).map(|n| (n * 7 + n / 256).to_le_bytes()[0]).collect();
        for len in 0..tail.len() {
            let crc = |pair: &[u8]| {
                let mut hasher = crc32fast::Hasher::new();
                hasher.update(pair);
                hasher.update(&tail[..len]);
                hasher.finalize()
            };
            assert_eq!(solve_two_bytes(crc(&[0; 2]) ^ crc(&[0xc3, 0x1e]), len), Some([0xc3, 0x1e]));
        }
    }

    #[test]
    fn three_bytes_are_not_two() {
        let crc = |bytes: &[u8]| crc32fast::hash(bytes);
        assert_eq!(solve_two_bytes(crc(&[0; 9]) ^ crc(&[1, 0, 0, 0, 0, 0, 0, 0, 0]), 6), None);
    }
}
