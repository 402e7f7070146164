use std::sync::Arc;

use userdma_mem::{Buffer, Region};
use userdma_verbs::{LKey, RegMrError};

use super::*;
use crate::MrKeys;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const QPN: Qpn = Qpn::new(0x11);
const OTHER_QPN: Qpn = Qpn::new(0x12);

const LW: AccessFlags = AccessFlags::LOCAL_WRITE;
const RW: AccessFlags = AccessFlags::REMOTE_WRITE;
const RR: AccessFlags = AccessFlags::REMOTE_READ;
const RA: AccessFlags = AccessFlags::REMOTE_ATOMIC;
const BIND: AccessFlags = AccessFlags::MW_BIND;
const ZERO: AccessFlags = AccessFlags::ZERO_BASED;

fn region(len: usize) -> Region {
    Region::from_buffer(&Arc::new(Buffer::new(len).expect("memory")))
}

/// A table with a region of 256 bytes at 0x1000 and an unbound window.
struct Setup {
    mrs: MrTable,
    mr: MrKeys,
    mw: RKey,
    memory: Region,
}

impl Setup {
    fn new(access: AccessFlags) -> Result<Self, RegMrError> {
        let mut mrs = MrTable::new(1);
        let memory = region(256);
        let mr = mrs.register(PD, memory.clone(), 0x1000, access)?;
        let mw = mrs.alloc_mw(PD).expect("room");
        Ok(Self { mrs, mr, mw, memory })
    }

    /// A bind of 64 bytes at 0x1040 that is valid, with the low byte 0xab.
    fn bind(&self) -> BindMw {
        let (mw, rkey) = (self.mw, self.mw.with_variant(0xab));
        BindMw { mw, rkey, mr: self.mr.lkey, addr: 0x1040, length: 64, access: RR | RW }
    }

    fn bound() -> (Self, RKey) {
        let mut setup = Self::new(LW | BIND).expect("valid");
        let bind = setup.bind();
        setup.mrs.bind_mw(PD, QPN, &bind).expect("valid");
        (setup, bind.rkey)
    }

    fn open(&self, qpn: Qpn, rkey: RKey, addr: u64, len: u64, rights: AccessFlags) -> Option<AccessFault> {
        self.mrs.open_remote(PD, qpn, rkey, addr, len, rights).err()
    }
}

#[test]
fn a_bound_window_opens_its_range_with_its_rights_to_its_queue_pair() {
    use AccessFault::{Bounds, Domain, Key, Rights};
    let (setup, rkey) = Setup::bound();
    let rows = [
        (QPN, rkey, 0x1040, 64, RR, None),
        (QPN, rkey, 0x1040, 64, RW, None),
        (QPN, rkey, 0x107f, 1, RW, None),
        (QPN, rkey, 0x103f, 1, RR, Some(Bounds)),
        (QPN, rkey, 0x1040, 65, RR, Some(Bounds)),
        (QPN, rkey, 0x1080, 1, RR, Some(Bounds)),
        (QPN, rkey, 0x1040, u64::MAX, RR, Some(Bounds)),
        (QPN, rkey, 0x1040, 8, RA, Some(Rights)),
        (OTHER_QPN, rkey, 0x1040, 1, RR, Some(Domain)),
        (QPN, rkey.with_variant(0xac), 0x1040, 1, RR, Some(Key)),
        (QPN, setup.mw, 0x1040, 1, RR, Some(Key)),
        // The region itself has no remote rights.
        (QPN, setup.mr.rkey, 0x1040, 1, RR, Some(Rights)),
    ];
    for (row, (qpn, rkey, addr, len, rights, expected)) in rows.into_iter().enumerate() {
        assert_eq!(setup.open(qpn, rkey, addr, len, rights), expected, "row {row}");
    }
    assert_eq!(setup.mrs.open_remote(OTHER_PD, QPN, rkey, 0x1040, 1, RR).err(), Some(Domain));
}

#[test]
fn a_window_reaches_the_bytes_of_its_region() {
    let (setup, rkey) = Setup::bound();
    setup.mrs.open_remote(PD, QPN, rkey, 0x1044, 4, RW).expect("granted").write(0, b"abcd").expect("mapped");
    let mut bytes = [0; 8];
    setup.memory.read(0x42, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"\0\0abcd\0\0");
}

#[test]
fn a_zero_based_window_counts_from_its_own_start() {
    let mut setup = Setup::new(LW | BIND).expect("valid");
    let bind = BindMw { access: RW | ZERO, ..setup.bind() };
    setup.mrs.bind_mw(PD, QPN, &bind).expect("valid");
    assert_eq!(setup.open(QPN, bind.rkey, 64, 1, RW), Some(AccessFault::Bounds));
    assert_eq!(setup.open(QPN, bind.rkey, 0x1040, 1, RW), Some(AccessFault::Bounds));
    setup.mrs.open_remote(PD, QPN, bind.rkey, 0, 64, RW).expect("granted").write(63, b"x").expect("mapped");
    let mut byte = [0];
    setup.memory.read(0x7f, &mut byte).expect("inside");
    assert_eq!(&byte, b"x");
}

