//! The operations of a queue pair by key. A key is the work request's number on the device.

use std::task::Waker;

use userdma_verbs::{Wc, WcOpcode};

use super::error::WrError;
use super::request::Request;

/// Names an operation. Never used again: a place that is used again has another generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

/// How far an operation has come.
#[derive(Debug)]
pub(super) enum Op {
    /// It waits for a place in its queue.
    Queued(Request, Waiter),
    /// The device has it.
    Posted(WcOpcode, Waiter),
    /// It has ended, and nobody has asked yet.
    Ended(Result<Wc, WrError>),
}

/// Who wants to know that an operation has ended.
#[derive(Debug)]
pub(super) enum Waiter {
    /// Somebody, who has not asked yet.
    Later,
    /// A task.
    Task(Waker),
    /// Nobody any more.
    Nobody,
}

/// Operations by key.
#[derive(Debug, Default)]
pub(super) struct Ops {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    op: Option<Op>,
}

impl Key {
    /// The work request's number.
    pub(super) fn wr_id(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key with this number.
    pub(super) fn of(wr_id: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = wr_id.to_be_bytes();
        Self { index: u32::from_be_bytes([e, f, g, h]), generation: u32::from_be_bytes([a, b, c, d]) }
    }
}

impl Ops {
    /// Adds an operation.
    pub(super) fn insert(&mut self, op: Op) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, op: None });
            // 2^32 operations do not fit the memory.
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        place.op = Some(op);
        Key { index, generation: place.generation }
    }

    /// The operation, unless it is gone.
    pub(super) fn find(&mut self, key: Key) -> Option<&mut Op> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.op.as_mut() } else { None }
    }

    /// Takes it out.
    pub(super) fn remove(&mut self, key: Key) -> Option<Op> {
        self.find(key)?;
        let place = &mut self.places[key.index as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        place.op.take()
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> Vec<Key> {
        let place = |(index, place): (usize, &Place)| {
            let key = Key { index: u32::try_from(index).unwrap_or(u32::MAX), generation: place.generation };
            place.op.as_ref().map(|_| key)
        };
        self.places.iter().enumerate().filter_map(place).collect()
    }
}

impl Op {
    /// What is done.
    pub(super) fn opcode(&self) -> Option<WcOpcode> {
        match self {
            Self::Queued(request, _) => Some(request.opcode()),
            Self::Posted(opcode, _) => Some(*opcode),
            Self::Ended(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_used_again() {
        let posted = || Op::Posted(WcOpcode::Send, Waiter::Nobody);
        let mut ops = Ops::default();
        let (a, b) = (ops.insert(posted()), ops.insert(posted()));
        assert!(ops.remove(a).is_some());
        assert!(ops.remove(a).is_none());
        let c = ops.insert(posted());
        assert_eq!(ops.places.len(), 2, "its place is");
        assert!(ops.find(a).is_none() && ops.find(c).is_some());
        assert_eq!(ops.keys(), [c, b]);
        assert_eq!(Key::of(c.wr_id()), c);
    }
}
