//! How fast datagrams and unreliable connections may send to one destination socket.
//!
//! Primer. Nobody answers them, so nothing tells a sender that it is too fast: the receiver's socket, whose buffer holds
//! some 50 packets of 4 KiB, drops what does not fit. On one host the buffer can be looked at. Then a sender may fill half of
//! what is free in it, and looks again when it has done so; half, because others may be doing the same. A quarter of the buffer
//! stays free: a turn ends with the packet, or the batch, in which its budget does. To other hosts it
//! keeps to a rate, in bursts that fit a buffer. The machines here only ask and spend; whoever owns the sockets answers
//! [`Ask`]s. Without answers everything keeps to the rate.

use std::collections::HashMap;
use std::net::IpAddr;

use userdma_mem::Route;
use userdma_verbs::{Qpn, Time};

/// The socket that a route and the slot of a queue pair's number lead to: what all queue pairs of a process share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Destination {
    address: IpAddr,
    scope_id: u32,
    port: u16,
    slot: u32,
}

impl Destination {
    /// Where packets by `route` to queue pair `qpn` arrive.
    pub fn of(route: &Route, qpn: Qpn) -> Self {
        Self { address: route.remote, scope_id: route.scope_id, port: route.remote_port, slot: qpn.slot() }
    }
}

/// What a packet is counted as: its payload, and what a small packet takes of a socket's buffer (a packet of 8 bytes that
/// comes alone takes 768).
pub(crate) const fn pace_cost(payload_len: u32) -> u32 {
    payload_len + 768
}

/// The pace towards one destination.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Bytes that may be sent now.
    left: u32,
    /// Of when `left` is.
    at: Time,
    source: Source,
    /// Somebody was asked, and has not answered.
    is_asked: bool,
}

/// Where a budget comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    /// The rate.
    Rate,
    /// What was free in the destination's buffer.
    Buffer,
}

impl Pace {
    fn new(now: Time) -> Self {
        Self { left: BURST, at: now, source: Source::Rate, is_asked: false }
    }

    fn budget(&mut self, now: Time) -> u32 {
        let age = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        match self.source {
            Source::Rate => {
                let earned = u32::try_from(age.saturating_mul(RATE) / 1_000_000_000).unwrap_or(BURST);
                // Time that has not earned a byte is kept for the next look.
                if earned > 0 {
                    (self.left, self.at) = (self.left.saturating_add(earned).min(BURST), now);
                }
                self.left
            }
            // Others may have filled it since.
            Source::Buffer if age > STALE_NS => 0,
            Source::Buffer => self.left,
        }
    }

    /// When there is a budget of `cost` bytes by itself, or it is worth asking again.
    fn next(&self, now: Time, cost: u32) -> Time {
        match self.source {
            Source::Rate => {
                let missing = u64::from(cost.saturating_sub(self.left));
                now.plus_nanos((missing * 1_000_000_000).div_ceil(RATE).max(1))
            }
            Source::Buffer => now.plus_nanos(RETRY_NS),
        }
    }
}

/// What is known of a destination socket on this host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Bytes of its buffer that are in use.
    pub used: u32,
    /// Bytes of its buffer.
    pub limit: u32,
}

/// A question for whoever owns the sockets: how full is the socket that this leads to?
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The route there.
    pub route: Route,
    /// A queue pair of that socket.
    pub qpn: Qpn,
}

/// The paces of a device, by destination.
#[derive(Debug, Default)]
pub struct Paces {
    paces: HashMap<Destination, Pace>,
    asks: Vec<Ask>,
}

impl Paces {
    /// Bytes that may be sent now to the socket that `route` and `qpn` lead to. For each packet its cost is
    /// [spent](Self::spend); the last packet may take more than is left.
    pub fn budget(&mut self, now: Time, route: &Route, qpn: Qpn) -> u32 {
        let to = Destination::of(route, qpn);
        if let Some(pace) = self.paces.get_mut(&to) {
            return pace.budget(now);
        }
        if self.paces.len() >= MAX_DESTINATIONS {
            // What is forgotten begins with a burst again, which fits a buffer.
            self.paces.clear();
            self.asks.clear();
        }
        // So that the next budget comes from the buffer, if it can be looked at.
        self.asks.push(Ask { route: *route, qpn });
        self.paces.insert(to, Pace { is_asked: true, ..Pace::new(now) });
        BURST
    }

