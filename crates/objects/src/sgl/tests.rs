use std::sync::Arc;

use proptest::prelude::*;
use userdma_mem::{Buffer, Region};
use userdma_verbs::{AccessFlags, LKey};

use super::*;

const PD: PdId = PdId(1);

fn region(len: usize) -> Region {
    Region::from_buffer(&Arc::new(Buffer::new(len).expect("memory")))
}

fn sge(lkey: LKey, addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey }
}

/// A table with a region of 32 bytes at 0x100 that holds 0, 1, 2, …
fn table(access: AccessFlags) -> (MrTable, LKey, Region) {
    let memory = region(32);
    let bytes: Vec<u8> = (0..32).collect();
    memory.write(0, &bytes).expect("inside");
    let mut mrs = MrTable::new(1);
    let keys = mrs.register(PD, memory.clone(), 0x100, access).expect("valid");
    (mrs, keys.lkey, memory)
}

#[test]
fn a_cursor_finds_its_place_past_empty_elements() {
    let key = LKey::new(1);
    let sgl = [sge(key, 0, 0), sge(key, 0, 3), sge(key, 0, 0), sge(key, 0, 2), sge(key, 0, 0)];
    let at = |offset| {
        let cursor = SgCursor::at(&sgl, offset);
        (cursor.index, cursor.offset)
    };
    assert_eq!([at(0), at(2), at(3), at(4)], [(1, 0), (1, 2), (3, 0), (3, 1)]);
    assert_eq!([at(5), at(6), at(u64::MAX)], [(5, 0), (5, 0), (5, 0)], "the end");
    assert_eq!(SgCursor::at(&[], 0), SgCursor::default());
    let long = [sge(key, 0, u32::MAX), sge(key, 0, u32::MAX)];
    let cursor = SgCursor::at(&long, u64::from(u32::MAX) + 7);
    assert_eq!((cursor.index, cursor.offset), (1, 7));
}

#[test]
fn the_length_of_a_list_does_not_wrap() {
    let sgl = [sge(LKey::new(1), 0, u32::MAX); 3];
    assert_eq!(sgl_len(&sgl), 3 * u64::from(u32::MAX));
    assert_eq!(sgl_len(&[]), 0);
}

#[test]
fn pieces_are_gathered_across_elements() {
    let (mrs, key, _) = table(AccessFlags::empty());
    let sgl = [sge(key, 0x110, 3), sge(key, 0x105, 0), sge(key, 0x102, 2), sge(key, 0x11c, 4)];
    let mut cursor = SgCursor::default();
    let mut piece = [0; 4];
    gather(&mrs, PD, &sgl, &mut cursor, &mut piece, None).expect("valid");
    assert_eq!(piece, [16, 17, 18, 2]);
    gather(&mrs, PD, &sgl, &mut cursor, &mut piece, None).expect("valid");
    assert_eq!(piece, [3, 28, 29, 30]);
    gather(&mrs, PD, &sgl, &mut cursor, &mut [], None).expect("nothing is always there");
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut piece, None), Err(SglError::TooShort));
    assert_eq!(piece[0], 31, "what there was has been copied");
}

#[test]
fn pieces_are_scattered_across_elements_and_nothing_else_is_touched() {
    let (mrs, key, memory) = table(AccessFlags::LOCAL_WRITE);
    let sgl = [sge(key, 0x110, 3), sge(key, 0, 0), sge(key, 0x102, 2)];
    let mut cursor = SgCursor::at(&sgl, 1);
    scatter(&mrs, PD, &sgl, &mut cursor, &[0xa0, 0xa1, 0xa2]).expect("valid");
    let mut bytes = [0; 32];
    memory.read(0, &mut bytes).expect("inside");
    let mut expected: Vec<u8> = (0..32).collect();
    (expected[0x11], expected[0x12], expected[0x02]) = (0xa0, 0xa1, 0xa2);
    assert_eq!(&bytes[..], expected);
    assert_eq!(scatter(&mrs, PD, &sgl, &mut cursor, &[0xa3, 0xa4]), Err(SglError::TooShort));
}

