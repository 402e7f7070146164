//! No allocation per packet: a counting allocator stays still while messages of many packets go back and forth.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Side, pair_on};
use userdma::{Device, Mr, SendFlags, Wc, WcStatus};

/// Counts what all threads of the process allocate.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
/// Some 100 packets of 4096 bytes.
const LEN: usize = 400_000;

/// What is done with two sides and a region of each.
type Operation = fn(&Side, &Side, &Mr, &Mr);

/// One test, so that no other runs beside it.
#[test]
fn a_packet_costs_no_allocation() {
    // Ports of their own: on a shared one, others' processes may have their agent in this one.
    let device = |host| Device::builder().address([127, 0, 120, host]).private_port(14_120);
    let (a, b) = pair_on(device(2), device(3));
    let (mine, theirs) = (a.mr(LEN, 1), b.mr(LEN, 2));
    let operations: [(&str, Operation); 5] =
        [("SEND", send), ("WRITE", write), ("READ", read), ("FETCH_ADD", fetch_add), ("wait", send_and_wait)];
    for (name, operation) in operations {
        let run = |rounds| (0..rounds).for_each(|_| operation(&a, &b, &mine, &theirs));
        // Queues grow to their usual size.
        run(30);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run(30);
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocated, 0, "{name}");
    }
}

fn send(a: &Side, b: &Side, mine: &Mr, theirs: &Mr) {
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    a.qp.post_send(2, &mine.slice(..), SIGNALED).unwrap();
    poll(b);
    poll(a);
}

fn write(a: &Side, _: &Side, mine: &Mr, theirs: &Mr) {
    a.qp.post_write(3, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    poll(a);
}

fn read(a: &Side, _: &Side, mine: &Mr, theirs: &Mr) {
    a.qp.post_read(4, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    poll(a);
}

fn fetch_add(a: &Side, _: &Side, mine: &Mr, theirs: &Mr) {
    a.qp.post_fetch_add(5, &mine.slice(..8), theirs.remote(), 1, SIGNALED).unwrap();
    poll(a);
}

/// The same by sleeping.
fn send_and_wait(a: &Side, b: &Side, mine: &Mr, theirs: &Mr) {
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    a.qp.post_send(2, &mine.slice(..), SIGNALED).unwrap();
    let mut wc = [common::EMPTY];
    for side in [b, a] {
        assert_eq!(side.cq.wait(&mut wc, None).unwrap(), 1);
        check(&wc[0]);
    }
}

fn poll(side: &Side) {
    check(&side.poll());
}

fn check(wc: &Wc) {
    assert_eq!(wc.status, WcStatus::Success);
}
