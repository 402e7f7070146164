//! Each routine against the plain copy, at every small length and alignment, and at the edges of memory.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Faulted, portable};
use crate::{fault, raw::page_size};

/// A way to copy, with what it promises.
struct Way {
    name: &'static str,
    lens: RangeInclusive<usize>,
    last_word_last: bool,
    run: Box<dyn Fn(*mut u8, *const u8, usize) -> Result<(), Faulted>>,
}

fn way(
    name: &'static str,
    last_word_last: bool,
    run: unsafe fn(*mut u8, *const u8, usize) -> Result<(), Faulted>,
) -> Way {
    // SAFETY: every test gives ranges of its own memory.
    Way { name, lens: 0..=usize::MAX, last_word_last, run: Box::new(move |d, s, n| unsafe { run(d, s, n) }) }
}

/// What the crate uses, the kernel's copies, and each machine routine by itself.
fn ways() -> impl Iterator<Item = Way> {
    let chosen = [
        way("copy", false, super::copy),
        way("copy_last_word_last", true, super::copy_last_word_last),
        way("copy_crc", false, copy_crc),
        way("portable copy", false, portable::copy),
        way("portable copy_last_word_last", true, portable::copy_last_word_last),
    ];
    chosen.into_iter().chain(machine_ways())
}

/// The copy that computes a CRC, as a copy.
///
/// # Safety
/// As that.
unsafe fn copy_crc(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the caller's promise.
    unsafe { super::copy_crc(dst, src, len, 0) }.map(|_| ())
}

#[cfg(target_arch = "x86_64")]
fn machine_ways() -> impl Iterator<Item = Way> {
    super::x86_64::variants().into_iter().map(|variant| Way {
        name: variant.name,
        lens: variant.lens.clone(),
        last_word_last: variant.last_word_last,
        // SAFETY: every test gives ranges of its own memory.
        run: Box::new(move |d, s, n| unsafe { variant.run(d, s, n) }),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn machine_ways() -> impl Iterator<Item = Way> {
    std::iter::empty()
}

/// Three pages of which the first and the last cannot be touched.
struct Island {
    base: *mut u8,
}

impl Island {
    fn new() -> Self {
        fault::install().unwrap();
        let page = page_size();
        // SAFETY: a new mapping, and a protection inside it.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                3 * page,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(page), page, libc::PROT_READ | libc::PROT_WRITE), 0);
            base.cast()
        };
        Self { base }
    }

    fn start(&self) -> *mut u8 {
        self.base.wrapping_add(page_size())
    }

    fn end(&self) -> *mut u8 {
        self.base.wrapping_add(2 * page_size())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the middle page, borrowed as long as the island.
        unsafe { std::slice::from_raw_parts_mut(self.start(), page_size()) }
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.base.cast(), 3 * page_size()) };
    }
}

/// A small generator, so that a failure repeats.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

#[test]
fn every_short_length_at_every_alignment_equals_the_plain_copy() {
    let src = Seeded(1).bytes(400);
    let before = Seeded(2).bytes(400);
    for way in ways() {
        // A system call per copy: fewer alignments do.
        let step = if way.name.starts_with("portable") { 11 } else { 1 };
        for len in (0..=300).filter(|len| way.lens.contains(len)) {
            for from in (0..32).step_by(step) {
                for to in (0..32).step_by(step) {
                    let mut dst = before.clone();
                    let mut expected = before.clone();
                    expected[to..to + len].copy_from_slice(&src[from..from + len]);
                    let done = (way.run)(dst[to..].as_mut_ptr(), src[from..].as_ptr(), len);
                    assert_eq!(done, Ok(()));
                    assert_eq!(dst, expected, "{}: {len} bytes from {from} to {to}", way.name);
                }
            }
        }
    }
}

