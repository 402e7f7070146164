//! Where the numbers of a slot's queue pairs begin.

use userdma_verbs::Time;

/// Where they begin in a slot of which nothing is known: the first one of its port, or one whose books were lost with an agent that
/// has died. Who had it before may have had any numbers, and peers may still speak of those. So the clock, which all processes
/// share, says where: each millisecond one further, and so ahead of whoever has made fewer queue pairs since he began.
pub(crate) fn first_index(now: Time) -> u16 {
    let steps = now.nanos() / STEP_NS % u64::from(INDICES - FIRST_INDEX);
    // Less than 2^14.
    u16::try_from(steps).map_or(FIRST_INDEX, |steps| FIRST_INDEX + steps)
}

/// Half of all numbers further.
pub(super) fn leap(index: u16) -> u16 {
    index ^ (INDICES / 2)
}

/// Queue pairs begin here: 0 and 1 are left out in every slot.
pub(crate) const FIRST_INDEX: u16 = 2;
/// Numbers of a slot: 14 bits.
pub(super) const INDICES: u16 = 1 << 14;
/// All numbers are gone through in 16 s. Slower, and more programs would outrun the clock; faster, and the same numbers would come
/// while somebody may remember them.
const STEP_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_through_all_numbers() {
        let all = u64::from(INDICES - FIRST_INDEX);
        let at = |step: u64| first_index(Time::from_nanos(step * STEP_NS));
        assert!((0..all).map(at).eq(FIRST_INDEX..INDICES));
        assert_eq!(at(all), FIRST_INDEX);
        assert!((FIRST_INDEX..INDICES).contains(&first_index(Time::from_nanos(u64::MAX))));
    }
}
