//! The window towards one destination socket: how many bytes may be under way to it.
//!
//! A receiver's socket buffer is shared by all queue pairs of its process, holds some 50 packets of 4 KiB at the usual
//! default and drops what does not fit; the transport has no other sign of it than loss. So the window starts
//! small, grows by a packet each window that was acknowledged, and is halved by loss, as TCP's.
//!
//! Packets are also lost by chance. A window that is halved each time ends at a few packets, on a path that has room. What
//! tells the two apart is the queue: where packets overflow one, they have waited in it. So a loss while next to nothing waits
//! takes an eighth only.

/// Bytes that may be, and are, under way to one destination.
#[derive(Debug)]
pub struct Window {
    limit: u32,
    ceiling: u32,
    max: u32,
    in_flight: u32,
    acked: u32,
    /// Bytes that were under way at the last loss and still are: what is lost among them is of the same event.
    shared_fate: u32,
}

impl Window {
    /// The window that a new destination gets: 128 KiB.
    pub const INITIAL: u32 = 128 << 10;
    /// The smallest: four packets of the largest MTU. With fewer, most losses have nothing behind them that would show them.
    pub const MIN: u32 = 17 << 10;
    /// The largest, unless configured: 1 MiB.
    pub const MAX: u32 = 1 << 20;

    /// A window that may grow to `max` bytes.
    pub fn new(max: u32) -> Self {
        let max = max.max(Self::MIN);
        Self { limit: Self::INITIAL.min(max), ceiling: max, max, in_flight: 0, acked: 0, shared_fate: 0 }
    }

    /// Bytes that may be under way.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Bytes under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether `cost` more bytes fit.
    pub fn has_room(&self, cost: u32) -> bool {
        self.in_flight.saturating_add(cost) <= self.limit
    }

    /// Bytes were sent.
    pub fn on_sent(&mut self, cost: u32) {
        self.in_flight = self.in_flight.saturating_add(cost);
    }

    /// Bytes were acknowledged: grows the window by one packet each window's worth, more slowly above the size at
    /// which loss was seen last.
    pub fn on_acked(&mut self, cost: u32) {
        self.forget(cost);
        self.acked = self.acked.saturating_add(cost);
        let step = if self.limit < self.ceiling { self.limit } else { self.limit.saturating_mul(16) };
        if self.acked >= step {
            self.acked = 0;
            self.limit = self.limit.saturating_add(GROWTH).min(self.max);
        }
    }

    /// Bytes are no longer under way, without being acknowledged: they will be sent again, or never.
    pub fn forget(&mut self, cost: u32) {
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.shared_fate = self.shared_fate.saturating_sub(cost);
    }

    /// Something was lost while `queued` bytes of the window waited in queues: halves the window, or takes an eighth if hardly
    /// any did. Once for all that is under way now. Callers see to it that what one of them sends again is not reported.
    pub fn on_loss(&mut self, queued: u32) {
        if self.shared_fate > 0 {
            return;
        }
        self.shared_fate = self.in_flight;
        self.acked = 0;
        if queued < QUEUED {
            self.limit = (self.limit / 8 * 7).max(Self::MIN);
            return;
        }
        self.ceiling = (self.limit / 8 * 7).max(Self::MIN);
        self.limit = (self.limit / 2).max(Self::MIN);
    }
}

/// Growth a step: about one packet of the largest MTU.
const GROWTH: u32 = 4 << 10;
/// Bytes in queues, two packets and a half of the largest MTU, below which a loss is taken for chance.
const QUEUED: u32 = 10 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_additively_and_halves_on_loss() {
        let mut w = Window::new(Window::MAX);
        let start = w.limit();
        w.on_sent(start);
        assert!(!w.has_room(1));
        w.on_acked(start);
        assert_eq!((w.limit(), w.in_flight()), (start + GROWTH, 0));
        w.on_loss(u32::MAX);
        assert_eq!(w.limit(), (start + GROWTH) / 2);
        for _ in 0..100 {
            w.on_loss(u32::MAX);
        }
        assert_eq!(w.limit(), Window::MIN);
    }

    #[test]
    fn never_exceeds_its_maximum() {
        let mut w = Window::new(140 << 10);
        for _ in 0..1000 {
            w.on_sent(100_000);
            w.on_acked(100_000);
        }
        assert_eq!(w.limit(), 140 << 10);
    }

    #[test]
    fn above_the_last_loss_it_grows_sixteen_times_more_slowly() {
        let mut w = Window::new(Window::MAX);
        w.on_loss(u32::MAX);
        let acks = |w: &mut Window| {
            let (limit, mut n) = (w.limit(), 0);
            while w.limit() == limit {
                w.on_acked(limit / 4);
                n += 1;
            }
            n
        };
        let slow = acks(&mut w);
        while w.limit() < w.ceiling {
            w.on_acked(w.limit());
        }
        assert_eq!((slow, acks(&mut w)), (4, 64));
    }

    #[test]
    fn a_loss_without_a_queue_takes_an_eighth_and_says_nothing_about_the_paths_size() {
        let mut w = Window::new(Window::MAX);
        w.on_loss(QUEUED - 1);
        assert_eq!((w.limit(), w.ceiling), (Window::INITIAL / 8 * 7, Window::MAX));
        w.on_loss(QUEUED);
        assert_eq!(w.limit(), Window::INITIAL / 16 * 7);
        assert!(w.ceiling < Window::INITIAL);
    }

    #[test]
    fn what_was_under_way_together_is_lost_together() {
        let mut w = Window::new(Window::MAX);
        w.on_sent(100_000);
        w.on_loss(u32::MAX);
        let limit = w.limit();
        w.forget(40_000);
        w.on_acked(59_999);
        w.on_loss(u32::MAX);
        assert_eq!(w.limit(), limit, "of the same event");
        w.on_acked(1);
        w.on_loss(u32::MAX);
        assert_eq!(w.limit(), limit / 2);
    }
}
