//! Every interleaving of the device, callers that poll, and callers that arm the queue and sleep.
//!
//! Nobody sleeps in a model: who would, ends, and what it left is looked at afterwards. Where a thread looks without the
//! lock, the others do not: of two loads in a row loom remembers the second, and would try too few interleavings.

use std::sync::Arc;

use loom::thread;
use userdma_verbs::{Qpn, WcOpcode};

use super::*;

fn wc(wr_id: u64) -> Wc {
    Wc::new(wr_id, WcStatus::Success, WcOpcode::Send, Qpn::new(1))
}

/// All interleavings, however often threads interrupt each other: the models are small, and an overflow that a sleeper
/// misses takes more interruptions than the suite allows.
fn model(threads: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(threads);
}

/// At most two completions, by one poll.
fn poll(cq: &Cq) -> Vec<u64> {
    take_by(|out| cq.poll(out))
}

/// The same by a poll that takes the lock in any case.
fn take(cq: &Cq) -> Vec<u64> {
    take_by(|out| cq.take(out, || false))
}

fn take_by(take: impl FnOnce(&mut [Wc]) -> usize) -> Vec<u64> {
    let mut out = [wc(u64::MAX); 2];
    let taken = take(&mut out);
    out[..taken].iter().map(|wc| wc.wr_id).collect()
}

/// Starts another caller, which polls once.
fn poller(cq: &Arc<Cq>) -> thread::JoinHandle<Vec<u64>> {
    let cq = Arc::clone(cq);
    thread::spawn(move || take(&cq))
}

/// A queue that reports to a channel.
fn queue(cqe: u32) -> Arc<Cq> {
    Arc::new(Cq::new(7, cqe, Some(Arc::new(CompChannel::new(0)))))
}

fn events(cq: &Cq) -> usize {
    cq.channel().map_or(0, |channel| channel.pending())
}

/// Starts the device, which adds these completions one after another; what became of them.
fn device<const N: usize>(cq: &Arc<Cq>, completions: [(u64, bool); N]) -> thread::JoinHandle<[Pushed; N]> {
    let cq = Arc::clone(cq);
    thread::spawn(move || completions.map(|(wr_id, solicited)| cq.push(wc(wr_id), solicited)))
}

/// The loop of whoever waits: arm, look, take. Returns when it would sleep, or with `count` completions.
fn wait(cq: &Cq, arm: Arm, count: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    while taken.len() < count {
        cq.arm(arm);
        if !cq.has_news() {
            break;
        }
        taken.extend(take(cq));
    }
    taken
}

/// The ring's tail goes past its end; two callers poll beside the device.
#[test]
fn each_completion_is_taken_once_and_in_order() {
    model(|| {
        let cq = queue(2);
        assert_eq!(cq.push(wc(0), false), Pushed::Quiet);
        assert_eq!(poll(&cq), [0], "the tail is at the last slot");
        let device = device(&cq, [(1, false), (2, false)]);
        let other = poller(&cq);
        let mine = poll(&cq);
        let theirs = other.join().unwrap();
        assert_eq!(device.join().unwrap(), [Pushed::Quiet; 2]);
        assert!(mine.is_sorted() && theirs.is_sorted());
        let mut all = [mine, theirs, poll(&cq)].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        assert!(cq.is_empty());
    });
}

/// The device may take the place that a poll has freed just now, or find none; either is told to it, and nothing that is in
/// the queue is lost.
#[test]
fn a_full_queue_refuses_once_and_keeps_what_it_has() {
    model(|| {
        let cq = queue(1);
        let device = device(&cq, [(1, false), (2, false), (3, false)]);
        let mut taken = poll(&cq);
        let pushed = device.join().unwrap();
        taken.extend(poll(&cq));
        let accepted = pushed.iter().filter(|&&pushed| pushed == Pushed::Quiet).count();
        assert_eq!(taken, (1..=accepted as u64).collect::<Vec<_>>());
        let mut refused = [Pushed::Lost; 3];
        refused[0] = Pushed::Overflow;
        assert_eq!(pushed[accepted..], refused[..3 - accepted]);
        assert!(cq.is_used_up());
    });
}

