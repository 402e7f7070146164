//! Which IPv4 identification to believe.
//!
//! A UDP socket does not show the identification that the ICRC covers, so it is solved for; believing
//! whatever comes out leaves 16 of the ICRC's 32 bits. What a peer sent before narrows it down. Peers like us
//! send small ones (0, or a packet's place in its batch); kernel peers count up from anywhere, one counter for
//! everything that they send to us, and let it run on while they are idle.

use userdma_verbs::Time;

use crate::icrc::{IcrcCheck, Pseudo};
use crate::packet::Packet;

/// What one source address' identifications have looked like, and so which one may come next.
///
/// Small identifications are always believed. The first other one is believed too, and from then on those
/// that follow the last believed one closely. Two closely following ones outside that range move it: then the
/// peer has restarted its counter, or sent much elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdWindow {
    seen: Seen,
    rejected: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Seen {
    /// Nothing yet.
    #[default]
    Nothing,
    /// Small ones only.
    Small,
    /// A peer that counts.
    Counting { last: u16, at: Time },
}

/// Whether an identification is believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum IdVerdict {
    /// Believe it: the packet is good.
    Accept,
    /// Do not: drop the packet and count it.
    Reject,
}

/// What a packet's ICRC is worth, all in all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum IcrcVerdict {
    /// The packet is what its sender sent.
    Good,
    /// It fits an identification that this source is not believed to send: drop the packet and count it.
    UnlikelyId(u16),
    /// It does not fit: drop the packet and count it.
    Bad,
}

impl IdWindow {
    /// Identifications below this one are always believed: a batch has at most as many packets.
    pub const SMALL: u16 = 128;
    /// How far a counting peer's next identification may lie ahead.
    pub const AHEAD: u16 = 1024;
    /// How far it may lie behind, where the network reorders or repeats.
    pub const BEHIND: u16 = 64;

    /// Nothing is known of the source.
    pub const fn new() -> Self {
        Self { seen: Seen::Nothing, rejected: None }
    }

    /// The likeliest next identification: what [`crate::Pseudo::verify`] should try first. `segment` is the
    /// packet's place in the batch that the kernel handed over, 0 if it came alone.
    pub const fn hint(&self, segment: u16) -> u16 {
        match self.seen {
            Seen::Nothing | Seen::Small => segment,
            Seen::Counting { last, .. } => last.wrapping_add(1),
        }
    }

    /// Checks a packet's ICRC, and over IPv4 whether the identification that it fits is to be believed.
    /// `segment` as for [`IdWindow::hint`]; over IPv6 the window plays no part.
    #[inline]
    pub fn verify(&mut self, now: Time, pseudo: &Pseudo, packet: &Packet<'_>, segment: u16) -> IcrcVerdict {
        let hint = self.hint(segment);
        let id = match pseudo.verify(packet, hint) {
            IcrcCheck::Good if !pseudo.is_ipv4() => return IcrcVerdict::Good,
            IcrcCheck::Good => hint,
            IcrcCheck::GoodWithId(id) => id,
            IcrcCheck::Bad => return IcrcVerdict::Bad,
        };
        match self.check(now, id) {
            IdVerdict::Accept => IcrcVerdict::Good,
            IdVerdict::Reject => IcrcVerdict::UnlikelyId(id),
        }
    }

    /// Judges the identification of a packet whose ICRC fits it, and learns from it.
    pub fn check(&mut self, now: Time, id: u16) -> IdVerdict {
        let follows = match self.seen {
            Seen::Nothing if id < Self::SMALL => {
                self.seen = Seen::Small;
                return self.accept();
            }
            Seen::Nothing => true,
            Seen::Small => false,
            Seen::Counting { last, at } => {
                if last.wrapping_sub(id) <= Self::BEHIND {
                    return self.accept();
                }
                u64::from(id.wrapping_sub(last)) <= allowance(now, at)
            }
        };
        if follows || self.rejected.is_some_and(|rejected| is_close(rejected, id)) && id >= Self::SMALL {
            self.seen = Seen::Counting { last: id, at: now };
            self.accept()
        } else if id < Self::SMALL {
            self.accept()
        } else {
            self.rejected = Some(id);
            IdVerdict::Reject
        }
    }

    const fn accept(&mut self) -> IdVerdict {
        self.rejected = None;
        IdVerdict::Accept
    }
}

