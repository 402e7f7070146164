//! Rings of work queue elements: fixed slots for the request, its list and its inline data.

use userdma_verbs::{SendFlags, SendOp, SendWr, Sge};

/// The fixed part of a send work queue element.
#[derive(Clone, Copy, Debug)]
pub struct Wqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Options; `SIGNALED` is set if every send of the QP completes.
    pub flags: SendFlags,
    /// Bytes of the message: 0 ..= 2^31.
    pub len: u32,
    /// Elements in the list.
    pub num_sge: u8,
}

/// A work queue element with its list and inline data.
#[derive(Clone, Copy, Debug)]
pub struct WqeRef<'a> {
    /// The fixed part.
    pub wqe: &'a Wqe,
    /// The list (empty if inline).
    pub sgl: &'a [Sge],
    /// The payload of an inline send (`wqe.len` bytes), else empty.
    pub inline: &'a [u8],
}

/// A ring of send work queue elements. Slots are addressed by a number that counts up for ever (u64), so that an
/// index names the same element for its whole life.
#[derive(Debug)]
pub struct WqeRing {}

impl WqeRing {
    /// A ring of `capacity` slots with lists of up to `max_sge` and inline data of up to `max_inline` bytes.
    pub fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Self {
        let _ = (capacity, max_sge, max_inline);
        todo!()
    }

    /// Number of elements.
    pub fn len(&self) -> u32 {
        todo!()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the oldest element (the next to be popped).
    pub fn head(&self) -> u64 {
        todo!()
    }

    /// Number that the next pushed element gets.
    pub fn tail(&self) -> u64 {
        todo!()
    }

    /// Appends a request that was checked; false if the ring is full.
    pub fn push(&mut self, wr: &SendWr<'_>, flags: SendFlags, len: u32) -> bool {
        let _ = (wr, flags, len);
        todo!()
    }

    /// The element with this number, if it is in the ring.
    pub fn get(&self, number: u64) -> Option<WqeRef<'_>> {
        let _ = number;
        todo!()
    }

    /// Removes the oldest element.
    pub fn pop(&mut self) -> Option<Wqe> {
        todo!()
    }

    /// Moves as many elements as fit from `other`, oldest first; how many.
    pub fn take_from(&mut self, other: &mut Self) -> u32 {
        let _ = other;
        todo!()
    }

    /// Forgets everything; numbers go on.
    pub fn clear(&mut self) {
        todo!()
    }
}
