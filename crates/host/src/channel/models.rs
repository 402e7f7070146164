//! Every interleaving of a driver that notes events and of threads that take them: a channel's descriptor is readable
//! while events wait, so that nobody who polls it sleeps on one.

use std::sync::Arc;

use loom::thread;

use super::Descriptor;

fn descriptor() -> Arc<Descriptor> {
    Arc::new(Descriptor::new(0).unwrap())
}

/// Another thread's drive, which notes these events.
fn driver<const N: usize>(descriptor: &Arc<Descriptor>, events: [u32; N]) -> thread::JoinHandle<()> {
    let descriptor = Arc::clone(descriptor);
    thread::spawn(move || {
        for cq in events {
            descriptor.channel.push_event(cq);
            descriptor.signal();
        }
    })
}

/// As [`super::Channel::try_event`].
fn try_event(descriptor: &Descriptor) -> Option<u32> {
    let event = descriptor.take(false);
    if event.is_none() {
        descriptor.settle();
    }
    event
}

/// Afterwards nobody is about to do anything.
fn assert_is_readable_while_events_wait(descriptor: &Descriptor) {
    let is_rung = descriptor.bell.hush();
    assert!(is_rung || descriptor.is_empty(), "an event waits, and nobody is told");
    if is_rung {
        descriptor.signal();
    }
    while try_event(descriptor).is_some() {}
    assert!(!descriptor.bell.hush(), "readable without an event");
}

#[test]
fn an_event_that_comes_while_the_last_is_taken_is_told() {
    loom::model(|| {
        let descriptor = descriptor();
        let driver = driver(&descriptor, [3, 5]);
        assert_ne!(try_event(&descriptor), Some(5), "the oldest first");
        driver.join().unwrap();
        assert_is_readable_while_events_wait(&descriptor);
    });
}

#[test]
fn two_threads_may_take_events_and_nobody_sleeps_on_a_third() {
    loom::model(|| {
        let descriptor = descriptor();
        descriptor.channel.push_event(1);
        descriptor.signal();
        let driver = driver(&descriptor, [3]);
        let other = {
            let descriptor = Arc::clone(&descriptor);
            thread::spawn(move || try_event(&descriptor))
        };
        let mine = try_event(&descriptor);
        let theirs = other.join().unwrap();
        driver.join().unwrap();
        assert!(mine.is_none() || mine != theirs);
        assert_is_readable_while_events_wait(&descriptor);
    });
}

/// A waiter notes events while it drives, without a signal: it takes the first itself, and signals if it leaves any.
#[test]
fn a_waiter_that_drives_leaves_no_event_untold() {
    loom::model(|| {
        let descriptor = descriptor();
        let other = {
            let descriptor = Arc::clone(&descriptor);
            thread::spawn(move || try_event(&descriptor))
        };
        [3, 5].into_iter().for_each(|cq| descriptor.channel.push_event(cq));
        let mine = descriptor.take(true);
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && mine != theirs);
        assert_is_readable_while_events_wait(&descriptor);
    });
}
