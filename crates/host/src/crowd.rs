//! Many threads that poll at once, on few processors.
//!
//! One of them drives, the others find the gate busy and come again. If the one that drives has lost its processor, they keep it
//! from getting one back: each of a thousand would spin for its whole slice of time. So who is turned away again and again lets
//! others run: beside a hundred threads that poll on two processors, one that writes 8 bytes and polls until that is done came to
//! 243 writes in 5 s, and to 3 without this. Who finds the gate free never comes here.

use std::cell::Cell;

thread_local! {
    static TURNED_AWAY: Cell<u32> = const { Cell::new(0) };
}

/// This thread has polled, and another one drives.
#[cold]
pub(crate) fn turned_away() {
    if TURNED_AWAY.with(is_enough) {
        std::thread::yield_now();
    }
}

/// Counts once more; whether that is often enough.
fn is_enough(count: &Cell<u32>) -> bool {
    let times = count.get() + 1;
    count.set(times % PATIENCE);
    times == PATIENCE
}

/// Polls that take longer than a drive that runs: some microseconds.
const PATIENCE: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_and_then_it_is_enough() {
        let count = Cell::new(0);
        let yields = (1..=3 * PATIENCE).filter(|_| is_enough(&count)).count();
        assert_eq!(yields, 3);
    }
}
