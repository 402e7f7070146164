//! What processes and the agent say to each other, and how it is written.
//!
//! Both ends are usually of one build; the version is part of the agent's name, so others never meet. All the same, what comes in
//! is checked, the more so as a service hears every user: numbers are big-endian, the first byte says what it is.

mod gsi;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) use gsi::{Bequest, GsiReply, GsiRequest};

/// A port on some addresses, in the order of the GID table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// From a process to the agent. A connection stands for one device.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a message is written or read, and let go")]
pub(crate) enum Request {
    /// Wants a slot on all the addresses; on the other port if somebody else has the place's, or had it when others that are
    /// there fell back on the other.
    Claim { place: Place, fallback: Option<u16> },
    /// Has a slot since before this agent; with the parks of all addresses, as many of each as said here. The address that made
    /// it fall back on this port, if one did. To a service without parks, and with the lock on each address.
    Register { place: Place, slot: u16, taken: Option<IpAddr>, parks: Vec<u8> },
    /// Needs the slot no longer. The index is the first that no queue pair has had; 0 if it is not known. It rests if numbers
    /// before that are of connections that are not over yet.
    Release { next_index: u16, rests: bool },
    /// To a service: wants a copy of the socket of another slot, on the address of that number, to see what waits there.
    Neighbor { address: u8, slot: u16 },
    /// Of connections.
    Gsi(GsiRequest),
}

/// From the agent to a process.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a message is written or read, and let go")]
pub(crate) enum Reply {
    /// A slot, with its socket on each address, then its lock on each. Queue pairs begin at the index. It is on the fallback
    /// port if there is an address whose port is taken.
    Granted {
        slot: u16,
        first_index: u16,
        taken: Option<IpAddr>,
    },
    /// With all parks of one address, in place of those that were sent before.
    Parks {
        address: u8,
    },
    /// What was registered is noted.
    Registered,
    /// With the socket that was asked for, if it is there and of the same user.
    Neighbor {
        address: u8,
        slot: u16,
    },
    Refused(Refusal),
    /// Of connections.
    Gsi(GsiReply),
    /// To be kept for the next agent.
    Keep(Bequest),
}

/// Why there is no slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// A process has a slot of the port and has not told this agent, which is new, or is just ending: ask again.
    Early,
    /// Somebody who does not share it has the port on this address.
    Taken(IpAddr),
    /// This machine does not have the address.
    NotLocal(IpAddr),
    /// Every slot is in use on this address.
    NoSlot(IpAddr),
    /// Something else, in words.
    Other(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early => f.write_str("too early"),
            Self::Taken(ip) => write!(f, "somebody who does not share it has the port of {ip}"),
            Self::NotLocal(ip) => write!(f, "{ip} is not an address of this machine"),
            Self::NoSlot(ip) => write!(f, "every slot of {ip} is in use"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Claim { place, fallback } => {
                // Port 0 is none.
                let [high, low] = fallback.unwrap_or(0).to_be_bytes();
                place.encode(vec![CLAIM, high, low])
            }
            Self::Register { place, slot, taken, parks } => {
                let mut bytes = place.encode(vec![REGISTER]);
                bytes.extend(slot.to_be_bytes());
                bytes.extend(optional_octets(*taken));
                bytes.extend(parks);
                bytes
            }
            Self::Release { next_index, rests } => {
                [&[RELEASE], &next_index.to_be_bytes()[..], &[u8::from(*rests)]].concat()
            }
            Self::Neighbor { address, slot } => [&[NEIGHBOR, *address], &slot.to_be_bytes()[..]].concat(),
            Self::Gsi(request) => request.encode(vec![GSI]),
        }
    }

    /// The request that was written; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            CLAIM => {
                let (fallback, rest) = number(rest)?;
                let fallback = (fallback != 0).then_some(fallback);
                Some(Self::Claim { place: Place::decode(rest)?.0, fallback })
            }
            REGISTER => {
                let (place, rest) = Place::decode(rest)?;
                let (slot, rest) = number(rest)?;
                let (taken, parks) = optional_ip(rest)?;
                let is_whole = parks.len() == place.addresses.len();
                is_whole.then(|| Self::Register { place, slot, taken, parks: parks.to_vec() })
            }
            RELEASE => {
                let (next_index, rest) = number(rest)?;
                Some(Self::Release { next_index, rests: rest.first().is_some_and(|&rests| rests != 0) })
            }
            NEIGHBOR => {
                let (&address, rest) = rest.split_first()?;
                Some(Self::Neighbor { address, slot: number(rest)?.0 })
            }
            GSI => GsiRequest::decode(rest).map(Self::Gsi),
            _ => None,
        }
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let address = |kind, ip: &IpAddr| [&[REFUSED, kind], &octets(*ip)[..]].concat();
        match self {
            Self::Granted { slot, first_index, taken } => {
                let taken = optional_octets(*taken);
                [&[GRANTED], &slot.to_be_bytes()[..], &first_index.to_be_bytes(), &taken].concat()
            }
            Self::Parks { address } => vec![PARKS, *address],
            Self::Registered => vec![REGISTERED],
            Self::Neighbor { address, slot } => [&[NEIGHBOR, *address], &slot.to_be_bytes()[..]].concat(),
            Self::Refused(Refusal::Early) => vec![REFUSED, EARLY],
            Self::Refused(Refusal::Taken(ip)) => address(TAKEN, ip),
            Self::Refused(Refusal::NotLocal(ip)) => address(NOT_LOCAL, ip),
            Self::Refused(Refusal::NoSlot(ip)) => address(NO_SLOT, ip),
            Self::Refused(Refusal::Other(text)) => [&[REFUSED, OTHER], text.as_bytes()].concat(),
            Self::Gsi(reply) => reply.encode(vec![ANSWERED]),
            Self::Keep(bequest) => bequest.encode(vec![KEEP]),
        }
    }

    /// The reply that was written; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            GRANTED => {
                let (slot, rest) = number(rest)?;
                let (first_index, rest) = number(rest)?;
                Some(Self::Granted { slot, first_index, taken: optional_ip(rest)?.0 })
            }
            PARKS => Some(Self::Parks { address: *rest.first()? }),
            REGISTERED => Some(Self::Registered),
            NEIGHBOR => {
                let (&address, rest) = rest.split_first()?;
                Some(Self::Neighbor { address, slot: number(rest)?.0 })
            }
            REFUSED => Refusal::decode(rest).map(Self::Refused),
            ANSWERED => GsiReply::decode(rest).map(Self::Gsi),
            KEEP => Bequest::decode(rest).map(Self::Keep),
            _ => None,
        }
    }
}

