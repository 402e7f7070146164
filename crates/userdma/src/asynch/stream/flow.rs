//! The counters of a stream: what may be sent, what a message says besides its bytes, what may be read. No IO, no memory.
//!
//! Each side has a ring of `ring` bytes into which the other WRITEs the bytes of the stream, one after the other. A message is a
//! WRITE with immediate data: its length says how many bytes have come, the 32 bits say what the sender has done with the
//! opposite direction.
//!
//! ```text
//!   31    30    29 …… 16                       15 …… 0
//!  ┌─────┬──────┬─────────────────────────────┬───────────────────────────────────────┐
//!  │ END │ GONE │ messages taken, modulo 2^14 │ bytes read, in units of ring / 2^14,  │
//!  │     │      │                             │ rounded down, modulo 2^16             │
//!  └─────┴──────┴─────────────────────────────┴───────────────────────────────────────┘
//! ```
//!
//! *Bytes*: the sender never has more than `ring` bytes in the ring that it does not know to be read. *Messages*: each takes a
//! receive, of which the receiver has posted `messages`; the sender leaves [`RESERVE`] of them to messages without bytes, which
//! tell of credits, the end or the departure, and never wait for credits themselves. So none finds the receive queue empty.
//! Credits travel with whatever is sent; alone only if half of the ring or of the messages is due, so that
//! the sender need not stop as long as this side reads.

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sizes {
    /// Bytes of each ring: a power of two, from 2^14 on.
    pub(super) ring: u32,
    /// Receives that each side has posted: 16 to 4096.
    pub(super) messages: u16,
}

/// Both directions of a stream, as one side knows them. Positions count from the beginning of the stream.
#[derive(Debug)]
pub(super) struct Flow {
    sizes: Sizes,
    /// Written by the program.
    written: u64,
    /// Of these, handed to the device.
    posted: u64,
    /// Of these, read by the peer's program, as far as it has told, in units.
    read_by_peer: u64,
    /// Messages sent, and of these taken by the peer, as far as it has told.
    sent: u64,
    taken_by_peer: u64,
    /// Messages that the device has not completed, and how many of these tell of credits only.
    unanswered: u32,
    is_telling: bool,
    end: Stage,
    gone: Stage,
    /// Arrived in the ring, and of these read by the program.
    arrived: u64,
    read: u64,
    /// Of these, told to the peer, in units.
    read_told: u64,
    /// Messages taken, and of these told to the peer.
    taken: u64,
    taken_told: u64,
    has_ended: bool,
    is_peer_gone: bool,
}

/// How far something has come that is told once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Open,
    Wanted,
    Sent,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Message {
    /// Where its bytes lie, in our copy of the ring and in the ring.
    pub(super) offset: usize,
    /// How many; 0 if it only tells.
    pub(super) len: usize,
    /// The immediate data.
    pub(super) imm: u32,
}

/// Bytes in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    /// Where they start in the ring.
    pub(super) offset: usize,
    /// How many.
    pub(super) len: usize,
}

/// What the peer has told of what it has taken: half a ring or half of the receives at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Progress {
    read_by_peer: u64,
    taken_by_peer: u64,
}

/// The peer has told what cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Violation(pub(super) &'static str);

