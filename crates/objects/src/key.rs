//! The key space of regions and windows: slots that are found by a number in the key.
//!
//! ```text
//! 31      26 25                    8 7       0
//! | variant |         index         |  low   |
//! ```
//!
//! The index names the slot, scrambled by a seeded bijection. Variant and low byte tell the present owner of a slot
//! from those before: both come from a generation of 14 bits that starts at random and moves on by a seeded odd
//! stride, so that the variant differs between any 64 successive owners. A window's consumer chooses its low byte,
//! a region's is part of the generation. Slots are used again oldest first, and only once [`FREE_RESERVE`] of them
//! are free, so a stale key names something again after 64 x 4096 registrations at the earliest.

use std::collections::VecDeque;

use userdma_verbs::dice::Stream;

use crate::mr::Entry;

/// Slots that exist at most: regions and windows together.
pub(crate) const CAPACITY: u32 = 1 << INDEX_BITS;

/// Free slots that are kept back while the table may still grow. 4096 of them cost some 350 KiB.
const FREE_RESERVE: usize = 4096;

const INDEX_BITS: u32 = 18;
const INDEX_SHIFT: u32 = 8;
const INDEX_MASK: u32 = CAPACITY - 1;
const VARIANT_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const VARIANT_BITS: u32 = 32 - VARIANT_SHIFT;
const VARIANT_MASK: u32 = (1 << VARIANT_BITS) - 1;
const GENERATION_MASK: u32 = (1 << (VARIANT_BITS + 8)) - 1;

/// The part of a key that a window's consumer chooses.
pub(crate) const LOW_BYTE: u32 = 0xff;

/// A place in the table.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The key of the present or the last owner.
    pub(crate) key: u32,
    generation: u32,
    pub(crate) entry: Entry,
}

/// The slots, and which of them are free.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    scramble: Scramble,
    /// Odd.
    stride: u32,
    random: Stream,
}

impl Slots {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Stream::of(seed);
        let scramble = Scramble::new(&mut random);
        let stride = random.next_u32() | 1;
        Self { slots: Vec::new(), free: VecDeque::new(), scramble, stride, random }
    }

    /// Puts `entry` into a slot; its key, or `None` if all slots are taken.
    pub(crate) fn insert(&mut self, entry: Entry) -> Option<u32> {
        let grows = self.len() < CAPACITY && self.free.len() < FREE_RESERVE;
        let index = if grows { self.grow() } else { self.free.pop_front()? };
        let scrambled = self.scramble.forth(index);
        let slot = &mut self.slots[index as usize];
        loop {
            slot.generation = slot.generation.wrapping_add(self.stride) & GENERATION_MASK;
            slot.key = key(scrambled, slot.generation);
            // Programs take these two for "no key".
            if slot.key != 0 && slot.key != u32::MAX {
                break;
            }
        }
        slot.entry = entry;
        Some(slot.key)
    }

    /// Makes a slot that was not there before; its index.
    fn grow(&mut self) -> u32 {
        let index = self.len();
        let generation = self.random.next_u32() & GENERATION_MASK;
        self.slots.push(Slot { key: 0, generation, entry: Entry::Free });
        index
    }

    /// Frees the slot `index` and returns what was in it.
    pub(crate) fn remove(&mut self, index: u32) -> Entry {
        self.free.push_back(index);
        std::mem::replace(&mut self.slots[index as usize].entry, Entry::Free)
    }

    /// The slot that `key` would be in.
    #[inline]
    pub(crate) fn index(&self, key: u32) -> u32 {
        self.scramble.back(key >> INDEX_SHIFT)
    }

    /// What `key` names: nothing if the key is stale or was never given out.
    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&Entry> {
        let slot = self.slots.get(self.index(key) as usize)?;
        (slot.key == key).then_some(&slot.entry)
    }

    /// As [`get`](Self::get), with the slot and its index.
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<(u32, &mut Slot)> {
        let index = self.index(key);
        let slot = self.slots.get_mut(index as usize)?;
        (slot.key == key).then_some((index, slot))
    }

    /// The entry in slot `index`, which exists.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Entry {
        &self.slots[index as usize].entry
    }

    /// As [`at`](Self::at).
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.slots[index as usize].entry
    }

    /// Number of slots, used or free.
    pub(crate) fn len(&self) -> u32 {
        // Never more than CAPACITY.
        u32::try_from(self.slots.len()).unwrap_or(CAPACITY)
    }

    /// Bytes of memory that the slots take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }
}

fn key(scrambled_index: u32, generation: u32) -> u32 {
    let variant = generation & VARIANT_MASK;
    let low = generation >> VARIANT_BITS;
    variant << VARIANT_SHIFT | scrambled_index << INDEX_SHIFT | low
}

/// A bijection on indices: multiplication by an odd number and an offset, modulo 2^18.
#[derive(Clone, Copy, Debug)]
struct Scramble {
    multiplier: u32,
    inverse: u32,
    offset: u32,
}

