//! How many complaints about a user are told: repeated as fast as a program can, his mistakes would fill the administrator's log.

use std::collections::HashMap;

use userdma_verbs::Time;

/// What was told lately, by user.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    users: HashMap<u32, Lately>,
}

#[derive(Debug)]
struct Lately {
    since: Time,
    lines: u32,
}

/// What to do with a complaint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Telling {
    /// Tell it.
    Tell,
    /// Tell it, and that it is the last one for a while.
    TellLast,
    /// It is left out.
    LeaveOut,
}

impl Complaints {
    /// There is a complaint about this user.
    pub(crate) fn add(&mut self, user: u32, now: Time) -> Telling {
        self.users.retain(|_, lately| now.nanos() < lately.since.nanos() + PERIOD_NS);
        let lately = self.users.entry(user).or_insert(Lately { since: now, lines: 0 });
        lately.lines = lately.lines.saturating_add(1);
        match lately.lines {
            ..MAX_LINES => Telling::Tell,
            MAX_LINES => Telling::TellLast,
            _ => Telling::LeaveOut,
        }
    }
}

/// Lines that are told of one user within a period.
const MAX_LINES: u32 = 20;
const PERIOD_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_complained_about_twenty_times_in_ten_seconds() {
        let mut complaints = Complaints::default();
        let at = |ns| Time::from_nanos(7 + ns);
        let told = |complaints: &mut Complaints, user, ns| {
            (0..1000)
                .map(|_| complaints.add(user, at(ns)))
                .filter(|telling| *telling != Telling::LeaveOut)
                .count()
        };
        assert_eq!(complaints.add(1000, at(0)), Telling::Tell);
        assert_eq!(told(&mut complaints, 1000, 1), 19);
        assert_eq!(told(&mut complaints, 1000, PERIOD_NS - 1), 0);
        assert_eq!(told(&mut complaints, 1001, 2), 20, "others have their own");
        assert_eq!(told(&mut complaints, 1000, PERIOD_NS), 20);
        assert_eq!(complaints.users.len(), 2);
        complaints.add(1002, at(3 * PERIOD_NS));
        assert_eq!(complaints.users.len(), 1, "who is quiet is forgotten");
    }

    #[test]
    fn the_last_one_is_known_as_such() {
        let mut complaints = Complaints::default();
        let all: Vec<_> = (0..22).map(|_| complaints.add(7, Time::ZERO)).collect();
        assert_eq!(all.iter().position(|telling| *telling == Telling::TellLast), Some(19));
        assert_eq!(all[20..], [Telling::LeaveOut; 2]);
    }
}
