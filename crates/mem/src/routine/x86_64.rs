//! The routines for x86-64: leaf functions in machine code, without a stack frame.
//!
//! Because they touch neither the stack nor a register that a callee must preserve, a fault anywhere inside them
//! is undone by continuing at a recovery address, which returns an error code. [`recovery`] says whether an
//! instruction belongs to them and where it continues.
//!
//! Each routine returns 0 in RAX, or 1 after a fault; the atomics return the memory's value in RDX, and those of `fold.rs`
//! the CRC's register.
//!
//! **Order.** x86-64 makes plain stores visible in program order. So it is enough that `store_*` stores its last 8
//! bytes by its last instruction; no fence is needed. Non-temporal stores, which would need one, are not used.
//!
//! **Speed.** Compared with the C library's `memcpy` on a Zen 4: the loops of 32-byte moves take 0.85 to 1.1 of its
//! time at any size and alignment. The string move `rep movsb` was tried and left out: never faster up to 4 MiB, and
//! 15 to 20 times slower where source and destination differ by a few bytes modulo 4096.

use std::arch::{global_asm, is_x86_feature_detected};

use super::{Faulted, fold};

/// Copies 0 ..= 128 bytes (count in RDX) from RSI to RDI by moves that may overlap, then runs `$finish`.
/// Changes RAX, RCX, R10, R11, XMM0-7.
macro_rules! small_copy {
    ($finish:literal) => {
        concat!(
            "cmp rdx, 16\n jae 22f\n",
            "cmp rdx, 8\n jae 23f\n",
            "cmp rdx, 4\n jae 24f\n",
            "cmp rdx, 1\n jb 29f\n",
            "movzx eax, byte ptr [rsi]\n je 25f\n",
            // 2 ..= 3
            "movzx ecx, word ptr [rsi + rdx - 2]\n",
            "mov byte ptr [rdi], al\n mov word ptr [rdi + rdx - 2], cx\n",
            $finish,
            "25: mov byte ptr [rdi], al\n",
            "29:\n",
            $finish,
            // 4 ..= 7
            "24: mov eax, dword ptr [rsi]\n mov ecx, dword ptr [rsi + rdx - 4]\n",
            "mov dword ptr [rdi], eax\n mov dword ptr [rdi + rdx - 4], ecx\n",
            $finish,
            // 8 ..= 15
            "23: mov rax, qword ptr [rsi]\n mov rcx, qword ptr [rsi + rdx - 8]\n",
            "mov qword ptr [rdi], rax\n mov qword ptr [rdi + rdx - 8], rcx\n",
            $finish,
            "22: cmp rdx, 32\n ja 26f\n",
            // 16 ..= 32
            "movups xmm0, xmmword ptr [rsi]\n movups xmm1, xmmword ptr [rsi + rdx - 16]\n",
            "movups xmmword ptr [rdi], xmm0\n movups xmmword ptr [rdi + rdx - 16], xmm1\n",
            $finish,
            // 33 ..= 128: 32 from the front and 32 from the back; over 64, the next 32 from both as well.
            "26: movups xmm0, xmmword ptr [rsi]\n movups xmm1, xmmword ptr [rsi + 16]\n",
            "movups xmm2, xmmword ptr [rsi + rdx - 32]\n movups xmm3, xmmword ptr [rsi + rdx - 16]\n",
            "cmp rdx, 64\n jbe 27f\n",
            "movups xmm4, xmmword ptr [rsi + 32]\n movups xmm5, xmmword ptr [rsi + 48]\n",
            "movups xmm6, xmmword ptr [rsi + rdx - 64]\n movups xmm7, xmmword ptr [rsi + rdx - 48]\n",
            "movups xmmword ptr [rdi + 32], xmm4\n movups xmmword ptr [rdi + 48], xmm5\n",
            "movups xmmword ptr [rdi + rdx - 64], xmm6\n movups xmmword ptr [rdi + rdx - 48], xmm7\n",
            "27: movups xmmword ptr [rdi], xmm0\n movups xmmword ptr [rdi + 16], xmm1\n",
            "movups xmmword ptr [rdi + rdx - 32], xmm2\n movups xmmword ptr [rdi + rdx - 16], xmm3\n",
            $finish,
        )
    };
}

