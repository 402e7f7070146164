//! Devices of several processes: peers that are killed, programs that exit, children of `fork`. Several processes on one address
//! are in `one_address.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]
#![allow(clippy::disallowed_types, reason = "a time limit of whole seconds")]

mod common;

use std::time::Duration;

use common::offer::{hex, meet, offer_memory, unhex};
use common::{ALL, LONG, pattern};
use userdma::{
    AckTimeout, Device, Error, HostError, Inline, RtrAttr, RtsAttr, SendFlags, WcStatus, exchange,
};
use userdma_other::{Other, is_other, say};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The child offers memory and sleeps; the parent uses it, then kills the child in the middle of a WRITE.
#[test]
fn a_killed_peer_ends_work_within_the_retry_limit() {
    const PARENT: &str = "127.0.131.2";
    const OTHER: &str = "127.0.131.3";
    if is_other() {
        offer_memory(OTHER, 1 << 20);
        return;
    }
    let device = Device::open(PARENT).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(64).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    let mut other = Other::start("a_killed_peer_ends_work_within_the_retry_limit", "other");
    let (peer, remote) = meet(&mut other, &qp.endpoint());
    // 17 ms, two resends.
    let rts = RtsAttr { timeout: AckTimeout::new(12).unwrap(), retry_cnt: 2, ..RtsAttr::default() };
    let qp = qp.connect_with(&peer, &RtrAttr::default(), &rts).unwrap();
    let mine = pd.alloc(1 << 20, ALL).unwrap();
    mine.write(0, &pattern(1 << 20, 7)).unwrap();
    qp.post_write(1, &mine.slice(..), remote, SIGNALED).unwrap();
    qp.post_read(2, &mine.slice(..), remote, SIGNALED).unwrap();
    for wc in cq.wait_for(2, LONG).unwrap() {
        assert_eq!(wc.status, WcStatus::Success);
    }
    assert_eq!(mine.to_vec(..).unwrap(), pattern(1 << 20, 7));
    let mut wcs = Vec::new();
    let started = userdma::uptime();
    let mut killed = false;
    for id in 0.. {
        if id >= 10 && !killed {
            other.child.kill().unwrap();
            killed = true;
        }
        match qp.post_write(id, &mine.slice(..), remote, SIGNALED) {
            Ok(()) => wcs.extend(cq.wait_for(1, LONG).unwrap()),
            Err(error) => panic!("{error}"),
        }
        if wcs.last().is_none_or(|wc| wc.status != WcStatus::Success) {
            break;
        }
    }
    assert_eq!(wcs.last().map(|wc| wc.status), Some(WcStatus::RetryExcErr));
    assert!(userdma::uptime() - started < Duration::from_secs(10));
}

/// A program that has its last message and calls `exit` drops nothing; the acknowledgement has waited for a reply until then.
#[test]
fn a_process_that_exits_at_once_has_acknowledged_what_it_received() {
    const TEST: &str = "a_process_that_exits_at_once_has_acknowledged_what_it_received";
    const ADDRESSES: [&str; 2] = ["127.0.135.2", "127.0.135.3"];
    if is_other() {
        receive_and_exit(ADDRESSES[1]);
    }
    let device = Device::open(ADDRESSES[0]).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(4).unwrap();
    for _ in 0..8 {
        let qp = pd.create_qp(&cq, &cq).build().unwrap();
        let mut other = Other::start(TEST, "other");
        let (peer, _) = meet(&mut other, &qp.endpoint());
        let qp = qp.connect(&peer).unwrap();
        qp.post_send(1, Inline(b"the last"), SIGNALED).unwrap();
        assert_eq!(cq.wait_for(1, LONG).unwrap()[0].status, WcStatus::Success);
    }
}

fn receive_and_exit(address: &str) -> ! {
    let device = Device::open(address).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(1).unwrap();
    let mr = pd.alloc(64, ALL).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    qp.post_recv(1, &mr.slice(..)).unwrap();
    say(&hex(&(qp.endpoint(), mr.remote())));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let _qp = qp.connect(&unhex(&line)).unwrap();
    say("connected");
    while cq.poll_one().unwrap().is_none() {}
    std::process::exit(0);
}

#[test]
fn a_child_of_fork_is_told_and_does_no_harm() {
    let (a, b) = common::pair(132);
    let (mine, theirs) = (a.mr(64, 1), b.mr(64, 2));
    a.qp.post_write(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(1);
    // SAFETY: the child calls only what is tested here, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |error: Error| matches!(error, Error::Host(HostError::Forked));
        let told = forked(a.qp.post_send(2, Inline(b"child"), SIGNALED).unwrap_err())
            && forked(a.cq.poll_one().unwrap_err())
            && forked(a.device.alloc_pd().unwrap_err())
            && forked(a.device.poll_event().unwrap_err());
        // Everything is dropped here, too: it must end, and not end the parent's.
        drop((mine, theirs, a, b));
        // SAFETY: ends this process.
        unsafe { libc::_exit(if told { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a number that outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 7);
    a.qp.post_write(3, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    a.done(3);
}

/// A worker that a program forks may live longer than the program.
#[test]
fn a_child_of_fork_does_not_keep_the_port_when_its_parent_has_gone() {
    const TEST: &str = "a_child_of_fork_does_not_keep_the_port_when_its_parent_has_gone";
    const HERE: &str = "127.61.66.2";
    if is_other() {
        let _device = Device::open(HERE).unwrap();
        // SAFETY: the child waits until its input ends, and leaves.
        if unsafe { libc::fork() } == 0 {
            let _ = std::io::stdin().read_line(&mut String::new());
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        say("forked");
        std::process::exit(0);
    }
    let mut other = Other::start_with(TEST, "other", &[("USERDMA_AGENT", "forks")]);
    assert_eq!(other.line(), "forked");
    let lifeline = other.child.stdin.take();
    assert!(other.child.wait().unwrap().success());
    // The kernel closes what was parked a little later.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while let Err(error) = std::net::UdpSocket::bind((HERE, 4791)) {
        assert!(std::time::Instant::now() < end, "the port is still taken: {error}");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(lifeline);
}

#[test]
fn two_processes_meet_over_tcp() {
    const ADDRESSES: [&str; 2] = ["127.0.133.2", "127.0.133.3"];
    let child = is_other();
    let mut other = None;
    let mut tcp = if child {
        std::net::TcpStream::connect((ADDRESSES[0], PORT)).unwrap()
    } else {
        let listener = std::net::TcpListener::bind((ADDRESSES[0], PORT)).unwrap();
        other = Some(Other::start("two_processes_meet_over_tcp", "other"));
        listener.accept().unwrap().0
    };
    let device = Device::open(ADDRESSES[usize::from(child)]).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(64).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    let mr = pd.alloc(64, ALL).unwrap();
    let (peer, remote) = exchange(&mut tcp, &(qp.endpoint(), mr.remote())).unwrap();
    let qp = qp.connect(&peer).unwrap();
    qp.post_recv(0, &mr.slice(32..)).unwrap();
    exchange(&mut tcp, &mr.remote()).unwrap();
    qp.post_send(1, Inline(&[u8::from(child); 32]), SIGNALED).unwrap();
    for wc in cq.wait_for(2, LONG).unwrap() {
        assert_eq!(wc.status, WcStatus::Success);
    }
    assert_eq!(mr.to_vec(32..).unwrap(), [u8::from(!child); 32]);
    // Both sides may go once both are here.
    exchange(&mut tcp, &remote).unwrap();
    drop(other);
}

const PORT: u16 = 18_599;