/// How far ahead an identification may lie after a pause: kernels let an idle counter run on, by at most one
/// for each tick, and tick at most once a millisecond.
fn allowance(now: Time, last_at: Time) -> u64 {
    u64::from(IdWindow::AHEAD)
        + now.since(last_at).as_secs() * 1000
        + u64::from(now.since(last_at).subsec_millis())
}

/// Whether two different identifications lie close together, in either order.
const fn is_close(a: u16, b: u16) -> bool {
    a != b && (a.wrapping_sub(b) <= IdWindow::AHEAD || b.wrapping_sub(a) <= IdWindow::AHEAD)
}

#[cfg(test)]
mod tests {
    use super::IdVerdict::{Accept, Reject};
    use super::*;

    const T0: Time = Time::ZERO;

    fn counting(last: u16) -> IdWindow {
        let mut window = IdWindow::new();
        assert_eq!(window.check(T0, last), Accept);
        window
    }

    #[test]
    fn first_contact_is_believed() {
        for id in [0, 127, 128, 0x8000, 0xffff] {
            assert_eq!(IdWindow::new().check(T0, id), Accept);
        }
    }

    #[test]
    fn small_ones_are_always_believed() {
        let mut window = counting(0x9000);
        for id in [0, 1, 127, 5] {
            assert_eq!(window.check(T0, id), Accept);
        }
        assert_eq!(window.hint(0), 0x9001, "and do not move the window");
    }

    #[test]
    fn a_peer_with_small_ones_does_not_start_to_count_by_one_flipped_bit() {
        let mut window = counting(3);
        assert_eq!(window.check(T0, 0x4003), Reject);
        assert_eq!(window.check(T0, 4), Accept);
        assert_eq!(window.hint(5), 5);
    }

    #[test]
    fn a_counting_peer_stays_in_its_window() {
        let mut window = counting(1000);
        assert_eq!(window.check(T0, 1000 + 1024), Accept);
        assert_eq!(window.check(T0, 2024 + 1025), Reject);
        assert_eq!(window.check(T0, 2025), Accept);
        assert_eq!(window.hint(7), 2026);
    }

    #[test]
    fn the_window_wraps() {
        let mut window = counting(0xfff0);
        assert_eq!(window.check(T0, 0x0010), Accept);
        assert_eq!(window.hint(0), 0x0011);
        let mut window = counting(0xfff0);
        assert_eq!(window.check(T0, 0x0200), Accept);
        assert_eq!(window.check(T0, 0xfff1), Reject);
    }

    #[test]
    fn reordered_and_repeated_packets_are_believed_and_move_nothing() {
        let mut window = counting(1000);
        assert_eq!(window.check(T0, 1000), Accept);
        assert_eq!(window.check(T0, 936), Accept);
        assert_eq!(window.check(T0, 935), Reject);
        assert_eq!(window.hint(0), 1001);
    }

    #[test]
    fn two_neighbours_outside_move_the_window() {
        let mut window = counting(1000);
        assert_eq!(window.check(T0, 30_000), Reject);
        assert_eq!(window.check(T0, 30_001), Accept);
        assert_eq!(window.check(T0, 30_002), Accept);
        assert_eq!(window.check(T0, 1001), Reject);
    }

    #[test]
    fn two_strangers_outside_move_nothing() {
        let mut window = counting(1000);
        assert_eq!(window.check(T0, 30_000), Reject);
        assert_eq!(window.check(T0, 40_000), Reject);
        assert_eq!(window.check(T0, 30_001), Reject);
        assert_eq!(window.check(T0, 1001), Accept);
        assert_eq!(window.check(T0, 30_002), Reject, "an accepted one between forgets the rejected");
    }

    #[test]
    fn a_repeated_corrupt_packet_moves_nothing() {
        let mut window = counting(1000);
        assert_eq!(window.check(T0, 30_000), Reject);
        assert_eq!(window.check(T0, 30_000), Reject);
        assert_eq!(window.check(T0, 1001), Accept);
    }

    #[test]
    fn an_idle_peers_counter_may_run_on() {
        let mut window = counting(1000);
        assert_eq!(window.check(Time::from_nanos(999_000_000), 1000 + 1024 + 1000), Reject);
        let mut window = counting(1000);
        assert_eq!(window.check(Time::from_nanos(1_000_000_000), 1000 + 1024 + 1000), Accept);
    }
}
