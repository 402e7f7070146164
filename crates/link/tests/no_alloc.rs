//! A counting allocator: sending and receiving allocate nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{config, open, readable};
use userdma_link::UdpConfig;
use userdma_mem::TxBatch;
use userdma_verbs::Time;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises to `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises to `dealloc`; all memory comes from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn exchange(ip: &str, config: &UdpConfig, packets_per_batch: usize) {
    let (Some(mut tx), Some(mut rx)) = (open(ip, config), open(ip, config)) else { return };
    let mut route = tx.route(rx.local(), rx.port(), 0);
    (route.traffic_class, route.hop_limit) = (2, 30);
    let mut batches: Vec<TxBatch> = (0..8).map(|_| TxBatch::new(&tx.caps())).collect();
    let (mut sent, mut bytes) = (0, 0);
    let count = allocations(|| {
        for _ in 0..50 {
            for batch in &mut batches {
                for _ in 0..packets_per_batch {
                    let (_, packet) = batch.push(&route, 256).unwrap();
                    packet.fill(9);
                }
            }
            sent += tx.send(Time::ZERO, &mut batches).packets;
            while bytes < sent * 256 {
                let report = rx.recv(Time::ZERO, &mut |frame| bytes += frame.bytes.len());
                assert!(report.messages > 0 || readable(&rx));
            }
        }
    });
    assert_eq!(count, 0, "{ip}");
    assert_eq!((sent, bytes / 256), (400 * packets_per_batch, 400 * packets_per_batch));
}

#[test]
fn counting_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn sending_and_receiving_allocate_nothing() {
    for ip in ["127.0.0.1", "::1"] {
        exchange(ip, &config(), 16);
        exchange(ip, &config(), 1);
        exchange(ip, &UdpConfig { coalescing: false, ..config() }, 16);
        exchange(ip, &UdpConfig { segmentation: false, ..config() }, 1);
    }
}

#[test]
fn refusals_allocate_nothing() {
    let Some(mut tx) = open("127.0.0.1", &config()) else { return };
    let route = tx.route("192.0.2.1".parse().unwrap(), 4791, 0);
    let mut batch = [TxBatch::new(&tx.caps())];
    batch[0].push(&route, 64).unwrap();
    let mut dropped = 0;
    assert_eq!(allocations(|| dropped = tx.send(Time::ZERO, &mut batch).dropped), 0);
    assert_eq!(dropped, 1);
}
