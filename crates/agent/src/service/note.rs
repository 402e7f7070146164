//! What service and keeper say to each other: the service's books, piece by piece.
//!
//! Both are of one build mostly, and of one user always. Numbers are big-endian, the first byte says what it is.

use std::net::IpAddr;

use crate::message::{self, number, octets};

/// A message in either direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Note {
    /// From a service: it is the service now. It is told everything, and then [`Note::End`].
    TakeOver,
    /// There is no more.
    End,
    /// With all parks of a port of an address, in place of those before. Without any: the port is not held any more, and its
    /// slots are forgotten.
    Parks { ip: IpAddr, port: u16 },
    /// A slot, in place of what was said of it before; with the service's end of its line, if it is in use.
    Slot { ip: IpAddr, port: u16, slot: u16, kept: KeptSlot },
}

/// What is kept of a slot, beside its line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KeptSlot {
    pub(crate) user: u32,
    pub(crate) next_index: u16,
    /// The number of the owner's end of its line; 0 if it has no owner.
    pub(crate) far_inode: u64,
}

impl Note {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::TakeOver => vec![TAKE_OVER],
            Self::End => vec![END],
            Self::Parks { ip, port } => place(PARKS, *ip, *port),
            Self::Slot { ip, port, slot, kept } => {
                let mut bytes = place(SLOT, *ip, *port);
                bytes.extend(slot.to_be_bytes());
                bytes.extend(kept.user.to_be_bytes());
                bytes.extend(kept.next_index.to_be_bytes());
                bytes.extend(kept.far_inode.to_be_bytes());
                bytes
            }
        }
    }

    /// The note that was written; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            TAKE_OVER => return Some(Self::TakeOver),
            END => return Some(Self::End),
            _ => {}
        }
        let (ip, rest) = message::ip(rest)?;
        let (port, rest) = number(rest)?;
        match kind {
            PARKS => Some(Self::Parks { ip, port }),
            SLOT => {
                let (slot, rest) = number(rest)?;
                let (user, rest) = rest.split_first_chunk()?;
                let (next_index, rest) = number(rest)?;
                let (far_inode, _) = rest.split_first_chunk()?;
                let (user, far_inode) = (u32::from_be_bytes(*user), u64::from_be_bytes(*far_inode));
                Some(Self::Slot { ip, port, slot, kept: KeptSlot { user, next_index, far_inode } })
            }
            _ => None,
        }
    }
}

fn place(kind: u8, ip: IpAddr, port: u16) -> Vec<u8> {
    [&[kind], &octets(ip)[..], &port.to_be_bytes()].concat()
}

/// Bytes of a note at most.
pub(crate) const MAX_LEN: usize = 64;

const TAKE_OVER: u8 = 1;
const END: u8 = 2;
const PARKS: u8 = 3;
const SLOT: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_what_is_cut_is_nothing() {
        let ip: IpAddr = "2001:db8::7".parse().unwrap();
        let kept = KeptSlot { user: 1000, next_index: 16_383, far_inode: u64::MAX };
        let slot = Note::Slot { ip: [127, 0, 0, 1].into(), port: 4791, slot: 1022, kept };
        for note in [Note::TakeOver, Note::End, Note::Parks { ip, port: 4791 }, slot.clone()] {
            assert!(note.encode().len() <= MAX_LEN);
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
        let whole = slot.encode();
        assert!((0..whole.len()).all(|len| Note::decode(&whole[..len]).is_none()));
        assert_eq!(Note::decode(&[9; 40]), None);
    }
}
