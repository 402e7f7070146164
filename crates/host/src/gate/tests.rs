//! With `--cfg loom` all interleavings of a few threads, else the same by hand.

#[cfg(not(loom))]
mod plain {
    use crate::gate::{Gated, Visit};

    #[test]
    fn a_note_left_while_driving_makes_the_driver_go_round() {
        let gate = Gated::new(0);
        let mut rounds = 0;
        let visit = gate.ring(10, |value: &mut u32| {
            *value += 1;
            rounds += 1;
            if rounds == 1 {
                assert_eq!(gate.ring(10, |_| unreachable!()), Visit::Elsewhere);
                assert_eq!(gate.try_enter(10, |_| unreachable!()), Visit::Elsewhere);
            }
        });
        assert_eq!((visit, rounds), (Visit::Drove, 2));
    }

    #[test]
    fn trying_leaves_no_note() {
        let gate = Gated::new(());
        let mut rounds = 0;
        let visit = gate.try_enter(10, |()| {
            rounds += 1;
            assert_eq!(gate.try_enter(10, |()| unreachable!()), Visit::Elsewhere);
        });
        assert_eq!((visit, rounds), (Visit::Drove, 1));
    }

    #[test]
    fn a_driver_hands_over_after_its_rounds() {
        let gate = Gated::new(());
        let mut rounds = 0;
        let visit = gate.ring(3, |()| {
            rounds += 1;
            let _ = gate.ring(1, |()| unreachable!());
        });
        assert_eq!((visit, rounds), (Visit::HandedOver, 3));
        assert_eq!(gate.ring(1, |()| ()), Visit::Drove, "the gate is open");
    }
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::sync::atomic::Ordering::Relaxed;
    use loom::thread;

    use crate::gate::{Gated, Visit};

    /// Posts are published with plain stores; the driver copies what it sees.
    struct Shard {
        gate: Gated<[u32; 3]>,
        posted: [AtomicU32; 3],
    }

    impl Shard {
        fn new() -> Arc<Self> {
            Arc::new(Self { gate: Gated::new([0; 3]), posted: Default::default() })
        }

        fn post(&self, who: usize, rounds: u32) -> Visit {
            self.posted[who].store(1, Relaxed);
            self.gate.ring(rounds, |seen| self.copy(seen))
        }

        fn copy(&self, seen: &mut [u32; 3]) {
            for (seen, posted) in seen.iter_mut().zip(&self.posted) {
                *seen = posted.load(Relaxed);
            }
        }

        fn seen(&self) -> [u32; 3] {
            let mut result = [0; 3];
            let visit = self.gate.try_enter(1, |seen| result = *seen);
            assert_eq!(visit, Visit::Drove, "the gate is open at the end");
            result
        }
    }

    #[test]
    fn no_doorbell_is_lost_and_one_drives_at_a_time() {
        loom::model(|| {
            let shard = Shard::new();
            let threads: Vec<_> = (1..3)
                .map(|i| {
                    let shard = Arc::clone(&shard);
                    thread::spawn(move || assert_ne!(shard.post(i, u32::MAX), Visit::HandedOver))
                })
                .collect();
            assert_ne!(shard.post(0, u32::MAX), Visit::HandedOver);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(shard.seen(), [1, 1, 1]);
        });
    }

    #[test]
    fn a_poller_neither_loses_a_doorbell_nor_meets_the_driver() {
        loom::model(|| {
            let shard = Shard::new();
            let poller = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    let _ = shard.gate.try_enter(u32::MAX, |seen| shard.copy(seen));
                })
            };
            let poster = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || assert_ne!(shard.post(1, u32::MAX), Visit::HandedOver))
            };
            assert_ne!(shard.post(0, u32::MAX), Visit::HandedOver);
            poller.join().unwrap();
            poster.join().unwrap();
            assert_eq!(shard.seen(), [1, 1, 0]);
        });
    }

    /// What is handed over is seen by the next who rings.
    #[test]
    fn a_handed_over_doorbell_is_seen_by_whoever_takes_over() {
        loom::model(|| {
            let shard = Shard::new();
            let other = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || shard.post(1, 1))
            };
            let mine = shard.post(0, 1);
            let theirs = other.join().unwrap();
            if mine == Visit::HandedOver || theirs == Visit::HandedOver {
                let _ = shard.gate.ring(u32::MAX, |seen| shard.copy(seen));
            }
            assert_eq!(shard.seen(), [1, 1, 0]);
        });
    }

    /// Whoever comes between a driver that hands over and the next ring sees all that this driver did.
    #[test]
    fn a_poller_may_come_before_whoever_takes_over() {
        loom::model(|| {
            let shard = Shard::new();
            let other = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || shard.post(1, 1))
            };
            let poller = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || shard.gate.try_enter(u32::MAX, |seen| shard.copy(seen)))
            };
            let mine = shard.post(0, 1);
            let (theirs, polled) = (other.join().unwrap(), poller.join().unwrap());
            assert_ne!(polled, Visit::HandedOver);
            if mine == Visit::HandedOver || theirs == Visit::HandedOver {
                let _ = shard.gate.ring(u32::MAX, |seen| shard.copy(seen));
            }
            assert_eq!(shard.seen(), [1, 1, 0]);
        });
    }

    /// The control: a lock word and a bell word of their own, with acquire and release. Must fail.
    #[test]
    #[should_panic(expected = "left: 1")]
    fn two_words_lose_a_doorbell() {
        use loom::sync::atomic::AtomicBool;
        use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};

        struct Two {
            lock: AtomicBool,
            bell: AtomicBool,
            posted: [AtomicU32; 2],
            seen: AtomicU32,
        }

        fn post(s: &Two, who: usize) {
            s.posted[who].store(1, Relaxed);
            s.bell.store(true, Release);
            while s.bell.load(Acquire) && !s.lock.swap(true, AcqRel) {
                while s.bell.swap(false, AcqRel) {
                    s.seen.store(s.posted[0].load(Relaxed) + s.posted[1].load(Relaxed), Relaxed);
                }
                s.lock.store(false, Release);
            }
        }

        loom::model(|| {
            let s = Arc::new(Two {
                lock: AtomicBool::new(false),
                bell: AtomicBool::new(false),
                posted: Default::default(),
                seen: AtomicU32::new(0),
            });
            let s2 = Arc::clone(&s);
            let t = thread::spawn(move || post(&s2, 1));
            post(&s, 0);
            t.join().unwrap();
            assert_eq!(s.seen.load(Relaxed), 2);
        });
    }
}
