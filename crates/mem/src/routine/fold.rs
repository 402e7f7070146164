//! Copying and computing Ethernet's CRC-32 in one pass, for x86-64 with 512-bit carry-less multiplication.
//!
//! The payload of a packet is copied and then covered by the packet's CRC: two passes over the same bytes, of which the
//! second costs more. Here each vector is stored and folded as soon as it is loaded, so the CRC is that of the bytes
//! which were copied, whatever others do to the source meanwhile.
//!
//! *Folding* (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ instruction", Intel 2009): a
//! message is a polynomial over the two-element field, and a part of it that lies `d` bits before another may be replaced by
//! its product with `x^d mod P`, added to the other. Four vectors of 64 bytes are folded onto the next four again and
//! again, in the end onto each other, and what remains are 16 bytes whose CRC is that of the whole. Up to 63 bytes after the
//! last whole vector go through `crc32fast`.

use std::arch::{global_asm, is_x86_feature_detected};

use super::x86_64::{Word, done, routine, symbol};
use super::{Faulted, copy, library_crc32};

/// One vector folded by the constants in `$k` onto another, which it becomes. Changes `$t`.
macro_rules! fold {
    ($acc:literal, $k:literal, $t:literal, onto $next:literal) => {
        concat!(
            "vpclmulqdq ",
            $t,
            ", ",
            $acc,
            ", ",
            $k,
            ", 0\n",
            "vpclmulqdq ",
            $acc,
            ", ",
            $acc,
            ", ",
            $k,
            ", 17\n",
            // The exclusive or of all three.
            "vpternlogq ",
            $acc,
            ", ",
            $t,
            ", ",
            $next,
            ", 150\n",
        )
    };
}

/// Loads 64 bytes at an offset into a vector and stores them.
macro_rules! move64 {
    ($vector:literal, $offset:literal) => {
        concat!(
            "vmovdqu64 ",
            $vector,
            ", zmmword ptr [rsi + ",
            $offset,
            "]\n",
            "vmovdqu64 zmmword ptr [rdi + ",
            $offset,
            "], ",
            $vector,
            "\n",
        )
    };
}

/// The same without storing.
macro_rules! load64 {
    ($vector:literal, $offset:literal) => {
        concat!("vmovdqu64 ", $vector, ", zmmword ptr [rsi + ", $offset, "]\n")
    };
}

/// Steps over what was copied.
macro_rules! step {
    ($bytes:literal) => {
        concat!("add rsi, ", $bytes, "\n add rdi, ", $bytes, "\n sub rdx, ", $bytes, "\n")
    };
}