#[test]
fn a_window_is_not_usable_before_it_is_bound() {
    let mut setup = Setup::new(LW | BIND).expect("valid");
    assert_eq!(setup.open(QPN, setup.mw, 0x1040, 1, RR), Some(AccessFault::Key));
    assert_eq!(setup.mrs.invalidate(PD, QPN, setup.mw), Err(AccessFault::Key));
}

#[test]
fn a_bind_changes_nothing_but_the_low_byte_of_the_key() {
    for bit in 0..32 {
        let mut setup = Setup::new(LW | BIND).expect("valid");
        let bind = BindMw { rkey: RKey::new(setup.mw.get() ^ 1 << bit), ..setup.bind() };
        let expected = if bit < 8 { Ok(()) } else { Err(AccessFault::Key) };
        assert_eq!(setup.mrs.bind_mw(PD, QPN, &bind), expected, "bit {bit}");
    }
    let mut setup = Setup::new(LW | BIND).expect("valid");
    let bind = BindMw { rkey: setup.mw, ..setup.bind() };
    assert_eq!(setup.mrs.bind_mw(PD, QPN, &bind), Ok(()), "the same key again is a choice, too");
    assert_eq!(setup.open(QPN, setup.mw, 0x1040, 1, RR), None);
}

#[test]
fn a_bind_is_refused_unless_window_region_and_queue_pair_fit() {
    use AccessFault::{Bounds, Domain, Key, Rights};
    let all = LW | BIND;
    type Change = fn(&mut Setup, &mut BindMw);
    let rows: &[(&str, AccessFlags, Change, Result<(), AccessFault>)] = &[
        ("valid", all, |_, _| {}, Ok(())),
        ("the whole region", all, |_, b| (b.addr, b.length) = (0x1000, 256), Ok(())),
        ("no rights at all", all, |_, b| b.access = AccessFlags::empty(), Ok(())),
        ("optional rights", all, |_, b| b.access |= AccessFlags::RELAXED_ORDERING, Ok(())),
        ("reading from a region that is not written", BIND, |_, b| b.access = RR, Ok(())),
        ("writing to it", BIND, |_, b| b.access = RW, Err(Rights)),
        ("atomics on it", BIND, |_, b| b.access = RA, Err(Rights)),
        ("a region without MW_BIND", LW | RW | RR, |_, _| {}, Err(Rights)),
        ("a zero based region", all | ZERO, |_, b| b.addr = 0x40, Err(Rights)),
        ("local rights", all, |_, b| b.access |= LW, Err(Rights)),
        ("flush rights", all, |_, b| b.access |= AccessFlags::FLUSH_GLOBAL, Err(Rights)),
        ("before the region", all, |_, b| b.addr = 0xfff, Err(Bounds)),
        ("past the region", all, |_, b| b.length = 193, Err(Bounds)),
        ("past 2^64", all, |_, b| b.length = u64::MAX, Err(Bounds)),
        ("zero based, outside", all, |_, b| (b.addr, b.access) = (0x2000, ZERO), Err(Bounds)),
        ("no bytes", all, |_, b| b.length = 0, Err(Bounds)),
        ("no bytes of no region", all, |_, b| (b.length, b.mr) = (0, LKey::new(0)), Err(Key)),
        ("no region", all, |_, b| b.mr = LKey::new(0), Err(Key)),
        ("a window for a region", all, |_, b| b.mr = b.mw.as_lkey(), Err(Key)),
        ("a region for a window", all, |s, b| (b.mw, b.rkey) = (s.mr.rkey, s.mr.rkey), Err(Key)),
        ("a stale window key", all, |s, b| b.mw = s.mw.with_variant(!s.mw.get().to_le_bytes()[0]), Err(Key)),
        (
            "another domain's window",
            all,
            |s, b| {
                b.mw = s.mrs.alloc_mw(OTHER_PD).expect("room");
                b.rkey = b.mw;
            },
            Err(Domain),
        ),
        (
            "another domain's region",
            all,
            |s, b| b.mr = s.mrs.register(OTHER_PD, region(256), 0x1000, LW | BIND).expect("valid").lkey,
            Err(Domain),
        ),
        (
            "bound already",
            all,
            |s, b| {
                s.mrs.bind_mw(PD, QPN, b).expect("valid");
                b.mw = b.rkey;
            },
            Err(Rights),
        ),
    ];
    for (what, access, change, expected) in rows {
        let mut setup = Setup::new(*access).expect("valid");
        let mut bind = setup.bind();
        change(&mut setup, &mut bind);
        let bound = setup.mrs.bound;
        assert_eq!(setup.mrs.bind_mw(PD, QPN, &bind), *expected, "{what}");
        assert_eq!(setup.mrs.bound, bound + u32::from(expected.is_ok()), "{what}");
    }
    let mut setup = Setup::new(all).expect("valid");
    let bind = setup.bind();
    assert_eq!(setup.mrs.bind_mw(OTHER_PD, QPN, &bind), Err(Domain), "another domain's queue pair");
}

