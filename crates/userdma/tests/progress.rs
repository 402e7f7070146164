//! The device works while the program does something else, and rests when there is nothing to do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{LONG, Options, pair, pair_with, pattern};
use userdma::{AckTimeout, Arm, Device, Inline, RtsAttr, SendFlags, WcStatus};
use userdma_other::is_done_apart;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn memory_is_reached_while_its_owner_sleeps() {
    let (a, b) = pair(61);
    let (mine, theirs) = (a.mr(1 << 20, 1), b.mr(1 << 20, 2));
    let remote = theirs.remote();
    let awake = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The only thread that knows `b` sleeps: nobody posts, polls or waits there.
        let owner = scope.spawn(|| {
            std::thread::park_timeout(Duration::from_secs(30));
            awake.store(true, Ordering::SeqCst);
        });
        for round in 0..20u64 {
            a.qp.post_write(round, &mine.slice(..), remote, SIGNALED).unwrap();
            a.done(round);
            a.qp.post_read(round, &mine.slice(..), remote, SIGNALED).unwrap();
            a.done(round);
        }
        assert!(!awake.load(Ordering::SeqCst), "its owner was awake");
        owner.thread().unpark();
    });
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(1 << 20, 1));
}

#[test]
fn a_send_larger_than_what_a_post_sends_leaves_without_another_call() {
    let (a, b) = pair(62);
    let (mine, theirs) = (a.mr(8 << 20, 1), b.mr(8 << 20, 2));
    b.qp.post_recv(1, &theirs.slice(..)).unwrap();
    a.qp.post_send(2, &mine.slice(..), SIGNALED).unwrap();
    // Only `b` calls anything now.
    b.done(1);
    assert_eq!(theirs.to_vec(..).unwrap(), pattern(8 << 20, 1));
    a.done(2);
}

#[test]
fn a_peer_that_is_gone_ends_work_within_the_retry_limit() {
    // 4.2 ms, three resends.
    let rts = RtsAttr { timeout: AckTimeout::new(10).unwrap(), retry_cnt: 3, ..RtsAttr::default() };
    let (a, b) = pair_with(63, &Options { rts, ..Options::default() });
    let mine = a.mr(4096, 1);
    let remote = b.mr(4096, 2).remote();
    drop(b);
    let started = userdma::uptime();
    a.qp.post_write(1, &mine.slice(..), remote, SIGNALED).unwrap();
    a.qp.post_write(2, &mine.slice(..), remote, SIGNALED).unwrap();
    assert_eq!(a.next().status, WcStatus::RetryExcErr);
    assert_eq!(a.next().status, WcStatus::WrFlushErr);
    assert!(userdma::uptime() - started < Duration::from_secs(5));
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let (a, b) = pair(64);
    let to = b.mr(64, 0);
    a.qp.post_send(1, Inline(b"early"), SIGNALED).unwrap();
    assert_eq!(a.cq.wait_for(1, Some(Duration::from_millis(20))).unwrap(), [], "nothing is received yet");
    b.qp.post_recv(2, &to.slice(..)).unwrap();
    assert_eq!(b.done(2).byte_len, 5);
    a.done(1);
    assert!(b.device.stats().unwrap().sent_rnr_err > 0);
}

#[test]
fn a_channels_descriptor_is_readable_when_there_is_an_event() {
    let a = Device::open("127.0.65.2").unwrap();
    let b = Device::open("127.0.65.3").unwrap();
    let (a, b) = common::connect(&a, &b, &Options::default());
    let channel = b.device.create_comp_channel().unwrap();
    let cq = b.device.create_cq_on(16, &channel).unwrap();
    let qp = b.pd.create_qp(&cq, &cq).build().unwrap();
    let a_qp = a.pd.create_qp(&a.cq, &a.cq).build().unwrap();
    let (to_a, to_b) = (a_qp.endpoint(), qp.endpoint());
    let (qp, a_qp) = (qp.connect(&to_a).unwrap(), a_qp.connect(&to_b).unwrap());
    for round in 0..100 {
        qp.post_recv(round, ()).unwrap();
        cq.req_notify(Arm::Any).unwrap();
        assert_eq!(cq.poll_one().unwrap(), None);
        assert!(!is_readable(&channel, 0));
        a_qp.post_send(round, (), SIGNALED).unwrap();
        assert!(is_readable(&channel, 20_000), "round {round}");
        let event = channel.try_event().unwrap().unwrap();
        assert!(event.is_of(&cq));
        assert_eq!(cq.poll_one().unwrap().map(|wc| (wc.wr_id, wc.status)), Some((round, WcStatus::Success)));
        a.done(round);
    }
    assert!(matches!(cq.wait(&mut [], None), Err(userdma::Error::SharedChannel)));
}

#[test]
fn only_solicited_completions_notify_who_asked_for_them() {
    let (a, b) = pair(66);
    let channel = b.device.create_comp_channel().unwrap();
    let cq = b.device.create_cq_on(16, &channel).unwrap();
    let qp = b.pd.create_qp(&b.cq, &cq).build().unwrap();
    let a_qp = a.pd.create_qp(&a.cq, &a.cq).build().unwrap();
    let (to_a, to_b) = (a_qp.endpoint(), qp.endpoint());
    let (qp, a_qp) = (qp.connect(&to_a).unwrap(), a_qp.connect(&to_b).unwrap());
    for id in 0..2 {
        qp.post_recv(id, ()).unwrap();
    }
    cq.req_notify(Arm::Solicited).unwrap();
    a_qp.post_send(0, (), SIGNALED).unwrap();
    a.done(0);
    assert_eq!(channel.try_event().unwrap(), None);
    a_qp.post_send(1, (), SIGNALED | SendFlags::SOLICITED).unwrap();
    assert!(channel.get_event(LONG).unwrap().unwrap().is_of(&cq));
    let mut wcs = [cq.poll_one().unwrap().unwrap(); 2];
    wcs[1] = cq.poll_one().unwrap().unwrap();
    assert_eq!(wcs.map(|wc| wc.wr_id), [0, 1]);
}