/// The device forgets the completions of a queue pair while another thread polls: each is taken or forgotten, those of others
/// are taken in their order, and afterwards nothing of that queue pair is there.
#[test]
fn what_is_forgotten_is_not_taken_and_nothing_else_is_lost() {
    model(|| {
        let cq = queue(3);
        let gone = Qpn::new(2);
        assert_eq!(cq.push(wc(0), false), Pushed::Quiet);
        assert_eq!(poll(&cq), [0], "the ring's end lies between");
        for (wr_id, qpn) in [(1, gone), (2, Qpn::new(1)), (3, gone)] {
            assert_eq!(cq.push(Wc { qpn, ..wc(wr_id) }, false), Pushed::Quiet);
        }
        let poller = poller(&cq);
        let forgotten = cq.forget(gone);
        let after = poll(&cq);
        assert!(after.is_empty() || after == [2], "forgotten, and taken nevertheless");
        let taken = [poller.join().unwrap(), after].concat();
        assert_eq!(taken.iter().filter(|&&wr_id| wr_id == 2).count(), 1);
        assert_eq!(taken.len() as u32 + forgotten, 3);
        assert!(taken.is_sorted() && cq.is_empty());
    });
}

/// Who looks sees the error only together with the completions that came before it.
#[test]
fn a_queue_in_error_is_not_used_up_while_it_holds_completions() {
    model(|| {
        let cq = queue(1);
        let device = device(&cq, [(1, false), (2, false)]);
        assert!(!cq.is_used_up(), "nobody has taken the first");
        assert_eq!(device.join().unwrap(), [Pushed::Quiet, Pushed::Overflow]);
        assert!(!cq.is_used_up());
        assert_eq!(poll(&cq), [1]);
        assert!(cq.is_used_up());
    });
}

/// Asleep without an event, a caller has everything that there is.
#[test]
fn no_wake_up_is_lost_between_arming_and_sleeping() {
    model(|| {
        let cq = queue(4);
        let device = device(&cq, [(1, false), (2, false)]);
        let mut taken = wait(&cq, Arm::Any, 2);
        let _ = device.join().unwrap();
        if events(&cq) == 0 {
            assert_eq!(taken, [1, 2], "asleep for ever");
        }
        taken.extend(poll(&cq));
        assert_eq!(taken, [1, 2]);
    });
}

/// The first completion, which is not solicited, may or may not be there when it looks; the second wakes it.
#[test]
fn no_solicited_wake_up_is_lost() {
    model(|| {
        let cq = queue(4);
        let device = device(&cq, [(1, false), (2, true)]);
        let taken = wait(&cq, Arm::Solicited, 2);
        let pushed = device.join().unwrap();
        assert_eq!(pushed[0], Pushed::Quiet);
        assert!(taken == [1, 2] || events(&cq) == 1, "asleep for ever");
    });
}

/// Another caller may take the completion that was to wake the sleeper: then it has nothing to do, or knows of the error.
#[test]
fn whoever_sleeps_is_told_of_an_overflow_though_another_polls() {
    model(|| {
        let cq = queue(1);
        let device = device(&cq, [(1, false), (2, false)]);
        let poller = poller(&cq);
        cq.arm(Arm::Any);
        let is_asleep = !cq.has_news();
        let [_, second] = device.join().unwrap();
        poller.join().unwrap();
        if is_asleep && second == Pushed::Overflow {
            assert!(events(&cq) > 0, "asleep for ever");
        }
    });
}

/// So that a queue that is destroyed after its last poll leaves no event behind.
#[test]
fn whoever_takes_a_completion_finds_the_event_that_it_raised() {
    model(|| {
        let cq = queue(2);
        cq.arm(Arm::Any);
        let device = device(&cq, [(1, false)]);
        if !poll(&cq).is_empty() {
            assert_eq!(events(&cq), 1);
        }
        assert_eq!(device.join().unwrap(), [Pushed::Notify]);
        assert_eq!(cq.channel().map(|channel| channel.forget(7)), Some(1));
    });
}

/// The control: who polls, then arms, and sleeps without another look. Must fail.
#[test]
#[should_panic(expected = "asleep for ever")]
fn arming_after_the_last_look_loses_a_wake_up() {
    model(|| {
        let cq = queue(2);
        let device = device(&cq, [(1, false)]);
        let taken = poll(&cq);
        cq.arm(Arm::Any);
        let _ = device.join().unwrap();
        assert!(!taken.is_empty() || events(&cq) > 0, "asleep for ever");
    });
}

/// The control: who looks for completions only, on a queue that has overflowed. Must fail.
#[test]
#[should_panic(expected = "asleep for ever")]
fn looking_for_completions_only_misses_an_overflow() {
    model(|| {
        let cq = queue(1);
        let device = device(&cq, [(1, false), (2, false)]);
        let poller = poller(&cq);
        cq.arm(Arm::Any);
        let is_asleep = cq.is_empty();
        let [_, second] = device.join().unwrap();
        poller.join().unwrap();
        if is_asleep && second == Pushed::Overflow {
            assert!(events(&cq) > 0, "asleep for ever");
        }
    });
}
