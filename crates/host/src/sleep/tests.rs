#[cfg(not(loom))]
mod plain {
    use crate::sleep::{FOREVER, NOW, Sleeper, Watch};

    #[test]
    fn only_an_earlier_deadline_wakes_and_only_once() {
        let watch = Watch::new();
        assert_eq!(watch.set_deadline(100), None, "nobody is there");
        watch.wake_up(Sleeper::Thread);
        assert_eq!(watch.fall_asleep(Sleeper::Thread), Some(100));
        assert_eq!(watch.set_deadline(200), None);
        assert_eq!(watch.set_deadline(100), None);
        assert_eq!(watch.set_deadline(50), Some(Sleeper::Thread));
        assert_eq!(watch.set_deadline(20), None, "it is on its way");
    }

    #[test]
    fn nobody_falls_asleep_when_something_is_due() {
        let watch = Watch::new();
        let _ = watch.set_deadline(NOW);
        assert_eq!(watch.fall_asleep(Sleeper::Thread), None);
    }

    #[test]
    fn a_waiter_is_woken_before_the_thread() {
        let watch = Watch::new();
        for who in [Sleeper::Thread, Sleeper::Waiter] {
            assert_eq!(watch.fall_asleep(who), Some(FOREVER));
        }
        assert_eq!(watch.set_deadline(7), Some(Sleeper::Waiter));
        assert_eq!(watch.leave(Sleeper::Waiter), Some(Sleeper::Thread), "the deadline is nobody's any more");
    }

    #[test]
    fn the_thread_parks_only_while_somebody_waits() {
        let watch = Watch::new();
        assert_eq!(watch.park(), (false, None));
        assert_eq!(watch.fall_asleep(Sleeper::Waiter), Some(FOREVER));
        assert_eq!(watch.park(), (true, None));
        assert_eq!(watch.leave(Sleeper::Waiter), Some(Sleeper::Thread), "even without a deadline");
    }

    #[test]
    fn parking_leaves_no_deadline_behind() {
        let watch = Watch::new();
        assert_eq!(watch.fall_asleep(Sleeper::Waiter), Some(FOREVER));
        watch.wake_up(Sleeper::Thread);
        assert_eq!(watch.set_deadline(9), None, "the thread is awake");
        assert_eq!(watch.park(), (true, Some(Sleeper::Waiter)));
    }
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
    use loom::thread;

    use crate::sleep::{Sleeper, Watch};

    struct Room {
        watch: Watch,
        thread_bell: AtomicBool,
        waiter_bell: AtomicBool,
    }

    impl Room {
        fn new() -> Arc<Self> {
            let room = Self {
                watch: Watch::new(),
                thread_bell: AtomicBool::new(false),
                waiter_bell: AtomicBool::new(false),
            };
            room.watch.wake_up(Sleeper::Thread);
            Arc::new(room)
        }

        fn ring(&self, who: Option<Sleeper>) {
            match who {
                Some(Sleeper::Thread) => self.thread_bell.store(true, SeqCst),
                Some(Sleeper::Waiter) => self.waiter_bell.store(true, SeqCst),
                None => {}
            }
        }

        /// Whether somebody will look at the device by `deadline`, given until when they sleep (`None`: awake).
        fn is_covered(&self, deadline: u64, thread: Option<u64>, waiter: Option<u64>) -> bool {
            let thread = self.thread_bell.load(SeqCst) || thread.is_none_or(|until| until <= deadline);
            let waiter = self.waiter_bell.load(SeqCst) || waiter.is_none_or(|until| until <= deadline);
            thread || waiter
        }
    }

    #[test]
    fn no_deadline_is_slept_through() {
        loom::model(|| {
            let room = Room::new();
            let driver = {
                let room = Arc::clone(&room);
                thread::spawn(move || room.ring(room.watch.set_deadline(5)))
            };
            let until = room.watch.fall_asleep(Sleeper::Thread);
            driver.join().unwrap();
            assert!(room.is_covered(5, until, Some(u64::MAX)));
        });
    }

    /// The thread parks while a waiter falls asleep and a driver sets a deadline.
    #[test]
    fn no_deadline_is_lost_between_thread_and_waiter() {
        loom::model(|| {
            let room = Room::new();
            room.watch.wake_up(Sleeper::Waiter);
            let driver = {
                let room = Arc::clone(&room);
                thread::spawn(move || room.ring(room.watch.set_deadline(5)))
            };
            let waiter = {
                let room = Arc::clone(&room);
                thread::spawn(move || room.watch.fall_asleep(Sleeper::Waiter))
            };
            let (parked, wake) = room.watch.park();
            room.ring(wake);
            driver.join().unwrap();
            let waiter = waiter.join().unwrap();
            assert!(room.is_covered(5, parked.then_some(u64::MAX), waiter));
        });
    }

    /// A post that is left to the lease's end is seen there, or the lease was over and the post drives itself.
    #[test]
    fn nothing_that_is_posted_is_left_to_a_lease_that_is_over() {
        loom::model(|| {
            let room = Room::new();
            room.watch.begin_lease();
            let posted = Arc::new(AtomicBool::new(false));
            let poster = {
                let (room, posted) = (Arc::clone(&room), Arc::clone(&posted));
                thread::spawn(move || {
                    posted.store(true, Relaxed);
                    room.watch.is_leased()
                })
            };
            room.watch.end_lease();
            let seen = posted.load(Relaxed);
            let is_left = poster.join().unwrap();
            assert!(seen || !is_left);
        });
    }

    /// The waiter leaves while the thread parks: afterwards the thread is on duty.
    #[test]
    fn a_parked_thread_never_stays_alone() {
        loom::model(|| {
            let room = Room::new();
            room.watch.wake_up(Sleeper::Waiter);
            let waiter = {
                let room = Arc::clone(&room);
                thread::spawn(move || room.ring(room.watch.leave(Sleeper::Waiter)))
            };
            let (parked, wake) = room.watch.park();
            room.ring(wake);
            waiter.join().unwrap();
            assert!(!parked || room.thread_bell.load(SeqCst));
        });
    }
}