#[test]
fn an_invalidated_window_is_refused_until_it_is_bound_again() {
    let (mut setup, rkey) = Setup::bound();
    assert_eq!(setup.mrs.invalidate(PD, QPN, rkey), Ok(()));
    assert_eq!(setup.open(QPN, rkey, 0x1040, 1, RR), Some(AccessFault::Key));
    assert_eq!(setup.mrs.invalidate(PD, QPN, rkey), Err(AccessFault::Key), "once is enough");

    // Its current key is still the one it was bound with; the next may belong to another queue pair.
    let again = BindMw { mw: rkey, rkey: rkey.with_variant(0xac), ..setup.bind() };
    assert_eq!(setup.mrs.bind_mw(PD, OTHER_QPN, &again), Ok(()));
    assert_eq!(setup.open(OTHER_QPN, again.rkey, 0x1040, 1, RR), None);
    assert_eq!(setup.open(OTHER_QPN, rkey, 0x1040, 1, RR), Some(AccessFault::Key), "the low byte is stale");
    assert_eq!(setup.mrs.invalidate(PD, OTHER_QPN, rkey), Err(AccessFault::Key));
}

#[test]
fn only_the_queue_pair_that_bound_a_window_invalidates_it() {
    let (mut setup, rkey) = Setup::bound();
    assert_eq!(setup.mrs.invalidate(PD, OTHER_QPN, rkey), Err(AccessFault::Domain));
    assert_eq!(setup.mrs.invalidate(OTHER_PD, QPN, rkey), Err(AccessFault::Domain));
    assert_eq!(setup.mrs.invalidate(PD, QPN, rkey.with_variant(0)), Err(AccessFault::Key));
    assert_eq!(setup.open(QPN, rkey, 0x1040, 1, RR), None, "it is still open");
}

#[test]
fn the_key_of_a_plain_region_is_not_invalidated() {
    let (mut setup, _) = Setup::bound();
    assert_eq!(setup.mrs.invalidate(PD, QPN, setup.mr.rkey), Err(AccessFault::Key));
    assert_eq!(setup.mrs.invalidate(PD, QPN, RKey::new(0)), Err(AccessFault::Key));
    let sge = userdma_verbs::Sge { addr: 0x1000, length: 1, lkey: setup.mr.lkey };
    assert!(setup.mrs.open_local(PD, &sge, true).is_ok(), "the region is still there");
}

#[test]
fn a_region_does_not_end_while_windows_are_bound_to_it() {
    let (mut setup, rkey) = Setup::bound();
    let second = setup.mrs.alloc_mw(PD).expect("room");
    setup.mrs.bind_mw(PD, OTHER_QPN, &BindMw { mw: second, rkey: second, ..setup.bind() }).expect("valid");
    let busy = |users| Some(ObjectError::Busy { object: "memory region", users });
    assert_eq!(setup.mrs.deregister(setup.mr.lkey).err(), busy(2));
    setup.mrs.invalidate(PD, QPN, rkey).expect("bound");
    assert_eq!(setup.mrs.deregister(setup.mr.lkey).err(), busy(1));
    assert_eq!(setup.mrs.dealloc_mw(second), Ok(PD));
    assert!(setup.mrs.deregister(setup.mr.lkey).is_ok());
}

#[test]
fn a_window_ends_bound_or_not_and_its_key_is_refused() {
    let (mut setup, rkey) = Setup::bound();
    let gone = ObjectError::NoObject("memory window");
    assert_eq!(setup.mrs.dealloc_mw(setup.mw), Err(gone), "not its current key");
    assert_eq!(setup.mrs.dealloc_mw(setup.mr.rkey), Err(gone), "not a window");
    assert_eq!(setup.mrs.dealloc_mw(rkey), Ok(PD));
    assert_eq!(setup.open(QPN, rkey, 0x1040, 1, RR), Some(AccessFault::Key));
    assert_eq!(setup.mrs.dealloc_mw(rkey), Err(gone));
    let unbound = setup.mrs.alloc_mw(PD).expect("room");
    assert_eq!(setup.mrs.dealloc_mw(unbound), Ok(PD));
    assert_eq!((setup.mrs.mw_count(), setup.mrs.bound), (0, 0));
}