    /// `bytes` have left to there.
    pub fn spend(&mut self, route: &Route, qpn: Qpn, bytes: u32) {
        if let Some(pace) = self.paces.get_mut(&Destination::of(route, qpn)) {
            pace.left = pace.left.saturating_sub(bytes);
        }
    }

    /// Somebody who wants to send a packet of `cost` bytes there has found the budget too small: asks for more. When to try
    /// again, if no answer makes that worthwhile before.
    pub fn ask(&mut self, now: Time, route: &Route, qpn: Qpn, cost: u32) -> Time {
        let Some(pace) = self.paces.get_mut(&Destination::of(route, qpn)) else { return now };
        if !pace.is_asked {
            pace.is_asked = true;
            self.asks.push(Ask { route: *route, qpn });
        }
        pace.next(now, cost)
    }

    /// A question that was not answered yet. Its answer goes to [`Paces::answer`].
    pub fn next_ask(&mut self) -> Option<Ask> {
        self.asks.pop()
    }

    /// How full the destination's buffer is, if that can be known: half of what is free up to three quarters may be sent. Whether
    /// there is a budget for a packet of any size.
    pub fn answer(&mut self, now: Time, ask: &Ask, room: Option<Room>) -> bool {
        let Some(pace) = self.paces.get_mut(&Destination::of(&ask.route, ask.qpn)) else { return false };
        pace.is_asked = false;
        match room {
            Some(room) => {
                let usable = room.limit - room.limit / RESERVE;
                let left = usable.saturating_sub(room.used) / 2;
                (pace.left, pace.at, pace.source) = (left, now, Source::Buffer);
            }
            None if pace.source == Source::Buffer => {
                *pace = Pace { left: 0, ..Pace::new(now) };
            }
            None => {}
        }
        pace.budget(now) >= pace_cost(4096)
    }
}

