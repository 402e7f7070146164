//! Which device got a request: the same request may come again when its listener has gone, and messages may follow whose sender
//! does not know our number for the connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use userdma_verbs::Time;

use crate::registry::Member;

/// Requests that were passed on, the latest of them.
#[derive(Debug, Default)]
pub(super) struct Routed {
    entries: HashMap<Asker, Entry>,
    /// In the order in which they came last.
    order: BTreeMap<u64, Asker>,
    last: u64,
}

/// Who asks: a number that a host gave to what may become a connection with one of our addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Asker {
    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    pub(super) udp_port: u16,
    pub(super) comm_id: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    service_id: u64,
    member: Member,
    at: Time,
    /// Its place in the order.
    nth: u64,
}

impl Routed {
    /// A request of `asker` to a service was passed on to `member`.
    pub(super) fn note(&mut self, asker: Asker, service_id: u64, member: Member, at: Time) {
        self.last += 1;
        let nth = self.last;
        if let Some(before) = self.entries.insert(asker, Entry { service_id, member, at, nth }) {
            self.order.remove(&before.nth);
        }
        self.order.insert(nth, asker);
        while self.order.len() > CAPACITY {
            if let Some((_, oldest)) = self.order.pop_first() {
                self.entries.remove(&oldest);
            }
        }
    }

    /// Who got this request before.
    pub(super) fn of_request(&self, asker: &Asker, service_id: u64, now: Time) -> Option<Member> {
        self.fresh(asker, now).filter(|entry| entry.service_id == service_id).map(|entry| entry.member)
    }

    /// Who got any request of `asker`.
    pub(super) fn of_asker(&self, asker: &Asker, now: Time) -> Option<Member> {
        self.fresh(asker, now).map(|entry| entry.member)
    }

    /// A device has gone.
    pub(super) fn forget(&mut self, member: Member) {
        self.entries.retain(|_, entry| entry.member != member);
        self.order.retain(|_, asker| self.entries.contains_key(asker));
    }

    fn fresh(&self, asker: &Asker, now: Time) -> Option<&Entry> {
        self.entries.get(asker).filter(|entry| now < entry.at.plus_nanos(LIFE_NS))
    }
}

/// Requests that are remembered: some hundred bytes each.
const CAPACITY: usize = 4096;
/// Longer than the kernel's communication manager repeats a request: 15 times, 4.6 s apart.
const LIFE_NS: u64 = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(comm_id: u32) -> Asker {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        Asker { remote: ip(1), local: ip(2), udp_port: 4791, comm_id }
    }

    #[test]
    fn a_request_is_remembered_for_its_life() {
        let mut routed = Routed::default();
        routed.note(asker(1), 7, Member(5), Time::ZERO);
        assert_eq!(routed.of_request(&asker(1), 7, Time::ZERO), Some(Member(5)));
        assert_eq!(routed.of_request(&asker(1), 8, Time::ZERO), None, "another service");
        assert_eq!(routed.of_request(&asker(2), 7, Time::ZERO), None);
        assert_eq!(routed.of_asker(&asker(1), Time::ZERO), Some(Member(5)));
        assert_eq!(routed.of_asker(&asker(1), Time::ZERO.plus_nanos(LIFE_NS)), None);
        routed.forget(Member(5));
        assert_eq!((routed.entries.len(), routed.order.len()), (0, 0));
    }

    #[test]
    fn a_flood_pushes_out_the_oldest_and_takes_no_more_memory() {
        let mut routed = Routed::default();
        for comm_id in 0..20_000 {
            routed.note(asker(comm_id), 7, Member(5), Time::ZERO);
            routed.note(asker(comm_id), 7, Member(5), Time::ZERO);
        }
        assert_eq!((routed.entries.len(), routed.order.len()), (CAPACITY, CAPACITY));
        assert_eq!(routed.of_asker(&asker(19_999), Time::ZERO), Some(Member(5)));
        assert_eq!(routed.of_asker(&asker(0), Time::ZERO), None);
    }

    #[test]
    fn a_request_that_comes_again_is_not_the_oldest() {
        let mut routed = Routed::default();
        let (first, others) = (0, 1..u32::try_from(CAPACITY).unwrap());
        routed.note(asker(first), 7, Member(5), Time::ZERO);
        for comm_id in others {
            routed.note(asker(comm_id), 7, Member(5), Time::ZERO);
        }
        routed.note(asker(first), 7, Member(5), Time::ZERO);
        routed.note(asker(u32::MAX), 7, Member(5), Time::ZERO);
        assert_eq!(routed.of_asker(&asker(first), Time::ZERO), Some(Member(5)));
        assert_eq!(routed.of_asker(&asker(1), Time::ZERO), None);
    }
}
