//! Messages that ask for no acknowledgement hold nobody up: with an ACK timeout of hours, everything that waits for an answer
//! gets it all the same, and with losses each message arrives once.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use common::{ALL, LONG, Options, Side, connect, pair_with};
use userdma::{AccessFlags, AckTimeout, AsyncEvent, Mr, QpAttr, QpAttrMask, QpState, RtsAttr, SendFlags};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();
/// 2.4 hours: longer than any test.
const NEVER: u8 = 31;

fn with_timeout(timeout: u8) -> Options {
    let rts = RtsAttr { timeout: AckTimeout::new(timeout).unwrap(), ..RtsAttr::default() };
    Options { rts, ..Options::default() }
}

/// The peer has sent a request just now: a conversation, in which messages ask seldom.
fn hear(a: &Side, b: &Side) {
    a.qp.post_recv(77, ()).unwrap();
    b.qp.post_send(78, (), SIGNALED).unwrap();
    assert_eq!(a.poll().wr_id, 77);
}

/// A pair of which `a` has sent a page that nobody has acknowledged.
fn left_unanswered(a: &Side, b: &Side) -> (Side, Side) {
    let (x, y) = connect(&a.device, &b.device, &with_timeout(NEVER));
    let (data, landing) = (x.mr(4096, 1), y.mr(4096, 0));
    y.qp.post_recv(1, &landing.slice(..)).unwrap();
    hear(&x, &y);
    x.qp.post_send(2, &data.slice(..), UNSIGNALED).unwrap();
    let mut seen = [y.poll().wr_id, y.poll().wr_id];
    seen.sort_unstable();
    assert_eq!(seen, [1, 78]);
    (x, y)
}

/// All queue pairs to one address share a window, and the pages alone fill more than there is: whoever has nothing under way
/// may send one packet all the same.
#[test]
fn unanswered_messages_of_idle_queue_pairs_do_not_stop_others() {
    let (a, b) = pair_with(201, &with_timeout(NEVER));
    let (bulk, sink) = (a.mr(4 << 20, 1), b.mr(4 << 20, 2));
    let pairs: Vec<_> = (0..60).map(|_| left_unanswered(&a, &b)).collect();
    a.qp.post_write(3, &bulk.slice(..), sink.remote(), SIGNALED).unwrap();
    a.done(3);
    drop(pairs);
}

#[test]
fn draining_does_not_wait_for_the_timer() {
    let (a, b) = pair_with(203, &with_timeout(NEVER));
    let (data, landing) = (a.mr(64, 1), b.mr(64, 0));
    b.qp.post_recv(1, &landing.slice(..)).unwrap();
    hear(&a, &b);
    a.qp.post_send(2, &data.slice(..), UNSIGNALED).unwrap();
    let attr = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    a.qp.modify(&attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY).unwrap();
    let event = a.device.wait_event(LONG).unwrap();
    assert!(matches!(event, Some(AsyncEvent::SqDrained { .. })), "{event:?}");
}

#[test]
fn a_local_operation_behind_an_unsignaled_message_does_not_wait_for_the_timer() {
    let (a, b) = pair_with(204, &with_timeout(NEVER));
    let (data, landing) = (a.mr(64, 1), b.mr(64, 0));
    let bound = a.pd.alloc(64, ALL | AccessFlags::MW_BIND).unwrap();
    let mw = a.pd.alloc_mw().unwrap();
    hear(&a, &b);
    a.qp.post_write(2, &data.slice(..), landing.remote(), UNSIGNALED).unwrap();
    a.qp.post_bind_mw(3, &mw, &bound.slice(..), AccessFlags::REMOTE_READ, SIGNALED).unwrap();
    a.done(3);
}

#[test]
fn each_message_arrives_once_and_in_order_though_packets_are_lost() {
    converse(210, "loss=0.05,seed=1");
}

#[test]
fn each_message_arrives_once_and_in_order_on_a_network_that_does_everything_wrong() {
    converse(211, "loss=0.02,dup=0.05,reorder=0.05,corrupt=0.02,seed=2");
}

/// `a` sends numbers, most without a signal, some behind a READ or fenced; `b` writes now and then.
struct Conversation {
    a: Side,
    b: Side,
    numbers: Mr,
    landing: Mr,
    read: Mr,
    posted: u64,
    received: u64,
    /// Sends since the last completion of one.
    unsettled: u64,
}

fn converse(net: u8, faults: &'static str) {
    let (a, b) = pair_with(net, &Options { faults, ..with_timeout(12) });
    let (numbers, landing, read) = (a.mr(8 * MESSAGES as usize, 1), b.mr(4096, 0), a.mr(4096, 0));
    let mut all = Conversation { a, b, numbers, landing, read, posted: 0, received: 0, unsettled: 0 };
    let started = userdma::uptime();
    while all.received < MESSAGES {
        let took = userdma::uptime() - started;
        assert!(took < 3 * LONG.unwrap(), "{} posted, {} received", all.posted, all.received);
        while all.posted < MESSAGES && all.posted < all.received + 16 && all.unsettled < 60 {
            all.post();
        }
        all.take();
    }
    assert!(all.a.device.fault_stats().unwrap().lost > 0);
}

impl Conversation {
    fn post(&mut self) {
        let Self { a, b, posted: n, .. } = self;
        let (at, landing) = (*n as usize * 8, place(*n));
        b.qp.post_recv(*n, &self.landing.slice(landing..landing + 8)).unwrap();
        self.numbers.store(at, *n + 1).unwrap();
        if n.is_multiple_of(13) {
            a.qp.post_read(1, &self.read.slice(..), self.landing.remote(), UNSIGNALED).unwrap();
        }
        let mut flags = if n.is_multiple_of(7) { SIGNALED } else { UNSIGNALED };
        flags.set(SendFlags::FENCE, n.is_multiple_of(11));
        a.qp.post_send(2, &self.numbers.slice(at..at + 8), flags).unwrap();
        if n.is_multiple_of(5) {
            // It is a conversation; whether there is room does not matter.
            let _ = b.qp.post_write(5, &self.landing.slice(2048..2056), self.read.remote(), UNSIGNALED);
        }
        self.posted += 1;
        self.unsettled += 1;
    }

    fn take(&mut self) {
        while let Some(wc) = self.a.cq.poll_one().unwrap() {
            assert_eq!(wc.status, userdma::WcStatus::Success, "{wc:?}");
            self.unsettled = 0;
        }
        while let Some(wc) = self.b.cq.poll_one().unwrap() {
            assert_eq!((wc.status, wc.wr_id), (userdma::WcStatus::Success, self.received));
            let number = self.landing.load(place(self.received)).unwrap();
            self.received += 1;
            assert_eq!(number, self.received);
        }
    }
}

/// Where message `n` lands.
fn place(n: u64) -> usize {
    n as usize % 64 * 8
}

const MESSAGES: u64 = 800;