/// The body of a routine that takes RDX bytes, a multiple of 64 and 256 at least, from RSI by `$take`, which may store them at
/// RDI. ECX is the CRC register before them, R8 the constants; the register after them is returned in RDX.
macro_rules! fold_all {
    ($take:ident) => {
        concat!(
            $take!("zmm0", "0"),
            $take!("zmm1", "64"),
            $take!("zmm2", "128"),
            $take!("zmm3", "192"),
            "vmovd xmm8, ecx\n vpxorq zmm0, zmm0, zmm8\n",
            "vbroadcasti32x4 zmm4, xmmword ptr [r8]\n",
            step!("256"),
            "cmp rdx, 256\n jb 22f\n",
            ".p2align 4\n",
            "21:\n",
            $take!("zmm8", "0"),
            $take!("zmm9", "64"),
            $take!("zmm10", "128"),
            $take!("zmm11", "192"),
            fold!("zmm0", "zmm4", "zmm12", onto "zmm8"),
            fold!("zmm1", "zmm4", "zmm13", onto "zmm9"),
            fold!("zmm2", "zmm4", "zmm14", onto "zmm10"),
            fold!("zmm3", "zmm4", "zmm15", onto "zmm11"),
            step!("256"),
            "cmp rdx, 256\n jae 21b\n",
            // The first three of the four onto the last, all at once: none waits for another.
            "22: vbroadcasti32x4 zmm5, xmmword ptr [r8 + 16]\n",
            "vbroadcasti32x4 zmm6, xmmword ptr [r8 + 32]\n",
            "vbroadcasti32x4 zmm7, xmmword ptr [r8 + 48]\n",
            fold!("zmm0", "zmm5", "zmm12", onto "zmm3"),
            "vpclmulqdq zmm13, zmm1, zmm6, 0\n vpclmulqdq zmm1, zmm1, zmm6, 17\n",
            "vpternlogq zmm0, zmm13, zmm1, 150\n",
            "vpclmulqdq zmm14, zmm2, zmm7, 0\n vpclmulqdq zmm2, zmm2, zmm7, 17\n",
            "vpternlogq zmm0, zmm14, zmm2, 150\n",
            "test rdx, rdx\n jz 24f\n",
            // Up to three vectors more.
            "23:\n",
            $take!("zmm8", "0"),
            fold!("zmm0", "zmm7", "zmm12", onto "zmm8"),
            step!("64"),
            "jnz 23b\n",
            // Three quarters of the vector onto the last, for which the constants are 0.
            "24: vmovdqu64 zmm5, zmmword ptr [r8 + 64]\n",
            "vextracti32x4 xmm3, zmm0, 3\n",
            "vpclmulqdq zmm1, zmm0, zmm5, 0\n vpclmulqdq zmm2, zmm0, zmm5, 17\n vpxorq zmm1, zmm1, zmm2\n",
            "vextracti64x4 ymm2, zmm1, 1\n vpxor ymm1, ymm1, ymm2\n",
            "vextracti128 xmm2, ymm1, 1\n vpxor xmm1, xmm1, xmm2\n vpxor xmm1, xmm1, xmm3\n",
            // 16 bytes onto 12, those onto 8.
            "vmovdqu xmm4, xmmword ptr [r8 + 128]\n vpxor xmm0, xmm0, xmm0\n",
            "vpclmulqdq xmm2, xmm1, xmm4, 0\n vpsrldq xmm1, xmm1, 8\n vpxor xmm1, xmm1, xmm2\n",
            "vpblendd xmm3, xmm0, xmm1, 1\n",
            "vpclmulqdq xmm2, xmm3, xmm4, 16\n vpsrldq xmm1, xmm1, 4\n vpxor xmm1, xmm1, xmm2\n",
            // The remainder: minus P times the quotient, which a multiplication gives (Barrett).
            "vmovdqu xmm4, xmmword ptr [r8 + 144]\n",
            "vpblendd xmm3, xmm0, xmm1, 1\n vpclmulqdq xmm2, xmm3, xmm4, 16\n",
            "vpblendd xmm2, xmm0, xmm2, 1\n vpclmulqdq xmm2, xmm2, xmm4, 0\n vpxor xmm1, xmm1, xmm2\n",
            "vpextrd edx, xmm1, 1\n",
            "vzeroupper\n",
            done!(),
        )
    };
}

global_asm!(
    ".pushsection .text.userdma_mem_routines, \"ax\", @progbits",
    symbol!("userdma_mem_fold_start"),
    routine!("userdma_mem_copy_fold", fold_all!(move64)),
    routine!("userdma_mem_fold", fold_all!(load64)),
    symbol!("userdma_mem_fold_end"),
    ".popsection",
);

unsafe extern "C" {
    static userdma_mem_fold_start: u8;
    static userdma_mem_fold_end: u8;
    fn userdma_mem_copy_fold(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        register: u32,
        constants: *const Constants,
    ) -> Word;
    fn userdma_mem_fold(
        unused: *mut u8,
        src: *const u8,
        len: usize,
        register: u32,
        constants: *const Constants,
    ) -> Word;
}

/// Whether an instruction belongs to the routine. A fault there leaves wide registers in use.
pub(super) fn contains(instruction: usize) -> bool {
    let (start, end) = (&raw const userdma_mem_fold_start, &raw const userdma_mem_fold_end);
    (start.addr()..end.addr()).contains(&instruction)
}

/// Whether this processor has the instructions.
#[inline]
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
}

