use std::sync::Arc;

use userdma_mem::{Buffer, MemError};
use userdma_verbs::BindMw;

use super::*;

mod model;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const QPN: Qpn = Qpn::new(0x11);

const LW: AccessFlags = AccessFlags::LOCAL_WRITE;
const RW: AccessFlags = AccessFlags::REMOTE_WRITE;
const RR: AccessFlags = AccessFlags::REMOTE_READ;
const RA: AccessFlags = AccessFlags::REMOTE_ATOMIC;
const NONE: AccessFlags = AccessFlags::empty();

fn region(len: usize) -> Region {
    Region::from_buffer(&Arc::new(Buffer::new(len).expect("memory")))
}

/// A table with one region of 256 bytes at 0x1000.
fn table(access: AccessFlags) -> (MrTable, MrKeys) {
    let mut mrs = MrTable::new(1);
    let keys = mrs.register(PD, region(256), 0x1000, access).expect("valid");
    (mrs, keys)
}

fn sge(addr: u64, length: u32, lkey: LKey) -> Sge {
    Sge { addr, length, lkey }
}

#[test]
fn a_region_needs_local_write_for_rights_that_let_a_peer_write() {
    let optional = AccessFlags::from_bits_retain(1 << 29);
    let unknown = AccessFlags::from_bits_retain(1 << 12);
    let rows = [
        (NONE, true),
        (RR, true),
        (LW, true),
        (RW, false),
        (RA, false),
        (RW | RR, false),
        (LW | RW, true),
        (LW | RA, true),
        (LW | RW | RR | RA | AccessFlags::MW_BIND, true),
        (AccessFlags::MW_BIND, true),
        (AccessFlags::ZERO_BASED, true),
        (AccessFlags::HUGETLB, true),
        (AccessFlags::RELAXED_ORDERING, true),
        (LW | optional, true),
        (AccessFlags::ON_DEMAND, false),
        (LW | AccessFlags::FLUSH_GLOBAL, false),
        (LW | AccessFlags::FLUSH_PERSISTENT, false),
        (unknown, false),
        (AccessFlags::from_bits_retain(1 << 30), false),
    ];
    for (access, is_allowed) in rows {
        let mut mrs = MrTable::new(1);
        let result = mrs.register(PD, region(8), 0, access);
        if is_allowed {
            assert!(result.is_ok(), "{access:?}");
        } else {
            assert_eq!(result, Err(RegMrError::Access { access }));
        }
        assert_eq!(mrs.mr_count(), u32::from(is_allowed));
    }
}

#[test]
fn a_region_has_bytes_and_its_addresses_do_not_wrap() {
    let mut mrs = MrTable::new(1);
    let end = u64::MAX;
    for (len, iova, is_allowed) in [(8, end, false), (8, end - 6, false), (8, end - 7, true), (1, end, true)]
    {
        let result = mrs.register(PD, region(len), iova, LW);
        if is_allowed {
            assert!(result.is_ok(), "{len} bytes at {iova:#x}");
        } else {
            assert_eq!(result, Err(RegMrError::Range { addr: iova, length: len as u64 }));
        }
    }
    assert!(matches!(mrs.register(PD, region(0), 0, LW), Err(RegMrError::Range { length: 0, .. })));
}

#[test]
fn an_address_that_is_zero_based_does_not_wrap() {
    let mut mrs = MrTable::new(1);
    let keys =
        mrs.register(PD, region(8), u64::MAX, LW | AccessFlags::ZERO_BASED).expect("iova is not looked at");
    assert_eq!(mrs.open_local(PD, &sge(0, 8, keys.lkey), true).map(|a| a.len()), Ok(8));
    assert_eq!(mrs.open_local(PD, &sge(u64::MAX, 1, keys.lkey), true).err(), Some(AccessFault::Bounds));
}

#[test]
fn a_region_that_is_longer_than_the_device_allows_is_refused() {
    let max = DeviceAttr::LIMITS.max_mr_size;
    assert_eq!(check_range(0, max), Ok(()));
    assert_eq!(check_range(0, max + 1), Err(RegMrError::Range { addr: 0, length: max + 1 }));
}

#[test]
fn a_regions_two_keys_are_equal_numbers() {
    let (_, keys) = table(LW);
    assert_eq!(keys.lkey.as_rkey(), keys.rkey);
}