/// Copies 128 bytes or more: the first and the last vectors unaligned, those between aligned at the destination.
/// Changes RAX, RCX, RSI, RDI, R10, R11, XMM0-8.
macro_rules! sse_copy {
    ($finish:literal) => {
        concat!(
            "movups xmm4, xmmword ptr [rsi]\n",
            "movups xmm5, xmmword ptr [rsi + rdx - 64]\n movups xmm6, xmmword ptr [rsi + rdx - 48]\n",
            "movups xmm7, xmmword ptr [rsi + rdx - 32]\n movups xmm8, xmmword ptr [rsi + rdx - 16]\n",
            "lea r10, [rdi + rdx]\n lea r11, [rdi + rdx - 64]\n",
            "movups xmmword ptr [rdi], xmm4\n",
            "mov rcx, rdi\n and rcx, -16\n add rcx, 16\n sub rcx, rdi\n",
            "add rdi, rcx\n add rsi, rcx\n",
            ".p2align 4\n",
            "28: movups xmm0, xmmword ptr [rsi]\n movups xmm1, xmmword ptr [rsi + 16]\n",
            "movups xmm2, xmmword ptr [rsi + 32]\n movups xmm3, xmmword ptr [rsi + 48]\n",
            "movaps xmmword ptr [rdi], xmm0\n movaps xmmword ptr [rdi + 16], xmm1\n",
            "movaps xmmword ptr [rdi + 32], xmm2\n movaps xmmword ptr [rdi + 48], xmm3\n",
            "add rsi, 64\n add rdi, 64\n cmp rdi, r11\n jb 28b\n",
            "movups xmmword ptr [r10 - 64], xmm5\n movups xmmword ptr [r10 - 48], xmm6\n",
            "movups xmmword ptr [r10 - 32], xmm7\n movups xmmword ptr [r10 - 16], xmm8\n",
            $finish,
        )
    };
}

/// Copies 64 bytes or more by vectors of 32 bytes, as `sse_copy` does. Changes RAX, RCX, RSI, RDI, R10, R11, YMM0-8.
macro_rules! avx_copy {
    ($finish:literal) => {
        concat!(
            "cmp rdx, 128\n ja 27f\n",
            "vmovdqu ymm0, ymmword ptr [rsi]\n vmovdqu ymm1, ymmword ptr [rsi + 32]\n",
            "vmovdqu ymm2, ymmword ptr [rsi + rdx - 64]\n vmovdqu ymm3, ymmword ptr [rsi + rdx - 32]\n",
            "vmovdqu ymmword ptr [rdi], ymm0\n vmovdqu ymmword ptr [rdi + 32], ymm1\n",
            "vmovdqu ymmword ptr [rdi + rdx - 64], ymm2\n vmovdqu ymmword ptr [rdi + rdx - 32], ymm3\n",
            "vzeroupper\n",
            $finish,
            "27: vmovdqu ymm4, ymmword ptr [rsi]\n",
            "vmovdqu ymm5, ymmword ptr [rsi + rdx - 128]\n vmovdqu ymm6, ymmword ptr [rsi + rdx - 96]\n",
            "vmovdqu ymm7, ymmword ptr [rsi + rdx - 64]\n vmovdqu ymm8, ymmword ptr [rsi + rdx - 32]\n",
            "lea r10, [rdi + rdx]\n lea r11, [rdi + rdx - 128]\n",
            "vmovdqu ymmword ptr [rdi], ymm4\n",
            "mov rcx, rdi\n and rcx, -32\n add rcx, 32\n sub rcx, rdi\n",
            "add rdi, rcx\n add rsi, rcx\n",
            // Up to 160 bytes are covered by the first and the last vectors.
            "cmp rdi, r11\n jae 29f\n",
            ".p2align 4\n",
            "28: vmovdqu ymm0, ymmword ptr [rsi]\n vmovdqu ymm1, ymmword ptr [rsi + 32]\n",
            "vmovdqu ymm2, ymmword ptr [rsi + 64]\n vmovdqu ymm3, ymmword ptr [rsi + 96]\n",
            "vmovdqa ymmword ptr [rdi], ymm0\n vmovdqa ymmword ptr [rdi + 32], ymm1\n",
            "vmovdqa ymmword ptr [rdi + 64], ymm2\n vmovdqa ymmword ptr [rdi + 96], ymm3\n",
            "sub rsi, -128\n sub rdi, -128\n cmp rdi, r11\n jb 28b\n",
            "29: vmovdqu ymmword ptr [r10 - 128], ymm5\n vmovdqu ymmword ptr [r10 - 96], ymm6\n",
            "vmovdqu ymmword ptr [r10 - 64], ymm7\n vmovdqu ymmword ptr [r10 - 32], ymm8\n",
            "vzeroupper\n",
            $finish,
        )
    };
}

