//! Memory that goes away under a region: every access says so, and the process lives.

#![allow(clippy::unwrap_used, reason = "also in functions that tests share")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Mapping, page};
use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use userdma_mem::{MemError, Region};

/// Lengths of the data path and around the routines' limits.
const LENS: [usize; 12] = [1, 4, 8, 9, 16, 64, 72, 73, 137, 1024, 4095, 4096];

/// Each access to the region's second page and across its edge faults as told, and the first page still works.
#[track_caller]
fn assert_second_page_gone(region: &Region, read: Result<(), MemError>) {
    let edge = page() as u64;
    for len in LENS {
        let mut bytes = vec![0; len];
        assert_eq!(region.read(edge, &mut bytes), read, "read {len}");
        assert_eq!(region.write(edge, &bytes), Err(MemError::Fault), "write {len}");
    }
    assert_eq!(region.read(edge - 1, &mut [0; 2]), read, "read across");
    assert_eq!(region.write(edge - 1, &[1, 2]), Err(MemError::Fault), "write across");
    assert_eq!(region.load(edge).map(drop), read);
    assert_eq!(region.store(edge, 1), Err(MemError::Fault));
    assert_eq!(region.fetch_add(edge, 1), Err(MemError::Fault));
    assert_eq!(region.compare_swap(edge, 0, 0), Err(MemError::Fault));
    assert_eq!(region.probe(true), Err(region.addr() + edge));
    assert_eq!(region.probe(false), read.map_err(|_| region.addr() + edge));

    region.write(0, &[7; 64]).unwrap();
    let mut bytes = [0; 64];
    region.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64]);
}

#[test]
fn unmapped_pages_are_a_fault() {
    let mapping = Mapping::anonymous(2, PROT_READ | PROT_WRITE);
    let region = mapping.region();
    assert_eq!(region.probe(true), Ok(()));
    mapping.unmap(1, 1);
    assert_second_page_gone(&region, Err(MemError::Fault));
}

#[test]
fn really_unmapped_pages_are_a_fault() {
    let mapping = Mapping::anonymous(1, PROT_READ | PROT_WRITE);
    // A hint for an address that other tests' mappings do not take: far from where the kernel places them.
    let hint = std::ptr::without_provenance_mut(0x1000_0000_0000);
    // SAFETY: the old mapping moves to an unused address, and is then unmapped.
    let moved = unsafe {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        libc::mremap(mapping.base.cast(), mapping.len, mapping.len, flags, hint)
    };
    assert_eq!(moved, hint);
    // SAFETY: no references into it.
    let region = unsafe { Region::from_raw(moved.cast(), mapping.len) };
    assert_eq!(region.probe(true), Ok(()));
    // SAFETY: the mapping of above.
    assert_eq!(unsafe { libc::munmap(moved, mapping.len) }, 0);
    assert_eq!(region.read(0, &mut [0; 100]), Err(MemError::Fault));
    assert_eq!(region.write(0, &[0; 100]), Err(MemError::Fault));
    assert_eq!(region.probe(false), Err(region.addr()));
}

#[test]
fn pages_without_access_are_a_fault() {
    let mapping = Mapping::anonymous(2, PROT_READ | PROT_WRITE);
    let region = mapping.region();
    mapping.protect(1, 1, PROT_NONE);
    assert_second_page_gone(&region, Err(MemError::Fault));
    mapping.protect(1, 1, PROT_READ | PROT_WRITE);
    assert_eq!(region.probe(true), Ok(()));
    assert_eq!(region.fetch_add(page() as u64, 1), Ok(0), "what faulted changed nothing");
}

#[test]
fn read_only_pages_can_be_read_and_not_written() {
    let mapping = Mapping::anonymous(2, PROT_READ | PROT_WRITE);
    let region = mapping.region();
    mapping.protect(1, 1, PROT_READ);
    assert_second_page_gone(&region, Ok(()));
}

#[test]
fn pages_beyond_the_end_of_a_truncated_file_are_a_fault() {
    let mapping = Mapping::memfd(2);
    let region = mapping.region();
    assert_eq!(region.probe(true), Ok(()));
    mapping.truncate(1);
    assert_second_page_gone(&region, Err(MemError::Fault));
    mapping.truncate(2);
    assert_eq!(region.probe(true), Ok(()));
}

