//! What a service tells its administrator.

use std::fmt;
use std::io;
use std::net::IpAddr;

use userdma_link::descriptors::Peer;

use crate::Holder;

/// Something that has happened. As text it is a line of a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceEvent {
    /// The service is there.
    Started {
        /// Whose it is.
        uid: u32,
        /// Devices of a user on an address at most.
        per_user: u16,
        /// Slots with owners from before, once for each address.
        taken_over: usize,
    },
    /// Somebody else has the port of an address, or of all.
    Held(Holder),
    /// A device was opened.
    Opened {
        /// Whose.
        peer: Peer,
        /// The slot.
        slot: u16,
        /// Where.
        addresses: Vec<IpAddr>,
    },
    /// A device that was there under the service before has registered.
    Resumed {
        /// Whose.
        peer: Peer,
        /// The slot.
        slot: u16,
        /// Where.
        addresses: Vec<IpAddr>,
    },
    /// A device was closed.
    Closed {
        /// Whose.
        peer: Peer,
        /// The slot.
        slot: u16,
        /// Whether it was closed in order; otherwise its process has died.
        in_order: bool,
    },
    /// A device that was there under the service before has gone without having registered.
    Lost {
        /// Where.
        address: IpAddr,
        /// The slot.
        slot: u16,
    },
    /// A device was refused.
    Refused {
        /// Whose.
        peer: Peer,
        /// Why.
        why: String,
    },
    /// A process says that it has a slot since before, and cannot show that it is its: keeper and service were both killed, say.
    Unknown {
        /// Whose.
        peer: Peer,
        /// The slot.
        slot: u16,
    },
    /// A process broke the rules of the protocol, and is not listened to any more.
    Wrong(Peer),
    /// A user has so many connections that no more are taken.
    Crowded(Peer),
    /// There were so many complaints about a user that those of the next seconds are left out.
    Muted {
        /// The user.
        uid: u32,
    },
    /// The process that keeps the sockets has gone.
    KeeperLost(io::Error),
    /// There is a keeper again.
    KeeperStarted,
    /// The service ends as it was told to.
    Stopping {
        /// Devices that stay connected, and go on with the next service.
        devices: usize,
    },
}

impl ServiceEvent {
    /// The user whose program has done something wrong, if that is what has happened.
    pub(super) fn blamed(&self) -> Option<u32> {
        match self {
            Self::Refused { peer, .. }
            | Self::Unknown { peer, .. }
            | Self::Wrong(peer)
            | Self::Crowded(peer) => Some(peer.uid),
            Self::Started { .. }
            | Self::Held(_)
            | Self::Opened { .. }
            | Self::Resumed { .. }
            | Self::Closed { .. }
            | Self::Lost { .. }
            | Self::Muted { .. }
            | Self::KeeperLost(_)
            | Self::KeeperStarted
            | Self::Stopping { .. } => None,
        }
    }
}

impl fmt::Display for ServiceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { uid, per_user, taken_over } => {
                write!(f, "serving all users as user {uid}, {per_user} devices for each on an address")?;
                if *taken_over > 0 {
                    write!(f, "; {taken_over} slots go on from before")?;
                }
                Ok(())
            }
            Self::Held(holder) => write!(f, "not served as long as it lasts: {holder}"),
            Self::Opened { peer, slot, addresses } => {
                write!(f, "{}: device opened, slot {slot} on {}", Of(peer), List(addresses))
            }
            Self::Resumed { peer, slot, addresses } => {
                write!(f, "{}: device goes on, slot {slot} on {}", Of(peer), List(addresses))
            }
            Self::Closed { peer, slot, in_order } => {
                let how = if *in_order { "device closed" } else { "process ended with its device open" };
                write!(f, "{}: {how}, slot {slot}", Of(peer))
            }
            Self::Lost { address, slot } => {
                write!(f, "owner of slot {slot} on {address} ended while there was no service")
            }
            Self::Refused { peer, why } => write!(f, "{}: device refused: {why}", Of(peer)),
            Self::Unknown { peer, slot } => {
                write!(f, "{}: has slot {slot}, it says, of which nothing is known here, cut off", Of(peer))
            }
            Self::Wrong(peer) => write!(f, "{}: says what makes no sense, cut off", Of(peer)),
            Self::Crowded(peer) => write!(f, "{}: too many connections of this user, cut off", Of(peer)),
            Self::Muted { uid } => write!(f, "user {uid}: what else is wrong is left out for 10 s"),
            Self::KeeperLost(error) => write!(f, "keeper lost ({error}): it is started again"),
            Self::KeeperStarted => f.write_str("keeper started again"),
            Self::Stopping { devices: 1 } => f.write_str("stopping; 1 device stays connected"),
            Self::Stopping { devices } => write!(f, "stopping; {devices} devices stay connected"),
        }
    }
}

/// A process by user and number.
struct Of<'a>(&'a Peer);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Peer { pid: 0, uid } => write!(f, "user {uid}, a process of another namespace"),
            Peer { pid, uid } => write!(f, "user {uid}, process {pid}"),
        }
    }
}

struct List<'a>(&'a [IpAddr]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.iter();
        if let Some(first) = parts.next() {
            write!(f, "{first}")?;
        }
        parts.try_for_each(|ip| write!(f, ", {ip}"))
    }
}
