//! How to receive next: how many messages to ask for, and how much to ask about them.
//!
//! Asking for messages that are not there costs time, which a lone packet has to wait for; so does asking about them.
//! `recvmsg` tells the traffic class and how the kernel coalesced packets; `recvfrom` costs less, in vain too, which is how
//! a polling program calls it mostly. So when packets have come one by one for a while, and no router may have marked
//! them (RFC 3168 §5: it marks only what was sent as capable of it), coalescing is switched off and most packets are
//! received by `recvfrom`: *briefly*. A crowd ends that, or a packet that may be marked.

/// What the next receive is to be, from what the last ones brought.
#[derive(Debug)]
pub(super) struct Pace {
    /// Most messages to ask for.
    most: usize,
    /// Messages to ask for next: doubled while all that was asked for comes, one after a lull and for the first few.
    ask: usize,
    /// Messages since the last lull.
    row: usize,
    /// Messages since the last lull, or since something was sent: whoever answers each message at once is often late for
    /// the next, and meets no crowd for that.
    crowd: usize,
    /// Lone packets since the last that was not.
    lone: u32,
    is_brief: bool,
    /// Never briefly.
    is_whole: bool,
}

impl Pace {
    /// Asks for at most `most` messages.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ask: 1, row: 0, crowd: 0, lone: 0, is_brief: false, is_whole: false }
    }

    /// Messages to ask for.
    #[inline]
    pub(super) fn ask(&self) -> usize {
        self.ask
    }

    /// Whether coalescing is off and most packets are received briefly.
    #[inline]
    pub(super) fn is_brief(&self) -> bool {
        self.is_brief
    }

    /// Whether everything is to be asked about the next message, though receiving is brief: now and then.
    #[inline]
    pub(super) fn is_sample(&self) -> bool {
        self.lone.is_multiple_of(SAMPLE)
    }

    /// Nothing was there. Whether it is time to receive briefly.
    #[inline]
    pub(super) fn on_lull(&mut self) -> bool {
        (self.ask, self.row, self.crowd) = (1, 0, 0);
        self.lone >= LONE && !self.is_brief && !self.is_whole
    }

    /// Coalescing was switched off, and nothing is queued that was coalesced before.
    pub(super) fn begin_brief(&mut self) {
        (self.is_brief, self.lone) = (true, 1);
    }

    /// Coalescing cannot be switched off: never briefly.
    pub(super) fn stay_whole(&mut self) {
        self.is_whole = true;
    }

    /// Something was sent.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.crowd = 0;
    }

    /// That many messages came; `are_plain` if each was a packet, or two, that no router may have marked. Whether this ends
    /// brief receiving, so that coalescing is to be switched on.
    #[inline]
    pub(super) fn on_messages(&mut self, came: usize, are_plain: bool) -> bool {
        self.row = if came >= self.ask { self.row.saturating_add(came) } else { 0 };
        self.crowd = self.crowd.saturating_add(came);
        let is_lone = are_plain && self.crowd < CROWD && self.row < BACKLOG;
        self.lone = if is_lone { self.lone.saturating_add(1) } else { 0 };
        let ends = self.is_brief && !is_lone;
        self.is_brief &= is_lone;
        // Brief messages are received one by one.
        let is_single = self.row < CROWD || self.is_brief;
        self.ask = if is_single { 1 } else { (self.ask * 2).min(self.most) };
        ends
    }
}

/// Messages in a row that are no longer lone.
const CROWD: usize = 3;
/// Messages without a lull that are a crowd though they are answered one by one.
const BACKLOG: usize = 16;
/// Lone packets in a row after which coalescing is switched off: so many that programs which send in crowds now and then
/// keep it.
const LONE: u32 = 64;
/// Of so many lone packets one is asked everything about. A prime, to be out of step with senders.
const SAMPLE: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// A lone packet and a lull after it; whether it is time to receive briefly.
    fn lone(pace: &mut Pace) -> bool {
        assert!(!pace.on_messages(1, true));
        pace.on_lull()
    }

    fn brief() -> Pace {
        let mut pace = Pace::new(4);
        while !lone(&mut pace) {}
        pace.begin_brief();
        assert!(pace.is_brief());
        pace
    }

    #[test]
    fn messages_in_a_row_are_asked_for_together_and_a_lull_ends_it() {
        let mut pace = Pace::new(4);
        let asked: Vec<_> = (0..6)
            .map(|_| {
                let ask = pace.ask();
                pace.on_messages(ask, true);
                ask
            })
            .collect();
        assert_eq!(asked, [1, 1, 1, 2, 4, 4]);
        pace.on_messages(3, true);
        assert_eq!(pace.ask(), 1);
    }

    #[test]
    fn many_lone_packets_are_received_briefly_but_for_some() {
        let mut pace = Pace::new(4);
        for _ in 0..LONE - 1 {
            assert!(!lone(&mut pace));
        }
        assert!(lone(&mut pace));
        assert!(lone(&mut pace), "also later, if it could not be done at once");
        pace.begin_brief();
        let samples = (0..10 * SAMPLE).filter(|_| {
            let is_sample = pace.is_sample();
            assert!(pace.is_brief() && !lone(&mut pace));
            is_sample
        });
        assert_eq!(samples.count(), 10);
    }

    #[test]
    fn a_crowd_or_a_markable_packet_ends_it() {
        let mut crowd = brief();
        assert_eq!([(); 3].map(|()| crowd.on_messages(1, true)), [false, false, true]);
        assert!(!crowd.is_brief());

        let mut markable = brief();
        assert!(markable.on_messages(1, false));
        assert!(!markable.on_messages(1, false), "it has ended");
    }

    /// Whoever answers each message, and finds the next one there already, is asked for one at a time all the while.
    #[test]
    fn answering_one_by_one_is_no_crowd_but_a_backlog_is() {
        let mut pace = brief();
        let ends = [(); BACKLOG].map(|()| {
            assert_eq!(pace.ask(), 1);
            pace.on_sent();
            pace.on_messages(1, true)
        });
        assert_eq!(ends.iter().position(|ends| *ends), Some(BACKLOG - 1));
        assert_eq!(pace.ask(), 2);
    }

    #[test]
    fn a_kernel_that_cannot_part_is_asked_everything() {
        let mut pace = Pace::new(4);
        while !lone(&mut pace) {}
        pace.stay_whole();
        assert!(!(0..10 * LONE).any(|_| lone(&mut pace)));
    }

    #[test]
    fn now_and_then_a_crowd_keeps_coalescing() {
        let mut pace = Pace::new(4);
        for _ in 0..100 {
            assert!(!(0..LONE / 2).any(|_| lone(&mut pace)));
            pace.on_messages(1, false);
        }
    }
}