/// One routine: a hidden symbol with its unwind frame.
macro_rules! routine {
    ($name:literal, $($body:expr),+ $(,)?) => {
        concat!(
            ".p2align 5\n .globl ", $name, "\n .hidden ", $name, "\n .type ", $name, ", @function\n",
            $name, ":\n .cfi_startproc\n", $($body,)+ ".cfi_endproc\n .size ", $name, ", . - ", $name, "\n",
        )
    };
}

/// A label that Rust sees as a static.
macro_rules! symbol {
    ($name:literal) => {
        concat!(".globl ", $name, "\n .hidden ", $name, "\n", $name, ":\n")
    };
}

/// The end of a copy.
macro_rules! done {
    () => {
        "xor eax, eax\n ret\n"
    };
}

/// Keeps the last 8 bytes and their place for the end, and leaves the rest in RDX. For 9 bytes or more.
macro_rules! keep_tail {
    () => {
        "mov r8, qword ptr [rsi + rdx - 8]\n lea r9, [rdi + rdx - 8]\n sub rdx, 8\n"
    };
}

pub(super) use done;
pub(super) use routine;
pub(super) use symbol;

global_asm!(
    ".pushsection .text.userdma_mem_routines, \"ax\", @progbits",
    symbol!("userdma_mem_plain_start"),
    routine!("userdma_mem_copy_small", small_copy!("xor eax, eax\n ret\n")),
    routine!("userdma_mem_copy_sse", sse_copy!("xor eax, eax\n ret\n")),
    // Up to 8 bytes: each byte is stored once, in ascending order, by as few stores as the count has bits.
    // From 9 on: the body, then the last 8 bytes by one store.
    routine!(
        "userdma_mem_store_small",
        "cmp rdx, 8\n ja 30f\n jb 31f\n",
        "mov rax, qword ptr [rsi]\n mov qword ptr [rdi], rax\n",
        done!(),
        "31: test dl, 4\n jz 32f\n",
        "mov eax, dword ptr [rsi]\n mov dword ptr [rdi], eax\n add rsi, 4\n add rdi, 4\n",
        "32: test dl, 2\n jz 33f\n",
        "movzx eax, word ptr [rsi]\n mov word ptr [rdi], ax\n add rsi, 2\n add rdi, 2\n",
        "33: test dl, 1\n jz 34f\n",
        "movzx eax, byte ptr [rsi]\n mov byte ptr [rdi], al\n",
        "34:\n",
        done!(),
        "30:\n",
        keep_tail!(),
        small_copy!("mov qword ptr [r9], r8\n xor eax, eax\n ret\n"),
    ),
    routine!(
        "userdma_mem_store_sse",
        keep_tail!(),
        sse_copy!("mov qword ptr [r9], r8\n xor eax, eax\n ret\n")
    ),
    routine!("userdma_mem_load64", "mov rdx, qword ptr [rdi]\n", done!()),
    routine!("userdma_mem_store64", "mov qword ptr [rdi], rsi\n", done!()),
    routine!("userdma_mem_xadd64", "mov rdx, rsi\n lock xadd qword ptr [rdi], rdx\n", done!()),
    routine!(
        "userdma_mem_cmpxchg64",
        "mov rcx, rdx\n mov rax, rsi\n lock cmpxchg qword ptr [rdi], rcx\n mov rdx, rax\n",
        done!(),
    ),
    routine!("userdma_mem_touch_read", "movzx eax, byte ptr [rdi]\n", done!()),
    routine!("userdma_mem_touch_write", "lock or byte ptr [rdi], 0\n", done!()),
    symbol!("userdma_mem_plain_end"),
    routine!("userdma_mem_plain_recovery", "mov eax, 1\n ret\n"),
    symbol!("userdma_mem_avx_start"),
    routine!("userdma_mem_copy_avx", avx_copy!("xor eax, eax\n ret\n")),
    routine!(
        "userdma_mem_store_avx",
        keep_tail!(),
        avx_copy!("mov qword ptr [r9], r8\n xor eax, eax\n ret\n")
    ),
    symbol!("userdma_mem_avx_end"),
    routine!("userdma_mem_avx_recovery", "vzeroupper\n mov eax, 1\n ret\n"),
    ".popsection",
);

