//! A region's bounds, its atomics, and the order in which a write becomes visible.

#![allow(clippy::unwrap_used, reason = "also in functions that tests share")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use userdma_mem::{Buffer, MemError, Region};

fn region(len: usize) -> Region {
    Region::from_buffer(&Arc::new(Buffer::new(len).unwrap()))
}

#[test]
fn what_was_written_is_read() {
    let region = region(10_000);
    let bytes: Vec<u8> = (0..9_000_u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    for offset in [0, 1, 999, 1000] {
        region.write(offset, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        region.read(offset, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
}

#[test]
fn no_range_outside_the_region_is_accepted() {
    let region = region(64);
    for (offset, len) in
        [(0, 65), (64, 1), (65, 0), (57, 8), (u64::MAX, 0), (u64::MAX, 1), (u64::MAX - 7, 8), (1 << 63, 64)]
    {
        let mut bytes = vec![0; len];
        let outside = Err(MemError::OutOfBounds { offset, len: len as u64, region_len: 64 });
        assert_eq!(region.read(offset, &mut bytes), outside);
        assert_eq!(region.write(offset, &bytes), outside);
    }
}

#[test]
fn zero_bytes_are_fine_anywhere_inside_and_at_the_end() {
    let region = region(64);
    for offset in [0, 1, 64] {
        assert_eq!(region.read(offset, &mut []), Ok(()));
        assert_eq!(region.write(offset, &[]), Ok(()));
    }
}

#[test]
fn a_part_reaches_its_own_bytes_only_and_outlives_the_whole() {
    let whole = region(64);
    whole.write(0, &[7; 64]).unwrap();
    let part = whole.part(16, 8).unwrap();
    assert_eq!((part.addr(), part.len()), (whole.addr() + 16, 8));
    assert!(part.write(8, &[1]).is_err() && part.read(0, &mut [0; 9]).is_err());
    part.write(0, &[1; 8]).unwrap();
    let mut around = [0; 10];
    whole.read(15, &mut around).unwrap();
    assert_eq!(around, [7, 1, 1, 1, 1, 1, 1, 1, 1, 7]);
    drop(whole);
    assert_eq!(part.load(0), Ok(0x0101_0101_0101_0101));
}

#[test]
fn no_part_passes_the_end_of_the_region() {
    let whole = region(64);
    assert!(whole.part(64, 0).is_some_and(|part| part.is_empty()));
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (1, usize::MAX)] {
        assert!(whole.part(offset, len).is_none(), "{len} bytes at {offset}");
    }
}

#[test]
fn zero_bytes_need_no_memory() {
    // SAFETY: no bytes.
    let region = unsafe { Region::from_raw(std::ptr::null_mut(), 0) };
    assert!(region.is_empty());
    assert_eq!(region.probe(true), Ok(()));
    assert_eq!(region.write(0, &[]), Ok(()));
    // SAFETY: nothing is mapped there.
    let absent = unsafe { Region::from_raw(std::ptr::without_provenance_mut(16), 64) };
    assert_eq!(absent.read(64, &mut []), Ok(()));
    assert_eq!(absent.read(0, &mut []), Ok(()));
    assert_eq!(absent.read(0, &mut [0]), Err(MemError::Fault));
}

#[test]
fn atomics_need_eight_aligned_bytes_inside() {
    let region = region(64);
    for offset in [1, 4, 7, 57, 60, 64, u64::MAX - 7, u64::MAX] {
        let outside = Err(MemError::OutOfBounds { offset, len: 8, region_len: 64 });
        assert_eq!(region.load(offset), outside);
        assert_eq!(region.fetch_add(offset, 1), outside);
        assert_eq!(region.compare_swap(offset, 0, 1), outside);
        assert_eq!(region.store(offset, 1).map(|()| 0), outside);
    }
    assert_eq!(region.store(56, 0x1122_3344_5566_7788), Ok(()));
    let mut bytes = [0; 8];
    region.read(56, &mut bytes).unwrap();
    assert_eq!(bytes, 0x1122_3344_5566_7788_u64.to_ne_bytes(), "host order");
}

#[test]
fn alignment_is_of_the_address_and_not_of_the_offset() {
    let buffer = Buffer::new(64).unwrap();
    let base = std::ptr::with_exposed_provenance_mut::<u8>(buffer.addr() + 4);
    // SAFETY: inside the buffer, which outlives the region and lends no references.
    let region = unsafe { Region::from_raw(base, 60) };
    assert!(matches!(region.fetch_add(0, 1), Err(MemError::OutOfBounds { .. })));
    assert_eq!(region.fetch_add(4, 1), Ok(0));
    assert_eq!(region.compare_swap(4, 1, u64::MAX), Ok(1));
    assert_eq!(region.fetch_add(4, 2), Ok(u64::MAX), "wraps");
    assert_eq!(region.compare_swap(4, 7, 9), Ok(1), "unequal: unchanged");
    assert_eq!(region.load(4), Ok(1));
}

/// A poller that sees a write's last word finds everything before it, and may reset the word at once.
///
/// The writer fills all but the last 8 bytes with the round's number and ends with the number itself; the poller
/// waits for the number in the last word, compares the rest and clears the word, which must stay cleared.
fn poll_the_last_word(len: usize, rounds: u64) {
    let region = region(len.next_multiple_of(8) + 8);
    // The last word is aligned; the start of the write then is not, unless the length is a multiple of 8.
    let last = (len.next_multiple_of(8) - 8) as u64;
    let start = last + 8 - len as u64;
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = vec![0; len - 8];
            for round in 1..=rounds {
                loop {
                    match region.load(last).unwrap() {
                        0 => std::thread::yield_now(),
                        word => {
                            assert_eq!(word, round, "{len} bytes: the last word is whole");
                            break;
                        }
                    }
                }
                region.read(start, &mut bytes).unwrap();
                let fill = round.to_le_bytes()[0];
                assert!(bytes.iter().all(|&byte| byte == fill), "{len} bytes, round {round}: {bytes:?}");
                region.store(last, 0).unwrap();
                seen.store(round, Ordering::Release);
            }
        });
        let mut bytes = vec![0; len];
        for round in 1..=rounds {
            bytes.fill(round.to_le_bytes()[0]);
            bytes[len - 8..].copy_from_slice(&round.to_ne_bytes());
            region.write(start, &bytes).unwrap();
            while seen.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
            assert_eq!(region.load(last), Ok(0), "{len} bytes: the last word is stored once");
        }
    });
}

