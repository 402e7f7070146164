//! The window towards one destination socket: how many bytes may be under way to it.
//!
//! A receiver's socket buffer is shared by all queue pairs of its process, holds some 50 packets of 4 KiB at the usual
//! default and drops what does not fit; the transport has no other sign of it than loss. So the window starts
//! small, grows by a packet each window that was acknowledged, and is halved by loss, as TCP's.

/// Bytes that may be, and are, under way to one destination.
#[derive(Debug)]
pub struct Window {
    limit: u32,
    ceiling: u32,
    max: u32,
    in_flight: u32,
    acked: u32,
}

impl Window {
    /// The window that a new destination gets: 128 KiB.
    pub const INITIAL: u32 = 128 << 10;
    /// The smallest: two packets of the largest MTU.
    pub const MIN: u32 = 10 << 10;
    /// The largest, unless configured: 1 MiB.
    pub const MAX: u32 = 1 << 20;

    /// A window that may grow to `max` bytes.
    pub fn new(max: u32) -> Self {
        let max = max.max(Self::MIN);
        Self { limit: Self::INITIAL.min(max), ceiling: max, max, in_flight: 0, acked: 0 }
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
    }

    /// Something was lost: halves the window. Callers see to it that one loss is reported once.
    pub fn on_loss(&mut self) {
        self.ceiling = (self.limit / 8 * 7).max(Self::MIN);
        self.limit = (self.limit / 2).max(Self::MIN);
        self.acked = 0;
    }
}

/// Growth a step: about one packet of the largest MTU.
const GROWTH: u32 = 4 << 10;

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
        w.on_loss();
        assert_eq!(w.limit(), (start + GROWTH) / 2);
        for _ in 0..100 {
            w.on_loss();
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
        w.on_loss();
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
}
