//! Two sides and the wires between them, in any order that a network and two programs can bring about.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A side, with its memory.
struct Side {
    flow: Flow,
    ring: Vec<u8>,
    out: Vec<u8>,
    /// Sent, and not arrived at the peer.
    wire: VecDeque<Message>,
    /// Arrived at the peer, and not completed here.
    unanswered: usize,
    /// Arrived here, and not looked at.
    waiting: VecDeque<(u32, u32)>,
    /// Receives that are posted.
    receives: usize,
    /// Bytes that the program has written and read; each is a function of its position.
    written: u64,
    read: u64,
}

/// What happens next, on a side.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    /// The oldest message on this side's wire arrives.
    Arrive,
    /// What has arrived is acknowledged.
    Complete,
    /// What has arrived here is looked at.
    Look,
    End,
    Leave,
}

impl Side {
    fn new(sizes: Sizes) -> Self {
        let len = sizes.ring as usize;
        Self {
            flow: Flow::new(sizes),
            ring: vec![0; len],
            out: vec![0; len],
            wire: VecDeque::new(),
            unanswered: 0,
            waiting: VecDeque::new(),
            receives: sizes.messages.into(),
            written: 0,
            read: 0,
        }
    }

    fn write(&mut self, len: usize) {
        if self.flow.is_ending() {
            return;
        }
        let room = self.flow.room();
        let len = len.min(room.len);
        for i in 0..len {
            self.out[room.offset + i] = byte_at(self.written + i as u64);
        }
        self.written += len as u64;
        self.flow.wrote(len);
    }

    fn read(&mut self, len: usize) -> usize {
        let span = self.flow.readable();
        let len = len.min(span.len);
        for i in 0..len {
            assert_eq!(
                self.ring[span.offset + i],
                byte_at(self.read + i as u64),
                "byte {}",
                self.read + i as u64
            );
        }
        self.read += len as u64;
        self.flow.did_read(len);
        len
    }

    fn look(&mut self) {
        for (len, imm) in std::mem::take(&mut self.waiting) {
            self.flow.received(len, imm).expect("a peer that keeps to the protocol");
            self.receives += 1;
        }
    }

    fn complete(&mut self) {
        self.unanswered = 0;
        self.flow.answered(self.wire.len());
    }

    fn send(&mut self) {
        while let Some(message) = self.flow.next_message() {
            assert!(message.len <= self.ring.len() / 4);
            self.wire.push_back(message);
            assert!(self.wire.len() + self.unanswered <= UNDER_WAY as usize + 3, "places of the send queue");
        }
    }

    /// The oldest message of this side's wire arrives at `peer`, with the bytes that lie in this side's memory now.
    fn arrive(&mut self, peer: &mut Self) {
        let Some(Message { offset, len, imm }) = self.wire.pop_front() else { return };
        assert!(peer.receives > 0, "no message finds the receive queue empty");
        peer.receives -= 1;
        peer.ring[offset..offset + len].copy_from_slice(&self.out[offset..offset + len]);
        peer.waiting.push_back((u32::try_from(len).unwrap(), imm));
        self.unanswered += 1;
    }
}

