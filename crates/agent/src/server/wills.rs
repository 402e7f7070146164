//! Wills: what is sent for the connections of devices that have gone without ending them, a few times, until the peer has said
//! that it knows.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use userdma_verbs::Time;

use crate::gsi::Will;

/// The wills of the dead.
#[derive(Debug, Default)]
pub(super) struct Executor {
    wills: HashMap<Dead, Pending>,
    /// When each is sent next.
    due: BTreeSet<(Time, Dead)>,
    /// How many are sent from each address.
    from: HashMap<IpAddr, usize>,
}

/// A connection of somebody who has gone: our address and number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Dead {
    pub(super) local: IpAddr,
    pub(super) udp_port: u16,
    pub(super) comm_id: u32,
}

#[derive(Debug)]
struct Pending {
    will: Box<Will>,
    sent: usize,
    next: Time,
}

impl Executor {
    /// A device has gone that had a will for this connection.
    pub(super) fn open(&mut self, dead: Dead, will: Will, now: Time) {
        self.insert(dead, Pending { will: Box::new(will), sent: 0, next: now });
    }

    /// The same, after the device has told the peer itself.
    pub(super) fn open_later(&mut self, dead: Dead, will: Will, now: Time) {
        let [pause, ..] = PAUSES_NS;
        self.insert(dead, Pending { will: Box::new(will), sent: 1, next: now.plus_nanos(pause) });
    }

    fn insert(&mut self, dead: Dead, pending: Pending) {
        self.settle(&dead);
        if self.wills.len() < CAPACITY {
            self.due.insert((pending.next, dead));
            *self.from.entry(dead.local).or_default() += 1;
            self.wills.insert(dead, pending);
        }
    }

    /// The peer knows that the connection has ended; whether it was one of ours.
    pub(super) fn settle(&mut self, dead: &Dead) -> bool {
        let Some(pending) = self.wills.remove(dead) else { return false };
        self.due.remove(&(pending.next, *dead));
        if let Some(count) = self.from.get_mut(&dead.local) {
            *count -= 1;
            if *count == 0 {
                self.from.remove(&dead.local);
            }
        }
        true
    }

    /// What is to be sent now, if there is something; and to which UDP port.
    pub(super) fn next(&mut self, now: Time) -> Option<(Will, u16)> {
        let (_, dead) = self.due.first().filter(|(at, _)| *at <= now).copied()?;
        self.due.pop_first();
        let pending = self.wills.get_mut(&dead)?;
        let will = *pending.will;
        match PAUSES_NS.get(pending.sent) {
            Some(pause) => {
                pending.sent += 1;
                pending.next = now.plus_nanos(*pause);
                self.due.insert((pending.next, dead));
            }
            None => drop(self.settle(&dead)),
        }
        Some((will, dead.udp_port))
    }

    /// When there is something to be sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether anything is to be sent from an address.
    pub(super) fn is_from(&self, ip: IpAddr) -> bool {
        self.from.contains_key(&ip)
    }
}

/// Between one time and the next. The last is the end.
const PAUSES_NS: [u64; 4] = [200_000_000, 800_000_000, 2_000_000_000, 4_000_000_000];
/// Wills that wait: some 400 bytes each.
const CAPACITY: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(comm_id: u32) -> Dead {
        Dead { local: [10, 0, 0, 1].into(), udp_port: 4791, comm_id }
    }

    fn will(byte: u8) -> Will {
        Will { from: dead(0).local, to: [10, 0, 0, 2].into(), mad: [byte; 256] }
    }

    #[test]
    fn a_will_is_sent_five_times_unless_the_peer_answers() {
        let (mut wills, mut now) = (Executor::default(), Time::ZERO);
        wills.open(dead(1), will(1), now);
        wills.open(dead(2), will(2), now);
        let mut sent = Vec::new();
        while let Some(at) = wills.deadline() {
            assert!(wills.is_from(dead(0).local));
            now = at;
            while let Some((will, port)) = wills.next(now) {
                sent.push((now.nanos() / 1_000_000, will.mad[0]));
                assert_eq!(port, 4791);
            }
            if now > Time::ZERO {
                wills.settle(&dead(2));
            }
        }
        assert_eq!(sent, [(0, 1), (0, 2), (200, 1), (200, 2), (1000, 1), (3000, 1), (7000, 1)]);
        assert!(!wills.settle(&dead(1)) && !wills.is_from(dead(0).local));
    }

    #[test]
    fn what_was_said_once_is_said_again_later() {
        let mut wills = Executor::default();
        wills.open_later(dead(1), will(1), Time::ZERO);
        assert_eq!(wills.next(Time::ZERO), None);
        let mut sent = Vec::new();
        while let Some(at) = wills.deadline() {
            assert!(wills.next(at).is_some());
            sent.push(at.nanos() / 1_000_000);
        }
        assert_eq!(sent, [200, 1000, 3000, 7000]);
    }

    #[test]
    fn an_address_is_needed_until_its_last_will_is_settled_or_sent_for_the_last_time() {
        let mut wills = Executor::default();
        let other = Dead { local: [10, 0, 0, 9].into(), ..dead(3) };
        for dead in [dead(1), dead(1), dead(2), other] {
            wills.open(dead, will(1), Time::ZERO);
        }
        wills.settle(&dead(1));
        assert!(wills.is_from(dead(0).local) && wills.is_from(other.local));
        wills.settle(&dead(2));
        assert!(!wills.is_from(dead(0).local));
        while let Some(at) = wills.deadline() {
            assert!(wills.is_from(other.local));
            wills.next(at);
        }
        assert!(!wills.is_from(other.local));
    }

    #[test]
    fn nothing_is_sent_before_its_time() {
        let mut wills = Executor::default();
        wills.open(dead(1), will(1), Time::from_nanos(5));
        assert_eq!(wills.next(Time::from_nanos(4)), None);
        assert!(wills.next(Time::from_nanos(5)).is_some());
        assert_eq!(wills.next(Time::from_nanos(5)), None);
    }
}