#[test]
fn a_message_of_no_bytes_needs_no_list() {
    let mrs = MrTable::new(1);
    let mut cursor = SgCursor::default();
    assert_eq!(gather(&mrs, PD, &[], &mut cursor, &mut [], None), Ok(()));
    assert_eq!(
        scatter(&mrs, PD, &[sge(LKey::new(3), 0, 5)], &mut cursor, &[]),
        Ok(()),
        "no key is looked at"
    );
}

#[test]
fn a_fault_names_its_element_and_the_cursor_stands_there() {
    use AccessFault::{Bounds, Domain, Key, Rights};
    let (mut mrs, key, _) = table(AccessFlags::empty());
    let other = mrs.register(PdId(2), region(32), 0x100, AccessFlags::LOCAL_WRITE).expect("valid").lkey;
    let rows = [
        (sge(LKey::new(0), 0x100, 4), Key, false),
        (sge(other, 0x100, 4), Domain, false),
        (sge(key, 0x11e, 4), Bounds, false),
        (sge(key, 0xff, 4), Bounds, false),
        (sge(key, u64::MAX, 4), Bounds, false),
        (sge(key, 0x100, 4), Rights, true),
    ];
    for (bad, fault, write) in rows {
        let sgl = [sge(key, 0x100, if write { 0 } else { 2 }), sge(key, 0, 0), bad];
        let mut cursor = SgCursor::default();
        let result = if write {
            scatter(&mrs, PD, &sgl, &mut cursor, &[0; 4])
        } else {
            gather(&mrs, PD, &sgl, &mut cursor, &mut [0; 6], None)
        };
        assert_eq!(result, Err(SglError::Access { index: 2, fault }));
        assert_eq!(cursor, SgCursor { index: 2, offset: 0 });
    }
}

#[test]
fn an_element_that_reaches_past_2_to_the_64_is_refused() {
    let mut mrs = MrTable::new(1);
    let keys =
        mrs.register(PD, region(4), u64::MAX - 3, AccessFlags::empty()).expect("up to the last address");
    let sgl = [sge(keys.lkey, u64::MAX - 3, 8)];
    let mut cursor = SgCursor::default();
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut [0; 4], None), Ok(()));
    let refused = Err(SglError::Access { index: 0, fault: AccessFault::Bounds });
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut [0], None), refused);
}

#[test]
fn only_the_bytes_that_are_used_need_to_be_in_the_region() {
    let (mrs, key, _) = table(AccessFlags::empty());
    let sgl = [sge(key, 0x11e, 100)];
    let mut cursor = SgCursor::default();
    let mut two = [0; 2];
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut two, None), Ok(()));
    assert_eq!(two, [30, 31]);
    let refused = Err(SglError::Access { index: 0, fault: AccessFault::Bounds });
    assert_eq!(gather(&mrs, PD, &sgl, &mut cursor, &mut two, None), refused);
}

#[test]
fn a_region_that_ends_in_the_middle_of_a_message_is_noticed() {
    let (mut mrs, key, _) = table(AccessFlags::LOCAL_WRITE);
    let sgl = [sge(key, 0x100, 32)];
    let mut cursor = SgCursor::default();
    assert_eq!(scatter(&mrs, PD, &sgl, &mut cursor, &[1; 8]), Ok(()));
    mrs.deregister(key).expect("unused");
    let refused = Err(SglError::Access { index: 0, fault: AccessFault::Key });
    assert_eq!(scatter(&mrs, PD, &sgl, &mut cursor, &[1; 8]), refused);
    assert_eq!(cursor, SgCursor { index: 0, offset: 8 });
}

const REGIONS: usize = 3;
const REGION_LEN: usize = 64;

/// A region, a start in it and a length.
type Element = (usize, usize, usize);

