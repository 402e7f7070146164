//! Memory that is not all there: what cannot be written is registered for reading, and for nothing else.

use userdma_mem::Region;
use userdma_objects::{MrTable, PdId};
use userdma_verbs::{AccessFlags, Qpn, RegMrError};

/// Bytes in a page that the loader maps without the right to write.
static READ_ONLY: [u8; 3 * 4096] = [0x5a; 3 * 4096];

const PD: PdId = PdId(1);

fn region(base: *const u8, len: usize) -> Region {
    // SAFETY: `base` is the constant above, which nobody writes (it cannot be written, which is what the tests
    // show), or the range is one that no allocation can be part of.
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
        let result = mrs.register(PD, region(std::ptr::without_provenance(addr), len), 0, AccessFlags::empty());
        assert_eq!(result, Err(RegMrError::Range { addr: addr as u64, length: len as u64 }));
    }
}