/// Bytes a second to a host whose buffers cannot be looked at: 8 Gbit/s. A receiver of ours takes four times as much of large
/// packets (`docs/benchmarks.md`), so that it keeps up while it also does something else; a kernel's less.
const RATE: u64 = 1_000_000_000;
/// Bytes that may be sent there at once: what the window of a new reliable connection is, and some two thirds of a buffer of the
/// usual size (`net.core.rmem_default`, 212,992 bytes).
const BURST: u32 = 128 << 10;
/// How long a look at a buffer is good for.
const STALE_NS: u64 = 1_000_000;
/// When to look again at a buffer that was full: a receiver of ours empties it in that time.
const RETRY_NS: u64 = 20_000;
/// The part of a buffer that nobody fills on purpose.
const RESERVE: u32 = 4;
/// Destinations that are remembered.
const MAX_DESTINATIONS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use userdma_mem::LinkId;

    use super::*;

    const QPN: Qpn = Qpn::new(0x4002);

    fn route(host: u32) -> Route {
        Route {
            link: LinkId(0),
            local: Ipv4Addr::LOCALHOST.into(),
            remote: Ipv4Addr::from_bits(0x7f00_0000 + host).into(),
            scope_id: 0,
            socket: 0,
            local_port: 50_000,
            remote_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    fn at_us(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    #[test]
    fn without_answers_a_burst_may_leave_and_then_the_rate() {
        let (mut paces, to) = (Paces::default(), route(2));
        assert_eq!(paces.budget(Time::ZERO, &to, QPN), BURST);
        paces.spend(&to, QPN, BURST);
        assert_eq!(paces.budget(Time::ZERO, &to, QPN), 0);
        let cost = pace_cost(232);
        assert_eq!(paces.ask(Time::ZERO, &to, QPN, cost), at_us(1), "1000 bytes take a microsecond");
        assert_eq!(paces.budget(at_us(1), &to, QPN), 1000);
        assert_eq!(paces.budget(at_us(9_000_000), &to, QPN), BURST, "no more than a burst, however late");
    }

    #[test]
    fn time_is_not_lost_by_looking_often() {
        let (mut paces, to) = (Paces::default(), route(2));
        let _ = paces.budget(Time::ZERO, &to, QPN);
        paces.spend(&to, QPN, BURST);
        for nanos in 0..=2000 {
            let _ = paces.budget(Time::from_nanos(nanos), &to, QPN);
        }
        assert_eq!(paces.budget(at_us(2), &to, QPN), 2000);
    }

    #[test]
    fn half_of_what_is_free_may_be_sent_and_then_it_is_asked_again() {
        let (mut paces, to) = (Paces::default(), route(2));
        let _ = paces.budget(Time::ZERO, &to, QPN);
        let ask = paces.next_ask().expect("a new destination is asked about");
        assert!(paces.answer(Time::ZERO, &ask, Some(Room { used: 13_000, limit: 200_000 })));
        assert_eq!(paces.budget(Time::ZERO, &to, QPN), 68_500);
        paces.spend(&to, QPN, 68_500);
        assert_eq!(paces.budget(at_us(900), &to, QPN), 0, "time earns nothing");
        assert!(paces.next_ask().is_none());
        assert_eq!(paces.ask(at_us(900), &to, QPN, 1), at_us(920));
        let _ = paces.ask(at_us(900), &to, QPN, 1);
        let ask = paces.next_ask().expect("once");
        assert!(paces.next_ask().is_none());
        assert!(!paces.answer(at_us(900), &ask, Some(Room { used: 149_000, limit: 200_000 })));
        assert_eq!(paces.budget(at_us(900), &to, QPN), 500);
        let _ = paces.ask(at_us(900), &to, QPN, 1000);
        let ask = paces.next_ask().expect("once more");
        assert!(!paces.answer(at_us(900), &ask, Some(Room { used: 150_000, limit: 200_000 })));
        assert_eq!(
            paces.budget(at_us(900), &to, QPN),
            0,
            "a quarter is left for the last batch of each sender"
        );
    }

    #[test]
    fn an_old_look_is_no_budget() {
        let (mut paces, to) = (Paces::default(), route(2));
        let _ = paces.budget(Time::ZERO, &to, QPN);
        let ask = paces.next_ask().unwrap();
        let _ = paces.answer(Time::ZERO, &ask, Some(Room { used: 0, limit: 200_000 }));
        assert_eq!(paces.budget(at_us(1000), &to, QPN), 75_000);
        assert_eq!(paces.budget(at_us(1001), &to, QPN), 0);
        // The process there is gone, or the socket: the rate is left.
        let _ = paces.ask(at_us(1001), &to, QPN, 1);
        let ask = paces.next_ask().unwrap();
        assert!(!paces.answer(at_us(1001), &ask, None));
        assert_eq!(paces.budget(at_us(1011), &to, QPN), 10_000);
    }

    #[test]
    fn queue_pairs_of_one_socket_share_and_others_do_not() {
        let mut paces = Paces::default();
        let _ = paces.budget(Time::ZERO, &route(2), QPN);
        paces.spend(&route(2), QPN, 1000);
        assert_eq!(paces.budget(Time::ZERO, &route(2), Qpn::new(0x4003)), BURST - 1000);
        assert_eq!(paces.budget(Time::ZERO, &route(2), Qpn::new(0x8002)), BURST);
        assert_eq!(paces.budget(Time::ZERO, &route(3), QPN), BURST);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut paces = Paces::default();
        for host in 0..3000 {
            let _ = paces.budget(Time::ZERO, &route(host), QPN);
        }
        assert!(paces.paces.len() <= MAX_DESTINATIONS && paces.asks.len() <= MAX_DESTINATIONS);
    }
}
