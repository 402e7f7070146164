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

/// By how much the CRC of a message changes if two of its bytes change by `change`, as they lie in memory, and `AFTER` bytes
/// follow them.
#[inline]
pub(crate) fn two_bytes<const AFTER: usize>(change: [u8; 2]) -> u32 {
    let tables = const { &[changes(AFTER + 1), changes(AFTER)] };
    tables[0][usize::from(change[0])] ^ tables[1][usize::from(change[1])]
}

/// The CRC register after `bytes`, from the one before them. For a few bytes, and as many each time: a lookup each, none of
/// which waits for another.
#[inline]
pub(crate) fn register_after<const N: usize>(register: u32, bytes: &[u8; N]) -> u32 {
    let tables = const { &short_tables::<N>() };
    let mut mixed = *bytes;
    for (byte, of_register) in mixed.iter_mut().zip(register.to_le_bytes()) {
        *byte ^= of_register;
    }
    mixed.iter().zip(tables).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
}

const fn short_tables<const N: usize>() -> [[u32; 256]; N] {
    assert!(N >= 4, "the register goes into the first four bytes");
    let mut tables = [[0; 256]; N];
    let mut n = 0;
    while n < N {
        tables[n] = changes(N - 1 - n);
        n += 1;
    }
    tables
}

/// What each byte comes to that `after` zero bytes follow.
const fn changes(after: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let (mut at, mut byte) = (0, 0_u32);
    while at < table.len() {
        let (mut register, mut bit) = (byte, 0);
        while bit < 8 * (after + 1) {
            register = multiply_by_x(register);
            bit += 1;
        }
        table[at] = register;
        (at, byte) = (at + 1, byte + 1);
    }
    table
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

    /// What `crc` comes to with `bytes`, by the library.
    fn crc_after(crc: u32, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(crc);
        hasher.update(bytes);
        hasher.finalize()
    }

    #[test]
    fn a_few_bytes_are_looked_up() {
        let bytes: [u8; 16] = std::array::from_fn(|n| u8::try_from(n * 37 % 251).unwrap());
        for register in [0, 1, 0x8000_0000, 0xffff_ffff, 0x1234_5678] {
            assert_eq!(!register_after(register, &bytes), crc_after(!register, &bytes));
            let twelve = bytes.first_chunk::<12>().unwrap();
            assert_eq!(!register_after(register, twelve), crc_after(!register, twelve));
        }
    }

    #[test]
    fn two_bytes_change_a_crc_by_what_they_are() {
        let message = [0x5a; 40];
        for change in [[0, 0], [0, 1], [0x80, 0], [0xff, 0xff], [0x12, 0x34]] {
            let mut changed = message;
            changed[16] ^= change[0];
            changed[17] ^= change[1];
            let diff = crc_after(0, &message) ^ crc_after(0, &changed);
            assert_eq!(two_bytes::<22>(change), diff, "{change:?}");
        }
    }

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