#[test]
fn a_poller_of_the_last_word_sees_the_whole_write() {
    for len in [8, 9, 15, 16, 17, 24, 40, 64, 73, 100, 136, 137, 200, 1024, 4096, 4099, 65_536] {
        poll_the_last_word(len, if len < 5000 { 2000 } else { 300 });
    }
}

#[test]
fn the_last_region_of_a_buffer_gives_its_memory_back() {
    // In a process of its own: another thread's mapping would take the place at once.
    if !common::is_child() {
        let output = common::child("the_last_region_of_a_buffer_gives_its_memory_back");
        return common::assert_success(&output);
    }
    let buffer = Arc::new(Buffer::new(64 << 20).unwrap());
    let region = Region::from_buffer(&buffer);
    // SAFETY: the bytes are only copied, if they are there.
    let watch =
        unsafe { Region::from_raw(std::ptr::with_exposed_provenance_mut(buffer.addr()), buffer.len()) };
    drop(buffer);
    assert_eq!(watch.read(0, &mut [0; 8]), Ok(()), "the region holds it");
    drop(region);
    assert_eq!(watch.read(0, &mut [0; 8]), Err(MemError::Fault));
    assert_eq!(watch.read((64 << 20) - 8, &mut [0; 8]), Err(MemError::Fault));
}
