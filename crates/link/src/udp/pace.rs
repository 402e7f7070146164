//! How to receive next: how many messages to ask for, and how much to ask about them.
//!
//! Asking for messages that are not there costs time, which a lone packet has to wait for; so does asking about them.
//! `recvmsg` tells the traffic class and how the kernel joined packets; `recvfrom` takes two thirds of its time, in vain too,
//! which is how a polling program calls it mostly. So when packets have come one by one for a while, and no
//! router may have marked them (RFC 3168 §5: it marks only what was sent as capable of it), the kernel is told not to
//! join packets, and most are received by `recvfrom`. A crowd ends that, or a packet that may be marked.

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
    manner: Manner,
    /// Messages of lone packets in this manner.
    lone: u32,
    /// The manner stays as it is.
    is_fixed: bool,
}

/// What is asked about packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manner {
    /// Everything.
    Whole,
    /// Everything; the kernel does not join packets any more, but some that it joined before may still come.
    Parting,
    /// Where they are from. Now and then everything.
    Brief,
}

/// What changes with a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// The kernel is to join packets from now on.
    Join,
    /// The kernel is not to join packets any more.
    Part,
}

impl Pace {
    /// Asks for at most `most` messages.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ask: 1, row: 0, crowd: 0, manner: Manner::Whole, lone: 0, is_fixed: false }
    }

    /// Messages to ask for.
    #[inline]
    pub(super) fn ask(&self) -> usize {
        self.ask
    }

    /// Whether the next message need only tell where it is from.
    #[inline]
    pub(super) fn is_brief(&self) -> bool {
        self.manner == Manner::Brief && !self.lone.is_multiple_of(SAMPLE)
    }

    /// Nothing was there.
    #[inline]
    pub(super) fn on_lull(&mut self) {
        (self.ask, self.row, self.crowd) = (1, 0, 0);
    }

    /// Something was sent.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.crowd = 0;
    }

    /// That many messages came; `are_plain` if each was a packet, or two, that no router may have marked. Whether as many as asked
    /// for, so that there may be more, and what changes.
    #[inline]
    pub(super) fn on_messages(&mut self, came: usize, are_plain: bool) -> (bool, Change) {
        let all = came == self.ask;
        self.row = if all { self.row.saturating_add(came) } else { 0 };
        self.crowd = self.crowd.saturating_add(came);
        // Brief messages are received one by one.
        let is_single = self.row < CROWD || self.manner == Manner::Brief;
        self.ask = if is_single { 1 } else { (self.ask * 2).min(self.most) };
        (all, self.change_manner(are_plain && self.crowd < CROWD && self.row < BACKLOG))
    }

    /// Asks everything about every packet, for good.
    pub(super) fn stay_whole(&mut self) {
        (self.manner, self.is_fixed) = (Manner::Whole, true);
    }

    #[inline]
    fn change_manner(&mut self, is_lone: bool) -> Change {
        if !is_lone {
            self.lone = 0;
            let before = std::mem::replace(&mut self.manner, Manner::Whole);
            return if before == Manner::Whole { Change::None } else { Change::Join };
        }
        self.lone = self.lone.wrapping_add(1);
        match self.manner {
            Manner::Whole if self.lone >= LONE && !self.is_fixed => {
                (self.manner, self.lone) = (Manner::Parting, 0);
                return Change::Part;
            }
            Manner::Parting if self.lone >= PARTING => (self.manner, self.lone) = (Manner::Brief, 1),
            Manner::Whole | Manner::Parting | Manner::Brief => {}
        }
        Change::None
    }
}

/// Messages in a row that are no longer lone.
const CROWD: usize = 3;
/// Messages without a lull that are a crowd though they are answered one by one.
const BACKLOG: usize = 16;
/// Lone packets in a row after which joining is given up: so many that programs which send in crowds now and then keep it.
const LONE: u32 = 64;
/// Lone packets after which nothing comes that was joined before. What another processor was about to queue when joining
/// ended has been queued long since.
const PARTING: u32 = 32;
/// Of so many lone packets one is asked everything about.
const SAMPLE: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A lone packet and a lull after it; what changed.
    fn lone(pace: &mut Pace) -> Change {
        let (_, change) = pace.on_messages(1, true);
        pace.on_lull();
        change
    }

    fn brief() -> Pace {
        let mut pace = Pace::new(4);
        let changes: Vec<_> = (0..LONE + PARTING).map(|_| lone(&mut pace)).collect();
        assert_eq!(changes.iter().filter(|c| **c == Change::Part).count(), 1);
        assert!(!changes.contains(&Change::Join) && pace.is_brief());
        pace
    }

    #[test]
    fn messages_in_a_row_are_asked_for_together_and_a_lull_ends_it() {
        let mut pace = Pace::new(4);
        let asked: Vec<_> = (0..6)
            .map(|_| {
                let ask = pace.ask();
                assert!(pace.on_messages(ask, true).0);
                ask
            })
            .collect();
        assert_eq!(asked, [1, 1, 1, 2, 4, 4]);
        assert!(!pace.on_messages(3, true).0);
        assert_eq!(pace.ask(), 1);
    }

    #[test]
    fn lone_packets_part_and_are_asked_little() {
        let mut pace = Pace::new(4);
        for _ in 0..LONE - 1 {
            assert_eq!(lone(&mut pace), Change::None);
        }
        assert_eq!(lone(&mut pace), Change::Part);
        for _ in 0..PARTING {
            assert!(!pace.is_brief(), "what was joined before may still come");
            assert_eq!(lone(&mut pace), Change::None);
        }
        let briefs = (0..10 * SAMPLE).filter(|_| (pace.is_brief(), lone(&mut pace)).0).count();
        assert_eq!(briefs, (10 * (SAMPLE - 1)) as usize, "one of {SAMPLE} tells everything");
    }

    #[test]
    fn a_crowd_a_joined_or_a_markable_packet_ends_it() {
        let mut crowd = brief();
        let changes = [(); 3].map(|()| crowd.on_messages(1, true).1);
        assert_eq!(changes, [Change::None, Change::None, Change::Join]);
        assert!(!crowd.is_brief());

        let mut answered = brief();
        let changes = [(); BACKLOG].map(|()| {
            answered.on_sent();
            answered.on_messages(1, true).1
        });
        assert_eq!(changes.iter().position(|c| *c == Change::Join), Some(BACKLOG - 1));

        let mut markable = brief();
        assert_eq!(markable.on_messages(1, false).1, Change::Join);
        assert_eq!(markable.on_messages(1, false).1, Change::None);

        let mut parting = Pace::new(4);
        while lone(&mut parting) != Change::Part {}
        assert_eq!(parting.on_messages(1, false).1, Change::Join);
    }

    #[test]
    fn a_kernel_that_cannot_part_is_asked_everything() {
        let mut pace = Pace::new(4);
        while lone(&mut pace) != Change::Part {}
        pace.stay_whole();
        for _ in 0..10 * LONE {
            assert_eq!(lone(&mut pace), Change::None);
            assert!(!pace.is_brief());
        }
    }

    #[test]
    fn now_and_then_a_crowd_keeps_joining() {
        let mut pace = Pace::new(4);
        for _ in 0..100 {
            for _ in 0..LONE / 2 {
                assert_eq!(lone(&mut pace), Change::None);
            }
            assert_eq!(pace.on_messages(1, false).1, Change::None);
        }
    }
}