#[test]
fn waiting_ends_with_its_time() {
    let (a, _b) = pair(67);
    let started = userdma::uptime();
    assert_eq!(a.cq.wait_for(1, Some(Duration::from_millis(30))).unwrap(), []);
    let took = userdma::uptime() - started;
    assert!(took >= Duration::from_millis(30), "{took:?}");
    assert_eq!(a.device.wait_event(Some(Duration::from_millis(5))).unwrap(), None);
}

#[test]
fn an_idle_device_uses_no_processor() {
    // In a process of its own, where no other test runs, with an agent of its own, which serves no others meanwhile.
    if is_done_apart("an_idle_device_uses_no_processor", &[("USERDMA_AGENT", "alone")]) {
        return;
    }
    let (a, b) = pair(68);
    let (mine, theirs) = (a.mr(4096, 1), b.mr(4096, 2));
    for round in 0..100 {
        a.qp.post_write(round, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
        a.done(round);
    }
    let waiter = std::thread::spawn(move || {
        assert_eq!(b.cq.wait_for(1, Some(Duration::from_millis(1200))).unwrap(), []);
        b
    });
    std::thread::sleep(Duration::from_millis(200));
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(5), "{used:?} in a second of rest");
    waiter.join().unwrap();
    drop(a);
}

#[test]
fn threads_may_share_a_queue_pair_and_a_completion_queue() {
    const THREADS: u64 = 4;
    const EACH: u64 = 2000;
    let (a, b) = pair(69);
    let theirs = b.mr(8, 0);
    theirs.store(0, 0).unwrap();
    let done = std::sync::atomic::AtomicU64::new(0);
    let sum = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, done, sum, remote) = (&a, &done, &sum, theirs.remote());
            scope.spawn(move || {
                let result = a.mr(8, 0);
                let mut posted = 0;
                while done.load(Ordering::SeqCst) < THREADS * EACH {
                    let id = thread << 32 | posted;
                    if posted < EACH
                        && a.qp.post_fetch_add(id, &result.slice(..), remote, 1, SIGNALED).is_ok()
                    {
                        posted += 1;
                    }
                    if let Some(wc) = a.cq.poll_one().unwrap() {
                        assert_eq!(wc.status, WcStatus::Success);
                        sum.fetch_add((wc.wr_id & 0xffff_ffff) + 1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(theirs.load(0).unwrap(), THREADS * EACH);
    assert_eq!(sum.load(Ordering::SeqCst), THREADS * EACH * (EACH + 1) / 2, "each number came back once");
}

#[test]
fn several_threads_may_wait_for_one_completion_queue() {
    const MESSAGES: u64 = 3000;
    let (a, b) = pair(70);
    let seen = std::sync::atomic::AtomicU64::new(0);
    for id in 0..100 {
        b.qp.post_recv(id, ()).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while seen.load(Ordering::SeqCst) < MESSAGES {
                    let wcs = b.cq.wait_for(1, Some(Duration::from_millis(50))).unwrap();
                    for wc in wcs {
                        assert_eq!(wc.status, WcStatus::Success);
                        seen.fetch_add(1, Ordering::SeqCst);
                        b.qp.post_recv(wc.wr_id, ()).unwrap();
                    }
                }
            });
        }
        for id in 0..MESSAGES {
            a.qp.post_send(id, (), SIGNALED).unwrap();
            a.done(id);
        }
    });
    assert_eq!(seen.load(Ordering::SeqCst), MESSAGES);
}

#[test]
fn lossy_networks_lose_nothing() {
    let faults = "loss=0.02,dup=0.02,reorder=0.02,corrupt=0.01,seed=5";
    // Long enough that a busy machine does not end the connection.
    let rts = RtsAttr { timeout: AckTimeout::new(13).unwrap(), ..RtsAttr::default() };
    let (a, b) = pair_with(71, &Options { faults, rts, ..Options::default() });
    let (mine, theirs) = (a.mr(200_000, 1), b.mr(200_000, 2));
    for round in 0..20u64 {
        theirs.write(0, &vec![0; 200_000]).unwrap();
        b.qp.post_recv(round, &theirs.slice(..100_000)).unwrap();
        a.qp.post_write(1, &mine.slice(100_000..), theirs.remote().at(100_000), SendFlags::empty()).unwrap();
        a.qp.post_send(2, &mine.slice(..100_000), SIGNALED).unwrap();
        b.done(round);
        a.done(2);
        assert_eq!(theirs.to_vec(..).unwrap(), pattern(200_000, 1), "round {round}");
    }
    let stats = a.device.fault_stats().unwrap();
    assert!(stats.lost > 0 && stats.duplicated > 0 && stats.corrupted > 0, "{stats:?}");
}

fn is_readable(fd: &impl AsFd, timeout_ms: i32) -> bool {
    let mut fds = [libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    // SAFETY: `fds` is one entry that outlives the call.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, timeout_ms) > 0 }
}

fn processor_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a time that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