impl Flow {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            written: 0,
            posted: 0,
            read_by_peer: 0,
            sent: 0,
            taken_by_peer: 0,
            unanswered: 0,
            is_telling: false,
            end: Stage::Open,
            gone: Stage::Open,
            arrived: 0,
            read: 0,
            read_told: 0,
            taken: 0,
            taken_told: 0,
            has_ended: false,
            is_peer_gone: false,
        }
    }

    // The way out.

    /// Where the program's next bytes go, and how many fit in a row.
    pub(super) fn room(&self) -> Span {
        let free = self.ring() - (self.written - self.read_by_peer * self.unit());
        self.span(self.written, free)
    }

    /// The program has written so many bytes where there was room.
    pub(super) fn wrote(&mut self, len: usize) {
        debug_assert!(len <= self.room().len && self.end == Stage::Open);
        self.written += len as u64;
    }

    /// The program writes no more.
    pub(super) fn end(&mut self) {
        if self.end == Stage::Open {
            self.end = Stage::Wanted;
        }
    }

    /// The program has left: it neither writes nor reads any more.
    pub(super) fn leave(&mut self) {
        self.end();
        if self.gone == Stage::Open {
            self.gone = Stage::Wanted;
        }
    }

    /// The next message that can be sent now; it counts as sent.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        if self.is_peer_gone || self.gone == Stage::Sent {
            return None;
        }
        let message = if self.posted < self.written {
            if self.may_send_bytes() { Some(self.bytes()) } else { None }
        } else {
            self.farewell()
        };
        let message = message.or_else(|| self.credits())?;
        self.sent += 1;
        self.unanswered += 1;
        Some(message)
    }

    fn may_send_bytes(&self) -> bool {
        let without_credit = self.sent - self.taken_by_peer;
        without_credit < u64::from(self.sizes.messages) - RESERVE && self.unanswered < UNDER_WAY
    }

    fn bytes(&mut self) -> Message {
        let most = (self.ring() / 4).min(MAX_MESSAGE);
        let Span { offset, len } = self.span(self.posted, (self.written - self.posted).min(most));
        self.posted += len as u64;
        Message { offset, len, imm: self.tell() }
    }

    /// END, or GONE with END, once each.
    fn farewell(&mut self) -> Option<Message> {
        if self.end != Stage::Wanted && self.gone != Stage::Wanted {
            return None;
        }
        self.end = Stage::Sent;
        if self.gone == Stage::Wanted {
            self.gone = Stage::Sent;
        }
        Some(Message { offset: 0, len: 0, imm: self.tell() })
    }

    /// Credits alone, if the peer may wait for them; one such message at a time.
    fn credits(&mut self) -> Option<Message> {
        let bytes = self.read - self.read_told * self.unit();
        let messages = self.taken - self.taken_told;
        let are_due = bytes >= self.ring() / 2 || messages >= u64::from(self.sizes.messages) / 2;
        if !are_due || self.is_telling {
            return None;
        }
        self.is_telling = true;
        Some(Message { offset: 0, len: 0, imm: self.tell() })
    }

    /// The immediate data of a message that is sent now.
    fn tell(&mut self) -> u32 {
        self.read_told = self.read / self.unit();
        self.taken_told = self.taken;
        let flag = |stage, bit| if stage == Stage::Sent { bit } else { 0 };
        flag(self.end, END)
            | flag(self.gone, GONE)
            | low(self.taken, TAKEN_BITS) << 16
            | low(self.read_told, 16)
    }

    /// All messages up to one that the device has completed are answered: `left` are not.
    pub(super) fn answered(&mut self, left: usize) {
        self.unanswered = u32::try_from(left).unwrap_or(u32::MAX);
        self.is_telling &= left > 0;
    }

    /// Whether everything that was written has been handed to the device.
    pub(super) fn is_flushed(&self) -> bool {
        self.posted == self.written
    }

    /// Whether everything that was written, and the end, lie at the peer, if that is still there to be told.
    pub(super) fn is_ended(&self) -> bool {
        let is_told = self.end == Stage::Sent || self.is_peer_gone && self.is_flushed();
        is_told && self.unanswered == 0
    }

    /// Whether the program has ended its writing.
    pub(super) fn is_ending(&self) -> bool {
        self.end != Stage::Open
    }

    /// Whether nothing remains to be done for a program that has left.
    pub(super) fn has_left(&self) -> bool {
        self.is_peer_gone || self.gone == Stage::Sent && self.unanswered == 0
    }

    /// What the peer has told of what it has taken.
    pub(super) fn progress(&self) -> Progress {
        Progress { read_by_peer: self.read_by_peer, taken_by_peer: self.taken_by_peer }
    }

    /// Whether a question would show something: nothing that the peer must answer is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.unanswered == 0 && !self.is_peer_gone
    }

    /// A request that takes no receive is under way.
    pub(super) fn asked(&mut self) {
        self.unanswered += 1;
    }

    // The way in.

    /// A message of `len` bytes has come.
    ///
    /// # Errors
    /// It says what cannot be, or has no place in the ring.
    pub(super) fn received(&mut self, len: u32, imm: u32) -> Result<(), Violation> {
        self.take_credits(imm)?;
        self.taken += 1;
        let len = u64::from(len);
        if len > 0 && self.has_ended {
            return Err(Violation("bytes behind the end of the stream"));
        }
        if self.arrived - self.read + len > self.ring() {
            return Err(Violation("more bytes than the ring has room for"));
        }
        self.arrived += len;
        self.has_ended |= imm & (END | GONE) != 0;
        self.is_peer_gone |= imm & GONE != 0;
        Ok(())
    }

    fn take_credits(&mut self, imm: u32) -> Result<(), Violation> {
        let taken = self.taken_by_peer
            + u64::from((imm >> 16).wrapping_sub(low(self.taken_by_peer, 32)) & mask(TAKEN_BITS));
        let read = self.read_by_peer + u64::from(imm.wrapping_sub(low(self.read_by_peer, 32)) & mask(16));
        if taken > self.sent {
            return Err(Violation("more messages taken than were sent"));
        }
        if read * self.unit() > self.posted {
            return Err(Violation("more bytes read than were sent"));
        }
        (self.taken_by_peer, self.read_by_peer) = (taken, read);
        Ok(())
    }

    /// What the program may read, in a row.
    pub(super) fn readable(&self) -> Span {
        self.span(self.read, self.arrived - self.read)
    }

    /// The program has read so many bytes.
    pub(super) fn did_read(&mut self, len: usize) {
        debug_assert!(len <= self.readable().len);
        self.read += len as u64;
    }

    /// Whether no bytes come any more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the peer's program has left.
    pub(super) fn is_peer_gone(&self) -> bool {
        self.is_peer_gone
    }

    /// `len` bytes from `position` on, as far as they do not go round.
    fn span(&self, position: u64, len: u64) -> Span {
        let offset = position % self.ring();
        let len = len.min(self.ring() - offset);
        // Both are at most the ring's size, 32 bits.
        Span { offset: usize::try_from(offset).unwrap_or(0), len: usize::try_from(len).unwrap_or(0) }
    }

    fn ring(&self) -> u64 {
        self.sizes.ring.into()
    }

    /// Bytes that credits count.
    fn unit(&self) -> u64 {
        self.ring() >> UNITS_LOG2
    }
}

/// The lowest bits of a counter.
fn low(counter: u64, bits: u32) -> u32 {
    let [.., a, b, c, d] = counter.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]) & mask(bits)
}

const fn mask(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

/// The sender writes no more.
const END: u32 = 1 << 31;
/// The sender has left: whatever is sent to it is lost.
const GONE: u32 = 1 << 30;
const TAKEN_BITS: u32 = 14;
/// Units of a ring, so that 16 bits count four rings.
const UNITS_LOG2: u32 = 14;
/// Receives that messages with bytes leave to others.
pub(super) const RESERVE: u64 = 8;
/// Messages that the device may not have completed; what is written meanwhile goes together in the next one.
pub(super) const UNDER_WAY: u32 = 16;
/// Bytes of a message, at most; a quarter of the ring if that is less. The peer may read one while the next one comes.
const MAX_MESSAGE: u64 = 128 << 10;

#[cfg(test)]
mod tests;