/// What an atomic routine, or a copy with a CRC, returns in two registers.
#[repr(C)]
pub(super) struct Word {
    /// 0, or 1 after a fault.
    error: u64,
    /// The memory's value, or the CRC's register; anything after a fault.
    value: u64,
}

impl Word {
    pub(super) fn result(self) -> Result<u64, Faulted> {
        if self.error == 0 { Ok(self.value) } else { Err(Faulted) }
    }
}

type CopyRoutine = unsafe extern "C" fn(*mut u8, *const u8, usize) -> u32;

unsafe extern "C" {
    static userdma_mem_plain_start: u8;
    static userdma_mem_plain_end: u8;
    static userdma_mem_avx_start: u8;
    static userdma_mem_avx_end: u8;
    fn userdma_mem_plain_recovery() -> u32;
    fn userdma_mem_avx_recovery() -> u32;

    fn userdma_mem_copy_small(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_copy_sse(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_copy_avx(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_store_small(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_store_sse(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_store_avx(dst: *mut u8, src: *const u8, len: usize) -> u32;
    fn userdma_mem_load64(addr: *const u64) -> Word;
    fn userdma_mem_store64(addr: *mut u64, value: u64) -> u32;
    fn userdma_mem_xadd64(addr: *mut u64, add: u64) -> Word;
    fn userdma_mem_cmpxchg64(addr: *mut u64, compare: u64, swap: u64) -> Word;
    fn userdma_mem_touch_read(addr: *const u8) -> u32;
    fn userdma_mem_touch_write(addr: *mut u8) -> u32;
}

/// Where a fault at `instruction` continues, if that is one of the routines. Reads nothing but constants, so the
/// signal handler may call it.
pub(crate) fn recovery(instruction: usize) -> Option<usize> {
    let inside = |start: *const u8, end: *const u8| (start.addr()..end.addr()).contains(&instruction);
    if inside(&raw const userdma_mem_plain_start, &raw const userdma_mem_plain_end) {
        Some(userdma_mem_plain_recovery as *const () as usize)
    } else if inside(&raw const userdma_mem_avx_start, &raw const userdma_mem_avx_end)
        || fold::contains(instruction)
    {
        Some(userdma_mem_avx_recovery as *const () as usize)
    } else {
        None
    }
}

/// Copies `len` bytes in no promised order. After a fault the destination holds any mixture.
///
/// # Safety
/// The destination's bytes may be changed at any time and the source's may be read: no Rust reference forbids it.
/// Neither need be mapped.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    let routine: CopyRoutine = if len < AVX_FROM {
        userdma_mem_copy_small
    } else if is_x86_feature_detected!("avx") {
        userdma_mem_copy_avx
    } else if len <= SMALL_COPY {
        userdma_mem_copy_small
    } else {
        userdma_mem_copy_sse
    };
    // SAFETY: the caller's promise; the routine returns an error where memory is missing.
    checked(unsafe { routine(dst, src, len) })
}

/// Copies `len` bytes; whoever sees one of the last 8 sees all that lie before those 8.
///
/// Each of the last 8 bytes is stored once: by one store from 8 bytes on, so a poller may reset them as soon as it
/// saw them. After a fault the destination holds any mixture.
///
/// # Safety
/// As [`copy`].
#[inline]
pub(crate) unsafe fn copy_last_word_last(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    let routine: CopyRoutine = if len < AVX_FROM + 8 {
        userdma_mem_store_small
    } else if is_x86_feature_detected!("avx") {
        userdma_mem_store_avx
    } else if len <= SMALL_COPY + 8 {
        userdma_mem_store_small
    } else {
        userdma_mem_store_sse
    };
    // SAFETY: the caller's promise; the routine returns an error where memory is missing.
    checked(unsafe { routine(dst, src, len) })
}

/// As [`copy`], and returns the CRC-32 that `crc`, the one of everything before the bytes, comes to with them.
///
/// # Safety
/// As [`copy`]; the destination is the caller's alone, and mapped.
#[inline]
pub(crate) unsafe fn copy_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> Result<u32, Faulted> {
    if len >= fold::MIN && fold::is_supported() {
        // SAFETY: the caller's promise; the processor has the instructions.
        return unsafe { fold::copy_crc(dst, src, len, crc) };
    }
    // SAFETY: the caller's promise.
    unsafe { super::copy_then_crc(copy, dst, src, len, crc) }
}

/// Loads 8 bytes, aligned to 8, with acquire order.
///
/// # Safety
/// As the source of [`copy`].
#[inline]
pub(crate) unsafe fn load(addr: *const u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { userdma_mem_load64(addr) }.result()
}

/// Stores 8 bytes, aligned to 8, with release order.
///
/// # Safety
/// As the destination of [`copy`].
#[inline]
pub(crate) unsafe fn store(addr: *mut u64, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    checked(unsafe { userdma_mem_store64(addr, value) })
}

/// Adds (wrapping) to 8 bytes, aligned to 8, in sequentially consistent order; returns the value before.
///
/// # Safety
/// As the destination of [`copy`].
#[inline]
pub(crate) unsafe fn fetch_add(addr: *mut u64, add: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { userdma_mem_xadd64(addr, add) }.result()
}

/// Stores `swap` into 8 bytes, aligned to 8, if they equal `compare`, in sequentially consistent order; returns
/// the value before.
///
/// # Safety
/// As the destination of [`copy`].
#[inline]
pub(crate) unsafe fn compare_swap(addr: *mut u64, compare: u64, swap: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller's promise.
    unsafe { userdma_mem_cmpxchg64(addr, compare, swap) }.result()
}

/// Proves that the byte can be read.
///
/// # Safety
/// As the source of [`copy`].
#[inline]
pub(crate) unsafe fn touch_read(addr: *const u8) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    checked(unsafe { userdma_mem_touch_read(addr) })
}

/// Proves that the byte can be read and written, by an atomic operation that changes nothing.
///
/// # Safety
/// As the destination of [`copy`].
#[inline]
pub(crate) unsafe fn touch_write(addr: *mut u8) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    checked(unsafe { userdma_mem_touch_write(addr) })
}

#[inline]
fn checked(error: u32) -> Result<(), Faulted> {
    if error == 0 { Ok(()) } else { Err(Faulted) }
}

/// Every machine routine that this processor has, with the fewest bytes that it takes and whether its last word
/// comes last: what [`copy`] and [`copy_last_word_last`] choose from.
#[cfg(test)]
pub(super) fn variants() -> Vec<Variant> {
    let mut all = vec![
        Variant {
            name: "copy_small",
            routine: userdma_mem_copy_small,
            lens: 0..=SMALL_COPY,
            last_word_last: false,
        },
        Variant {
            name: "copy_sse",
            routine: userdma_mem_copy_sse,
            lens: SMALL_COPY..=usize::MAX,
            last_word_last: false,
        },
        Variant {
            name: "store_small",
            routine: userdma_mem_store_small,
            lens: 0..=SMALL_COPY + 8,
            last_word_last: true,
        },
        Variant {
            name: "store_sse",
            routine: userdma_mem_store_sse,
            lens: SMALL_COPY + 8..=usize::MAX,
            last_word_last: true,
        },
    ];
    if is_x86_feature_detected!("avx") {
        let (copy, store): (CopyRoutine, CopyRoutine) = (userdma_mem_copy_avx, userdma_mem_store_avx);
        all.push(Variant {
            name: "copy_avx",
            routine: copy,
            lens: AVX_FROM..=usize::MAX,
            last_word_last: false,
        });
        all.push(Variant {
            name: "store_avx",
            routine: store,
            lens: AVX_FROM + 8..=usize::MAX,
            last_word_last: true,
        });
    }
    all
}

/// See [`variants`].
#[cfg(test)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) lens: std::ops::RangeInclusive<usize>,
    pub(super) last_word_last: bool,
    routine: CopyRoutine,
}

#[cfg(test)]
impl Variant {
    /// # Safety
    /// As [`copy`].
    pub(super) unsafe fn run(&self, dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
        assert!(self.lens.contains(&len));
        // SAFETY: the caller's promise.
        checked(unsafe { (self.routine)(dst, src, len) })
    }
}

/// Up to here `small_copy` copies; `sse_copy` needs at least as many.
const SMALL_COPY: usize = 128;

/// From here on `avx_copy` copies, where the processor has it.
const AVX_FROM: usize = 65;