#[test]
fn remote_access_is_granted_or_refused() {
    use AccessFault::{Bounds, Domain, Key, Rights};
    let (mut mrs, all) = table(LW | RW | RR | RA);
    let read_only = mrs.register(PD, region(256), 0x1000, RR).expect("valid");
    let local = mrs.register(PD, region(256), 0x1000, LW).expect("valid");
    let zero = mrs.register(PD, region(256), 0x1000, RR | AccessFlags::ZERO_BASED).expect("valid");
    let gone = mrs.register(PD, region(256), 0x1000, RR).expect("valid");
    mrs.deregister(gone.lkey).expect("unused");
    let window = mrs.alloc_mw(PD).expect("room");
    let flipped = |bit: u32| RKey::new(all.rkey.get() ^ 1 << bit);

    let rows = [
        (all.rkey, PD, 0x1000, 256, RW, Ok(256)),
        (all.rkey, PD, 0x1000, 256, RR, Ok(256)),
        (all.rkey, PD, 0x10f8, 8, RA, Ok(8)),
        (all.rkey, PD, 0x1010, 1, RW | RR, Ok(1)),
        (all.rkey, PD, 0x1000, 257, RW, Err(Bounds)),
        (all.rkey, PD, 0x10ff, 2, RR, Err(Bounds)),
        (all.rkey, PD, 0xfff, 1, RR, Err(Bounds)),
        (all.rkey, PD, 0, 1, RR, Err(Bounds)),
        (all.rkey, PD, 0x1001, u64::MAX, RR, Err(Bounds)),
        (all.rkey, OTHER_PD, 0x1000, 1, RR, Err(Domain)),
        (read_only.rkey, PD, 0x1000, 256, RR, Ok(256)),
        (read_only.rkey, PD, 0x1000, 1, RW, Err(Rights)),
        (read_only.rkey, PD, 0x1000, 8, RA, Err(Rights)),
        (read_only.rkey, PD, 0x1000, 1, RW | RR, Err(Rights)),
        (local.rkey, PD, 0x1000, 1, RR, Err(Rights)),
        (local.rkey, PD, 0x1000, 1, RW, Err(Rights)),
        (zero.rkey, PD, 0, 256, RR, Ok(256)),
        (zero.rkey, PD, 1, 256, RR, Err(Bounds)),
        (zero.rkey, PD, 0x1000, 1, RR, Err(Bounds)),
        (gone.rkey, PD, 0x1000, 1, RR, Err(Key)),
        (window, PD, 0x1000, 1, RR, Err(Key)),
        (flipped(0), PD, 0x1000, 1, RR, Err(Key)),
        (flipped(7), PD, 0x1000, 1, RR, Err(Key)),
        (flipped(26), PD, 0x1000, 1, RR, Err(Key)),
        (flipped(31), PD, 0x1000, 1, RR, Err(Key)),
        (RKey::new(0), PD, 0x1000, 1, RR, Err(Key)),
        (RKey::new(u32::MAX), PD, 0x1000, 1, RR, Err(Key)),
        // No bytes need neither a key nor a domain nor a right.
        (RKey::new(0), OTHER_PD, 0, 0, RW, Ok(0)),
        (gone.rkey, PD, 0x1000, 0, RW, Ok(0)),
    ];
    for (row, (rkey, pd, addr, len, rights, expected)) in rows.into_iter().enumerate() {
        let result = mrs.open_remote(pd, QPN, rkey, addr, len, rights).map(|access| access.len());
        assert_eq!(result, expected, "row {row}: {len} bytes at {addr:#x}, {rights:?}");
    }
}

#[test]
fn local_access_needs_local_write_only_for_writing() {
    use AccessFault::{Bounds, Domain, Key, Rights};
    let (mut mrs, writable) = table(LW);
    let plain = mrs.register(PD, region(256), 0x1000, NONE).expect("valid");
    let remote = mrs.register(PD, region(256), 0x1000, RR).expect("valid");
    let window = mrs.alloc_mw(PD).expect("room").as_lkey();
    let rows = [
        (writable.lkey, PD, 0x1000, 256, true, Ok(256)),
        (writable.lkey, PD, 0x1000, 256, false, Ok(256)),
        (writable.lkey, PD, 0x1000, 257, false, Err(Bounds)),
        (writable.lkey, PD, 0xfff, 1, false, Err(Bounds)),
        (writable.lkey, PD, u64::MAX, u32::MAX, true, Err(Bounds)),
        (writable.lkey, OTHER_PD, 0x1000, 1, false, Err(Domain)),
        (plain.lkey, PD, 0x1000, 256, false, Ok(256)),
        (plain.lkey, PD, 0x1000, 1, true, Err(Rights)),
        (remote.lkey, PD, 0x1000, 1, false, Ok(1)),
        (remote.lkey, PD, 0x1000, 1, true, Err(Rights)),
        (window, PD, 0x1000, 1, false, Err(Key)),
        (LKey::new(0), PD, 0x1000, 1, false, Err(Key)),
        (LKey::new(0), OTHER_PD, 0, 0, true, Ok(0)),
    ];
    for (row, (lkey, pd, addr, length, write, expected)) in rows.into_iter().enumerate() {
        let result = mrs.open_local(pd, &sge(addr, length, lkey), write).map(|access| access.len());
        assert_eq!(result, expected, "row {row}");
    }
}