/// Copies `len` bytes, [`MIN`] or more, in no promised order, and returns the CRC-32 that `crc`, the one of everything before
/// them, comes to with them. After a fault the destination holds any mixture.
///
/// # Safety
/// As [`copy`], and [`is_supported`].
pub(super) unsafe fn copy_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> Result<u32, Faulted> {
    debug_assert!(len >= MIN);
    let (whole, after) = (len / 64 * 64, len % 64);
    // SAFETY: the caller's promise; the routine returns an error where memory is missing.
    let register = unsafe { userdma_mem_copy_fold(dst, src, whole, !crc, &raw const CONSTANTS) }.result()?;
    if after == 0 {
        return Ok(finish(register, &[]));
    }
    let mut tail = [0; 64];
    let tail = &mut tail[..after];
    // SAFETY: the caller's promise for the rest of the range; `tail` is ours, and what it holds is stored.
    unsafe {
        copy(tail.as_mut_ptr(), src.wrapping_add(whole), after)?;
        copy(dst.wrapping_add(whole), tail.as_ptr(), after)?;
    }
    Ok(finish(register, tail))
}

/// The CRC-32 that `crc` comes to with `bytes`, [`MIN`] or more; `None` if the processor cannot.
#[inline]
pub(super) fn crc(crc: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() < MIN || !is_supported() {
        return None;
    }
    let (whole, tail) = bytes.split_at(bytes.len() / 64 * 64);
    let (unused, constants) = (std::ptr::null_mut(), &raw const CONSTANTS);
    // SAFETY: it reads `whole` and writes nothing. The processor has the instructions.
    let register = unsafe { userdma_mem_fold(unused, whole.as_ptr(), whole.len(), !crc, constants) };
    Some(finish(register.result().ok()?, tail))
}

/// The CRC from the register after the whole vectors, and the bytes behind them.
#[inline]
fn finish(register: u64, tail: &[u8]) -> u32 {
    // The register is in the lower half; writing it has cleared the other.
    let crc = !u32::try_from(register).unwrap_or_default();
    if tail.is_empty() { crc } else { library_crc32(crc, tail) }
}

/// The fewest bytes.
pub(super) const MIN: usize = 256;

/// Factors for folding: each pair moves 16 bytes by some distance.
#[repr(C, align(64))]
struct Constants {
    /// By four vectors, three, two and one.
    vectors: [[u64; 2]; 4],
    /// By three quarters of a vector, two, one and nothing at all.
    quarters: [[u64; 2]; 4],
    /// The first 8 of 16 bytes onto the rest, and the first 4 of 12.
    halves: [u64; 2],
    /// P itself, and the quotient of `x^64` by it.
    division: [u64; 2],
}

static CONSTANTS: Constants = Constants {
    vectors: [factors(2048), factors(1536), factors(1024), factors(512)],
    quarters: [factors(384), factors(256), factors(128), [0, 0]],
    halves: [reflected(power(96)) << 1, reflected(power(64)) << 1],
    division: [reflected(P) << 1 | 1, quotient()],
};

/// What moves 16 bytes by `bits`: their first 8 bytes, and their last 8. In the reflected order of the bits of this CRC a
/// product comes out one bit too low, hence the shift.
const fn factors(bits: u32) -> [u64; 2] {
    [reflected(power(bits + 32)) << 1, reflected(power(bits - 32)) << 1]
}

const fn reflected(polynomial: u32) -> u64 {
    // A widening cast.
    polynomial.reverse_bits() as u64
}

/// P without its `x^32`: the polynomial of Ethernet.
const P: u32 = 0x04c1_1db7;

/// `x^64` divided by P, the bits of its 33 reflected.
const fn quotient() -> u64 {
    // The division's first step leaves P's lower part, times x^32, and the quotient's highest bit.
    let (mut rest, mut quotient, mut bit) = (P, 1, 1);
    while bit <= 32 {
        let fits = rest >> 31 == 1;
        rest <<= 1;
        if fits {
            rest ^= P;
            quotient |= 1 << bit;
        }
        bit += 1;
    }
    quotient
}

/// `x^n mod P`.
const fn power(n: u32) -> u32 {
    let (mut power, mut i) = (1_u32, 0);
    while i < n {
        let overflows = power >> 31 == 1;
        power <<= 1;
        if overflows {
            power ^= P;
        }
        i += 1;
    }
    power
}
