//! A program may end at any time and in any way: in the middle of traffic, on several threads at once, in a panic, in a child of
//! `fork`, with devices that it never closes. It ends soon, and as it was told to.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{Side, pair};
use userdma::{Inline, Mr, SendFlags, Wc, WcOpcode, WcStatus};

/// Two ends that send to each other for ever, each on two threads.
fn start_traffic(net: u8) -> [Arc<(Side, Mr, Mr)>; 2] {
    let (a, b) = pair(net);
    let memory = |side: &Side| (side.mr(64 << 10, 1), side.mr(64 << 10, 2));
    let (of_a, of_b) = (memory(&a), memory(&b));
    let to = [of_b.1.remote(), of_a.1.remote()];
    let ends = [(a, of_a.0, of_a.1), (b, of_b.0, of_b.1)].map(Arc::new);
    for (end, to) in ends.iter().zip(to) {
        let (poster, poller) = (Arc::clone(end), Arc::clone(end));
        thread::spawn(move || {
            loop {
                let (side, from, _) = &*poster;
                let _ = side.qp.post_write(1, &from.slice(..), to, SendFlags::SIGNALED);
                let _ = side.qp.post_write(2, Inline(b"few"), to, SendFlags::SIGNALED);
            }
        });
        thread::spawn(move || {
            let nothing = Wc::new(0, WcStatus::Success, WcOpcode::Send, poller.0.qp.qpn());
            while poller.0.cq.poll(&mut [nothing; 16]).is_ok() {}
        });
    }
    thread::sleep(Duration::from_millis(20));
    ends
}

/// How a child ends, by name.
fn end(how: &str, net: u8) {
    if how == "signal" {
        return exit_in_handler(net);
    }
    let ends = start_traffic(net);
    match how {
        "exit" => std::process::exit(7),
        "threads" => {
            (0..6).for_each(|_| {
                thread::spawn(|| std::process::exit(7));
            });
            thread::sleep(Duration::from_secs(60));
        }
        "hook" => {
            std::panic::set_hook(Box::new(|_| std::process::exit(7)));
            let _ = thread::spawn(|| panic!("the hook ends the program")).join();
        }
        "leak" => {
            std::mem::forget(ends);
            std::process::exit(7);
        }
        "fork" => fork_and_exit(),
        _ => unreachable!("{how}"),
    }
}

/// The child of `fork` exits first; the parent goes on and then does.
fn fork_and_exit() {
    for _ in 0..20 {
        // SAFETY: the child does nothing but exit, and is this process's to wait for.
        let status = unsafe {
            let mut status = 0;
            match libc::fork() {
                0 => libc::exit(3),
                child => libc::waitpid(child, &raw mut status, 0),
            };
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 3);
    }
    std::process::exit(7);
}

/// A handler that interrupts a thread in the middle of a call exits, as many programs do.
fn exit_in_handler(net: u8) {
    extern "C" fn handler(_: i32) {
        // SAFETY: what the program risks.
        unsafe { libc::exit(7) }
    }
    let handler: extern "C" fn(i32) = handler;
    // SAFETY: a handler of the right type, and a signal to this thread.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as usize);
        let me = libc::pthread_self() as usize;
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(25));
            libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1);
        });
    }
    let (a, b) = pair(net);
    let memory = b.mr(64, 1);
    let nothing = Wc::new(0, WcStatus::Success, WcOpcode::Send, a.qp.qpn());
    loop {
        while a.qp.post_write(3, Inline(b"few"), memory.remote(), SendFlags::SIGNALED).is_ok() {}
        a.cq.poll(&mut [nothing; 16]).unwrap();
    }
}

fn status_of(test: &str, how: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, how)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait().unwrap()
}

fn check(test: &str, how: &str, net: u8, times: u32) {
    if std::env::var_os(CHILD).is_some() {
        return end(how, net);
    }
    for n in 0..times {
        let status = status_of(test, how);
        assert_eq!(status.code(), Some(7), "{how}, time {n}: {status}");
    }
}

macro_rules! ends {
    ($($test:ident: $how:literal on $net:literal, $times:literal times;)*) => {
        $(#[test]
        fn $test() {
            check(stringify!($test), $how, $net, $times);
        })*
    };
}

ends! {
    one_thread_exits: "exit" on 140, 10 times;
    several_threads_exit: "threads" on 141, 10 times;
    a_panic_hook_exits: "hook" on 142, 10 times;
    devices_that_leak_do_no_harm: "leak" on 143, 10 times;
    children_of_fork_exit: "fork" on 144, 3 times;
    a_signal_handler_exits: "signal" on 145, 40 times;
}

/// Tells the test program that it is the child, and how to end.
const CHILD: &str = "USERDMA_TEST_ENDS";