#[test]
fn the_other_side_of_a_copy_may_vanish_as_well() {
    // What a region is copied from or to is usually ours; that it may fault too costs nothing, and is tested here
    // with the only bytes that a slice can lend and a mapping can lose: none of them are looked at by Rust.
    let (mapping, whole) = (Mapping::memfd(1), Mapping::anonymous(1, PROT_READ | PROT_WRITE));
    // SAFETY: a slice that only the copy routine looks into.
    let lent = unsafe { std::slice::from_raw_parts_mut(mapping.base, mapping.len) };
    mapping.truncate(0);
    for len in LENS.into_iter().filter(|&len| len <= page()) {
        assert_eq!(whole.region().read(0, &mut lent[..len]), Err(MemError::Fault));
        assert_eq!(whole.region().write(0, &lent[..len]), Err(MemError::Fault));
    }
}

#[test]
fn a_probe_leaves_contents_alone_while_others_write() {
    let mapping = Mapping::anonymous(1, PROT_READ | PROT_WRITE);
    let region = mapping.region();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50_000 {
                region.probe(true).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            assert_eq!(region.fetch_add(0, 1), Ok(round));
            round += 1;
        }
    });
}

#[test]
fn a_probe_names_the_first_bad_page() {
    let mapping = Mapping::anonymous(40, PROT_READ | PROT_WRITE);
    for bad in [39, 17, 3, 0] {
        mapping.protect(bad, 1, PROT_NONE);
        // SAFETY: no references into it.
        let region = unsafe { Region::from_raw(mapping.base.wrapping_add(5), mapping.len - 5) };
        let first = if bad == 0 { region.addr() } else { mapping.region().addr() + (bad * page()) as u64 };
        assert_eq!(region.probe(false), Err(first));
        assert_eq!(region.probe(true), Err(first));
    }
}

#[test]
fn a_probe_of_a_read_only_mapping_tells_reading_from_writing() {
    let file = Mapping::memfd(1);
    file.protect(0, 1, PROT_READ);
    let private = Mapping::anonymous(3, PROT_READ);
    for region in [file.region(), private.region()] {
        assert_eq!(region.probe(false), Ok(()));
        assert_eq!(region.probe(true), Err(region.addr()));
    }
}

#[test]
fn a_range_beyond_the_address_space_is_a_fault() {
    let top = std::ptr::without_provenance_mut::<u8>(usize::MAX - 99);
    // SAFETY: nothing is mapped there.
    let region = unsafe { Region::from_raw(top, 1000) };
    assert_eq!(region.read(0, &mut [0; 8]), Err(MemError::Fault));
    assert_eq!(region.write(200, &[0; 8]), Err(MemError::Fault));
    assert_eq!(region.load(204), Err(MemError::Fault));
    assert_eq!(region.probe(false), Err(region.addr()));
    // SAFETY: nothing is mapped at its end.
    let all = unsafe { Region::from_raw(std::ptr::without_provenance_mut(8), usize::MAX) };
    assert_eq!(all.write(u64::MAX - 8, &[0; 8]), Err(MemError::Fault));
    assert_eq!(all.probe(true), Err(8));
}

#[test]
fn faults_on_many_threads_at_once_are_each_thread_s_own() {
    let threads: u64 = 8;
    let start = Barrier::new(8);
    let faults = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..threads {
            let (start, faults) = (&start, &faults);
            scope.spawn(move || {
                let mapping = if id % 2 == 0 {
                    Mapping::memfd(2)
                } else {
                    Mapping::anonymous(2, PROT_READ | PROT_WRITE)
                };
                let region = mapping.region();
                region.write(0, &id.to_le_bytes()).unwrap();
                if id % 2 == 0 {
                    mapping.truncate(1)
                } else {
                    mapping.protect(1, 1, PROT_NONE)
                }
                start.wait();
                for round in 0..2000 {
                    let mut bytes = [0; 300];
                    let offset = page() as u64 - round % 300;
                    if region.read(offset, &mut bytes) == Err(MemError::Fault) {
                        faults.fetch_add(1, Ordering::Relaxed);
                    }
                    assert_eq!(region.load(0), Ok(id));
                }
            });
        }
    });
    assert_eq!(faults.load(Ordering::Relaxed), threads * 2000);
}

#[test]
fn pages_that_come_and_go_under_copies_never_end_the_process() {
    let mapping = Mapping::memfd(16);
    let region = mapping.region();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..3000_usize {
                mapping.truncate(round % 17);
                mapping.protect(
                    round % 16,
                    1,
                    if round % 3 == 0 { PROT_NONE } else { PROT_READ | PROT_WRITE },
                );
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut bytes = vec![0; 15 * page()];
            while !done.load(Ordering::Relaxed) {
                let _ = region.read(100, &mut bytes);
            }
        });
        let bytes = vec![1; 15 * page()];
        while !done.load(Ordering::Relaxed) {
            let _ = region.write(100, &bytes);
            let _ = region.fetch_add(8 * page() as u64, 1);
        }
    });
}