fn byte_at(position: u64) -> u8 {
    position.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

fn step(sides: &mut [Side; 2], which: usize, step: Step) {
    let [a, b] = sides;
    let (this, other) = if which == 0 { (a, b) } else { (b, a) };
    match step {
        Step::Write(len) => this.write(len),
        Step::Read(len) => drop(this.read(len)),
        Step::Arrive => this.arrive(other),
        Step::Complete => this.complete(),
        Step::Look => this.look(),
        Step::End => this.flow.end(),
        Step::Leave => this.flow.leave(),
    }
    this.send();
}

/// Everything that is under way arrives; nobody reads or writes. Two sides must come to rest.
fn settle(sides: &mut [Side; 2]) {
    for _ in 0..100_000 {
        for which in [0, 1] {
            while !sides[which].wire.is_empty() {
                step(sides, which, Step::Arrive);
            }
            step(sides, which, Step::Complete);
            step(sides, 1 - which, Step::Look);
        }
        if sides.iter().all(|side| side.wire.is_empty() && side.waiting.is_empty() && side.unanswered == 0) {
            return;
        }
    }
    panic!("they never come to rest");
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![1..64_usize, 1..20_000_usize].prop_map(Step::Write),
        4 => prop_oneof![1..64_usize, 1..20_000_usize].prop_map(Step::Read),
        8 => Just(Step::Arrive),
        3 => Just(Step::Complete),
        3 => Just(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: bytes come as they went, no message finds the receive queue empty, and when
    /// everything has arrived and been read there is room to write again.
    #[test]
    fn bytes_come_as_they_went_and_nobody_waits_for_ever(
        ring_log2 in 14..17_u32,
        messages in prop_oneof![Just(16_u16), 16..100_u16],
        steps in prop::collection::vec((0..2_usize, any_step()), 1..1500),
    ) {
        let sizes = Sizes { ring: 1 << ring_log2, messages };
        let mut sides = [Side::new(sizes), Side::new(sizes)];
        for (which, what) in steps {
            step(&mut sides, which, what);
        }
        settle(&mut sides);
        for which in [0, 1] {
            prop_assert!(sides[which].flow.is_flushed(), "what was written is sent without anybody reading");
            while sides[which].flow.readable().len > 0 {
                step(&mut sides, which, Step::Read(usize::MAX));
            }
        }
        settle(&mut sides);
        for which in [0, 1] {
            prop_assert_eq!(sides[which].read, sides[1 - which].written);
            prop_assert!(sides[which].flow.room().len > 0);
            step(&mut sides, which, Step::End);
        }
        settle(&mut sides);
        prop_assert!(sides.iter().all(|side| side.flow.has_ended() && side.flow.is_ended()));
    }

    /// Any 32 bits and any length are taken or refused, and what is taken keeps the counters in order.
    #[test]
    fn a_peer_may_tell_anything(tells in prop::collection::vec((any::<u32>(), any::<u32>()), 1..50)) {
        let mut flow = Flow::new(Sizes { ring: 1 << 14, messages: 16 });
        flow.wrote(100);
        let _ = flow.next_message();
        for (len, imm) in tells {
            if flow.received(len, imm).is_err() {
                break;
            }
            prop_assert!(flow.readable().len <= 1 << 14 && flow.room().len <= 1 << 14);
            let _ = flow.next_message();
        }
    }
}

fn pair() -> [Side; 2] {
    let sizes = Sizes { ring: 1 << 14, messages: 16 };
    [Side::new(sizes), Side::new(sizes)]
}

/// As TCP: both wait for the other to read, and go on when it does.
#[test]
fn two_sides_that_only_write_fill_the_rings_and_go_on_when_one_reads() {
    let mut sides = pair();
    for _ in 0..10 {
        for which in [0, 1] {
            step(&mut sides, which, Step::Write(usize::MAX));
        }
        settle(&mut sides);
    }
    assert!(sides.iter().all(|side| side.written == 1 << 14 && side.flow.room().len == 0));
    for (room, total) in [(0, 4096), (8192, 8192)] {
        step(&mut sides, 0, Step::Read(4096));
        settle(&mut sides);
        assert_eq!(sides[1].flow.room().len, room, "after {total}");
        assert_eq!(sides[0].flow.room().len, 0);
    }
}

#[test]
fn small_writes_go_together_while_many_messages_are_under_way() {
    let mut sides = pair();
    for _ in 0..100 {
        step(&mut sides, 0, Step::Write(10));
    }
    // 16 receives, of which 8 are reserved.
    assert_eq!(sides[0].wire.len(), 8);
    settle(&mut sides);
    assert_eq!(sides[1].flow.readable().len, 1000);
    assert!(sides[0].flow.sent <= 10, "{}", sides[0].flow.sent);
}

#[test]
fn credits_are_told_with_what_is_sent_and_alone_only_if_much_is_due() {
    let mut sides = pair();
    for _ in 0..100 {
        step(&mut sides, 0, Step::Write(100));
        settle(&mut sides);
        step(&mut sides, 1, Step::Read(usize::MAX));
        step(&mut sides, 1, Step::Write(100));
        settle(&mut sides);
        step(&mut sides, 0, Step::Read(usize::MAX));
    }
    assert_eq!(sides.each_ref().map(|side| side.flow.sent), [100, 100], "a conversation needs no more");
    for _ in 0..100 {
        step(&mut sides, 0, Step::Write(100));
        settle(&mut sides);
        step(&mut sides, 1, Step::Read(usize::MAX));
    }
    settle(&mut sides);
    let alone = sides[1].flow.sent - 100;
    assert!((10..=14).contains(&alone), "each 8 of 100 messages: {alone}");
}

#[test]
fn the_end_comes_behind_the_bytes_and_the_other_direction_goes_on() {
    let mut sides = pair();
    step(&mut sides, 0, Step::Write(1000));
    step(&mut sides, 0, Step::End);
    assert!(!sides[0].flow.is_ended());
    settle(&mut sides);
    assert!(sides[0].flow.is_ended() && sides[1].flow.has_ended() && !sides[1].flow.is_peer_gone());
    assert_eq!(sides[1].read(usize::MAX), 1000);
    step(&mut sides, 1, Step::Write(5000));
    settle(&mut sides);
    assert_eq!(sides[0].read(usize::MAX), 5000);
}

#[test]
fn who_leaves_sends_what_it_has_written_and_is_told_nothing_more() {
    let mut sides = pair();
    for _ in 0..30 {
        step(&mut sides, 0, Step::Write(100));
    }
    step(&mut sides, 0, Step::Leave);
    assert!(!sides[0].flow.has_left());
    settle(&mut sides);
    assert!(sides[0].flow.has_left() && sides[1].flow.is_peer_gone());
    assert_eq!(sides[1].read(usize::MAX), 3000);
    step(&mut sides, 1, Step::Write(100));
    step(&mut sides, 1, Step::Leave);
    assert!(sides[1].wire.is_empty() && sides[1].flow.has_left());
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |len, imm| {
        let mut flow = Flow::new(Sizes { ring: 1 << 14, messages: 16 });
        flow.received(len, imm).unwrap_err().0
    };
    assert_eq!(refused((1 << 14) + 1, 0), "more bytes than the ring has room for");
    assert_eq!(refused(u32::MAX, 0), "more bytes than the ring has room for");
    assert_eq!(refused(0, 1), "more bytes read than were sent");
    assert_eq!(refused(0, 1 << 16), "more messages taken than were sent");
    let mut flow = Flow::new(Sizes { ring: 1 << 14, messages: 16 });
    flow.received(10, END).unwrap();
    assert_eq!(flow.received(1, END).unwrap_err().0, "bytes behind the end of the stream");
}