impl Scramble {
    fn new(random: &mut Stream) -> Self {
        let multiplier = random.next_u32() | 1;
        Self { multiplier, inverse: inverse(multiplier), offset: random.next_u32() }
    }

    fn forth(self, index: u32) -> u32 {
        index.wrapping_mul(self.multiplier).wrapping_add(self.offset) & INDEX_MASK
    }

    /// Bits of `scrambled` above the index do not matter.
    #[inline]
    fn back(self, scrambled: u32) -> u32 {
        scrambled.wrapping_sub(self.offset).wrapping_mul(self.inverse) & INDEX_MASK
    }
}

/// The inverse of an odd number modulo 2^32: each of Newton's steps doubles the number of right bits, from 3.
const fn inverse(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut bits = 3;
    while bits < u32::BITS {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn window() -> Entry {
        Entry::window(crate::PdId(1), userdma_verbs::MwType::Type2)
    }

    #[test]
    fn an_odd_number_times_its_inverse_is_one() {
        for odd in [1u32, 3, 5, 0x1_0001, 0xdead_beef, u32::MAX] {
            assert_eq!(odd.wrapping_mul(inverse(odd)), 1, "{odd:#x}");
        }
    }

    #[test]
    fn every_index_has_a_place_of_its_own_in_the_key() {
        let scramble = Scramble::new(&mut Stream::of(7));
        let mut seen = HashSet::new();
        for index in 0..CAPACITY {
            let scrambled = scramble.forth(index);
            assert!(scrambled < CAPACITY && seen.insert(scrambled));
            assert_eq!(scramble.back(scrambled | 0xfffc_0000), index);
        }
    }

    #[test]
    fn seeds_give_different_keys_and_neighbours_are_not_sequential() {
        let keys = |seed| {
            let mut slots = Slots::new(seed);
            (0..8).filter_map(|_| slots.insert(window())).collect::<Vec<_>>()
        };
        assert_eq!(keys(1), keys(1));
        assert!(keys(1).iter().zip(keys(2)).all(|(a, b)| *a != b));
        let (a, b) = (keys(3), keys(4));
        for keys in [a, b] {
            assert!(keys.windows(2).all(|w| w[0].abs_diff(w[1]) > 0x100), "{keys:x?}");
        }
    }

    #[test]
    fn the_oldest_free_slot_is_used_again_and_only_when_there_is_a_reserve() {
        let mut slots = Slots::new(1);
        let reserve = u32::try_from(FREE_RESERVE).expect("small");
        let keys: Vec<_> = (0..reserve).filter_map(|_| slots.insert(window())).collect();
        let order: Vec<_> = keys.iter().rev().map(|&k| slots.index(k)).collect();
        for &index in &order[1..] {
            slots.remove(index);
        }
        slots.insert(window()).expect("room");
        assert_eq!(slots.len(), reserve + 1, "the reserve is one short: a new slot");
        slots.remove(order[0]);
        let next = [(); 3].map(|()| slots.insert(window()).expect("room")).map(|key| slots.index(key));
        assert_eq!(next[0], order[1], "the reserve is full: the slot that was freed first");
        assert_eq!(next[1..], [reserve + 1, reserve + 2], "one short again");
    }

    /// A table with one slot that is used again and again.
    fn one_slot(seed: u64) -> Slots {
        let mut slots = Slots::new(seed);
        for _ in 0..CAPACITY {
            slots.insert(window()).expect("room");
        }
        slots
    }

    /// Frees the slot and fills it again: its new key.
    fn reuse(slots: &mut Slots, index: u32) -> u32 {
        slots.remove(index);
        let key = slots.insert(window()).expect("one slot is free");
        assert_eq!(slots.index(key), index);
        key
    }

    #[test]
    fn the_variant_of_a_slot_differs_between_64_owners_and_its_key_between_16384() {
        let mut slots = one_slot(99);
        let keys: Vec<_> = (0..1 << 14).map(|_| reuse(&mut slots, 1234)).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        for owners in keys.windows(64) {
            let variants: HashSet<_> = owners.iter().map(|key| key >> VARIANT_SHIFT).collect();
            assert_eq!(variants.len(), 64);
        }
    }

    #[test]
    fn the_two_keys_that_programs_take_for_none_are_not_given_out() {
        let mut slots = one_slot(3);
        for bits in [0, INDEX_MASK] {
            let index = slots.scramble.back(bits);
            let keys: HashSet<_> = (0..1 << 15).map(|_| reuse(&mut slots, index)).collect();
            assert_eq!(keys.len(), (1 << 14) - 1, "all but one");
            assert!(!keys.contains(&0) && !keys.contains(&u32::MAX));
        }
    }

    #[test]
    fn a_full_table_refuses() {
        let mut slots = Slots::new(5);
        for _ in 0..CAPACITY {
            slots.insert(window()).expect("room");
        }
        assert_eq!(slots.insert(window()), None);
        slots.remove(17);
        let key = slots.insert(window()).expect("one slot is free");
        assert_eq!(slots.index(key), 17);
        assert_eq!(slots.insert(window()), None);
    }
}