fn list() -> impl Strategy<Value = Vec<Element>> {
    let element = (0..REGIONS, 0..REGION_LEN, 0..REGION_LEN)
        .prop_map(|(region, start, len)| (region, start, len.min(REGION_LEN - start)));
    let element = prop_oneof![4 => element, 1 => (0..REGIONS, 0..REGION_LEN).prop_map(|(r, s)| (r, s, 0))];
    prop::collection::vec(element, 0..31)
}

/// Regions that hold `bytes`, registered at different addresses.
struct Flat {
    mrs: MrTable,
    memory: Vec<Region>,
    sgl: Vec<Sge>,
}

impl Flat {
    fn new(bytes: &[Vec<u8>], elements: &[Element]) -> Self {
        let mut mrs = MrTable::new(7);
        let memory: Vec<_> = bytes.iter().map(|_| region(REGION_LEN)).collect();
        let mut keys = Vec::new();
        for ((n, region), bytes) in (0..).zip(&memory).zip(bytes) {
            region.write(0, bytes).expect("inside");
            let register = mrs.register(PD, region.clone(), n * 0x1000, AccessFlags::LOCAL_WRITE);
            keys.push(register.expect("valid").lkey);
        }
        let to_sge = |&(region, start, len): &Element| {
            sge(keys[region], (region * 0x1000 + start) as u64, u32::try_from(len).expect("short"))
        };
        let sgl = elements.iter().map(to_sge).collect();
        Self { mrs, memory, sgl }
    }
}

/// The places that a list names, in order.
fn places(elements: &[Element]) -> Vec<(usize, usize)> {
    elements
        .iter()
        .flat_map(|&(region, start, len)| (start..start + len).map(move |at| (region, at)))
        .collect()
}

proptest! {
    #[test]
    fn a_message_is_gathered_as_from_flat_memory(
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), REGION_LEN), REGIONS),
        elements in list(),
        pieces in prop::collection::vec(0..100usize, 1..30),
    ) {
        let flat = Flat::new(&bytes, &elements);
        let message: Vec<u8> = places(&elements).iter().map(|&(region, at)| bytes[region][at]).collect();
        prop_assert_eq!(sgl_len(&flat.sgl), message.len() as u64);
        let (mut cursor, mut done) = (SgCursor::default(), 0);
        for piece in pieces {
            let mut dst = vec![0; piece];
            let result = gather(&flat.mrs, PD, &flat.sgl, &mut cursor, &mut dst, None);
            let there = piece.min(message.len() - done);
            prop_assert_eq!(result, if there == piece { Ok(()) } else { Err(SglError::TooShort) });
            prop_assert_eq!(&dst[..there], &message[done..done + there]);
            done += there;

            // A cursor made anew finds the same place.
            let mut again = SgCursor::at(&flat.sgl, (done - there) as u64);
            let mut dst_again = vec![0; there];
            prop_assert_eq!(gather(&flat.mrs, PD, &flat.sgl, &mut again, &mut dst_again, None), Ok(()));
            prop_assert_eq!(&dst_again[..], &dst[..there]);
        }
    }

    #[test]
    fn a_message_is_scattered_as_into_flat_memory(
        mut bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), REGION_LEN), REGIONS),
        elements in list(),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..30),
    ) {
        let flat = Flat::new(&bytes, &elements);
        let places = places(&elements);
        let (mut cursor, mut done) = (SgCursor::default(), 0);
        for piece in &pieces {
            let result = scatter(&flat.mrs, PD, &flat.sgl, &mut cursor, piece);
            let there = piece.len().min(places.len() - done);
            prop_assert_eq!(result, if there == piece.len() { Ok(()) } else { Err(SglError::TooShort) });
            for (&(region, at), &byte) in places[done..].iter().zip(piece) {
                bytes[region][at] = byte;
            }
            done += there;
        }
        for (region, expected) in flat.memory.iter().zip(&bytes) {
            let mut now = vec![0; REGION_LEN];
            region.read(0, &mut now).expect("inside");
            prop_assert_eq!(&now, expected);
        }
    }
}
