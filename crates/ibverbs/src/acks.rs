//! Events of an object that the program has read, and how many of them it has acknowledged.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::devices::lock;

/// Counts of events. An object ends only when all that were read are acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    outstanding: Mutex<i64>,
    changed: Condvar,
}

impl Acks {
    /// The program reads an event.
    pub(crate) fn add_read(&self) {
        *lock(&self.outstanding) += 1;
    }

    /// The program acknowledges `count` events.
    pub(crate) fn ack(&self, count: u32) {
        *lock(&self.outstanding) -= i64::from(count);
        self.changed.notify_all();
    }

    /// Waits until everything is acknowledged.
    pub(crate) fn wait(&self) {
        let mut outstanding = lock(&self.outstanding);
        while *outstanding > 0 {
            outstanding = self.changed.wait(outstanding).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_for_the_acknowledgement_of_each_event_that_was_read() {
        let acks = Acks::default();
        acks.wait();
        (0..3).for_each(|_| acks.add_read());
        acks.ack(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| acks.wait());
            acks.ack(2);
            waiter.join().unwrap();
        });
        assert_eq!(*lock(&acks.outstanding), 0);
    }
}