#[test]
fn a_bound_windows_key_is_no_local_key() {
    let (mut mrs, keys) = table(LW | AccessFlags::MW_BIND);
    let mw = mrs.alloc_mw(PD).expect("room");
    let bind = BindMw { mw, rkey: mw, mr: keys.lkey, addr: 0x1000, length: 256, access: RR | RW };
    mrs.bind_mw(PD, QPN, &bind).expect("valid");
    assert_eq!(mrs.open_local(PD, &sge(0x1000, 1, mw.as_lkey()), false).err(), Some(AccessFault::Key));
}

#[test]
fn an_opened_range_reaches_its_bytes_and_no_others() {
    let memory = region(256);
    let mut mrs = MrTable::new(1);
    let keys = mrs.register(PD, memory.clone(), 0x7000, LW | RW | RR | RA).expect("valid");
    let open = |addr, len| mrs.open_remote(PD, QPN, keys.rkey, addr, len, RW).expect("granted");

    let range = open(0x7010, 16);
    assert!(!range.is_empty());
    range.write(4, b"abcd").expect("inside");
    let mut bytes = [0xff; 8];
    memory.read(0x12, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"\0\0abcd\0\0");
    range.read(2, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"\0\0abcd\0\0");

    let refused = |offset, len| Err(MemError::OutOfBounds { offset, len, region_len: 16 });
    assert_eq!(range.write(16, &[]), Ok(()));
    assert_eq!(range.write(13, b"abcd"), refused(13, 4));
    assert_eq!(range.write(17, &[]), refused(17, 0));
    assert_eq!(range.read(u64::MAX, &mut bytes), refused(u64::MAX, 8));
    assert_eq!(range.read(9, &mut bytes), refused(9, 8));
    let mut all = [0; 256];
    memory.read(0, &mut all).expect("inside");
    assert_eq!(all.iter().filter(|&&b| b != 0).count(), 4, "nothing else was written");
}

#[test]
fn atomics_work_on_the_first_eight_bytes_of_their_range() {
    let memory = region(64);
    let mut mrs = MrTable::new(1);
    let keys = mrs.register(PD, memory.clone(), 0, LW | RA).expect("valid");
    let open = |addr, len| mrs.open_remote(PD, QPN, keys.rkey, addr, len, RA).expect("granted");

    assert_eq!(open(8, 8).fetch_add(5), Ok(0));
    assert_eq!(open(8, 8).fetch_add(u64::MAX), Ok(5));
    assert_eq!(open(8, 16).compare_swap(3, 9), Ok(4));
    assert_eq!(open(8, 8).compare_swap(4, 9), Ok(4));
    assert_eq!(memory.load(8), Ok(9));
    assert_eq!((memory.load(0), memory.load(16)), (Ok(0), Ok(0)));
    assert!(matches!(open(8, 7).fetch_add(1), Err(MemError::OutOfBounds { .. })), "seven bytes");
    assert!(matches!(open(12, 8).fetch_add(1), Err(MemError::OutOfBounds { .. })), "not aligned");
}

#[test]
fn a_key_is_refused_once_its_region_ended() {
    let (mut mrs, keys) = table(LW | RR);
    let (pd, memory) = mrs.deregister(keys.lkey).expect("unused");
    assert_eq!((pd, memory.len()), (PD, 256));
    assert_eq!(mrs.open_remote(PD, QPN, keys.rkey, 0x1000, 1, RR).err(), Some(AccessFault::Key));
    assert_eq!(mrs.open_local(PD, &sge(0x1000, 1, keys.lkey), false).err(), Some(AccessFault::Key));
    assert_eq!(mrs.deregister(keys.lkey).err(), Some(ObjectError::NoObject("memory region")));
    assert_eq!(mrs.mr_count(), 0);
}

