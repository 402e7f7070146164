//! How full the socket is that a packet will come to, where that socket shares its address and port with ours.
//!
//! Nothing tells a sender of datagrams that the receiver does not keep up. Between processes of one user on one host, the
//! kernel does: whoever has a descriptor of a socket may ask how much waits in it, and the sockets of a group can be had from
//! each other ([`Neighbors`]).

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use userdma_verbs::{Qpn, Time};

use super::options;
use crate::guard::GuardedFd;

/// What waits in a receive buffer.
///
/// Both are the kernel's count, in which a packet is larger than its bytes by what the kernel keeps of it: by 512 at least, and
/// a batch that it does not cut up counts once. What was received lately may be counted as still there, up to a quarter of
/// the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backlog {
    /// Bytes that wait.
    pub used: u32,
    /// Bytes from which on packets are dropped.
    pub limit: u32,
}

/// Where the sockets of the other slots of a link's group are to be had.
pub trait Neighbors: fmt::Debug + Send {
    /// A descriptor of the socket of `slot`; `None` if it cannot be had now. It may wait for some milliseconds.
    fn socket(&mut self, slot: u16) -> Option<OwnedFd>;
}

/// The other sockets of a group, as far as they were asked for.
///
/// A slot's socket is the same as long as the group lives, whoever has the slot, and the group lives as long as the link.
#[derive(Debug)]
pub(super) struct Group {
    neighbors: Box<dyn Neighbors>,
    sockets: BTreeMap<u16, Entry>,
}

#[derive(Debug)]
enum Entry {
    Socket(GuardedFd),
    /// It could not be had; asked again from then on.
    Unknown(Time),
}

impl Group {
    pub(super) fn new(neighbors: Box<dyn Neighbors>) -> Self {
        Self { neighbors, sockets: BTreeMap::new() }
    }

    /// What waits for the slot of `qpn`; `None` if that is not known, or nobody has the slot.
    pub(super) fn backlog(&mut self, now: Time, qpn: Qpn) -> Option<Backlog> {
        // Ten bits.
        let slot = u16::try_from(qpn.get() >> SLOT_SHIFT).ok()?;
        let is_due = match self.sockets.get(&slot) {
            Some(Entry::Unknown(until)) => *until <= now,
            Some(Entry::Socket(_)) => false,
            None => true,
        };
        if is_due {
            self.ask(now, slot);
        }
        let Some(Entry::Socket(socket)) = self.sockets.get(&slot) else { return None };
        let backlog = options::backlog(socket.as_fd()).ok()?;
        (backlog.limit > RESTING).then_some(backlog)
    }

    #[cold]
    fn ask(&mut self, now: Time, slot: u16) {
        if self.sockets.len() >= MAX_SOCKETS {
            self.sockets.clear();
        }
        let entry = match self.neighbors.socket(slot) {
            Some(socket) => Entry::Socket(socket.into()),
            None => Entry::Unknown(now.plus_nanos(AGAIN_NS)),
        };
        self.sockets.insert(slot, entry);
    }
}

/// Below it, a QPN has its index.
const SLOT_SHIFT: u32 = 14;
/// Descriptors that are kept at most, for each link.
const MAX_SOCKETS: usize = 128;
/// How long a socket that could not be had is not asked for.
const AGAIN_NS: u64 = 100_000_000;
/// Twice the smallest buffer that the kernel makes: so small is that of a socket that nobody reads ([`super::shared::rest`]).
const RESTING: u32 = 4608;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::shared;

    /// Has one socket, of slot 1, and counts who asks.
    #[derive(Debug)]
    struct One(OwnedFd, Arc<AtomicU32>);

    impl Neighbors for One {
        fn socket(&mut self, slot: u16) -> Option<OwnedFd> {
            self.1.fetch_add(1, Ordering::Relaxed);
            (slot == 1).then(|| self.0.try_clone().unwrap())
        }
    }

    fn group(socket: &impl AsFd) -> (Group, Arc<AtomicU32>) {
        let asked = Arc::default();
        let socket = socket.as_fd().try_clone_to_owned().unwrap();
        (Group::new(Box::new(One(socket, Arc::clone(&asked)))), asked)
    }

    fn qpn(slot: u32) -> Qpn {
        Qpn::new(slot << SLOT_SHIFT | 77)
    }

    #[test]
    fn what_waits_is_counted_and_the_socket_is_asked_for_once() {
        let socket = UdpSocket::bind("127.61.62.2:0").unwrap();
        let (mut group, asked) = group(&socket);
        let empty = group.backlog(Time::ZERO, qpn(1)).unwrap();
        assert!(empty.used == 0 && empty.limit >= 100_000, "{empty:?}");
        for _ in 0..10 {
            socket.send_to(&[7; 1000], socket.local_addr().unwrap()).unwrap();
        }
        let backlog = group.backlog(Time::ZERO, qpn(1)).unwrap();
        assert!((10 * 1512..10 * 4096).contains(&backlog.used), "{backlog:?}");
        for _ in 0..10 {
            socket.recv(&mut [0; 1000]).unwrap();
        }
        assert_eq!(group.backlog(Time::ZERO, qpn(1)), Some(empty));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_socket_that_cannot_be_had_is_asked_for_after_a_while() {
        let socket = UdpSocket::bind("127.61.62.3:0").unwrap();
        let (mut group, asked) = group(&socket);
        for (now, count) in [(0, 1), (AGAIN_NS - 1, 1), (AGAIN_NS, 2), (AGAIN_NS + 1, 2)] {
            assert_eq!(group.backlog(Time::from_nanos(now), qpn(2)), None);
            assert_eq!(asked.load(Ordering::Relaxed), count, "at {now} ns");
        }
        assert!(group.backlog(Time::ZERO, qpn(1)).is_some(), "the other slot is known all the same");
    }

    #[test]
    fn a_slot_that_nobody_reads_has_no_backlog() {
        let socket = UdpSocket::bind("127.61.62.4:0").unwrap();
        let (mut group, _) = group(&socket);
        shared::rest(&socket).unwrap();
        assert_eq!(group.backlog(Time::ZERO, qpn(1)), None);
    }

    #[test]
    fn descriptors_are_kept_within_bounds() {
        #[derive(Debug)]
        struct Any(OwnedFd);
        impl Neighbors for Any {
            fn socket(&mut self, _: u16) -> Option<OwnedFd> {
                self.0.try_clone().ok()
            }
        }
        let socket = UdpSocket::bind("127.61.62.5:0").unwrap();
        let mut group = Group::new(Box::new(Any(socket.into())));
        for slot in 1..400 {
            assert!(group.backlog(Time::ZERO, qpn(slot)).is_some());
            assert!(group.sockets.len() <= MAX_SOCKETS);
        }
    }
}
