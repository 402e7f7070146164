//! Rings of work queue elements: fixed slots for the request, its list and its inline data.

use userdma_verbs::{QpCap, SendFlags, SendOp, SendWr, Sge};

use crate::UdAddr;

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
///
/// All its memory is set aside when it is made and touched when it is first used.
#[derive(Debug)]
pub struct WqeRing {
    capacity: u32,
    max_sge: usize,
    max_inline: usize,
    /// One less than a power of two that is not less than the capacity.
    mask: u64,
    /// Grows to the number of slots as they are used for the first time, in memory set aside before.
    wqes: Vec<Wqe>,
    /// `max_sge` for each element of `wqes`.
    sges: Vec<Sge>,
    /// `max_inline` for each slot.
    inline: Box<[u8]>,
    /// Whom each element of `wqes` is for, if they are datagrams; else nobody.
    addrs: Vec<UdAddr>,
    head: u64,
    tail: u64,
}

impl WqeRing {
    /// A ring of `capacity` slots with lists of up to `max_sge` and inline data of up to `max_inline` bytes.
    pub fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Self {
        let slots = (capacity.max(1) as usize).next_power_of_two();
        let (max_sge, max_inline) = (max_sge as usize, max_inline as usize);
        Self {
            capacity,
            max_sge,
            max_inline,
            mask: slots as u64 - 1,
            wqes: Vec::with_capacity(slots),
            sges: Vec::with_capacity(slots * max_sge),
            inline: vec![0; slots * max_inline].into_boxed_slice(),
            addrs: Vec::new(),
            head: 0,
            tail: 0,
        }
    }

    /// A ring of datagrams, of the sizes in `cap`.
    pub fn of_datagrams(cap: &QpCap) -> Self {
        let mut ring = Self::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data);
        ring.addrs.reserve_exact(ring.wqes.capacity());
        ring
    }

    /// Number of elements.
    pub fn len(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "never more than the capacity, which is a u32")]
        let len = (self.tail - self.head) as u32;
        len
    }

    /// Elements that it holds at most.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the oldest element (the next to be popped).
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Number that the next pushed element gets.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Appends a request that was checked; false if the ring is full (or the request does not fit a slot).
    pub fn push(&mut self, wr: &SendWr<'_>, flags: SendFlags, len: u32) -> bool {
        let is_inline = flags.contains(SendFlags::INLINE);
        let (sgl, inline) = if is_inline { (&[][..], wr.inline) } else { (wr.sgl, &[][..]) };
        let Ok(num_sge) = u8::try_from(sgl.len()) else {
            return false;
        };
        let wqe = Wqe { wr_id: wr.wr_id, op: wr.op, flags, len, num_sge };
        self.append(WqeRef { wqe: &wqe, sgl, inline })
    }

    /// As [`WqeRing::push`], to a ring of datagrams: one for `addr`.
    pub fn push_to(&mut self, wr: &SendWr<'_>, flags: SendFlags, len: u32, addr: &UdAddr) -> bool {
        let is_pushed = self.push(wr, flags, len);
        if is_pushed {
            self.put_addr(addr);
        }
        is_pushed
    }

    /// Whom the element with this number is for, if it is in the ring and the ring is one of datagrams.
    #[inline]
    pub fn addr(&self, number: u64) -> Option<&UdAddr> {
        if number < self.head || number >= self.tail {
            return None;
        }
        self.addrs.get(self.slot(number))
    }

    /// The fixed part of the element with this number, if it is in the ring.
    #[inline]
    pub fn wqe(&self, number: u64) -> Option<&Wqe> {
        if number < self.head || number >= self.tail {
            return None;
        }
        self.wqes.get(self.slot(number))
    }

    /// The element with this number, if it is in the ring.
    #[inline]
    pub fn get(&self, number: u64) -> Option<WqeRef<'_>> {
        let wqe = self.wqe(number)?;
        let slot = self.slot(number);
        let sgl = &self.sges[slot * self.max_sge..][..usize::from(wqe.num_sge)];
        let inline = if wqe.flags.contains(SendFlags::INLINE) {
            &self.inline[slot * self.max_inline..][..wqe.len as usize]
        } else {
            &[]
        };
        Some(WqeRef { wqe, sgl, inline })
    }

    /// Removes the oldest element.
    pub fn pop(&mut self) -> Option<Wqe> {
        if self.head == self.tail {
            return None;
        }
        let wqe = self.wqes.get(self.slot(self.head)).copied();
        self.head += 1;
        wqe
    }

    /// Moves as many elements as fit from `other`, oldest first; how many.
    pub fn take_from(&mut self, other: &mut Self) -> u32 {
        let mut moved = 0;
        while let Some(wqe) = other.get(other.head) {
            if !self.append(wqe) {
                break;
            }
            if let Some(addr) = other.addrs.get(other.slot(other.head)) {
                self.put_addr(addr);
            }
            other.head += 1;
            moved += 1;
        }
        moved
    }

    /// Forgets everything; numbers go on.
    pub fn clear(&mut self) {
        self.head = self.tail;
    }

    /// Bytes of memory that the ring takes once all of it has been used.
    pub fn memory_bytes(&self) -> usize {
        self.wqes.capacity() * size_of::<Wqe>()
            + self.sges.capacity() * size_of::<Sge>()
            + self.inline.len()
            + self.addrs.capacity() * size_of::<UdAddr>()
    }

    /// The last element is for `addr`.
    fn put_addr(&mut self, addr: &UdAddr) {
        let slot = self.slot(self.tail - 1);
        match self.addrs.get_mut(slot) {
            Some(there) => *there = *addr,
            // The first time round, as in `append`.
            None => self.addrs.push(*addr),
        }
    }

    fn append(&mut self, from: WqeRef<'_>) -> bool {
        let does_fit = from.sgl.len() <= self.max_sge && from.inline.len() <= self.max_inline;
        debug_assert!(does_fit, "a request that was not checked against the ring's sizes");
        if self.len() >= self.capacity || !does_fit {
            return false;
        }
        let slot = self.slot(self.tail);
        match self.wqes.get_mut(slot) {
            Some(wqe) => *wqe = *from.wqe,
            // The first time round: the tail is the next slot that does not exist yet.
            None => {
                self.wqes.push(*from.wqe);
                self.sges.resize(self.wqes.len() * self.max_sge, Sge::default());
            }
        }
        // Most lists have one element, and copying it is less than calling a function for it.
        match from.sgl {
            [] => {}
            [one] => self.sges[slot * self.max_sge] = *one,
            list => self.sges[slot * self.max_sge..][..list.len()].copy_from_slice(list),
        }
        if !from.inline.is_empty() {
            self.inline[slot * self.max_inline..][..from.inline.len()].copy_from_slice(from.inline);
        }
        self.tail += 1;
        true
    }

    fn slot(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the mask is less than 2^32")]
        let slot = (number & self.mask) as usize;
        slot
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests;