#[test]
fn a_region_gets_other_memory_rights_and_domain_behind_its_keys() {
    let (mut mrs, keys) = table(LW | RR);
    let mut change = |pd, memory: Region, iova, access| mrs.reregister(keys.lkey, pd, memory, iova, access);
    assert_eq!(
        change(PD, region(64), 0x1000, RW),
        Ok(Err(RegMrError::Access { access: RW })),
        "nothing changes"
    );
    assert_eq!(change(OTHER_PD, region(64), 0x9000, LW | RW), Ok(Ok(PD)));
    let open = |pd, addr, len, rights| mrs.open_remote(pd, QPN, keys.rkey, addr, len, rights).err();
    assert_eq!(open(OTHER_PD, 0x9000, 64, RW), None);
    assert_eq!(open(OTHER_PD, 0x9000, 65, RW), Some(AccessFault::Bounds));
    assert_eq!(open(OTHER_PD, 0x1000, 1, RW), Some(AccessFault::Bounds));
    assert_eq!(open(OTHER_PD, 0x9000, 1, RR), Some(AccessFault::Rights));
    assert_eq!(open(PD, 0x9000, 1, RW), Some(AccessFault::Domain));
    assert_eq!(mrs.mr_count(), 1);
}

#[test]
fn a_region_with_a_bound_window_stays_as_it_is() {
    let (mut mrs, keys) = table(LW | AccessFlags::MW_BIND);
    let mw = mrs.alloc_mw(PD).expect("room");
    let bind = BindMw { mw, rkey: mw, mr: keys.lkey, addr: 0x1000, length: 256, access: RR };
    mrs.bind_mw(PD, QPN, &bind).expect("valid");
    let busy = ObjectError::Busy { object: "memory region", users: 1 };
    assert_eq!(mrs.reregister(keys.lkey, PD, region(64), 0, LW), Err(busy));
    assert!(mrs.open_remote(PD, QPN, mw, 0x1000, 256, RR).is_ok());
    assert_eq!(
        mrs.reregister(mw.as_lkey(), PD, region(64), 0, LW),
        Err(ObjectError::NoObject("memory region"))
    );
}

#[test]
fn ten_thousand_stale_keys_are_refused_while_their_slots_are_used_again() {
    let memory = region(8);
    let mut mrs = MrTable::new(1);
    let mut stale: Vec<MrKeys> = Vec::new();
    for _ in 0..10_000 {
        let keys = mrs.register(PD, memory.clone(), 0, RR).expect("valid");
        assert!(stale.iter().rev().take(100).all(|old| old.rkey != keys.rkey));
        mrs.deregister(keys.lkey).expect("unused");
        stale.push(keys);
    }
    let live = mrs.register(PD, memory, 0, RR).expect("valid");
    assert!(stale.iter().all(|old| mrs.open_remote(PD, QPN, old.rkey, 0, 1, RR).is_err()));
    assert!(mrs.open_remote(PD, QPN, live.rkey, 0, 1, RR).is_ok());
    assert!(mrs.memory_bytes() < 1 << 20, "slots are used again: {} bytes", mrs.memory_bytes());
}

#[test]
fn a_windows_key_does_not_end_a_region() {
    let (mut mrs, _) = table(LW);
    let mw = mrs.alloc_mw(PD).expect("room");
    assert_eq!(mrs.deregister(mw.as_lkey()).err(), Some(ObjectError::NoObject("memory region")));
    assert_eq!(mrs.mw_count(), 1);
}

#[test]
fn there_are_no_more_regions_than_the_device_says() {
    let memory = region(8);
    let mut mrs = MrTable::new(1);
    let max = DeviceAttr::LIMITS.max_mr;
    let first = mrs.register(PD, memory.clone(), 0, RR).expect("room");
    for _ in 1..max {
        mrs.register(PD, memory.clone(), 0, RR).expect("room");
    }
    assert_eq!(mrs.register(PD, memory.clone(), 0, RR), Err(RegMrError::TooMany { max }));
    assert!(mrs.alloc_mw(PD).is_ok(), "windows have room of their own");
    mrs.deregister(first.lkey).expect("unused");
    assert!(mrs.register(PD, memory, 0, RR).is_ok());
}

#[test]
fn a_thousand_random_keys_hit_nothing() {
    let (mrs, keys) = table(LW | RR);
    let mut key = keys.rkey.get();
    for _ in 0..1000 {
        key = key.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        assert!(key != keys.rkey.get());
        assert_eq!(mrs.open_remote(PD, QPN, RKey::new(key), 0x1000, 1, RR).err(), Some(AccessFault::Key));
    }
}