#[test]
fn a_queue_pair_that_goes_takes_its_windows_along() {
    let (mut setup, rkey) = Setup::bound();
    let other = setup.mrs.alloc_mw(PD).expect("room");
    setup.mrs.bind_mw(PD, OTHER_QPN, &BindMw { mw: other, rkey: other, ..setup.bind() }).expect("valid");
    setup.mrs.unbind_all(QPN);
    assert_eq!(setup.open(QPN, rkey, 0x1040, 1, RR), Some(AccessFault::Key));
    assert_eq!(setup.open(OTHER_QPN, other, 0x1040, 1, RR), None);
    setup.mrs.unbind_all(OTHER_QPN);
    assert!(setup.mrs.deregister(setup.mr.lkey).is_ok());
}

#[test]
fn there_are_no_more_windows_than_the_device_says() {
    let mut mrs = MrTable::new(1);
    let max = DeviceAttr::LIMITS.max_mw;
    for _ in 0..max {
        mrs.alloc_mw(PD).expect("room");
    }
    assert_eq!(mrs.alloc_mw(PD), Err(BindMwError::TooMany { max }));
    assert!(mrs.register(PD, region(8), 0, LW).is_ok(), "regions have room of their own");
}

/// A table as [`Setup`] whose window is of type 1.
fn type_1() -> Setup {
    let mut setup = Setup::new(LW | BIND).expect("valid");
    setup.mw = setup.mrs.alloc_mw_of_type(PD, MwType::Type1).expect("room");
    setup
}

#[test]
fn a_window_of_type_1_is_its_domains_and_is_bound_anew_without_being_invalidated() {
    let mut setup = type_1();
    let first = setup.bind();
    setup.mrs.bind_mw(PD, QPN, &first).expect("valid");
    for qpn in [QPN, OTHER_QPN] {
        assert_eq!(setup.open(qpn, first.rkey, 0x1040, 64, RW), None);
    }
    assert_eq!(setup.mrs.invalidate(PD, QPN, first.rkey), Err(AccessFault::Domain), "nobody's to invalidate");
    setup.mrs.unbind_all(QPN);
    assert_eq!(setup.open(OTHER_QPN, first.rkey, 0x1040, 64, RW), None, "it outlives the queue pair");

    let second = BindMw { mw: first.rkey, rkey: first.rkey.with_variant(0xac), length: 8, ..first };
    setup.mrs.bind_mw(PD, OTHER_QPN, &second).expect("valid");
    assert_eq!(setup.open(QPN, first.rkey, 0x1040, 8, RW), Some(AccessFault::Key), "the old key");
    assert_eq!(setup.open(QPN, second.rkey, 0x1040, 8, RW), None);
    assert_eq!(setup.open(QPN, second.rkey, 0x1040, 64, RW), Some(AccessFault::Bounds));
    assert!(setup.mrs.deregister(setup.mr.lkey).is_err(), "bound once, whatever came before");
    setup.mrs.dealloc_mw(second.rkey).expect("a window");
    setup.mrs.deregister(setup.mr.lkey).expect("nothing is bound to it");
}

#[test]
fn a_bind_of_no_bytes_ends_a_window_of_type_1_and_names_no_region() {
    let mut setup = type_1();
    let none = BindMw { mr: LKey::new(0), length: 0, ..setup.bind() };
    setup.mrs.bind_mw(PD, QPN, &none).expect("not bound, and not bound now");
    let bind = BindMw { mw: none.rkey, rkey: none.rkey.with_variant(1), ..setup.bind() };
    setup.mrs.bind_mw(PD, QPN, &bind).expect("valid");
    let end = BindMw { mw: bind.rkey, rkey: bind.rkey.with_variant(2), ..none };
    assert_eq!(setup.mrs.bind_mw(OTHER_PD, QPN, &end), Err(AccessFault::Domain));
    setup.mrs.bind_mw(PD, QPN, &end).expect("valid");
    for key in [bind.rkey, end.rkey] {
        assert!(setup.open(QPN, key, 0x1040, 1, RW).is_some());
    }
    setup.mrs.deregister(setup.mr.lkey).expect("nothing is bound to it");
    let (type_2, bound) = (Setup::new(LW | BIND).expect("valid"), BindMw { length: 0, ..none });
    let Setup { mut mrs, mw, mr, .. } = type_2;
    let bind = BindMw { mw, rkey: mw, mr: mr.lkey, ..bound };
    assert_eq!(mrs.bind_mw(PD, QPN, &bind), Err(AccessFault::Bounds), "a window of type 2 is invalidated");
}