#[test]
fn random_long_lengths_equal_the_plain_copy() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("SEED={seed}");
    let mut random = Seeded(seed);
    let src = random.bytes(3 << 20);
    for way in ways() {
        let mut dst = vec![0; src.len()];
        for _ in 0..40 {
            let limit = src.len() >> (random.below(14));
            let len = random.below(limit).max(*way.lens.start()).min(*way.lens.end());
            let (from, to) = (random.below(src.len() - len), random.below(src.len() - len));
            dst.fill(0xa5);
            assert_eq!((way.run)(dst[to..].as_mut_ptr(), src[from..].as_ptr(), len), Ok(()));
            assert_eq!(dst[to..to + len], src[from..from + len], "{}: {len} from {from} to {to}", way.name);
            assert!(
                dst[..to].iter().chain(&dst[to + len..]).all(|&byte| byte == 0xa5),
                "{}: {len}",
                way.name
            );
        }
    }
}

/// What `crc` comes to with these bytes, by the library alone.
fn crc_after(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[test]
fn the_crc_goes_on_over_what_is_copied() {
    let mut random = Seeded(3);
    let src = random.bytes(9000);
    let mut dst = vec![0; src.len()];
    let lens = (0..1500).chain([1500, 2047, 2048, 4095, 4096, 4097, 8192, 8999]);
    for len in lens {
        let from = random.below(src.len() - len);
        let before = u32::try_from(random.next() >> 32).unwrap();
        let expected = crc_after(before, &src[from..from + len]);
        for (name, copy_crc) in [("chosen", super::copy_crc as CopyCrc), ("portable", portable::copy_crc)] {
            // SAFETY: both ranges are the test's own.
            let crc = unsafe { copy_crc(dst.as_mut_ptr(), src[from..].as_ptr(), len, before) };
            assert_eq!(crc, Ok(expected), "{name}: {len} bytes from {from}");
        }
    }
}

type CopyCrc = unsafe fn(*mut u8, *const u8, usize, u32) -> Result<u32, Faulted>;

/// Nothing outside the range is read or written; memory that is missing at either end, on either side, is an error.
#[test]
fn a_copy_with_its_crc_goes_up_to_the_border_of_memory_and_faults_behind_it() {
    let page = page_size();
    let (mut source, target) = (Island::new(), Island::new());
    let noise = Seeded(5).bytes(page);
    source.bytes().copy_from_slice(&noise);
    for len in 1..700 {
        let from = page - len;
        let expected = Ok(crc_after(9, &noise[from..]));
        let (at, to) = (source.start().wrapping_add(from), target.start().wrapping_add(from));
        // SAFETY: memory of the test's own, there or not.
        unsafe {
            assert_eq!(super::copy_crc(to, at, len, 9), expected, "{len} bytes up to the end");
            assert!(std::slice::from_raw_parts(to, len) == &noise[from..], "{len} bytes");
            assert_eq!(
                super::copy_crc(target.start(), source.start(), len, 9),
                Ok(crc_after(9, &noise[..len]))
            );
            for missing in 1..=len {
                let (from, to) = (at.wrapping_add(missing), to.wrapping_add(missing));
                if missing % 7 == len % 7 {
                    assert_eq!(super::copy_crc(target.start(), from, len, 9), Err(Faulted));
                    assert_eq!(super::copy_crc(to, source.start(), len, 9), Err(Faulted));
                    let before = source.start().wrapping_sub(missing);
                    assert_eq!(super::copy_crc(target.start(), before, len, 9), Err(Faulted));
                }
            }
        }
    }
}

/// The CRC must be that of the packet that leaves, not that of the memory a moment later.
#[test]
fn the_crc_is_that_of_the_copy_though_the_source_changes() {
    const LEN: usize = 4096;
    let words: Vec<AtomicU64> = (0..LEN as u64 / 8).map(AtomicU64::new).collect();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_processor(0);
            while !is_done.load(Ordering::Relaxed) {
                words.iter().for_each(|word| {
                    word.fetch_add(0x0101, Ordering::Relaxed);
                });
            }
        });
        pin_to_processor(1);
        let mut dst = vec![0; LEN];
        for round in 0..20_000 {
            // Not a whole number of vectors, now and then.
            let len = LEN - round % 9;
            // SAFETY: atomics may be read by such copies; the destination is ours.
            let crc = unsafe { super::copy_crc(dst.as_mut_ptr(), words.as_ptr().cast(), len, 7) };
            assert_eq!(crc, Ok(crc_after(7, &dst[..len])), "{len} bytes");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn no_byte_outside_the_range_is_touched() {
    let (source, target) = (Island::new(), Island::new());
    for way in ways() {
        for len in (0..=600).filter(|len| way.lens.contains(len)) {
            for src in [source.start(), source.end().wrapping_sub(len)] {
                for dst in [target.start(), target.end().wrapping_sub(len)] {
                    assert_eq!((way.run)(dst, src, len), Ok(()), "{}: {len}", way.name);
                }
            }
        }
    }
}

#[test]
fn one_byte_beyond_on_either_side_is_a_fault() {
    let (source, target) = (Island::new(), Island::new());
    for way in ways() {
        for len in (1..=300).filter(|len| way.lens.contains(len)) {
            let over = [source.start().wrapping_sub(1), source.end().wrapping_sub(len - 1)];
            for src in over {
                assert_eq!((way.run)(target.start(), src, len), Err(Faulted), "{}: {len}", way.name);
            }
            let over = [target.start().wrapping_sub(1), target.end().wrapping_sub(len - 1)];
            for dst in over {
                assert_eq!((way.run)(dst, source.start(), len), Err(Faulted), "{}: {len}", way.name);
            }
        }
    }
}

#[test]
fn the_last_word_is_stored_after_all_before_it() {
    let mut target = Island::new();
    let src = vec![0x11_u8; page_size()];
    for way in ways().filter(|way| way.last_word_last) {
        for len in (9..=600).filter(|len| way.lens.contains(len)) {
            // The last 8 bytes are out of reach: all before them has arrived.
            target.bytes().fill(0xee);
            let dst = target.end().wrapping_sub(len - 8);
            assert_eq!((way.run)(dst, src.as_ptr(), len), Err(Faulted));
            let (rest, body) = target.bytes().split_at(page_size() - (len - 8));
            assert!(body.iter().all(|&byte| byte == 0x11), "{}: {len} without its last word", way.name);
            assert!(rest.iter().all(|&byte| byte == 0xee), "{}: {len}", way.name);

            // The first byte is out of reach: the last 8 have not been touched.
            target.bytes().fill(0xee);
            assert_eq!((way.run)(target.start().wrapping_sub(1), src.as_ptr(), len), Err(Faulted));
            let last = &target.bytes()[len - 9..len - 1];
            assert!(last.iter().all(|&byte| byte == 0xee), "{}: {len} without its first byte", way.name);
        }
    }
}

#[test]
fn short_stores_fault_whole_or_in_ascending_order() {
    let mut target = Island::new();
    for way in ways().filter(|way| way.last_word_last && way.lens.contains(&1)) {
        for len in 1..=8 {
            target.bytes().fill(0xee);
            let dst = target.start().wrapping_sub(1);
            assert_eq!((way.run)(dst, [0x11; 8].as_ptr(), len), Err(Faulted), "{}: {len}", way.name);
            assert!(target.bytes().iter().all(|&byte| byte == 0xee), "{}: {len}", way.name);
        }
    }
}

#[test]
fn copies_fault_in_the_middle_of_a_long_range() {
    let page = page_size();
    let (mut target, source) = (Island::new(), Island::new());
    let long = vec![0x22_u8; 3 * page];
    for way in ways().filter(|way| way.lens.contains(&(3 * page))) {
        target.bytes().fill(0);
        assert_eq!((way.run)(target.start(), long.as_ptr(), 3 * page), Err(Faulted), "{}", way.name);
        let mut back = vec![0_u8; 3 * page];
        assert_eq!((way.run)(back.as_mut_ptr(), source.start(), 3 * page), Err(Faulted), "{}", way.name);
    }
}

/// The atomics and touches, of the machine and of the kernel.
macro_rules! atomics {
    ($test:ident, $($module:tt)+) => {
        #[test]
        fn $test() {
            use $($module)+::{compare_swap, fetch_add, load, store, touch_read, touch_write};

            let island = Island::new();
            let word = island.end().wrapping_sub(8).cast::<u64>();
            // SAFETY: memory of the test's own, there or not.
            unsafe {
                assert_eq!(store(word, 5), Ok(()));
                assert_eq!(fetch_add(word, 3), Ok(5));
                assert_eq!(compare_swap(word, 7, 1), Ok(8), "unequal: nothing is stored");
                assert_eq!(load(word), Ok(8));
                assert_eq!(compare_swap(word, 8, u64::MAX), Ok(8));
                assert_eq!(fetch_add(word, 2), Ok(u64::MAX), "wraps");
                assert_eq!(load(word), Ok(1));
                assert_eq!((touch_read(word.cast()), touch_write(word.cast())), (Ok(()), Ok(())));
                assert_eq!(load(word), Ok(1), "a touch changes nothing");

                let gone = island.end().cast::<u64>();
                assert_eq!(store(gone, 5), Err(Faulted));
                assert_eq!(fetch_add(gone, 3), Err(Faulted));
                assert_eq!(compare_swap(gone, 7, 1), Err(Faulted));
                assert_eq!(load(gone), Err(Faulted));
                assert_eq!((touch_read(gone.cast()), touch_write(gone.cast())), (Err(Faulted), Err(Faulted)));

                libc::mprotect(island.start().cast(), page_size(), libc::PROT_READ);
                assert_eq!((load(word), touch_read(word.cast())), (Ok(1), Ok(())));
                assert_eq!(store(word, 5), Err(Faulted));
                assert_eq!(fetch_add(word, 3), Err(Faulted));
                assert_eq!(compare_swap(word, 1, 2), Err(Faulted));
                assert_eq!(touch_write(word.cast()), Err(Faulted));
                assert_eq!(load(word), Ok(1));
            }
        }
    };
}

/// Keeps this thread on one processor of those it may use.
fn pin_to_processor(index: usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut mine = CpuSet::new();
    let all: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    mine.set(all[index % all.len()]);
    sched_setaffinity(None, &mine).unwrap();
}

/// Two threads count in two words until they have got between each other's operations often enough to have lost some.
///
/// Each has a processor of its own, if there are two; on one they take turns, which proves nothing, and a bound ends it.
#[test]
fn atomics_and_touches_of_two_threads_lose_nothing() {
    const ENOUGH: u32 = 20_000;
    const BOUND: u64 = 20_000_000;
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    let (meetings, rounds) = (AtomicU32::new(0), AtomicU64::new(0));
    let count = |index| {
        pin_to_processor(index);
        let [added, swapped] = words.each_ref().map(AtomicU64::as_ptr);
        let (mut last, mut mine) = (0, 0);
        while meetings.load(Ordering::Relaxed) < ENOUGH && mine < BOUND {
            // SAFETY: words of the test's own.
            unsafe {
                let before = super::fetch_add(added, 1).unwrap();
                if before != last {
                    meetings.fetch_add(1, Ordering::Relaxed);
                }
                last = before + 1;
                super::touch_write(added.cast()).unwrap();
                let mut old = super::load(swapped).unwrap();
                loop {
                    match super::compare_swap(swapped, old, old + 1).unwrap() {
                        seen if seen == old => break,
                        seen => old = seen,
                    }
                }
            }
            mine += 1;
        }
        rounds.fetch_add(mine, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| count(0));
        scope.spawn(|| count(1));
    });
    println!("{meetings:?} meetings in {rounds:?} rounds");
    assert_eq!(words.map(AtomicU64::into_inner), [rounds.into_inner(); 2]);
}

atomics!(atomics_work_and_fault, super);
atomics!(atomics_by_the_kernel_work_and_fault, super::portable);

#[cfg(target_arch = "x86_64")]
#[test]
fn an_address_that_no_memory_can_have_is_a_fault() {
    fault::install().unwrap();
    let mut byte = 0_u8;
    let not_canonical = std::ptr::without_provenance_mut::<u8>(0x8000_0000_0000_0000);
    // SAFETY: the local is ours; the other address faults.
    unsafe {
        assert_eq!(super::copy(&raw mut byte, not_canonical, 1), Err(Faulted));
        assert_eq!(super::copy(not_canonical, &raw const byte, 1), Err(Faulted));
        assert_eq!(super::load(not_canonical.cast()), Err(Faulted));
        assert_eq!(super::load(std::ptr::null()), Err(Faulted));
    }
}