impl Refusal {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            EARLY => Some(Self::Early),
            TAKEN => Some(Self::Taken(ip(rest)?.0)),
            NOT_LOCAL => Some(Self::NotLocal(ip(rest)?.0)),
            NO_SLOT => Some(Self::NoSlot(ip(rest)?.0)),
            OTHER => Some(Self::Other(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

impl Place {
    fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(self.port.to_be_bytes());
        // 32 at most.
        bytes.push(u8::try_from(self.addresses.len()).unwrap_or(u8::MAX));
        bytes.extend(self.addresses.iter().flat_map(|ip| octets(*ip)));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (port, rest) = number(bytes)?;
        let (&count, mut rest) = rest.split_first()?;
        let mut addresses = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (address, after) = ip(rest)?;
            addresses.push(address);
            rest = after;
        }
        let is_whole = !addresses.is_empty() && addresses.len() <= crate::Embedded::MAX_ADDRESSES;
        is_whole.then_some((Self { port, addresses }, rest))
    }
}

/// An address in the form of IPv6.
pub(crate) fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// An address that may not be there: the unspecified one is none.
fn optional_octets(ip: Option<IpAddr>) -> [u8; 16] {
    octets(ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()))
}

fn optional_ip(bytes: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (ip, rest) = ip(bytes)?;
    Some(((!ip.is_unspecified()).then_some(ip), rest))
}

pub(crate) fn ip(bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (octets, rest) = bytes.split_first_chunk::<16>()?;
    Some((Ipv6Addr::from(*octets).to_canonical(), rest))
}

pub(crate) fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// Bytes of a message at most.
pub(crate) const MAX_LEN: usize = 1024;

const CLAIM: u8 = 1;
const REGISTER: u8 = 2;
const RELEASE: u8 = 3;
const GSI: u8 = 4;
const NEIGHBOR: u8 = 5;
const GRANTED: u8 = 11;
const PARKS: u8 = 12;
const REGISTERED: u8 = 13;
const REFUSED: u8 = 14;
const ANSWERED: u8 = 15;
const KEEP: u8 = 16;
const EARLY: u8 = 1;
const TAKEN: u8 = 2;
const NOT_LOCAL: u8 = 3;
const NO_SLOT: u8 = 4;
const OTHER: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let addresses = vec!["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        Place { port: 4791, addresses }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ip = place().addresses[1];
        let requests = [
            Request::Claim { place: place(), fallback: None },
            Request::Claim { place: place(), fallback: Some(16_384) },
            Request::Register { place: place(), slot: 1022, taken: None, parks: vec![1, 5] },
            Request::Register { place: place(), slot: 1, taken: Some(ip), parks: vec![1, 5] },
            Request::Release { next_index: 16_383, rests: false },
            Request::Release { next_index: 2, rests: true },
            Request::Neighbor { address: 31, slot: 1022 },
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let refusals = [
            Refusal::Early,
            Refusal::Taken(ip),
            Refusal::NotLocal(ip),
            Refusal::NoSlot(ip),
            Refusal::Other("no memory".to_owned()),
        ];
        let replies = [
            Reply::Granted { slot: 3, first_index: 2, taken: None },
            Reply::Granted { slot: 3, first_index: 2, taken: Some(ip) },
            Reply::Parks { address: 31 },
            Reply::Registered,
            Reply::Neighbor { address: 31, slot: 1022 },
        ];
        for reply in replies.into_iter().chain(refusals.map(Reply::Refused)) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn what_is_cut_or_foreign_is_nothing() {
        let whole = Request::Register { place: place(), slot: 1, taken: None, parks: vec![1, 1] }.encode();
        for len in 0..whole.len() {
            assert_eq!(Request::decode(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(Request::decode(&[9, 0, 0]), None);
        assert_eq!(Request::decode(&[CLAIM, 0, 0, 0, 1, 0]), None, "no address");
        assert_eq!(Reply::decode(&[]), None);
        assert_eq!(Reply::decode(&[REFUSED, TAKEN, 1]), None);
    }

    #[test]
    fn the_longest_message_has_room() {
        let addresses = vec![IpAddr::from([127, 0, 0, 1]); crate::Embedded::MAX_ADDRESSES];
        let parks = vec![5; addresses.len()];
        let request = Request::Register { place: Place { port: 1, addresses }, slot: 1, taken: None, parks };
        assert!(request.encode().len() <= MAX_LEN);
    }
}
