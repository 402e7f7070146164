//! Memory that is not all there: what cannot be written is registered for reading only, and what vanishes after its
//! registration is an error for whoever uses it.

#![expect(clippy::expect_used, reason = "a test may panic, and its helpers too")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use userdma_mem::{MemError, Region};
use userdma_objects::{MrTable, PdId, SgCursor, SglError, gather, scatter};
use userdma_verbs::{AccessFlags, LKey, Qpn, RegMrError, Sge};

/// Bytes in a page that the loader maps without the right to write.
static READ_ONLY: [u8; 3 * 4096] = [0x5a; 3 * 4096];

const PD: PdId = PdId(1);

fn region(base: *const u8, len: usize) -> Region {
    // SAFETY: `base` is the constant above, which nobody writes (it cannot be written, which is what the tests
    // show), a mapping that the test alone uses, or a range that no allocation can be part of.
    unsafe { Region::from_raw(base.cast_mut(), len) }
}

#[test]
fn memory_that_cannot_be_written_is_registered_for_reading() {
    for access in [AccessFlags::empty(), AccessFlags::REMOTE_READ] {
        let mut mrs = MrTable::new(1);
        let keys =
            mrs.register(PD, region(READ_ONLY.as_ptr(), READ_ONLY.len()), 0, access).expect("readable");
        if access.contains(AccessFlags::REMOTE_READ) {
            let mut bytes = [0; 16];
            let range = mrs.open_remote(PD, Qpn::new(1), keys.rkey, 8192, 16, access).expect("granted");
            range.read(0, &mut bytes).expect("mapped");
            assert_eq!(bytes, [0x5a; 16]);
        }
    }
}

#[test]
fn memory_that_cannot_be_written_is_refused_for_writing() {
    let mut mrs = MrTable::new(1);
    for access in [AccessFlags::LOCAL_WRITE, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE] {
        let result = mrs.register(PD, region(READ_ONLY.as_ptr(), READ_ONLY.len()), 0, access);
        let addr = READ_ONLY.as_ptr().addr() as u64;
        assert_eq!(result, Err(RegMrError::NotAccessible { addr, write: true }));
    }
    assert_eq!(mrs.mr_count(), 0);
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let mut mrs = MrTable::new(1);
    let result = mrs.register(PD, region(std::ptr::without_provenance(64), 8), 0, AccessFlags::empty());
    assert_eq!(result, Err(RegMrError::NotAccessible { addr: 64, write: false }));
}

#[test]
fn a_range_that_is_longer_than_memory_is_refused_unseen() {
    let mut mrs = MrTable::new(1);
    for (addr, len) in [(usize::MAX - 3, 5), (4096, usize::MAX), (4096, 1 << 48)] {
        let result =
            mrs.register(PD, region(std::ptr::without_provenance(addr), len), 0, AccessFlags::empty());
        assert_eq!(result, Err(RegMrError::Range { addr: addr as u64, length: len as u64 }));
    }
}

const PAGE: usize = 4096;

/// Two pages of which the second is unmapped after they were registered.
fn half_gone(mrs: &mut MrTable) -> LKey {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, protection, MapFlags::PRIVATE) };
    let base = base.expect("memory").cast::<u8>();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let keys = mrs.register(PD, region(base, 2 * PAGE), 0, access).expect("mapped");
    // SAFETY: the second page of our mapping, to which there are no references.
    unsafe { munmap(base.wrapping_add(PAGE).cast(), PAGE) }.expect("mapped");
    keys.lkey
}

#[test]
fn a_list_whose_memory_vanished_is_an_error_and_the_cursor_stands_there() {
    let mut mrs = MrTable::new(1);
    let lkey = half_gone(&mut mrs);
    let element = |page: usize, length| Sge { addr: (page * PAGE) as u64, length, lkey };
    let sgl = [element(0, 10), element(1, 10)];
    let gone = Err(SglError::Mem(MemError::Fault));

    let mut cursor = SgCursor::default();
    assert_eq!(scatter(&mrs, PD, &sgl, &mut cursor, &[7; 16]), gone);
    assert_eq!(cursor, SgCursor { index: 1, offset: 0 });
    assert_eq!(scatter(&mrs, PD, &sgl, &mut cursor, &[7; 1]), gone, "again");

    let (mut cursor, mut bytes) = (SgCursor::default(), [0; 16]);
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut bytes, None), gone);
    assert_eq!(cursor, SgCursor { index: 1, offset: 0 });
    assert_eq!(bytes[..10], [7; 10], "what there was has been copied");
}

#[test]
fn a_peer_that_reaches_memory_which_vanished_gets_an_error() {
    let mut mrs = MrTable::new(1);
    let rkey = half_gone(&mut mrs).as_rkey();
    let open =
        |addr, len, rights| mrs.open_remote(PD, Qpn::new(1), rkey, addr, len, rights).expect("granted");
    let range = open(PAGE as u64 - 8, 16, AccessFlags::REMOTE_WRITE);
    assert_eq!(range.write(0, &[1; 8]), Ok(()), "the first page is there");
    assert_eq!(range.write(8, &[1; 8]), Err(MemError::Fault));
    assert_eq!(range.write(0, &[1; 16]), Err(MemError::Fault));
    let atomic = open(PAGE as u64, 8, AccessFlags::REMOTE_ATOMIC);
    assert_eq!(atomic.fetch_add(1), Err(MemError::Fault));
    assert_eq!(atomic.compare_swap(0, 1), Err(MemError::Fault));
}
